/* SPDX-License-Identifier: MIT */
/*
 * split.c - splits every parallel loop, however short, over all threads.
 *
 * Models of tests/fixtures are so small that most loops run in one thread, where the thread sanitizer
 * finds nothing. Programs linked with this file and with --wrap (cmake/thread.cmake) ignore the
 * smallest range that the caller of a loop asks for.
 */
#include "base/thread.h"

void __real_wf_parallel_for(int threads, int64_t n, int64_t grain, wf_range_fn *fn, void *arg);
void __real_wf_parallel_share(int threads, int64_t n, int64_t piece, wf_range_fn *fn, void *arg);
void __wrap_wf_parallel_for(int threads, int64_t n, int64_t grain, wf_range_fn *fn, void *arg);
void __wrap_wf_parallel_share(int threads, int64_t n, int64_t piece, wf_range_fn *fn, void *arg);

void __wrap_wf_parallel_for(int threads, int64_t n, int64_t grain, wf_range_fn *fn, void *arg)
{
    (void)grain;
    __real_wf_parallel_for(threads, n, 1, fn, arg);
}

void __wrap_wf_parallel_share(int threads, int64_t n, int64_t piece, wf_range_fn *fn, void *arg)
{
    (void)piece;
    __real_wf_parallel_share(threads, n, 1, fn, arg);
}
