/* SPDX-License-Identifier: MIT */
/*
 * pass.h - what a pass is, and the order of those that a compiler runs.
 *
 * A pass changes a graph in place (rewrite.h has the tools) and says in a report what it did. Before
 * the gradient come fold and precision, which a builder calls; the rest is run by wf_compile on its
 * own copy of the graph:
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

/* One thing that a pass did, and how often; or a figure. */
typedef struct {
    const char *pass, *what; /* borrowed for ever */
    int64_t count;
} wf_report_line;

typedef struct {
    wf_report_line line[WF_REPORT_LINES];
    int count;
} wf_report;

/* Adds to the line of this pass with these words, making it when it is new. `report` may be NULL. */
void wf_report_add(wf_report *report, const char *pass, const char *what, int64_t count);
/* 0 when there is no such line. */
int64_t wf_report_get(const wf_report *report, const char *pass, const char *what);

/* ---- Passes ---- */

typedef struct {
    const wf_target *target;           /* of the device for which the graph is compiled */
    const wf_compile_options *options; /* never NULL */
    wf_report *report;                 /* or NULL */
} wf_pass_env;

typedef struct {
    const char *name, *doc;
    uint32_t bit; /* by which options leave it out */
    wf_status (*run)(wf_graph *g, const wf_pass_env *env);
} wf_pass;

/* In their order; NULL past the last. */
const wf_pass *wf_pass_get(int index);
/* Runs those that the options do not leave out, with the verifier after each in checked builds, and
 * drops what nobody reads. The graph must not be one whose values a user still holds. */
wf_status wf_passes_run(wf_graph *g, const wf_pass_env *env);

/* What the expansion of an op adds to a graph. Costs are those of ideal kernels (cost.h). */
typedef struct {
    int nodes;      /* of this op that were expanded */
    int launches;   /* of the nodes in their place, views and sources not counted */
    wf_cost before; /* of the op's own nodes */
    wf_cost after;  /* of the nodes in their place */
} wf_expansion;
/* wf_pass_expand that adds its figures to counts[WF_OP_COUNT]. counts may be NULL. */
wf_status wf_pass_expand_counted(wf_graph *from, wf_keep_fn *keep, void *user, wf_expansion *counts,
                                 wf_graph **out);

/* One file each. */
wf_status wf_pass_fold(wf_graph *g, const wf_pass_env *env);
wf_status wf_pass_fuse(wf_graph *g, const wf_pass_env *env);
/* Its patterns, as reports name them; NULL past the last. */
const char *wf_fuse_pattern(int index);
wf_status wf_pass_recompute(wf_graph *g, const wf_pass_env *env);
wf_status wf_pass_schedule(wf_graph *g, const wf_pass_env *env);
/* Float values get the compute type where the op gains by it; casts are put in between. */
wf_status wf_pass_precision(wf_graph *g, wf_type compute, wf_report *report);

#endif
