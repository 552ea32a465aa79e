/* SPDX-License-Identifier: MIT */
/*
 * loss.c - rules of cross_entropy, its gradient, and head_loss.
 *
 * Losses are f32, one per target, not averaged. A target equal to ignore_index has loss 0 and no
 * gradient. lse, the log of the sum of exponentials, is saved for the gradient.
 */
#include "graph/op/rule.h"

/* Shared by cross_entropy, its gradient and head_loss. */
static wf_status check_loss_attr(wf_infer *r, const wf_attr_cross_entropy *a)
{
    WF_RULE(r, a->label_smoothing >= 0 && a->label_smoothing <= 1,
            "label_smoothing must lie in [0, 1]");
    WF_RULE(r, a->softcap >= 0, "softcap must not be negative");
    return WF_OK;
}

/* logits [..., V], targets i32[...]. Targets are data: kernels check their range. */
static wf_status check_loss(wf_infer *r, const wf_value *logits, const wf_value *targets)
{
    WF_RULE(r, wf_is_float(logits), "logits must be f32, f16 or bf16");
    WF_RULE(r, logits->shape.n >= 1 && wf_dims_last(&logits->shape) > 0,
            "logits must have rank 1 or more and a non-empty last axis");
    wf_dims leading = wf_dims_leading(&logits->shape);
    WF_RULE(r, targets->type == WF_I32 && wf_dims_equal(&targets->shape, &leading),
            "targets must be i32 of the logits' shape without the last axis");
    return check_loss_attr(r, r->attr);
}

/* Outputs: loss and lse, both f32[...]. */
wf_status wf_shape_cross_entropy(wf_infer *r)
{
    WF_TRY(check_loss(r, r->in[0], r->in[1]));
    wf_infer_out(r, WF_F32, &r->in[1]->shape);
    wf_infer_out(r, WF_F32, &r->in[1]->shape);
    return WF_OK;
}

/* (dloss, logits, targets, lse) -> dlogits in the logits' type. */
wf_status wf_shape_cross_entropy_grad(wf_infer *r)
{
    const wf_value *dloss = r->in[0], *logits = r->in[1], *targets = r->in[2], *lse = r->in[3];
    WF_TRY(check_loss(r, logits, targets));
    WF_RULE(r, dloss->type == WF_F32 && wf_same_shape(dloss, targets) && wf_alike(dloss, lse),
            "dloss and lse must be f32 of the targets' shape");
    wf_infer_out(r, logits->type, &logits->shape);
    return WF_OK;
}

wf_status wf_grad_cross_entropy(wf_vjp *v)
{
    wf_node *n = v->node;
    WF_TRY(wf_vjp_only_first(v));
    wf_value *in[] = {v->dout[0], n->in[0], n->in[1], &n->out[1]};
    v->din[0] = wf_node_add(v->g, WF_OP_cross_entropy_grad, n->attr, NULL, in, 4);
    return WF_OK;
}

/* tanh(z / softcap) of f32 logits z. The capped logits are softcap times this. softcap > 0. */
static wf_value *capped(wf_graph *g, wf_value *z, const wf_attr_cross_entropy *a)
{
    return wf_tanh(g, wf_scale(g, z, 1 / a->softcap));
}

/* u8[..., V]: 1 at the target's class. */
static wf_value *hits(wf_graph *g, wf_value *targets, int64_t classes)
{
    return wf_eq(g, wf_column(g, targets), wf_iota(g, 1, &classes, 0));
}

/* loss = (1 - smoothing) (lse - z[target]) + smoothing (lse - mean(z)) + z_loss lse^2, with z =
 * softcap tanh(logits / softcap) or the logits themselves. */
wf_status wf_expand_cross_entropy(wf_graph *g, const wf_node *n, wf_value *const *in,
                                  wf_value **out)
{
    const wf_attr_cross_entropy *a = n->attr;
    uint32_t last = wf_last_axis(in[0]);
    wf_value *targets = in[1];
    wf_value *z = wf_cast(g, in[0], WF_F32);
    if (a->softcap > 0)
        z = wf_scale(g, capped(g, z, a), a->softcap);

    /* Subtracting the maximum keeps exp from overflowing. */
    wf_value *top = wf_max(g, z, last, true);
    wf_value *sum = wf_sum(g, wf_exp(g, wf_sub(g, z, top)), last, true);
    wf_value *lse = wf_reshape_to(g, wf_add(g, top, wf_log(g, sum)), &targets->shape);

    /* A masked sum instead of a gather: exactly one term is not 0. */
    wf_value *hit = hits(g, targets, wf_dims_last(&in[0]->shape));
    wf_value *picked = wf_sum(g, wf_where(g, hit, z, wf_like(g, z, 0)), last, false);
    wf_value *loss = wf_scale(g, wf_sub(g, lse, picked), 1 - a->label_smoothing);
    if (a->label_smoothing > 0) {
        wf_value *spread = wf_sub(g, lse, wf_reduce(g, "mean", z, last, false));
        loss = wf_add(g, loss, wf_scale(g, spread, a->label_smoothing));
    }
    if (a->z_loss != 0)
        loss = wf_add(g, loss, wf_scale(g, wf_mul(g, lse, lse), a->z_loss));
    wf_value *ignored = wf_eq(g, targets, wf_like(g, targets, (double)a->ignore_index));
    out[0] = wf_where(g, ignored, wf_like(g, loss, 0), loss);
    out[1] = lse;
    return WF_OK;
}

/* With z the capped logits, t = tanh(logits / softcap) and the probabilities p = exp(z - lse):
 *   dz = dloss (p (1 + 2 z_loss lse) - (1 - smoothing) hit - smoothing / V)
 *   dlogits = dz (1 - t^2), or dz without a softcap */
wf_status wf_expand_cross_entropy_grad(wf_graph *g, const wf_node *n, wf_value *const *in,
                                       wf_value **out)
{
    const wf_attr_cross_entropy *a = n->attr;
    int64_t classes = wf_dims_last(&in[1]->shape);
    wf_value *targets = in[2], *lse = wf_column(g, in[3]);
    wf_value *z = wf_cast(g, in[1], WF_F32), *t = NULL;
    if (a->softcap > 0) {
        t = capped(g, z, a);
        z = wf_scale(g, t, a->softcap);
    }
    wf_value *p = wf_exp(g, wf_sub(g, z, lse));
    if (a->z_loss != 0) {
        wf_value *more = wf_scale(g, lse, 2 * a->z_loss);
        p = wf_mul(g, p, wf_add(g, more, wf_like(g, more, 1)));
    }
    double spread = a->label_smoothing / (double)classes;
    wf_value *wanted =
        wf_where(g, hits(g, targets, classes), wf_like(g, z, 1 - a->label_smoothing + spread),
                 wf_like(g, z, spread));
    wf_value *dz = wf_mul(g, wf_sub(g, p, wanted), wf_column(g, in[0]));
    if (t)
        dz = wf_mul(g, dz, wf_sub(g, wf_like(g, t, 1), wf_mul(g, t, t)));
    wf_value *ignored = wf_eq(g, targets, wf_like(g, targets, (double)a->ignore_index));
    dz = wf_where(g, wf_column(g, ignored), wf_like(g, dz, 0), dz);
    out[0] = wf_cast(g, dz, in[1]->type);
    return WF_OK;
}

/* ---- head_loss: (x, w, targets, dloss?) -> loss, lse, dx?, dw? ---- */

/* Whether the gradient of w is an output. */
static bool has_dw(const wf_attr_head_loss *a, const wf_value *w)
{
    return wf_is_float(w) && !a->frozen; /* quantized blocks have no gradient */
}

/* Outputs depend on the operands: dx and dw only with dloss. */
wf_status wf_shape_head_loss(wf_infer *r)
{
    const wf_attr_head_loss *a = r->attr;
    const wf_attr_cross_entropy loss = wf_attr_of_loss(a);
    const wf_value *x = r->in[0], *w = r->in[1], *targets = r->in[2];
    WF_RULE(r, wf_is_float(x) && wf_has_type(w, WF_TYPES_WEIGHT),
            "x must be f32, f16 or bf16, and w must be one of these or quantized");
    WF_RULE(r, x->shape.n >= 1 && w->shape.n == 2 && w->shape.d[0] > 0,
            "x must be [..., C] and w [V, C] with V > 0");
    WF_RULE(r, wf_dims_last(&x->shape) == w->shape.d[1],
            "the last axis of x must equal the last axis of w");
    wf_dims leading = wf_dims_leading(&x->shape);
    WF_RULE(r, targets->type == WF_I32 && wf_dims_equal(&targets->shape, &leading),
            "targets must be i32 of x's shape without the last axis");
    WF_RULE(r, r->nin < 4 || (r->in[3]->type == WF_F32 && wf_same_shape(r->in[3], targets)),
            "dloss must be f32 of the targets' shape");
    WF_RULE(r, a->chunk >= 0, "chunk must not be negative");
    WF_TRY(check_loss_attr(r, &loss));
    wf_infer_out(r, WF_F32, &targets->shape);
    wf_infer_out(r, WF_F32, &targets->shape);
    if (r->nin > 3) {
        wf_infer_out(r, x->type, &x->shape);
        if (has_dw(a, w))
            wf_infer_out(r, w->type, &w->shape);
    }
    return WF_OK;
}

/* Computes all logits at once; kernels of head_loss compute them in chunks of rows. */
wf_status wf_expand_head_loss(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_cross_entropy attr = wf_attr_of_loss(n->attr);
    wf_value *x = in[0], *w = in[1], *targets = in[2];
    wf_value *logits = wf_linear(g, x, w, NULL);
    out[0] = wf_node_add(g, WF_OP_cross_entropy, &attr, NULL, (wf_value *[]){logits, targets}, 2);
    out[1] = wf_value_output(out[0], 1);
    if (n->nin < 4)
        return WF_OK;
    /* lse of the forward part, so that both agree. */
    wf_value *back[] = {in[3], logits, targets, out[1]};
    wf_value *rows =
        wf_flatten_rows(g, wf_node_add(g, WF_OP_cross_entropy_grad, &attr, NULL, back, 4));
    out[2] = wf_reshape_to(g, wf_matmul(g, rows, w, false, false), &x->shape);
    if (has_dw(n->attr, w))
        out[3] = wf_cast(g, wf_matmul(g, rows, wf_flatten_rows(g, x), true, false), w->type);
    return WF_OK;
}
