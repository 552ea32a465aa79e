/* SPDX-License-Identifier: MIT */
/* shape.c - rules of ops that move elements or convert their type: cast, copy, views, pad, concat,
 * broadcast. Gradients move elements the other way: slice and pad, concat and slices, broadcast and
 * sum are pairs. Quantized types move in whole blocks, so their last axis must stay as it is. */
#include "base/check.h"
#include "graph/op/rule.h"

/* ---- cast, copy ---- */

wf_status wf_shape_cast(wf_infer *r)
{
    const wf_attr_cast *a = r->attr;
    /* An attribute from text may hold any number. */
    WF_RULE(r, (unsigned)a->type < WF_TYPE_COUNT && wf_type_bit(a->type) & WF_TYPES_PLAIN,
            "the new type must be a plain type");
    WF_RULE(r, !wf_is_block(r->in[0]) || wf_type_bit(a->type) & WF_TYPES_FLOAT,
            "quantized blocks can only be cast to f32, f16 or bf16");
    wf_infer_out(r, a->type, &r->in[0]->shape);
    return WF_OK;
}

/* Rounding counts as the identity; integers carry no gradient. A cast from an 8-bit float fails: a
 * gradient of 8 bits is useless, and dropping it would hide the mistake. */
wf_status wf_grad_cast(wf_vjp *v)
{
    const wf_value *x = v->node->in[0];
    if (wf_type_get(x->type)->kind == WF_KIND_STORAGE)
        return wf_graph_fail(v->g, WF_ERR_USAGE, "cast has no gradient through %s",
                             wf_type_name(x->type));
    v->din[0] = wf_cast(v->g, v->dout[0], x->type);
    return WF_OK;
}

/* For ops that are the identity. */
wf_status wf_grad_pass(wf_vjp *v)
{
    v->din[0] = v->dout[0];
    return WF_OK;
}

/* ---- reshape, permute, slice, pad ---- */

/* wf_reshape has replaced a length of -1. Elements keep their row-major order. */
wf_status wf_shape_reshape(wf_infer *r)
{
    const wf_attr_shape *a = r->attr;
    const wf_value *x = r->in[0];
    WF_RULE(r, wf_dims_count(&a->dims) == wf_dims_count(&x->shape),
            "the new shape must have as many elements as x: %lld, not %lld",
            (long long)wf_dims_count(&x->shape), (long long)wf_dims_count(&a->dims));
    wf_infer_out(r, x->type, &a->dims);
    return WF_OK;
}

wf_status wf_grad_reshape(wf_vjp *v)
{
    v->din[0] = wf_reshape_to(v->g, v->dout[0], &v->node->in[0]->shape);
    return WF_OK;
}

/* Output axis i is input axis order[i]. */
wf_status wf_shape_permute(wf_infer *r)
{
    const wf_attr_permute *a = r->attr;
    const wf_dims *x = &r->in[0]->shape;
    wf_dims shape = {.n = x->n};
    uint32_t seen = 0;
    for (int i = 0; i < x->n && a->order.n == x->n; i++) {
        int64_t axis = a->order.d[i];
        /* Leaves `seen` incomplete, so that the rule below fails. */
        if (axis < 0 || axis >= x->n)
            break;
        seen |= 1u << axis;
        shape.d[i] = x->d[axis];
    }
    WF_RULE(r, a->order.n == x->n && seen == (1u << x->n) - 1,
            "the order must name each axis of x once");
    WF_RULE(r, !wf_is_block(r->in[0]) || x->n == 0 || a->order.d[x->n - 1] == x->n - 1,
            "the last axis holds blocks of %s and must stay last", wf_type_name(r->in[0]->type));
    wf_infer_out(r, r->in[0]->type, &shape);
    return WF_OK;
}

wf_status wf_grad_permute(wf_vjp *v)
{
    const wf_attr_permute *a = v->node->attr;
    int64_t inverse[WF_MAX_RANK];
    for (int i = 0; i < a->order.n; i++)
        inverse[a->order.d[i]] = i;
    v->din[0] = wf_permute(v->g, v->dout[0], inverse);
    return WF_OK;
}

wf_status wf_shape_slice(wf_infer *r)
{
    const wf_attr_slice *a = r->attr;
    wf_dims shape = r->in[0]->shape;
    WF_RULE(r, a->axis >= 0 && a->axis < shape.n, "axis %lld is out of range", (long long)a->axis);
    WF_RULE(r, 0 <= a->begin && a->begin <= a->end && a->end <= shape.d[a->axis],
            "[%lld, %lld) must lie within axis %lld, which is %lld long", (long long)a->begin,
            (long long)a->end, (long long)a->axis, (long long)shape.d[a->axis]);
    WF_RULE(r, a->axis + 1 < shape.n || a->begin % wf_type_get(r->in[0]->type)->block == 0,
            "[%lld, %lld) must be whole blocks of %d", (long long)a->begin, (long long)a->end,
            wf_type_get(r->in[0]->type)->block);
    shape.d[a->axis] = a->end - a->begin;
    wf_infer_out(r, r->in[0]->type, &shape);
    return WF_OK;
}

wf_status wf_grad_slice(wf_vjp *v)
{
    const wf_attr_slice *a = v->node->attr;
    int64_t length = v->node->in[0]->shape.d[a->axis];
    v->din[0] = wf_pad(v->g, v->dout[0], (int)a->axis, a->begin, length - a->end);
    return WF_OK;
}

wf_status wf_shape_pad(wf_infer *r)
{
    const wf_attr_pad *a = r->attr;
    wf_dims shape = r->in[0]->shape;
    WF_RULE(r, wf_has_type(r->in[0], WF_TYPES_PLAIN), "x must have a plain type");
    WF_RULE(r, a->axis >= 0 && a->axis < shape.n, "axis %lld is out of range", (long long)a->axis);
    WF_RULE(r, a->before >= 0 && a->after >= 0 && a->before < INT32_MAX && a->after < INT32_MAX,
            "before and after must not be negative or over 2^31 - 2");
    shape.d[a->axis] += a->before + a->after;
    wf_infer_out(r, r->in[0]->type, &shape);
    return WF_OK;
}

wf_status wf_grad_pad(wf_vjp *v)
{
    const wf_attr_pad *a = v->node->attr;
    int64_t length = v->node->in[0]->shape.d[a->axis];
    v->din[0] = wf_slice(v->g, v->dout[0], (int)a->axis, a->before, a->before + length);
    return WF_OK;
}

/* ---- concat, broadcast ---- */

wf_status wf_shape_concat(wf_infer *r)
{
    const wf_attr_axis *a = r->attr;
    wf_dims shape = r->in[0]->shape;
    WF_RULE(r, wf_has_type(r->in[0], WF_TYPES_PLAIN), "operands must have a plain type");
    WF_RULE(r, a->axis >= 0 && a->axis < shape.n, "axis %lld is out of range", (long long)a->axis);
    for (int i = 1; i < r->nin; i++) {
        const wf_value *x = r->in[i];
        WF_RULE(r, x->type == r->in[0]->type && x->shape.n == shape.n,
                "all operands must have the same type and rank");
        for (int k = 0; k < shape.n; k++)
            WF_RULE(r, k == a->axis || x->shape.d[k] == shape.d[k],
                    "shapes must be equal in all axes but axis %lld", (long long)a->axis);
        WF_RULE(r, wf_add_i64(shape.d[a->axis], x->shape.d[a->axis], &shape.d[a->axis]),
                "the result is too large to address");
    }
    wf_infer_out(r, r->in[0]->type, &shape);
    return WF_OK;
}

wf_status wf_grad_concat(wf_vjp *v)
{
    const wf_attr_axis *a = v->node->attr;
    int64_t begin = 0;
    for (int i = 0; i < v->node->nin; i++) {
        int64_t end = begin + v->node->in[i]->shape.d[a->axis];
        if (v->need[i])
            v->din[i] = wf_slice(v->g, v->dout[0], (int)a->axis, begin, end);
        begin = end;
    }
    return WF_OK;
}

/* The result has exactly the shape `dims`: x must not be larger along any axis. */
wf_status wf_shape_broadcast(wf_infer *r)
{
    const wf_attr_shape *a = r->attr;
    wf_dims shape;
    WF_RULE(r, wf_has_type(r->in[0], WF_TYPES_PLAIN), "x must have a plain type");
    WF_RULE(
        r, wf_dims_broadcast(&r->in[0]->shape, &a->dims, &shape) && wf_dims_equal(&shape, &a->dims),
        "x does not broadcast to the new shape: axes aligned at the last must be equal, or 1 in x");
    wf_infer_out(r, r->in[0]->type, &shape);
    return WF_OK;
}

wf_status wf_grad_broadcast(wf_vjp *v)
{
    v->din[0] = wf_sum_to(v->g, v->dout[0], &v->node->in[0]->shape);
    return WF_OK;
}
