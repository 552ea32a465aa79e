/* SPDX-License-Identifier: MIT */
/* thread.c - loops over threads, by OpenMP where the compiler has it. */
#ifdef __linux__
#define _GNU_SOURCE /* sched_getaffinity */
#endif
#include "base/thread.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#define THREADS_MAX 1024

static int clamp(int64_t x, int64_t low, int64_t high)
{
    return (int)(x < low ? low : x > high ? high : x);
}

#ifdef _OPENMP

/* The runtime read OMP_NUM_THREADS and the affinity mask when it started. Asking the system now
 * would be wrong: OMP_PROC_BIND has since pinned this thread to a single core. */
static int64_t threads_wanted(void)
{
    return omp_get_max_threads();
}

#else

static int64_t threads_wanted(void)
{
    const char *omp = getenv("OMP_NUM_THREADS");
    long asked = omp ? strtol(omp, NULL, 10) : 0;
    if (asked > 0)
        return asked;
#ifdef CPU_COUNT
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
#endif
    return sysconf(_SC_NPROCESSORS_ONLN);
}

#endif

int wf_threads_available(void)
{
    return clamp(threads_wanted(), 1, THREADS_MAX);
}

void wf_parallel_for(int threads, int64_t n, int64_t grain, wf_range_fn *fn, void *arg)
{
    if (n <= 0)
        return;
    int parts = clamp(n / (grain > 0 ? grain : 1), 1, threads > 1 ? threads : 1);
    if (parts == 1) {
        fn(arg, 0, n, 0);
        return;
    }

    /* Ranges of `share` items, the first `extra` of them one longer. The loop is over ranges rather
     * than threads, so that it is right however many threads the runtime grants. */
    int64_t share = n / parts, extra = n % parts;
#ifdef _OPENMP
#pragma omp parallel for num_threads(parts) schedule(static, 1)
#endif
    for (int i = 0; i < parts; i++) {
        int64_t begin = i * share + (i < extra ? i : extra);
        fn(arg, begin, begin + share + (i < extra), i);
    }
}
