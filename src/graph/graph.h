/* SPDX-License-Identifier: MIT */
/*
 * graph.h - nodes, values, and the graph that owns them.
 *
 * The nodes stand in an order in which they could be run: every input of a node is made before it,
 * and every reader of version n of a state before the update op that makes version n + 1. The
 * verifier (verify.c) holds the whole list of what must be true.
 */
#ifndef WF_GRAPH_GRAPH_H
#define WF_GRAPH_GRAPH_H

#include "base/arena.h"
#include "graph/op.h"

struct wf_value {
    wf_node *node; /* that makes it */
    int index;     /* which of its outputs it is */
    wf_type type;
    wf_dims shape;
    wf_node *state; /* the state node of which this is a version, or NULL */
    int version;
    uint32_t marks; /* what passes are told about it: WF_MARK_* */
};

enum {
    WF_MARK_BLOCK = 1,     /* the end of a block of the model: the next one starts from it */
    WF_MARK_RECOMPUTE = 2, /* cheaper to compute again for the gradient than to keep */
    WF_MARK_FOLDED = 4,    /* readers no longer compute by way of it: see pass/fold.c */
    /* a state that the session keeps in a layout of the device's own: set by the plan on its copy, so that a
     * target can tell from the node whether it has a kernel. On other values than states it means nothing */
    WF_MARK_PACKED = 8,
    /* a state of quantized blocks by which products may round what they multiply it with, as they do when
     * it is packed: set and taken off as WF_MARK_PACKED is */
    WF_MARK_ROUNDED = 16
};

struct wf_node {
    wf_graph *graph; /* that owns it */
    wf_op op;
    int id; /* its place in graph->nodes */
    int nin, nout;
    wf_value **in;    /* [nin] */
    wf_value *out;    /* [nout] */
    const void *attr; /* the op's wf_attr_*, NULL when it has none */
    const char *name; /* of an input or state, else NULL */
    bool backward;    /* made by the gradient pass, after all nodes that it differentiates */
};

typedef struct {
    const char *name;
    wf_value *value;
} wf_named;

struct wf_graph {
    wf_ctx *ctx;
    wf_arena arena;   /* nodes, attributes, names */
    wf_status status; /* of the first failure while building */
    char message[512];
    wf_node **nodes;
    int node_count, node_cap;
    wf_named *outputs;
    int output_count, output_cap;
    int64_t streams; /* random streams given out */
    bool backward;   /* nodes that are added now belong to a gradient */
};

/* The one way to add a node: checks arity, inputs and attributes, runs the shape rule, appends.
 * `name` is for sources. Returns the first output, NULL on failure. */
wf_value *wf_node_add(wf_graph *g, wf_op op, const void *attr, const char *name,
                      wf_value *const *in, int nin);

/* Records the first failure of a graph; later ones, which follow from it, are dropped. Returns the
 * status given. */
wf_status wf_graph_fail(wf_graph *g, wf_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Fails with "op(type[shape], ...): " and the rule that was broken. */
wf_status wf_infer_fail(wf_infer *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const wf_op_def *wf_node_def(const wf_node *n);
static inline bool wf_node_is(const wf_node *n, uint32_t flag)
{
    return (wf_node_def(n)->flags & flag) != 0;
}
/* Whether v is an output of a node of this graph. */
bool wf_graph_has(const wf_graph *g, const wf_value *v);
/* The type by which kernels are listed for this node. */
wf_type wf_node_key_type(const wf_node *n);
/* The value whose storage v shares through views: v itself when its node is no view. */
const wf_value *wf_value_root(const wf_value *v);
/* Of all its elements, dense. */
static inline size_t wf_value_bytes(const wf_value *v)
{
    return wf_type_bytes(v->type, wf_dims_count(&v->shape));
}
/* "f32[2,3]" appended to buf, and "op(f32[2,3], ...; attributes)". */
void wf_value_print(const wf_value *v, char *buf, size_t cap, size_t *len);
void wf_call_print(const wf_op_def *def, wf_value *const *in, int nin, const void *attr, char *buf,
                   size_t cap, size_t *len);

/* Runs the verifier after a pass in checked builds; a failure there is a mistake of ours. */
#if defined(WF_CHECK) && WF_CHECK
#define WF_VERIFY(graph) wf_graph_verify(graph)
#else
#define WF_VERIFY(graph) WF_OK
#endif

/* Passes: src/graph/pass/, one file each. A pass reads one graph and writes another, or appends. */

/* Gradients of sum_i <outs[i], douts[i]>: the general form of wf_grad. */
wf_status wf_pass_grad(wf_graph *g, wf_value *const *outs, wf_value *const *douts, int nout,
                       wf_value *const *wrt, int nwrt, wf_value **grads);
/* Copies a graph and replaces every node for which `keep` returns false by its expansion, until
 * none is left. Core ops stay. keep == NULL expands every op that is not core. */
typedef bool wf_keep_fn(const wf_node *n, void *user);
wf_status wf_pass_expand(wf_graph *from, wf_keep_fn *keep, void *user, wf_graph **out);

#endif
