/* SPDX-License-Identifier: MIT */
/* cores.c - see cores.h. */
#ifdef __linux__
#define _GNU_SOURCE /* sched_getaffinity, RUSAGE_THREAD, syscall */
#endif
#include "base/cores.h"

#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined __linux__ && defined __x86_64__
#include <sys/syscall.h>
#endif

#define PATH_BYTES 4096

int wf_cores_list(int cpu[WF_CORES_MAX])
{
    int n = 0;
#ifdef CPU_COUNT
    /* cpu_set_t has room for CPU_SETSIZE (1024) processors. With more, the call fails and all
     * processors that are online are used. */
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        for (int i = 0; i < CPU_SETSIZE && n < WF_CORES_MAX; i++)
            if (CPU_ISSET(i, &set))
                cpu[n++] = i;
#endif
    if (n == 0) {
        long all = sysconf(_SC_NPROCESSORS_ONLN);
        for (n = 0; n < all && n < WF_CORES_MAX; n++)
            cpu[n] = n;
    }
    if (n == 0)
        cpu[n++] = 0;
    return n;
}

int64_t wf_cores_preemptions(void)
{
#ifdef RUSAGE_THREAD
    struct rusage usage;
    if (getrusage(RUSAGE_THREAD, &usage) == 0)
        return usage.ru_nivcsw;
#endif
    return -1;
}

bool wf_cores_pin(int cpu)
{
#ifdef CPU_COUNT
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return sched_setaffinity(0, sizeof set, &set) == 0;
#else
    (void)cpu;
    return false;
#endif
}

static bool first_line(const char *path, char *line, int bytes)
{
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool ok = fgets(line, bytes, file) != NULL;
    fclose(file);
    return ok;
}

/* Siblings share one sibling list ("0,64", "2-3"), so its first number identifies the core. */
static int core_of(const char *root, int cpu)
{
    char path[PATH_BYTES], line[64];
    int n = snprintf(path, sizeof path,
                     "%s/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", root, cpu);
    if (n < 0 || n >= PATH_BYTES || !first_line(path, line, sizeof line))
        return cpu;
    char *end;
    long first = strtol(line, &end, 10);
    /* The list is ascending and contains cpu, so its first number cannot be larger; otherwise the
     * file is malformed, and the processor counts as a core of its own. */
    return end > line && first >= 0 && first <= cpu ? (int)first : cpu;
}

int wf_cores_order(const char *root, int *cpu, int n)
{
    int core[WF_CORES_MAX], second[WF_CORES_MAX], cores = 0, seconds = 0;
    for (int i = 0; i < n; i++) {
        int me = core_of(root, cpu[i]), j = 0;
        while (j < cores && core[j] != me)
            j++;
        if (j < cores) {
            second[seconds++] = cpu[i];
        } else {
            core[cores] = me;
            cpu[cores++] = cpu[i]; /* cores <= i: overwrites only entries already read */
        }
    }
    memcpy(cpu + cores, second, (size_t)seconds * sizeof *cpu);
    return cores;
}

/* Returns quota / period (both in us), rounded up; INT_MAX when either is not positive. */
static int quota_share(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return INT_MAX;
    long long share = quota / period + (quota % period > 0);
    return share < INT_MAX ? (int)share : INT_MAX;
}

/* cgroup 2: one file, "200000 100000" or "max 100000". cgroup 1: two files, -1 means no quota. */
static int quota_of(const char *folder)
{
    char path[PATH_BYTES + 32], line[64];
    long long quota, period;
    snprintf(path, sizeof path, "%s/cpu.max", folder);
    if (first_line(path, line, sizeof line)) {
        char *end;
        quota = strtoll(line, &end, 10);
        return end > line ? quota_share(quota, strtoll(end, NULL, 10)) : INT_MAX;
    }
    snprintf(path, sizeof path, "%s/cpu.cfs_quota_us", folder);
    if (!first_line(path, line, sizeof line))
        return INT_MAX;
    quota = strtoll(line, NULL, 10);
    snprintf(path, sizeof path, "%s/cpu.cfs_period_us", folder);
    period = first_line(path, line, sizeof line) ? strtoll(line, NULL, 10) : 0;
    return quota_share(quota, period);
}

/* Returns the smallest quota from the group up to the root. In a container the group may be a path
 * of the host that does not exist here; the root is then the container's own group. */
static int quota_upwards(const char *root, const char *mount, const char *group)
{
    char folder[PATH_BYTES];
    int head = snprintf(folder, sizeof folder, "%s%s", root, mount);
    int n = snprintf(folder, sizeof folder, "%s%s%s", root, mount, group), least = INT_MAX;
    if (n < 0 || n >= PATH_BYTES)
        return INT_MAX;
    for (;;) {
        int here = quota_of(folder);
        least = here < least ? here : least;
        char *slash = strrchr(folder, '/');
        if (!slash || slash - folder < head)
            return least;
        *slash = '\0';
    }
}

/* Returns whether the comma-separated list contains "cpu" itself, not only "cpuset" or
 * "cpuacct". */
static bool lists_cpu(const char *controllers)
{
    for (const char *at = controllers; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == '\0'))
            return true;
    return false;
}

int wf_cores_quota(const char *root)
{
    char line[PATH_BYTES];
    int least = INT_MAX;
    snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "r");
    while (file && fgets(line, sizeof line, file)) { /* "0::/group" or "7:cpu,cpuacct:/group" */
        line[strcspn(line, "\n")] = '\0';
        char *controllers = strchr(line, ':'), *group = NULL;
        if (controllers)
            group = strchr(++controllers, ':');
        if (!group)
            continue;
        *group++ = '\0';
        int here = INT_MAX;
        /* An empty controller list is cgroup 2. */
        if (!*controllers)
            here = quota_upwards(root, "/sys/fs/cgroup", group);
        else if (lists_cpu(controllers))
            here = quota_upwards(root, "/sys/fs/cgroup/cpu", group);
        least = here < least ? here : least;
    }
    if (file)
        fclose(file);
    return least;
}

bool wf_cores_allow_tiles(void)
{
#if defined __linux__ && defined __x86_64__
    enum { REQUEST_STATE = 0x1023, TILE_DATA = 18 }; /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    return syscall(SYS_arch_prctl, REQUEST_STATE, TILE_DATA) == 0;
#else
    return false;
#endif
}
