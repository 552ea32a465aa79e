/* SPDX-License-Identifier: MIT */
/* profile.h - where the time of an executable goes: its ops, the kernels that ran, and what they had to
 * do. */
#ifndef WF_BENCH_PROFILE_H
#define WF_BENCH_PROFILE_H

#include "device/device.h"
#include "graph/cost.h"

/* All nodes of one op that one kernel runs. */
typedef struct {
    const char *op, *kernel; /* borrowed for ever */
    uint64_t launches;       /* in one run */
    wf_cost cost;            /* of one run */
    double seconds;          /* of one run, on average over those since wf_bench_profile_start */
    uint64_t before;         /* nanoseconds when it started */
} wf_bench_op;

typedef struct {
    wf_ctx *ctx;
    const wf_exec *exec;
    wf_bench_op *op;
    int count;
    uint64_t runs; /* there had been when it started */
} wf_bench_profile;

/* The graph and options that `exec` was compiled from. Devices that compile whole graphs tell nothing:
 * the profile has no ops then. */
wf_status wf_bench_profile_new(const wf_exec *exec, wf_graph *graph,
                               const wf_compile_options *options, wf_bench_profile *out);
void wf_bench_profile_free(wf_bench_profile *p);
void wf_bench_profile_start(wf_bench_profile *p);
/* Sets the seconds, and sorts by them. */
void wf_bench_profile_end(wf_bench_profile *p);

#endif
