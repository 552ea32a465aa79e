/* SPDX-License-Identifier: MIT */
/*
 * kernel.h - the rows by which a kernel device says what it can run.
 *
 * A device's table has one row per (op, way to compute it). The plan takes the first row that fits
 * a node; whether an op is supported, and for which types, is read off the same rows.
 */
#ifndef WF_DEVICE_KERNEL_H
#define WF_DEVICE_KERNEL_H

#include "graph/graph.h"

/* A value as a kernel sees it. */
typedef struct {
    void *data; /* NULL: an output that nobody reads; the kernel skips it */
    wf_type type;
    int rank;
    int64_t dim[WF_MAX_RANK];
    int64_t stride[WF_MAX_RANK]; /* in elements; that of the last axis is 1 */
    bool dense;                  /* strides are those of a row-major array */
    bool packed;                 /* a state in the device's own layout; strides mean nothing */
} wf_view;

struct wf_queue;

typedef struct {
    wf_ctx *ctx;
    struct wf_queue *queue; /* the line of work that the kernel joins */
    const wf_node *node;
    const void *attr; /* node->attr */
    const wf_view *in;
    const wf_view *out; /* outputs of update ops are the states themselves, also in[i] */
    int nin, nout;
    void *workspace; /* as many bytes as the row asked for, aligned; contents undefined */
    /* Where a kernel that runs when the launch has returned tells of data that is not right, which a launch that sees it
     * fails by. NULL: nowhere. */
    uint64_t *fault;
    int threads;
} wf_launch;

typedef struct wf_kernel {
    wf_op op;
    const char *name;      /* of the way to compute it: "reference", ... */
    uint32_t types;        /* bit set over the node's key type (wf_node_key_type) */
    uint32_t weights;      /* bit set over the type of operand 1; 0: accepts says */
    bool strided;          /* takes strided inputs; otherwise views are made dense for it */
    bool nondeterministic; /* results may differ from run to run: only with --fast */
    uint32_t in_place;     /* bit i: output 0 may lie where operand i does, in the same layout; two
                              such operands may be one value */
    uint32_t
        strided_out; /* bit i: output i may be strided, its last axis contiguous, and begin at any
                              element: part of a concat. Others are dense and aligned */
    uint32_t
        from_first; /* bit i: output i is made from output 0, which then has memory even if nobody else
                            reads it */
    uint32_t packed; /* bit i: operand i must be a packed state; other rows take none */
    bool (*accepts)(const wf_node *n);                  /* finer conditions; NULL: none */
    size_t (*workspace)(const wf_node *n, int threads); /* NULL: none */
    /* Once for each step, when all addresses are known and before the first run: may allocate and measure, but
     * not write operands or outputs. NULL: there is nothing to prepare. */
    wf_status (*prepare)(const wf_launch *l);
    wf_status (*launch)(const wf_launch *l);
} wf_kernel;

/* A table is a NULL-terminated list of arrays, each ended by a row without launch. */
/* NULL when no row fits. */
const wf_kernel *wf_kernel_choose(const wf_kernel *const *table, const wf_node *n, bool fast);
/* Bit i: operand i is a packed state (WF_MARK_PACKED); bit 31 also stands for those after it. */
uint32_t wf_kernel_packed(const wf_node *n);
/* All types for which the table has a row for op. */
uint32_t wf_kernel_types(const wf_kernel *const *table, wf_op op);

/* Reading views. Row r counts over all axes but the last, in row-major order. */
static inline int64_t wf_view_last(const wf_view *v)
{
    return v->rank > 0 ? v->dim[v->rank - 1] : 1;
}
int64_t wf_view_count(const wf_view *v);
int64_t wf_view_rows(const wf_view *v);
/* Offset of row r in elements. */
int64_t wf_view_row(const wf_view *v, int64_t r);
/* Address of an element offset; of quantized types, where a block begins. */
void *wf_view_at(const wf_view *v, int64_t offset);

/* For assign and accumulate rows: whether each state has its operand's type, or both are float. */
bool wf_update_types_meet(const wf_node *n);

#endif
