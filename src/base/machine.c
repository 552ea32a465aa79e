/* SPDX-License-Identifier: MIT */
/* machine.c - see machine.h. Reads /proc and /sys of Linux; on other systems most fields are
 * unknown. */
#include "base/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/text.h"

/* Further cores are not counted. */
#define MOST_CORES 4096

/* ---- /proc/cpuinfo: one paragraph per hardware thread ---- */

/* Returns the value after the colon of a line that begins with `name`; NULL: another line. */
static char *value_of(char *line, const char *name)
{
    char *colon = strchr(line, ':');
    if (strncmp(line, name, strlen(name)) != 0 || !colon)
        return NULL;
    line[strcspn(line, "\n")] = '\0';
    return colon + 1 + strspn(colon + 1, " ");
}

/* Distinct pairs of package and core: the physical cores. */
typedef struct {
    long pair[MOST_CORES][2];
    int count;
} core_set;

static void add_core(core_set *set, long package, long core)
{
    for (int i = 0; i < set->count; i++)
        if (set->pair[i][0] == package && set->pair[i][1] == core)
            return;
    if (set->count < MOST_CORES) {
        set->pair[set->count][0] = package;
        set->pair[set->count++][1] = core;
    }
}

static void read_cpuinfo(wf_machine *m)
{
    /* 64 KiB, too much for a small stack. Static, so only one thread at a time may call
     * wf_machine_get. */
    static core_set set;
    char line[512], *value;
    long package = 0;
    FILE *f = fopen("/proc/cpuinfo", "r");
    set.count = 0;
    while (f && fgets(line, sizeof line, f)) {
        if ((value = value_of(line, "model name")) && !m->cpu[0]) {
            size_t len = 0;
            wf_text_append(m->cpu, sizeof m->cpu, &len, "%s", value);
        } else if ((value = value_of(line, "physical id"))) {
            package = strtol(value, NULL, 10);
        } else if ((value = value_of(line, "core id"))) {
            add_core(&set, package, strtol(value, NULL, 10));
        }
    }
    if (f)
        fclose(f);
    m->cores = set.count;
}

/* ---- /sys: the caches of processor 0 ---- */

static void read_line(int index, const char *file, char *line, int bytes)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, file);
    FILE *f = fopen(path, "r");
    line[0] = '\0';
    if (f && !fgets(line, bytes, f))
        line[0] = '\0';
    if (f)
        fclose(f);
}

/* Counts the bits of a processor mask such as "00000000,0000000f". */
static int count_bits(const char *map)
{
    int n = 0;
    for (; *map; map++) {
        const char digit[2] = {*map, '\0'};
        for (long x = strtol(digit, NULL, 16); x; x >>= 1)
            n += x & 1;
    }
    return n;
}

/* Returns the bytes of the last cache level: one slice's size times the number of slices. */
static uint64_t last_cache(int threads)
{
    char line[1024];
    /* Indices are in order of level, and x86 has four (L1 data, L1 code, L2, L3): search from above
     * for the last one that exists. */
    for (int i = 8; i >= 0; i--) {
        read_line(i, "size", line, sizeof line);
        uint64_t bytes = strtoull(line, NULL, 10) * 1024; /* "32768K" */
        if (bytes == 0)
            continue;
        read_line(i, "shared_cpu_map", line, sizeof line);
        int sharing = count_bits(line);
        return bytes * (uint64_t)(sharing > 0 ? (threads + sharing - 1) / sharing : 1);
    }
    return 0;
}

void wf_machine_get(wf_machine *out)
{
    struct utsname name;
    size_t len = 0;
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    long threads = sysconf(_SC_NPROCESSORS_ONLN);
    *out = (wf_machine){.threads = threads > 0 ? (int)threads : 1};
    read_cpuinfo(out);
    if (out->cores == 0)
        out->cores = out->threads;
    if (!out->cpu[0] && uname(&name) == 0)
        wf_text_append(out->cpu, sizeof out->cpu, &len, "%s", name.machine);
    if (pages > 0 && page > 0)
        out->memory = (uint64_t)pages * (uint64_t)page;
    out->cache = last_cache(out->threads);
}

uint64_t wf_machine_peak_resident(void)
{
    struct rusage usage;
    if (getrusage(RUSAGE_SELF, &usage) != 0 || usage.ru_maxrss <= 0)
        return 0;
#ifdef __APPLE__
    return (uint64_t)usage.ru_maxrss;
#else
    return (uint64_t)usage.ru_maxrss * 1024;
#endif
}

/* Reads the number after `word` at the start of a line ("MemAvailable:"); "": the first number. */
static bool read_number(const char *path, const char *word, uint64_t *out)
{
    char line[256];
    bool found = false;
    FILE *f = fopen(path, "r");
    while (f && !found && fgets(line, sizeof line, f)) {
        char *end;
        size_t length = strlen(word);
        if (strncmp(line, word, length) != 0)
            continue;
        *out = strtoull(line + length, &end, 10);
        found = end != line + length;
    }
    if (f)
        fclose(f);
    return found;
}

uint64_t wf_machine_available(void)
{
    uint64_t free_kb, limit, used;
    if (!read_number("/proc/meminfo", "MemAvailable:", &free_kb))
        return 0;
    uint64_t available = free_kb * 1024;
    /* A container sees its own cgroup as the root. Count only anonymous memory: the page cache is
     * evicted first. */
    if (read_number("/sys/fs/cgroup/memory.max", "", &limit) &&
        read_number("/sys/fs/cgroup/memory.stat", "anon ", &used)) {
        uint64_t left = limit > used ? limit - used : 0;
        available = left < available ? left : available;
    }
    return available;
}
