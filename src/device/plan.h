/* SPDX-License-Identifier: MIT */
/*
 * plan.h - a graph made ready for a kernel device: which kernel runs each node, in which order, and
 * where every value lies. A plan allocates no device memory; its sizes are known before anyone does.
 */
#ifndef WF_DEVICE_PLAN_H
#define WF_DEVICE_PLAN_H

#include "device/device.h"
#include "device/memory.h"

typedef enum {
    WF_PLACE_NONE,   /* nobody reads it: no storage */
    WF_PLACE_REGION, /* in the activation region, at an offset */
    WF_PLACE_STATE   /* in the buffer of a state */
} wf_place_kind;

/* Where a value lies. Views share the place of their root, with strides of their own. */
typedef struct {
    wf_place_kind kind;
    const wf_node *state; /* WF_PLACE_STATE: the state node */
    int block;            /* WF_PLACE_REGION: which block */
    int64_t first;        /* element of the block or state at which the view begins */
    int64_t stride[WF_MAX_RANK];
    bool dense;
} wf_place;

typedef struct {
    const wf_node *node;
    const wf_kernel *kernel;
    size_t workspace_bytes;
    int workspace; /* its block, -1 for none */
} wf_step;

typedef struct {
    wf_graph *graph;   /* the plan's own copy */
    wf_place **places; /* [node id][output] */
    wf_step *steps;
    int step_count;
    wf_lifetime *blocks; /* of the activation region */
    int block_count;
    size_t region_bytes, workspace_bytes, lower_bound;
    wf_arena arena; /* holds the arrays above */
    wf_ctx *ctx;
} wf_plan;

wf_status wf_plan_new(wf_device *device, wf_graph *graph, wf_plan **out);
void wf_plan_free(wf_plan *plan);

#endif
