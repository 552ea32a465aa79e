/* SPDX-License-Identifier: MIT */
/* thread.h - splitting a loop over threads. Without OpenMP the same ranges run one by one. */
#ifndef WF_BASE_THREAD_H
#define WF_BASE_THREAD_H

#include <stdint.h>

/* How many threads are worth starting: the cores this process may run on, unless OMP_NUM_THREADS
 * says otherwise. At least 1. */
int wf_threads_available(void);

/* Works on items [begin, end). No two calls running at the same time have the same thread index, so
 * it may pick a scratch buffer. */
typedef void wf_range_fn(void *arg, int64_t begin, int64_t end, int thread);

/* Covers [0, n) with contiguous ranges, at most `threads` of them and, unless n itself is smaller,
 * none shorter than grain; range i is called with thread index i < threads. The split depends on
 * the arguments alone, never on how many threads the system granted. A single range is called
 * directly, without waking any thread; n <= 0 calls nothing. Allocates nothing. */
void wf_parallel_for(int threads, int64_t n, int64_t grain, wf_range_fn *fn, void *arg);

#endif
