/* SPDX-License-Identifier: MIT */
/*
 * matmul.c - rules of matmul, linear, and the fused forms of linear and of its gradient.
 *
 * Weights may be quantized: the b of matmul and the w of linear. Quantized operands have no
 * gradient. The first operand decides the type of the result. Kernels sum in f32 and round once.
 */
#include "graph/op/rule.h"

/* ---- matmul ---- */

/* a [..., M, K] (or [..., K, M] if transposed) and b [..., K, N] -> [..., M, N]. Batch axes do not
 * broadcast. */
wf_status wf_shape_matmul(wf_infer *r)
{
    const wf_attr_matmul *t = r->attr;
    const wf_value *a = r->in[0], *b = r->in[1];
    int64_t n = a->shape.n;
    WF_RULE(r, wf_is_float(a) && wf_type_get(b->type)->kind != WF_KIND_INT,
            "a must be f32, f16 or bf16, and b must not be an integer type");
    WF_RULE(r, n >= 2 && b->shape.n == n, "both operands must have the same rank, 2 or more");
    for (int i = 0; i + 2 < n; i++)
        WF_RULE(r, a->shape.d[i] == b->shape.d[i], "all axes but the last two must be equal");
    int64_t m = a->shape.d[t->transpose_a ? n - 1 : n - 2];
    int64_t ka = a->shape.d[t->transpose_a ? n - 2 : n - 1];
    int64_t kb = b->shape.d[t->transpose_b ? n - 1 : n - 2];
    WF_RULE(r, ka == kb, "the inner axes must be equal, not %lld and %lld", (long long)ka,
            (long long)kb);
    wf_dims shape = a->shape;
    shape.d[n - 2] = m;
    shape.d[n - 1] = b->shape.d[t->transpose_b ? n - 2 : n - 1];
    wf_infer_out(r, a->type, &shape);
    return WF_OK;
}

/* For y = a b: da = dy b^T and db = a^T dy. A transposed operand gets its gradient transposed as
 * well, by swapping the factors. The first operand decides a matmul's result type, so b is cast
 * where it comes first. */
wf_status wf_grad_matmul(wf_vjp *v)
{
    wf_graph *g = v->g;
    const wf_attr_matmul *t = v->node->attr;
    bool ta = t->transpose_a != 0, tb = t->transpose_b != 0;
    wf_value *a = v->node->in[0], *b = v->node->in[1], *dy = v->dout[0];
    if (v->need[0]) {
        wf_value *bt = ta && b->type != dy->type ? wf_cast(g, b, dy->type) : b;
        v->din[0] = ta ? wf_matmul(g, bt, dy, tb, true) : wf_matmul(g, dy, b, false, !tb);
    }
    if (v->need[1]) {
        wf_value *db = tb ? wf_matmul(g, dy, a, true, ta) : wf_matmul(g, a, dy, !ta, false);
        v->din[1] = wf_cast(g, db, b->type);
    }
    return WF_OK;
}

/* ---- linear: x [..., K], w [N, K], bias [N]? -> [..., N] ---- */

wf_status wf_shape_linear(wf_infer *r)
{
    const wf_value *x = r->in[0], *w = r->in[1], *bias = r->nin > 2 ? r->in[2] : NULL;
    WF_RULE(r, wf_is_float(x) && wf_type_get(w->type)->kind != WF_KIND_INT,
            "x must be f32, f16 or bf16, and w must not be an integer type");
    WF_RULE(r, x->shape.n >= 1 && w->shape.n == 2, "x must be [..., K] and w [N, K]");
    WF_RULE(r, wf_dims_last(&x->shape) == w->shape.d[1],
            "the last axis of x must equal the last axis of w");
    WF_RULE(r,
            !bias || (wf_is_float(bias) && bias->shape.n == 1 && bias->shape.d[0] == w->shape.d[0]),
            "the bias must be [N] of f32, f16 or bf16, where w is [N, K]");
    wf_dims shape = x->shape;
    shape.d[shape.n - 1] = w->shape.d[0];
    wf_infer_out(r, x->type, &shape);
    return WF_OK;
}

/* With x and dy as matrices of rows: dx = dy w, dw = dy^T x, dbias = the sum of dy's rows. */
wf_status wf_grad_linear(wf_vjp *v)
{
    wf_graph *g = v->g;
    wf_value *const *in = v->node->in, *x = in[0], *w = in[1];
    wf_value *dy = wf_flatten_rows(g, v->dout[0]);
    if (v->need[0])
        v->din[0] = wf_reshape_to(g, wf_matmul(g, dy, w, false, false), &x->shape);
    if (v->need[1])
        v->din[1] = wf_cast(g, wf_matmul(g, dy, wf_flatten_rows(g, x), true, false), w->type);
    if (v->node->nin > 2 && v->need[2])
        v->din[2] = wf_cast(g, wf_sum(g, dy, 1, false), in[2]->type);
    return WF_OK;
}

/* x w^T as a matmul of rank 2; the bias broadcasts over the rows. */
wf_status wf_expand_linear(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    wf_dims shape = in[0]->shape;
    shape.d[shape.n - 1] = in[1]->shape.d[0];
    wf_value *y = wf_matmul(g, wf_flatten_rows(g, in[0]), in[1], false, true);
    if (n->nin > 2)
        y = wf_add(g, y, wf_cast(g, in[2], in[0]->type));
    out[0] = wf_reshape_to(g, y, &shape);
    return WF_OK;
}

/* ---- linear_act: act(linear); output 1 is linear's result, saved for the gradient ---- */

wf_status wf_shape_linear_act(wf_infer *r)
{
    const wf_attr_linear_act *a = r->attr;
    WF_RULE(r, a->act >= 0 && a->act < WF_ACT_COUNT,
            "act must be 0 (gelu), 1 (gelu_erf), 2 (silu), 3 (relu) or 4 (relu2)");
    WF_TRY(wf_shape_linear(r));
    wf_infer_out(r, r->out[0].type, &r->out[0].shape);
    return WF_OK;
}

/* The activation reads the rounded result of linear, as separate nodes would. */
wf_status wf_expand_linear_act(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_linear_act *a = n->attr;
    out[1] = wf_node_add(g, WF_OP_linear, NULL, NULL, in, n->nin);
    out[0] = wf_node_add(g, wf_act_op(a->act), NULL, NULL, &out[1], 1);
    return WF_OK;
}

/* ---- matmul_act_grad: gradient of linear(act(pre)) with respect to pre ---- */

/* (dy [M, N], w [N, K], pre [M, K]) -> d [M, K], the sum of d's rows f32[K] */
wf_status wf_shape_matmul_act_grad(wf_infer *r)
{
    const wf_attr_matmul_act_grad *a = r->attr;
    const wf_value *dy = r->in[0], *w = r->in[1], *pre = r->in[2];
    WF_RULE(r, a->act == WF_ACT_GELU,
            "act must be 0 (gelu): no other activation has a gradient op");
    WF_RULE(r, wf_is_float(dy) && wf_type_get(w->type)->kind != WF_KIND_INT,
            "dy must be f32, f16 or bf16, and w must not be an integer type");
    WF_RULE(r, dy->shape.n == 2 && w->shape.n == 2 && dy->shape.d[1] == w->shape.d[0],
            "dy must be [M, N] and w [N, K]");
    WF_RULE(r,
            pre->type == dy->type &&
                wf_dims_equal(&pre->shape, &(wf_dims){2, {dy->shape.d[0], w->shape.d[1]}}),
            "pre must be [M, K] of dy's type");
    wf_infer_out(r, pre->type, &pre->shape);
    wf_infer_out(r, WF_F32, &(wf_dims){1, {pre->shape.d[1]}});
    return WF_OK;
}

wf_status wf_expand_matmul_act_grad(wf_graph *g, const wf_node *n, wf_value *const *in,
                                    wf_value **out)
{
    wf_value *dact = wf_matmul(g, wf_cast(g, in[0], WF_F32), in[1], false, false);
    /* The shape rule allows only gelu. */
    wf_value *d = wf_gelu_grad(g, dact, wf_cast(g, in[2], WF_F32));
    out[0] = wf_cast(g, d, n->out[0].type);
    /* Of the rounded d, as a separate sum would read it. */
    out[1] = wf_sum(g, wf_cast(g, out[0], WF_F32), 1, false);
    return WF_OK;
}

/* ---- linear_grad_weight: gradient of linear with respect to w and bias, in f32 ---- */

/* (dy [M, N], x [M, K]) -> dw f32[N, K], db f32[N]. Narrow operands, but results in f32: parameters
 * are f32, and rounding in between would lose bits. */
wf_status wf_shape_linear_grad_weight(wf_infer *r)
{
    const wf_value *dy = r->in[0], *x = r->in[1];
    WF_RULE(r, wf_is_float(dy) && x->type == dy->type, "dy and x must be floats of the same type");
    WF_RULE(r, dy->shape.n == 2 && x->shape.n == 2 && dy->shape.d[0] == x->shape.d[0],
            "dy must be [M, N] and x [M, K]");
    wf_infer_out(r, WF_F32, &(wf_dims){2, {dy->shape.d[1], x->shape.d[1]}});
    wf_infer_out(r, WF_F32, &(wf_dims){1, {dy->shape.d[1]}});
    return WF_OK;
}

wf_status wf_expand_linear_grad_weight(wf_graph *g, const wf_node *n, wf_value *const *in,
                                       wf_value **out)
{
    (void)n;
    wf_value *dy = wf_cast(g, in[0], WF_F32);
    out[0] = wf_matmul(g, dy, wf_cast(g, in[1], WF_F32), true, false);
    out[1] = wf_sum(g, dy, 1, false);
    return WF_OK;
}
