/* SPDX-License-Identifier: MIT */
/* profile.h - the time of executables by op and kernel, and the work of each. */
#ifndef WF_BENCH_PROFILE_H
#define WF_BENCH_PROFILE_H

#include "device/device.h"
#include "graph/cost.h"

/* All launches of one kernel for one op, averaged per run. */
typedef struct {
    const char *op, *kernel; /* static strings */
    double launches, seconds;
    wf_cost cost;       /* zeros if unknown */
    wf_op_stats before; /* at the start of the profile */
} wf_bench_op;

typedef struct {
    wf_ctx *ctx;
    wf_exec *const *exec; /* borrowed */
    int execs;
    /* [count], owned; sorted by wf_bench_profile_end. */
    wf_bench_op *op;
    int count;
} wf_bench_profile;

/* Starts a profile of executables of one session. Devices that compile whole graphs report no ops,
 * so the profile is empty. Call wf_bench_profile_free after a failure as well. */
wf_status wf_bench_profile_new(wf_exec *const *exec, int execs, wf_bench_profile *out);
/* Sets the cost of the ops of a single executable, from its graph and options. */
wf_status wf_bench_profile_cost(wf_bench_profile *p, wf_graph *graph,
                                const wf_compile_options *options);
void wf_bench_profile_free(wf_bench_profile *p);
void wf_bench_profile_start(wf_bench_profile *p);
/* Ends the profile after `runs` runs: computes launches and seconds per run, and sorts by
 * seconds. */
void wf_bench_profile_end(wf_bench_profile *p, int runs);

#endif
