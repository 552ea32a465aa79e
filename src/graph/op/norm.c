/* SPDX-License-Identifier: MIT */
/*
 * norm.c - rules of layer_norm and rms_norm, of their gradients, and of the fused forms that add a
 * residual first.
 *
 * All norms work on the last axis of x [..., C]. The statistics, mean and rstd (layer_norm) or rstd
 * alone (rms_norm), are f32[...] outputs saved for the gradient. rstd = 1 / sqrt(s + eps), where s
 * is the variance (layer_norm) or the mean square (rms_norm).
 */
#include "graph/op/rule.h"

/* Checks that x is [..., C] with C > 0 and that the operands from `first` on are [C]. */
static wf_status check_rows(wf_infer *r, const wf_value *x, int first)
{
    const wf_attr_norm *a = r->attr;
    WF_RULE(r, wf_is_float(x), "x must be f32, f16 or bf16");
    WF_RULE(r, x->shape.n >= 1 && wf_dims_last(&x->shape) > 0,
            "x must have rank 1 or more and a non-empty last axis");
    WF_RULE(r, a->eps >= 0, "eps must not be negative");
    for (int i = first; i < r->nin; i++)
        WF_RULE(r,
                wf_is_float(r->in[i]) && r->in[i]->shape.n == 1 &&
                    r->in[i]->shape.d[0] == wf_dims_last(&x->shape),
                "gamma and beta must be floats of length C, the last axis of x");
    return WF_OK;
}

/* (x, residual?, gamma?, beta?) -> sum?, y, `stats` statistics per row */
static wf_status shape_norm(wf_infer *r, bool residual, int stats)
{
    const wf_value *x = r->in[0];
    WF_TRY(check_rows(r, x, residual ? 2 : 1));
    WF_RULE(r, !residual || wf_alike(r->in[1], x),
            "x and residual must have the same type and shape");
    wf_dims leading = wf_dims_leading(&x->shape);
    if (residual)
        wf_infer_out(r, x->type, &x->shape);
    wf_infer_out(r, x->type, &x->shape);
    for (int i = 0; i < stats; i++)
        wf_infer_out(r, WF_F32, &leading);
    return WF_OK;
}

/* residual_*_norm as an add node followed by the op `norm`. */
static wf_status expand_residual(wf_graph *g, const wf_node *n, wf_value *const *in, wf_op norm,
                                 wf_value **out)
{
    /* The sum is rounded to x's type, as a separate add would. */
    wf_value *of[3] = {wf_add(g, in[0], in[1])};
    for (int i = 2; i < n->nin; i++)
        of[i - 1] = in[i];
    wf_value *y = wf_node_add(g, norm, n->attr, NULL, of, n->nin - 1);
    out[0] = of[0];
    for (int i = 1; i < n->nout; i++)
        out[i] = wf_value_output(y, i - 1);
    return WF_OK;
}

/* Sums over all axes but the last: [..., C] to [C]. */
static wf_value *sum_rows(wf_graph *g, wf_value *v, wf_type type)
{
    return wf_cast(g, wf_sum(g, wf_flatten_rows(g, v), 1, false), type);
}

/* residual_*_norm_grad: the op `grad` in f32, plus dsum = in[at] added to its dx. The last output
 * is the sum over the rows of the rounded dx, f32[C]. */
static wf_status expand_residual_grad(wf_graph *g, const wf_node *n, wf_value *const *in,
                                      wf_op grad, int at, wf_value **out)
{
    /* dy and x; statistics are f32 already. */
    wf_value *of[5] = {wf_cast(g, in[0], WF_F32), wf_cast(g, in[1], WF_F32)};
    for (int i = 2; i < n->nin; i++)
        if (i != at)
            of[i < at ? i : i - 1] = in[i];
    wf_value *dx = wf_node_add(g, grad, n->attr, NULL, of, n->nin - 1);
    wf_value *sum = wf_add(g, dx, wf_cast(g, in[at], WF_F32));
    out[0] = wf_cast(g, sum, n->out[0].type);
    for (int i = 1; i < n->nout - 1; i++)
        out[i] = wf_cast(g, wf_value_output(dx, i), n->out[i].type);
    out[n->nout - 1] = sum_rows(g, wf_cast(g, out[0], WF_F32), WF_F32);
    return WF_OK;
}

/* (dy, x, `stats` statistics, dsum?, gamma?) -> dx, `params` gradients [C], row sums f32[C]?
 * dsum and the row sums exist in the residual forms only. The parameter gradients have gamma's
 * type, or x's when gamma is missing. */
static wf_status shape_norm_grad(wf_infer *r, bool residual, int stats, int params)
{
    const wf_value *x = r->in[1];
    int gamma = 2 + stats + residual; /* index of gamma; `residual` counts as 1 */
    WF_TRY(check_rows(r, x, gamma));
    WF_RULE(r, wf_alike(r->in[0], x), "dy and x must have the same type and shape");
    wf_dims leading = wf_dims_leading(&x->shape);
    for (int i = 2; i < 2 + stats; i++)
        WF_RULE(r, r->in[i]->type == WF_F32 && wf_dims_equal(&r->in[i]->shape, &leading),
                "the statistics must be f32 of x's shape without the last axis");
    WF_RULE(r, !residual || wf_alike(r->in[2 + stats], x),
            "dsum and x must have the same type and shape");
    wf_infer_out(r, x->type, &x->shape);
    wf_type type = r->nin > gamma ? r->in[gamma]->type : x->type;
    for (int i = 0; i < params; i++)
        wf_infer_out(r, type, &(wf_dims){1, {wf_dims_last(&x->shape)}});
    if (residual)
        wf_infer_out(r, WF_F32, &(wf_dims){1, {wf_dims_last(&x->shape)}});
    return WF_OK;
}

/* [..., 1] to [...]. */
static wf_value *squeeze_last(wf_graph *g, wf_value *v)
{
    if (!v)
        return NULL;
    wf_dims leading = wf_dims_leading(&v->shape);
    return wf_reshape_to(g, v, &leading);
}

/* [..., C] to [..., 1]. */
static wf_value *mean_last(wf_graph *g, wf_value *v)
{
    return wf_reduce(g, "mean", v, wf_last_axis(v), true);
}

/* y gamma + beta in f32; either may be NULL. */
static wf_value *scaled_and_shifted(wf_graph *g, wf_value *y, wf_value *gamma, wf_value *beta)
{
    if (gamma)
        y = wf_mul(g, y, wf_cast(g, gamma, WF_F32));
    return beta ? wf_add(g, y, wf_cast(g, beta, WF_F32)) : y;
}

static wf_value *rsqrt_eps(wf_graph *g, wf_value *mean_square, const wf_attr_norm *a)
{
    return wf_rsqrt(g, wf_add(g, mean_square, wf_like(g, mean_square, a->eps)));
}

/* Sets out[0] = dx and out[1] = dgamma for both norms; returns dy in f32. h is x normalized with
 * the saved statistics, `centered` if its mean was subtracted. in[first] is gamma when n has one.
 *   dx = rstd (dh - h mean(dh h) - mean(dh) if centered), dh = dy gamma */
static wf_value *expand_grad(wf_graph *g, const wf_node *n, wf_value *const *in, int first,
                             wf_value *h, wf_value *rstd, bool centered, wf_value **out)
{
    wf_value *dy = wf_cast(g, in[0], WF_F32);
    wf_value *dh = scaled_and_shifted(g, dy, n->nin > first ? in[first] : NULL, NULL);
    wf_value *dx = wf_sub(g, dh, wf_mul(g, h, mean_last(g, wf_mul(g, dh, h))));
    if (centered)
        dx = wf_sub(g, dx, mean_last(g, dh));
    out[0] = wf_cast(g, wf_mul(g, dx, rstd), in[1]->type);
    out[1] = sum_rows(g, wf_mul(g, dy, h), n->out[1].type);
    return dy;
}

/* ---- layer_norm ---- */

wf_status wf_shape_layer_norm(wf_infer *r)
{
    return shape_norm(r, false, 2);
}

wf_status wf_shape_residual_layer_norm(wf_infer *r)
{
    return shape_norm(r, true, 2);
}

wf_status wf_shape_layer_norm_grad(wf_infer *r)
{
    return shape_norm_grad(r, false, 2, 2);
}

wf_status wf_shape_residual_layer_norm_grad(wf_infer *r)
{
    return shape_norm_grad(r, true, 2, 2);
}

/* din[1] and din[2] come with dx from one node. dbeta has gamma's type there, so cast it. */
wf_status wf_grad_layer_norm(wf_vjp *v)
{
    wf_node *n = v->node;
    WF_TRY(wf_vjp_only_first(v));
    /* Statistics as saved, not computed again. */
    wf_value *in[] = {v->dout[0], n->in[0], &n->out[1], &n->out[2], n->nin > 1 ? n->in[1] : NULL};
    wf_value *dx = wf_node_add(v->g, WF_OP_layer_norm_grad, n->attr, NULL, in, n->nin > 1 ? 5 : 4);
    v->din[0] = dx;
    if (n->nin > 1)
        v->din[1] = wf_value_output(dx, 1);
    if (n->nin > 2)
        v->din[2] = wf_cast(v->g, wf_value_output(dx, 2), n->in[2]->type);
    return WF_OK;
}

/* Two passes over the row: the mean first, then the mean of the squared differences. E[x^2] -
 * mean^2 would cancel. */
wf_status wf_expand_layer_norm(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    wf_value *x = wf_cast(g, in[0], WF_F32);
    wf_value *mean = mean_last(g, x);
    wf_value *d = wf_sub(g, x, mean);
    wf_value *rstd = rsqrt_eps(g, mean_last(g, wf_mul(g, d, d)), n->attr);
    wf_value *y = scaled_and_shifted(g, wf_mul(g, d, rstd), n->nin > 1 ? in[1] : NULL,
                                     n->nin > 2 ? in[2] : NULL);
    out[0] = wf_cast(g, y, in[0]->type);
    out[1] = squeeze_last(g, mean);
    out[2] = squeeze_last(g, rstd);
    return WF_OK;
}

wf_status wf_expand_residual_layer_norm(wf_graph *g, const wf_node *n, wf_value *const *in,
                                        wf_value **out)
{
    return expand_residual(g, n, in, WF_OP_layer_norm, out);
}

wf_status wf_expand_layer_norm_grad(wf_graph *g, const wf_node *n, wf_value *const *in,
                                    wf_value **out)
{
    wf_value *rstd = wf_column(g, in[3]); /* in[2] is mean, in[3] rstd */
    wf_value *d = wf_sub(g, wf_cast(g, in[1], WF_F32), wf_column(g, in[2]));
    /* gamma, if present, is operand 4. */
    wf_value *dy = expand_grad(g, n, in, 4, wf_mul(g, d, rstd), rstd, true, out);
    out[2] = sum_rows(g, dy, n->out[2].type);
    return WF_OK;
}

wf_status wf_expand_residual_layer_norm_grad(wf_graph *g, const wf_node *n, wf_value *const *in,
                                             wf_value **out)
{
    return expand_residual_grad(g, n, in, WF_OP_layer_norm_grad, 4, out);
}

/* ---- rms_norm ---- */

wf_status wf_shape_rms_norm(wf_infer *r)
{
    return shape_norm(r, false, 1);
}

wf_status wf_shape_residual_rms_norm(wf_infer *r)
{
    return shape_norm(r, true, 1);
}

wf_status wf_shape_rms_norm_grad(wf_infer *r)
{
    return shape_norm_grad(r, false, 1, 1);
}

wf_status wf_shape_residual_rms_norm_grad(wf_infer *r)
{
    return shape_norm_grad(r, true, 1, 1);
}

wf_status wf_grad_rms_norm(wf_vjp *v)
{
    wf_node *n = v->node;
    WF_TRY(wf_vjp_only_first(v));
    wf_value *in[] = {v->dout[0], n->in[0], &n->out[1], n->nin > 1 ? n->in[1] : NULL};
    v->din[0] = wf_node_add(v->g, WF_OP_rms_norm_grad, n->attr, NULL, in, n->nin > 1 ? 4 : 3);
    if (n->nin > 1)
        v->din[1] = wf_value_output(v->din[0], 1);
    return WF_OK;
}

wf_status wf_expand_rms_norm(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    wf_value *x = wf_cast(g, in[0], WF_F32);
    wf_value *rstd = rsqrt_eps(g, mean_last(g, wf_mul(g, x, x)), n->attr);
    wf_value *y = scaled_and_shifted(g, wf_mul(g, x, rstd), n->nin > 1 ? in[1] : NULL, NULL);
    out[0] = wf_cast(g, y, in[0]->type);
    out[1] = squeeze_last(g, rstd);
    return WF_OK;
}

wf_status wf_expand_residual_rms_norm(wf_graph *g, const wf_node *n, wf_value *const *in,
                                      wf_value **out)
{
    return expand_residual(g, n, in, WF_OP_rms_norm, out);
}

wf_status wf_expand_rms_norm_grad(wf_graph *g, const wf_node *n, wf_value *const *in,
                                  wf_value **out)
{
    wf_value *rstd = wf_column(g, in[2]);
    wf_value *h = wf_mul(g, wf_cast(g, in[1], WF_F32), rstd);
    expand_grad(g, n, in, 3, h, rstd, false, out);
    return WF_OK;
}

wf_status wf_expand_residual_rms_norm_grad(wf_graph *g, const wf_node *n, wf_value *const *in,
                                           wf_value **out)
{
    return expand_residual_grad(g, n, in, WF_OP_rms_norm_grad, 3, out);
}
