/* SPDX-License-Identifier: MIT */
/*
 * plan.h - plans a graph for a kernel device: the kernel of each node, their order, and the place
 * of every value. A plan allocates no device memory, so its sizes are known before anything is
 * allocated.
 */
#ifndef WF_DEVICE_PLAN_H
#define WF_DEVICE_PLAN_H

#include "device/device.h"
#include "device/memory.h"
#include "graph/pass/pass.h"

typedef enum {
    WF_PLACE_NONE,   /* no storage: the value has no reader */
    WF_PLACE_PORT,   /* in the port memory (inputs and outputs), at an offset */
    WF_PLACE_REGION, /* in a block of the activation region */
    WF_PLACE_STATE   /* in the buffer of a state */
} wf_place_kind;

/* Where a value is stored. The root of a view is the value whose memory it shares; the view has its
 * own strides. Operands of a joined concat share the place of its result in the same way: their
 * kernels write directly into it, and the concat is not a step. */
typedef struct {
    wf_place_kind kind;
    const wf_node *state;        /* WF_PLACE_STATE: the state node */
    size_t offset;               /* WF_PLACE_PORT: of the root in the port memory, in bytes */
    int block;                   /* WF_PLACE_REGION: index in wf_plan.blocks */
    int64_t first;               /* first element of the view, counted from the root's first */
    int64_t stride[WF_MAX_RANK]; /* in elements */
    bool dense;                  /* row-major without gaps */
} wf_place;

/* One launch of a run, in execution order. */
typedef struct {
    const wf_node *node;
    const wf_kernel *kernel;
    size_t workspace_bytes; /* 0: no workspace */
    int workspace;          /* its block; -1: no workspace */
    bool in_place;          /* output 0 overwrites an operand */
} wf_step;

/* A block of the activation region, in use from its first writer to its last reader. */
typedef struct {
    const wf_value *value; /* the first value stored there; NULL: a step's workspace */
    size_t bytes;          /* without padding and guards */
} wf_block_info;

typedef struct {
    wf_graph *graph;   /* the plan's own copy, after all passes */
    wf_place **places; /* [node id][output] */
    wf_step *steps;
    /* At most the nodes of the graph: sources, joined concats and shared views are no steps. */
    int step_count;
    wf_lifetime *blocks;       /* [block_count] in the activation region; begin and end are steps */
    wf_block_info *block_info; /* [block_count] */
    int block_count;
    wf_memory memory;         /* `states` counts the states of this graph */
    wf_expansion *expansions; /* [WF_OP_COUNT] ops expanded for lack of a kernel */
    wf_arena arena;           /* holds the arrays above */
    wf_ctx *ctx;              /* of the device */
} wf_plan;

/* Copies the graph and plans the copy; `graph` stays unchanged. `session` supplies the storage of
 * states; NULL: all states are owned. `options` NULL: the defaults. `report` may be NULL. Free *out
 * with wf_plan_free. The plan borrows the device, and nothing of the session. */
wf_status wf_plan_new(wf_device *device, wf_graph *graph, const wf_compile_options *options,
                      const wf_session *session, wf_report *report, wf_plan **out);
void wf_plan_free(wf_plan *plan);

/* Returns the offset of a block's bytes in the region, after the leading guard. */
size_t wf_plan_offset(const wf_plan *plan, const wf_device *device, int block);

/* ---- Parts of planning (view.c) ---- */

/* Sets dense row-major strides for this shape. */
void wf_place_dense(wf_place *place, const wf_dims *shape);
/* Computes the place of operand i of a concat inside its dense result. */
void wf_place_part(const wf_node *concat, int i, wf_place *out);
/* Computes the place of the operand of reshape n from the place of its result. Returns false if no
 * strides fit, or if the operand's last axis would not be contiguous. */
bool wf_place_before(const wf_node *n, const wf_place *result, wf_place *out);
/* Computes the place of the output of view node n when it shares the storage of its operand, which
 * is at `operand`. Returns false if it cannot: its elements must be copied. */
bool wf_place_view(const wf_node *n, const wf_place *operand, wf_place *out);

#endif
