/* SPDX-License-Identifier: MIT */
/*
 * plan.h - a graph made ready for a kernel device: which kernel runs each node, in which order, and
 * where every value lies. A plan allocates no device memory; its sizes are known before anyone does.
 */
#ifndef WF_DEVICE_PLAN_H
#define WF_DEVICE_PLAN_H

#include "device/device.h"
#include "device/memory.h"
#include "graph/pass/pass.h"

typedef enum {
    WF_PLACE_NONE,   /* nobody reads it: no storage */
    WF_PLACE_PORT,   /* among the inputs and outputs of the executable, at an offset */
    WF_PLACE_REGION, /* in the activation region, in a block */
    WF_PLACE_STATE   /* in the buffer of a state */
} wf_place_kind;

/* Where a value lies. Views share the place of their root, with strides of their own, and so do operands of a
 * concat that are made where its result lies (such a concat is no step) with the result. */
typedef struct {
    wf_place_kind kind;
    const wf_node *state; /* WF_PLACE_STATE: the state node */
    size_t offset;        /* WF_PLACE_PORT: of the root, in the memory for ports */
    int block;            /* WF_PLACE_REGION: which block */
    int64_t first;        /* element of the root at which the view begins */
    int64_t stride[WF_MAX_RANK];
    bool dense;
} wf_place;

typedef struct {
    const wf_node *node;
    const wf_kernel *kernel;
    size_t workspace_bytes;
    int workspace; /* its block, -1 for none */
    bool in_place; /* output 0 lies where an operand did */
} wf_step;

/* A stretch of the activation region, from its first writer to its last reader. */
typedef struct {
    const wf_value *value; /* the first to lie there; NULL: the workspace of a step */
    size_t bytes;          /* of it, without padding and guards */
} wf_block_info;

typedef struct {
    wf_graph *graph;   /* the plan's own copy, after all passes */
    wf_place **places; /* [node id][output] */
    wf_step *steps;
    int step_count;
    wf_lifetime *blocks;       /* of the activation region; begin and end are steps */
    wf_block_info *block_info; /* [block_count] */
    int block_count;
    wf_memory memory;         /* states: those of this graph */
    wf_expansion *expansions; /* [WF_OP_COUNT] what was expanded for lack of a kernel */
    wf_arena arena;           /* holds the arrays above */
    wf_ctx *ctx;
} wf_plan;

/* The session says which states are packed; NULL: none is. `report` may be NULL. */
wf_status wf_plan_new(wf_device *device, wf_graph *graph, const wf_compile_options *options,
                      const wf_session *session, wf_report *report, wf_plan **out);
void wf_plan_free(wf_plan *plan);

/* Where a block's bytes begin in the region, past its guard. */
size_t wf_plan_offset(const wf_plan *plan, const wf_device *device, int block);

/* ---- Parts of planning (view.c) ---- */

/* A dense row-major layout of this shape, from element 0 on. */
void wf_place_dense(wf_place *place, const wf_dims *shape);
/* Where operand i of a concat lies within its result, which is dense. */
void wf_place_part(const wf_node *concat, int i, wf_place *out);
/* Where the operand of the reshape n must lie for its result to lie at `result`. false: nowhere, its elements
 * would have to be moved, or its last axis would have gaps. */
bool wf_place_before(const wf_node *n, const wf_place *result, wf_place *out);
/* Where the output of the view node n lies if it shares the storage of its operand, which lies at
 * `operand`. false: it cannot, its elements have to be moved. */
bool wf_place_view(const wf_node *n, const wf_place *operand, wf_place *out);

#endif
