/* SPDX-License-Identifier: MIT */
/* thread.h - parallel loops on a thread pool. Threads start when first needed and then stay. */
#ifndef WF_BASE_THREAD_H
#define WF_BASE_THREAD_H

#include <stdint.h>

/* Returns the useful number of threads, 1 to 1024: the environment variable WEFT_THREADS; without
 * it the physical cores in the affinity mask, limited by the container's CPU quota. */
int wf_threads_available(void);

/* Processes items [begin, end). Concurrent calls have different thread indices, so `thread` may
 * select a scratch buffer. */
typedef void wf_range_fn(void *arg, int64_t begin, int64_t end, int thread);

/* Static split: divides [0, n) into at most `threads` contiguous ranges of at least `grain` items
 * (one range if n < grain) and calls range i with thread index i. The split depends only on the
 * arguments, not on the threads that the system granted: one thread may run several ranges in turn.
 * The calling thread runs range 0. A single range runs without waking a thread; n <= 0 runs
 * nothing. Allocates nothing.
 *
 * Several threads may call this at once. A nested call runs all its ranges in the calling thread.
 * After fork() the child starts its own threads; it must not continue a loop that was running at
 * the fork. With WEFT_PIN=1 in the environment, pool thread i is pinned to the i-th core of the
 * affinity mask; calling threads are not pinned. */
void wf_parallel_for(int threads, int64_t n, int64_t grain, wf_range_fn *fn, void *arg);

/* Work stealing, for loops in which a slow or preempted core would delay all others. Each thread
 * owns a range and processes it from the front, `piece` items at a time; an idle thread steals
 * pieces from the ends of other ranges. fn runs any number of times per thread index, never
 * concurrently for the same index. Calls may be longer than a piece when no other thread takes
 * part, and shorter at the end of a range. The assignment of items to threads is not deterministic:
 * results must not depend on it, nor on where calls begin and end. Choose pieces of at least 5 us,
 * because taking one costs a cache miss. */
void wf_parallel_share(int threads, int64_t n, int64_t piece, wf_range_fn *fn, void *arg);

#endif
