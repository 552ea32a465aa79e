/* SPDX-License-Identifier: MIT */
/*
 * reduce.c - rules of reductions over axes, argmax, top_k, softmax and global_norm.
 *
 * Reductions of narrow types are defined as sums in f32, rounded once. `axes` is a bit set; without
 * `keep` the reduced axes disappear from the shape. A sum over no elements is 0, a maximum is an
 * error.
 */
#include "graph/op/rule.h"

/* ---- sum, mean, max ---- */

/* Bit i of the attribute `axes` stands for axis i. */
static bool reduces(const wf_attr_reduce *a, int64_t axis)
{
    return (a->axes >> axis & 1) != 0;
}

/* The shape after the reduction. With `keep`, reduced axes stay with length 1. */
static wf_dims reduced_shape(const wf_dims *x, const wf_attr_reduce *a, bool keep)
{
    wf_dims shape = {0};
    for (int i = 0; i < x->n; i++)
        if (!reduces(a, i))
            shape.d[shape.n++] = x->d[i];
        else if (keep)
            shape.d[shape.n++] = 1;
    return shape;
}

/* Number of elements that one result element is computed from. */
static int64_t reduced_count(const wf_dims *x, const wf_attr_reduce *a)
{
    int64_t count = 1;
    for (int i = 0; i < x->n; i++)
        if (reduces(a, i))
            count *= x->d[i];
    return count;
}

wf_status wf_shape_reduce(wf_infer *r)
{
    const wf_attr_reduce *a = r->attr;
    const wf_value *x = r->in[0];
    bool mean = r->def == wf_op_get(WF_OP_mean);
    WF_RULE(r, wf_has_type(x, mean ? WF_TYPES_FLOAT : WF_TYPES_NUMBER), "x must be f32, f16%s",
            mean ? " or bf16" : ", bf16 or i32");
    /* Also rejects bits of axes beyond the rank. */
    WF_RULE(r, a->axes >= 0 && a->axes < (int64_t)1 << x->shape.n,
            "the axes mask 0x%llx contains an axis that x does not have",
            (unsigned long long)a->axes);
    WF_RULE(r, r->def != wf_op_get(WF_OP_max) || reduced_count(&x->shape, a) > 0,
            "max over zero elements is undefined");
    wf_dims shape = reduced_shape(&x->shape, a, a->keep != 0);
    wf_infer_out(r, x->type, &shape);
    return WF_OK;
}

/* Broadcasts a value of the reduced shape to the shape of x. */
static wf_value *spread(wf_graph *g, wf_value *v, const wf_node *n)
{
    wf_dims kept = reduced_shape(&n->in[0]->shape, n->attr, true);
    return wf_broadcast_to(g, wf_reshape_to(g, v, &kept), &n->in[0]->shape);
}

/* Every term of a sum has the gradient of the sum. */
wf_status wf_grad_sum(wf_vjp *v)
{
    v->din[0] = spread(v->g, v->dout[0], v->node);
    return WF_OK;
}

/* A count of 0 would divide by 0; x is empty then, and so is its gradient. */
wf_status wf_grad_mean(wf_vjp *v)
{
    int64_t count = reduced_count(&v->node->in[0]->shape, v->node->attr);
    v->din[0] =
        spread(v->g, wf_scale(v->g, v->dout[0], 1.0 / (double)(count ? count : 1)), v->node);
    return WF_OK;
}

/* Elements that tie for the maximum share the gradient evenly, so it does not depend on their
 * order. */
wf_status wf_grad_max(wf_vjp *v)
{
    wf_graph *g = v->g;
    wf_value *x = v->node->in[0];
    const wf_attr_reduce *a = v->node->attr;
    wf_value *largest = wf_eq(g, x, spread(g, &v->node->out[0], v->node));
    wf_value *share = wf_sum(g, wf_cast(g, largest, x->type), (uint32_t)a->axes, a->keep != 0);
    wf_value *dy = spread(g, wf_div(g, v->dout[0], share), v->node);
    v->din[0] = wf_where(g, largest, dy, wf_like(g, dy, 0));
    return WF_OK;
}

/* Divides instead of multiplying by 1 / count: one rounding less. */
wf_status wf_expand_mean(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_reduce *a = n->attr;
    wf_value *sum = wf_sum(g, wf_cast(g, in[0], WF_F32), (uint32_t)a->axes, a->keep != 0);
    wf_value *count = wf_like(g, sum, (double)reduced_count(&in[0]->shape, a));
    out[0] = wf_cast(g, wf_div(g, sum, count), in[0]->type);
    return WF_OK;
}

/* ---- argmax, top_k ---- */

/* i32 results, so the axis must be shorter than 2^31. */
wf_status wf_shape_argmax(wf_infer *r)
{
    const wf_attr_axis *a = r->attr;
    const wf_value *x = r->in[0];
    WF_RULE(r, wf_has_type(x, WF_TYPES_NUMBER), "x must be f32, f16, bf16 or i32");
    WF_RULE(r, a->axis >= 0 && a->axis < x->shape.n, "axis %lld is out of range",
            (long long)a->axis);
    WF_RULE(r, x->shape.d[a->axis] > 0 && x->shape.d[a->axis] <= INT32_MAX,
            "the axis must have 1 to 2^31 - 1 elements");
    wf_dims shape = reduced_shape(&x->shape, &(wf_attr_reduce){.axes = 1ll << a->axis}, false);
    wf_infer_out(r, WF_I32, &shape);
    return WF_OK;
}

/* Values and indices along the last axis, largest first: [..., k] each. */
wf_status wf_shape_top_k(wf_infer *r)
{
    const wf_attr_top_k *a = r->attr;
    wf_dims shape = r->in[0]->shape;
    WF_RULE(r, wf_is_float(r->in[0]) && shape.n >= 1,
            "x must be f32, f16 or bf16, of rank 1 or more");
    WF_RULE(r, a->k >= 0 && a->k <= shape.d[shape.n - 1] && shape.d[shape.n - 1] <= INT32_MAX,
            "k = %lld must lie within the last axis", (long long)a->k);
    shape.d[shape.n - 1] = a->k;
    wf_infer_out(r, r->in[0]->type, &shape);
    wf_infer_out(r, WF_I32, &shape);
    return WF_OK;
}

/* dx[i] = sum over k of dy[k] where index[k] == i. Compares all [..., k, C] pairs, which takes one
 * more axis than x has. */
wf_status wf_grad_top_k(wf_vjp *v)
{
    wf_graph *g = v->g;
    const wf_dims *x = &v->node->in[0]->shape;
    if (x->n == WF_MAX_RANK)
        return wf_graph_fail(g, WF_ERR_USAGE, "top_k of rank %d has no gradient", WF_MAX_RANK);
    wf_dims column = wf_dims_append(&v->node->out[0].shape, 1); /* [..., k, 1] */
    wf_value *dy = wf_reshape_to(g, v->dout[0], &column);
    wf_value *index = wf_reshape_to(g, &v->node->out[1], &column);
    wf_value *i = wf_iota(g, 1, &x->d[x->n - 1], 0); /* compared with every index: [C] */
    wf_value *spread_dy = wf_where(g, wf_eq(g, index, i), dy, wf_like(g, dy, 0));
    v->din[0] = wf_sum(g, spread_dy, 1u << (x->n - 1), false);
    return WF_OK;
}

/* ---- softmax ---- */

/* A float x [..., C] with C > 0; the result has its type and shape. */
wf_status wf_shape_float_rows(wf_infer *r)
{
    const wf_value *x = r->in[0];
    WF_RULE(r, wf_is_float(x), "x must be f32, f16 or bf16");
    WF_RULE(r, x->shape.n >= 1 && wf_dims_last(&x->shape) > 0,
            "x must have rank 1 or more and a non-empty last axis");
    wf_infer_out(r, x->type, &x->shape);
    return WF_OK;
}

/* Reads y instead of x: the gradient needs nothing else. */
wf_status wf_grad_softmax(wf_vjp *v)
{
    wf_value *in[] = {v->dout[0], &v->node->out[0]};
    v->din[0] = wf_node_add(v->g, WF_OP_softmax_grad, NULL, NULL, in, 2);
    return WF_OK;
}

/* Subtracts the row's maximum first: exp cannot overflow. */
wf_status wf_expand_softmax(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    (void)n;
    uint32_t last = wf_last_axis(in[0]);
    wf_value *x = wf_cast(g, in[0], WF_F32);
    wf_value *e = wf_exp(g, wf_sub(g, x, wf_max(g, x, last, true)));
    out[0] = wf_cast(g, wf_div(g, e, wf_sum(g, e, last, true)), in[0]->type);
    return WF_OK;
}

/* dx = y (dy - sum(dy y)) */
wf_status wf_expand_softmax_grad(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    (void)n;
    wf_value *dy = wf_cast(g, in[0], WF_F32), *y = wf_cast(g, in[1], WF_F32);
    wf_value *dot = wf_sum(g, wf_mul(g, dy, y), wf_last_axis(y), true);
    out[0] = wf_cast(g, wf_mul(g, y, wf_sub(g, dy, dot)), in[0]->type);
    return WF_OK;
}

/* ---- global_norm: sqrt of the sum of squares over all operands, an f32 scalar ---- */

wf_status wf_shape_global_norm(wf_infer *r)
{
    for (int i = 0; i < r->nin; i++)
        WF_RULE(r, wf_is_float(r->in[i]), "all operands must be f32, f16 or bf16");
    wf_infer_out(r, WF_F32, &(wf_dims){0});
    return WF_OK;
}

/* dx = dy x / norm. The lower bound avoids 0 / 0 when all operands are zero. */
wf_status wf_grad_global_norm(wf_vjp *v)
{
    wf_graph *g = v->g;
    wf_value *norm = wf_maximum(g, &v->node->out[0], wf_like(g, &v->node->out[0], 1e-30));
    wf_value *factor = wf_div(g, v->dout[0], norm);
    for (int i = 0; i < v->node->nin; i++) {
        wf_value *x = v->node->in[i];
        if (v->need[i])
            v->din[i] = wf_cast(g, wf_mul(g, wf_cast(g, x, WF_F32), factor), x->type);
    }
    return WF_OK;
}

wf_status wf_expand_global_norm(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    wf_value *total = NULL;
    for (int i = 0; i < n->nin; i++) {
        wf_value *x = wf_cast(g, in[i], WF_F32);
        /* All axes. */
        wf_value *sum = wf_sum(g, wf_mul(g, x, x), (1u << wf_value_rank(x)) - 1, false);
        total = i == 0 ? sum : wf_add(g, total, sum);
    }
    out[0] = wf_sqrt(g, total);
    return WF_OK;
}
