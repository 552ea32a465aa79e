/* SPDX-License-Identifier: MIT */
/* thread.h - splitting a loop over threads, which are started when first needed and then kept. */
#ifndef WF_BASE_THREAD_H
#define WF_BASE_THREAD_H

#include <stdint.h>

/* Into how many ranges a loop is worth splitting: the cores this process may run on (not counting
 * a core's second hardware thread, and no more than a container's quota), unless the environment
 * variable WEFT_THREADS has a number. 1 to 1024. */
int wf_threads_available(void);

/* Works on items [begin, end). No two calls running at the same time have the same thread index, so
 * it may pick a scratch buffer. */
typedef void wf_range_fn(void *arg, int64_t begin, int64_t end, int thread);

/* Covers [0, n) with contiguous ranges, at most `threads` of them and, unless n itself is smaller,
 * none shorter than grain; range i is called with thread index i < threads. The split depends on
 * the arguments alone, never on how many threads the system granted: one thread may run several
 * ranges, one after the other. Range 0 runs in the calling thread. A single range is called directly,
 * without waking any thread; n <= 0 calls nothing. Allocates nothing.
 *
 * May be called from several threads at once. Inside a range of another loop all ranges run in the
 * calling thread. After fork() the child starts threads of its own; it may not go on with a loop in
 * the midst of which it was forked. With WEFT_PIN=1 in the environment thread i stays on the i-th core
 * of the affinity mask; the calling threads are left alone. */
void wf_parallel_for(int threads, int64_t n, int64_t grain, wf_range_fn *fn, void *arg);

/* The same for loops in which waiting for the slowest thread would cost: a core may be slower than others,
 * or taken away for a while. Ranges are cut with `piece` as their grain, into as many as threads can run, but worked on by `piece`
 * items at a time, from the first on; and who is done takes pieces from the ends of others' ranges. fn is
 * called any number of times with a thread index, never twice at the same time; calls may be longer than
 * a piece where there is nobody to share with, and shorter at the end of a range. Which thread works on
 * an item is left to chance: results may not depend on it, nor on where calls begin and end. A piece
 * should be worth 5 us or more, for taking one costs a miss of the cache. */
void wf_parallel_share(int threads, int64_t n, int64_t piece, wf_range_fn *fn, void *arg);

#endif
