/* SPDX-License-Identifier: MIT */
/* profile.h - where the time of executables goes: their ops, the kernels that ran, and what they had to
 * do. */
#ifndef WF_BENCH_PROFILE_H
#define WF_BENCH_PROFILE_H

#include "device/device.h"
#include "graph/cost.h"

/* All launches of one kernel for one op. Figures are those of a run, on average. */
typedef struct {
    const char *op, *kernel; /* borrowed for ever */
    double launches, seconds;
    wf_cost cost;       /* where it is known, else zeros */
    wf_op_stats before; /* when it started */
} wf_bench_op;

typedef struct {
    wf_ctx *ctx;
    wf_exec *const *exec; /* borrowed */
    int execs;
    wf_bench_op *op;
    int count;
} wf_bench_profile;

/* Of executables of one session that take turns. Devices that compile whole graphs tell nothing: the
 * profile has no ops then. Freed by wf_bench_profile_free, after a failure as well. */
wf_status wf_bench_profile_new(wf_exec *const *exec, int execs, wf_bench_profile *out);
/* Of a single executable: what its nodes cost, by the graph and options that it was compiled from. */
wf_status wf_bench_profile_cost(wf_bench_profile *p, wf_graph *graph,
                                const wf_compile_options *options);
void wf_bench_profile_free(wf_bench_profile *p);
void wf_bench_profile_start(wf_bench_profile *p);
/* After so many runs: sets launches and seconds of one, and sorts by the latter. */
void wf_bench_profile_end(wf_bench_profile *p, int runs);

#endif
