/* SPDX-License-Identifier: MIT */
/*
 * kernel.h - the table of kernels that declares what a kernel device can run.
 *
 * A device's table has one row per (op, implementation). The planner takes the first row that fits
 * a node. The same rows answer whether the device supports an op, and for which types.
 */
#ifndef WF_DEVICE_KERNEL_H
#define WF_DEVICE_KERNEL_H

#include "graph/graph.h"

/* A tensor as a kernel sees it. */
typedef struct {
    void *data; /* NULL: an output without a reader; the kernel skips it */
    wf_type type;
    int rank;
    int64_t dim[WF_MAX_RANK];    /* elements per axis, outermost first */
    int64_t stride[WF_MAX_RANK]; /* in elements; the last axis has stride 1 */
    bool dense;                  /* row-major without gaps */
    bool packed;                 /* a state in the device's own layout; ignore the strides */
} wf_view;

struct wf_queue;

/* The argument of a kernel. The caller owns it: a kernel that outlives the call copies what it
 * needs. */
typedef struct {
    wf_ctx *ctx;            /* receives the message of a failure */
    struct wf_queue *queue; /* where the kernel is enqueued */
    const wf_node *node;
    const void *attr; /* node->attr */
    const wf_view *in;
    const wf_view *out; /* an update op's out[i] is the state itself and aliases in[i] */
    int nin, nout;
    void *workspace; /* the bytes that the row asked for, aligned; contents undefined */
    /* Where an asynchronous kernel reports invalid input; the next synchronous call fails with it.
     * NULL: the device runs synchronously. */
    uint64_t *fault;
    int threads; /* the kernel may use at most so many host threads */
} wf_launch;

/* One row of a device's table. Zero-initialised fields mean: no condition, no feature. */
typedef struct wf_kernel {
    wf_op op;
    const char *name;      /* of the implementation: "reference", ... */
    wf_type_set types;     /* set over the node's key type (wf_node_key_type) */
    wf_type_set weights;   /* set over the type of operand 1; 0: any type */
    bool strided;          /* takes strided inputs; otherwise the planner makes views dense */
    bool nondeterministic; /* results may differ between runs: chosen only with --fast */
    /* Bit i: output 0 may overwrite operand i when both have the same layout. Two operands with
     * this bit may be one value. */
    uint32_t in_place;
    /* Bit i: output i may be part of a concat: strided, its last axis contiguous, and starting at
     * any element. Other outputs are dense and aligned. */
    uint32_t strided_out;
    /* Bit i: output i is computed from output 0, which then gets memory even without a reader. */
    uint32_t from_first;
    uint32_t packed; /* bit i: operand i must be a packed state; no other operand may be one */
    /* Further conditions on the node. NULL: the row takes every node that passes the fields
     * above. */
    bool (*accepts)(const wf_device *device, const wf_node *n);
    size_t (*workspace)(const wf_device *device, const wf_node *n); /* bytes; NULL: 0 */
    /* Called once per step, after addresses are bound and before the first run. May allocate and
     * measure, but must not write operands or outputs. Optional. */
    wf_status (*prepare)(const wf_launch *l);
    wf_status (*launch)(const wf_launch *l);
} wf_kernel;

/* A table is a NULL-terminated list of arrays; a row without `launch` ends each array. */

/* Returns the first row of the device's table that fits n, or NULL. */
const wf_kernel *wf_kernel_choose(const wf_device *device, const wf_node *n);
/* The same from another table; `fast` admits nondeterministic rows. */
const wf_kernel *wf_kernel_choose_from(const wf_kernel *const *table, const wf_device *device,
                                       const wf_node *n, bool fast);
/* Returns the bytes of workspace that k needs for n; 0 where k is NULL. */
size_t wf_kernel_workspace(const wf_kernel *k, const wf_device *device, const wf_node *n);
/* Bit i: operand i is a packed state (WF_MARK_PACKED); bit 31 stands for operands 31 and up. */
uint32_t wf_kernel_packed(const wf_node *n);
/* Returns all types for which the table has a row for op. */
wf_type_set wf_kernel_types(const wf_kernel *const *table, wf_op op);
/* Returns the threads of each launch on this device (wf_launch.threads). */
int wf_device_threads(const wf_device *device);

/* Reading views. Row r counts over all axes but the last, in row-major order. */
static inline int64_t wf_view_last(const wf_view *v)
{
    return v->rank > 0 ? v->dim[v->rank - 1] : 1;
}
/* Elements of the view. */
int64_t wf_view_count(const wf_view *v);
/* Product of all axes but the last; 1 for rank 0 and 1. */
int64_t wf_view_rows(const wf_view *v);
/* Offset of row r in elements. */
int64_t wf_view_row(const wf_view *v, int64_t r);
/* Address of an element offset, which is a multiple of the block size for quantized types. */
void *wf_view_at(const wf_view *v, int64_t offset);

/* For assign and accumulate rows: whether each state has its operand's type, or both are float. */
bool wf_update_types_meet(const wf_device *device, const wf_node *n);

#endif
