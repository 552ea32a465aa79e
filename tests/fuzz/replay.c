/* SPDX-License-Identifier: MIT */
/*
 * replay.c - runs a fuzz target without a fuzzer, on its corpus and on damaged copies of its files.
 *
 * usage: replay_NAME FOLDER ...     all files, each with some damaged copies
 *        replay_NAME FILE [COPY]    one file, or its damaged copy of this number
 *
 * A copy depends only on the file and its number. A child does the work, so that the parent can
 * report the file, the copy and how to reproduce it when the child crashes.
 */
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuzz.h"

#define COPIES 48
#define PATH_BYTES 512

/* The child's position, in shared memory. */
static struct place {
    char path[PATH_BYTES];
    int copy;
    int files;
} * place;

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *seed >> 33;
}

/* Changes a byte, a bit or a number, removes or duplicates a piece, or truncates: 1 to 4 times.
 * data has room for FUZZ_MOST bytes. Returns the new size. */
static size_t damage(uint8_t *data, size_t n, uint64_t seed)
{
    static const uint8_t edges[] = {0,   1,   0x7F, 0x80, 0xFF, '"', '{',
                                    '}', '[', ']',  '%',  '0',  '-', ' '};
    for (uint64_t i = 0, times = 1 + next_random(&seed) % 4; i < times && n > 0; i++) {
        size_t at = next_random(&seed) % n, length = 1 + next_random(&seed) % 16;
        length = length < n - at ? length : n - at;
        switch (next_random(&seed) % 6) {
        case 0: data[at] = edges[next_random(&seed) % sizeof edges]; break;
        case 1: data[at] ^= (uint8_t)(1u << next_random(&seed) % 8); break;
        case 2:
            memset(data + at, next_random(&seed) % 2 ? 0xFF : 0, length < 8 ? length : 8);
            break;
        case 3:
            memmove(data + at, data + at + length, n - at - length);
            n -= length;
            break;
        case 4:
            if (n + length > FUZZ_MOST)
                break;
            memmove(data + at + length, data + at, n - at);
            n += length;
            break;
        default: n = next_random(&seed) % 4 ? n : at; break;
        }
    }
    return n;
}

/* Runs from a block of exactly this size, so that AddressSanitizer sees a read past the end. */
static void run_exactly(const uint8_t *data, size_t n)
{
    uint8_t *exact = malloc(n ? n : 1);
    fuzz_check(exact != NULL);
    memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
}

/* Copy 0 is the undamaged file. */
static void run_file(const char *path, int from, int to)
{
    static uint8_t data[FUZZ_MOST], copy[FUZZ_MOST];
    FILE *f = fopen(path, "rb");
    if (!f) {
        fprintf(stderr, "cannot open %s\n", path);
        exit(1);
    }
    size_t n = fread(data, 1, sizeof data, f);
    fclose(f);
    snprintf(place->path, sizeof place->path, "%s", path);
    place->files++;
    for (int i = from; i <= to; i++) {
        place->copy = i;
        memcpy(copy, data, n);
        run_exactly(copy, i ? damage(copy, n, (uint64_t)i * 7919 + n) : n);
    }
}

static int is_file(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static void run_folder(const char *folder)
{
    struct dirent **entries;
    int n = scandir(folder, &entries, is_file, alphasort);
    for (int i = 0; i < n; i++) {
        char path[PATH_BYTES];
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        run_file(path, 0, COPIES);
        free(entries[i]);
    }
    if (n <= 0) {
        fprintf(stderr, "%s has no files\n", folder);
        exit(1);
    }
    free(entries);
}

static void run_child(int argc, char **argv)
{
    struct stat info;
    int copy = argc > 2 ? atoi(argv[2]) : 0;
    if (stat(argv[1], &info) != 0 || !S_ISDIR(info.st_mode))
        run_file(argv[1], copy, copy);
    else
        for (int i = 1; i < argc; i++)
            run_folder(argv[i]);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: %s FOLDER ... | FILE [COPY]\n", argv[0]);
        return 2;
    }
    int zero = open("/dev/zero", O_RDWR);
    place = mmap(NULL, sizeof *place, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
    fuzz_check(place != MAP_FAILED);
    pid_t child = fork();
    if (child == 0) {
        run_child(argc, argv);
        return 0;
    }
    int status = 0;
    fuzz_check(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0) {
        printf("failed on %s, copy %d: %s %s %d\n", place->path, place->copy, argv[0], place->path,
               place->copy);
        return 1;
    }
    printf("%d files, %d inputs\n", place->files, place->files * (COPIES + 1));
    return 0;
}
