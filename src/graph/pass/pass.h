/* SPDX-License-Identifier: MIT */
/*
 * pass.h - the interface of a pass, reports, and the order in which passes run.
 *
 * A pass changes a graph in place with the functions of rewrite.h and counts its changes in a
 * report. Before the gradient, a builder calls fold and precision. wf_compile runs the other passes
 * on its own copy of the graph:
 *
 *     fold  precision  (grad)  |  fold  fuse  expand  recompute  schedule  memory
 *
 * The device's part of the compiler runs expand and memory, which depend on its kernels
 * (device/expand.c, device/plan.c).
 */
#ifndef WF_GRAPH_PASS_PASS_H
#define WF_GRAPH_PASS_PASS_H

#include "graph/cost.h"
#include "graph/target.h"

/* ---- Reports ---- */

#define WF_REPORT_LINES 96

/* A counter: how often a pass did something, or a size in bytes. */
typedef struct {
    const char *pass, *what; /* string literals: the report never frees them */
    int64_t count;
} wf_report_line;

typedef struct {
    wf_report_line line[WF_REPORT_LINES];
    int count;
} wf_report;

/* Adds `count` to the line of this pass and name; the first call makes the line. `report` may be
 * NULL. */
void wf_report_add(wf_report *report, const char *pass, const char *what, int64_t count);
/* Returns 0 if the line does not exist. */
int64_t wf_report_get(const wf_report *report, const char *pass, const char *what);

/* ---- Passes ---- */

typedef struct {
    const wf_target *target;           /* the device that the graph is compiled for */
    const wf_compile_options *options; /* never NULL */
    wf_report *report;                 /* may be NULL */
    uint32_t skip; /* WF_PASS_*: passes that this call of wf_passes_run does not run */
} wf_pass_env;

typedef struct {
    const char *name, *doc;
    uint32_t bit; /* WF_PASS_*; set in options.without to skip the pass */
    wf_status (*run)(wf_graph *g, const wf_pass_env *env);
} wf_pass;

/* The passes in the order in which they run; NULL past the last. */
const wf_pass *wf_pass_get(int index);
/* Runs all passes but those in options.without and in env->skip. Skipped passes may run in another
 * call, so other passes read options.without alone. Drops unread nodes after each, and verifies the
 * graph in checked builds. No user may hold values of the graph: passes remove nodes. */
wf_status wf_passes_run(wf_graph *g, const wf_pass_env *env);

/* Statistics on the expansion of one op. Costs are those of ideal kernels (cost.h). */
typedef struct {
    int nodes;      /* nodes of this op that were expanded */
    int launches;   /* nodes in their place, without views and sources */
    wf_cost before; /* of the op's own nodes */
    wf_cost after;  /* of the nodes in their place */
} wf_expansion;
/* Like wf_pass_expand; also adds its statistics to counts[WF_OP_COUNT], which may be NULL. */
wf_status wf_pass_expand_counted(wf_graph *from, wf_keep_fn *keep, void *user, wf_expansion *counts,
                                 wf_graph **out);

/* The passes, one file each. */
wf_status wf_pass_fold(wf_graph *g, const wf_pass_env *env);
wf_status wf_pass_fuse(wf_graph *g, const wf_pass_env *env);
/* The names of the fuse patterns in reports; NULL past the last. */
const char *wf_fuse_pattern(int index);
wf_status wf_pass_recompute(wf_graph *g, const wf_pass_env *env);
wf_status wf_pass_schedule(wf_graph *g, const wf_pass_env *env);
/* Lets ops compute in `compute` (bf16 or f16) as their column in ops.def says, and inserts casts.
 * Must run before the gradient. `report` may be NULL. */
wf_status wf_pass_precision(wf_graph *g, wf_type compute, wf_report *report);

#endif
