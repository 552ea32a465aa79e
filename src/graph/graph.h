/* SPDX-License-Identifier: MIT */
/*
 * graph.h - nodes, values, and the graph that owns them.
 *
 * Nodes are stored in a valid execution order: a node comes after the nodes that compute its
 * inputs. Every reader of version n of a state comes before the update that makes version n + 1.
 * verify.c checks all invariants.
 *
 * The graph's arena owns nodes, values, attributes and names; wf_graph_free frees them together.
 */
#ifndef WF_GRAPH_GRAPH_H
#define WF_GRAPH_GRAPH_H

#include "base/arena.h"
#include "graph/op.h"

struct wf_value {
    wf_node *node; /* computes it */
    int index;     /* in node->out */
    wf_type type;
    wf_dims shape;
    wf_node *state; /* this value is a version of that state; NULL: not a state */
    int version;    /* 0 for the state node, +1 per update */
    uint32_t marks; /* hints for passes: WF_MARK_* */
};

enum {
    WF_MARK_BLOCK = 1,     /* the output of a block of the model, and the input of the next */
    WF_MARK_RECOMPUTE = 2, /* recompute it in the backward pass instead of storing it */
    WF_MARK_FOLDED = 4,    /* its readers were rewritten to bypass it: see pass/fold.c */
    /* The session stores this state in a layout of the device. The plan sets it in its copy of the
     * graph, so that a target can see from the node whether it has a kernel. States only. */
    WF_MARK_PACKED = 8,
    /* Matmuls with this quantized state may round their other operand, as they do for packed
     * states. Set and cleared like WF_MARK_PACKED. */
    WF_MARK_ROUNDED = 16
};

struct wf_node {
    wf_graph *graph; /* the owner */
    wf_op op;
    int id; /* index in graph->nodes */
    int nin, nout;
    wf_value **in;    /* [nin] */
    wf_value *out;    /* [nout] */
    const void *attr; /* the op's wf_attr_*; NULL: the op has no attributes */
    const char *name; /* of an input or state; NULL for other ops */
    bool backward;    /* added by the gradient pass, after the nodes that it differentiates */
};

typedef struct {
    /* An output of the graph. */
    const char *name;
    wf_value *value;
} wf_named;

struct wf_graph {
    wf_ctx *ctx;
    wf_arena arena;    /* nodes, attributes, names */
    wf_status status;  /* the first failure while building; WF_OK: none */
    char message[512]; /* of that failure */
    wf_node **nodes;
    int node_count, node_cap;
    wf_named *outputs;
    int output_count, output_cap;
    int64_t streams; /* the next free random stream */
    bool backward;   /* new nodes get this as node->backward */
};

/* Adds a node; every builder ends here. Checks arity, inputs and attributes, runs the shape rule
 * and appends the node. Copies in[], attr and name. `name` is NULL except for sources. Returns
 * output 0, or NULL when this or an earlier call failed. */
wf_value *wf_node_add(wf_graph *g, wf_op op, const void *attr, const char *name,
                      wf_value *const *in, int nin);

/* Records the first failure in the graph and its context, and returns the graph's status. Later
 * failures are consequences of the first and are ignored. */
wf_status wf_graph_fail(wf_graph *g, wf_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Fails with "op(type[shape], ...): " and the message. */
wf_status wf_infer_fail(wf_infer *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

const wf_op_def *wf_node_def(const wf_node *n);
static inline bool wf_node_is(const wf_node *n, uint32_t flag)
{
    return (wf_node_def(n)->flags & flag) != 0;
}
/* Returns whether v is an output of a node of this graph. v->node must be readable or NULL. */
bool wf_graph_has(const wf_graph *g, const wf_value *v);
/* The type by which kernels for this node are selected. */
wf_type wf_node_key_type(const wf_node *n);
/* Follows views to the value that owns the storage of v; v itself unless its node is a view. */
const wf_value *wf_value_root(const wf_value *v);
/* Bytes of the dense array. */
static inline size_t wf_value_bytes(const wf_value *v)
{
    return wf_type_bytes(v->type, wf_dims_count(&v->shape));
}
/* Append "f32[2,3]" or "op(f32[2,3], ...; attributes)" to buf. At most 8 operands are printed. */
void wf_value_print(const wf_value *v, char *buf, size_t cap, size_t *len);
void wf_call_print(const wf_op_def *def, wf_value *const *in, int nin, const void *attr, char *buf,
                   size_t cap, size_t *len);

/* Runs the verifier after a pass, in checked builds only. A failure is a bug in the pass. */
#if defined(WF_CHECK) && WF_CHECK
#define WF_VERIFY(graph) wf_graph_verify(graph)
#else
#define WF_VERIFY(graph) WF_OK
#endif

/* Passes: src/graph/pass/, one file each. A pass copies a graph with changes, or appends to it. */

/* Appends the gradients of sum_i <outs[i], douts[i]> by wrt[] and returns them in grads[nwrt]. The
 * general form of wf_grad. */
wf_status wf_pass_grad(wf_graph *g, wf_value *const *outs, wf_value *const *douts, int nout,
                       wf_value *const *wrt, int nwrt, wf_value **grads);
/* Copies a graph and expands every node for which `keep` returns false, repeatedly, until only kept
 * nodes and core ops remain. keep == NULL expands all ops that are not core. */
typedef bool wf_keep_fn(const wf_node *n, void *user);
wf_status wf_pass_expand(wf_graph *from, wf_keep_fn *keep, void *user, wf_graph **out);

#endif
