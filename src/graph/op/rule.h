/* SPDX-License-Identifier: MIT */
/*
 * rule.h - helpers for the shape, gradient and expansion rules of src/graph/op/.
 *
 * Rules build nodes without checking each result: the graph keeps the first error, and every
 * builder returns NULL after it. A rule must check a value only before it reads the value's fields.
 */
#ifndef WF_GRAPH_OP_RULE_H
#define WF_GRAPH_OP_RULE_H

#include "graph/build.h"

/* Declares every rule that ops.def names. */
#define WF_UNARY(...)
#define WF_BINARY(...)
#define WF_OP(name, doc, attrs, min_in, max_in, flags, shape, grad, expand, ...) \
    wf_shape_rule wf_shape_##shape;                                              \
    wf_grad_rule wf_grad_##grad;                                                 \
    wf_expand_rule wf_expand_##expand;
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP
wf_shape_rule wf_shape_unary, wf_shape_binary;
wf_grad_rule wf_grad_unary, wf_grad_binary;
wf_expand_rule wf_expand_unary;

/* For shape rules: fails with a formatted message when the condition does not hold. The message
 * follows the op's name, its operand types and its attributes. */
#define WF_RULE(r, condition, ...)                \
    do {                                          \
        if (!(condition))                         \
            return wf_infer_fail(r, __VA_ARGS__); \
    } while (0)

static inline bool wf_has_type(const wf_value *v, wf_type_set types)
{
    return (wf_type_bit(v->type) & types) != 0;
}

static inline bool wf_is_float(const wf_value *v)
{
    return wf_has_type(v, WF_TYPES_FLOAT);
}

static inline bool wf_is_block(const wf_value *v)
{
    return wf_has_type(v, WF_TYPES_BLOCK);
}

static inline bool wf_is_i32(const wf_value *v, int64_t rank)
{
    return v->type == WF_I32 && v->shape.n == rank;
}

static inline bool wf_same_shape(const wf_value *a, const wf_value *b)
{
    return wf_dims_equal(&a->shape, &b->shape);
}

/* Same type and shape. */
static inline bool wf_alike(const wf_value *a, const wf_value *b)
{
    return a->type == b->type && wf_same_shape(a, b);
}

static inline bool wf_is_scalar(const wf_value *v, wf_type type)
{
    return v->type == type && v->shape.n == 0;
}

static inline void wf_infer_out(wf_infer *r, wf_type type, const wf_dims *shape)
{
    r->out[r->nout].type = type;
    r->out[r->nout].shape = *shape;
    r->nout++;
}

/* [..., C] to [...]; a scalar shape stays as it is. */
static inline wf_dims wf_dims_leading(const wf_dims *d)
{
    wf_dims r = *d;
    if (r.n > 0)
        r.d[--r.n] = 0;
    return r;
}

/* [...] to [..., length]. */
static inline wf_dims wf_dims_append(const wf_dims *d, int64_t length)
{
    wf_dims r = *d;
    wf_assert(r.n < WF_MAX_RANK);
    r.d[r.n++] = length;
    return r;
}

/* [...] to [..., 1]. */
static inline wf_value *wf_column(wf_graph *g, wf_value *v)
{
    if (!v)
        return NULL;
    wf_dims column = wf_dims_append(&v->shape, 1);
    return wf_reshape_to(g, v, &column);
}

/* The axes attribute of a reduction over the last axis. v may be NULL. */
static inline uint32_t wf_last_axis(const wf_value *v)
{
    return v ? 1u << (v->shape.n - 1) : 0;
}

/* Fails unless output 0 is the only output with a gradient. For ops whose other outputs are
 * statistics saved for the gradient. */
wf_status wf_vjp_only_first(wf_vjp *v);

/* Expands a gradient op by differentiating the expansion of its forward op: `op` with `attr` and
 * operands in[0 .. nin). dy is the gradient of its output 0; grads[i] is set to that of
 * in[wrt[i]]. */
wf_status wf_expand_vjp(wf_graph *g, wf_op op, const void *attr, wf_value *const *in, int nin,
                        wf_value *dy, const int *wrt, int nwrt, wf_value **grads);

#endif
