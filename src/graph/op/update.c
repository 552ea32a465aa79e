/* SPDX-License-Identifier: MIT */
/*
 * update.c - rules of update ops. That the first operands are states is checked for all update ops
 * when the node is added; what the optimizers compute is PyTorch's AdamW and SGD.
 */
#include <math.h>

#include "graph/op/rule.h"

/* ---- assign, accumulate ---- */

wf_status wf_shape_assign(wf_infer *r)
{
    const wf_value *state = r->in[0], *x = r->in[1];
    bool floats = wf_is_float(state) && wf_is_float(x);
    bool add = r->def == wf_op_get(WF_OP_accumulate);
    WF_RULE(r, wf_same_shape(state, x), "x must have the state's shape");
    WF_RULE(r,
            floats || (state->type == x->type &&
                       wf_has_type(state, add ? WF_TYPES_NUMBER : WF_TYPES_PLAIN)),
            "state and x must both be floats, or of the same %s",
            add ? "number type" : "plain type");
    WF_RULE(r, r->nin < 3 || wf_is_scalar(r->in[2], WF_U8), "apply must be a u8 scalar");
    wf_infer_out(r, state->type, &state->shape);
    return WF_OK;
}

wf_status wf_expand_accumulate(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    wf_type type = in[0]->type, wide = type == WF_I32 ? WF_I32 : WF_F32;
    wf_value *sum = wf_add(g, wf_cast(g, in[0], wide), wf_cast(g, in[1], wide));
    out[0] = wf_assign(g, in[0], wf_cast(g, sum, type), n->nin > 2 ? in[2] : NULL);
    return WF_OK;
}

/* ---- adamw ---- */

wf_status wf_shape_adamw(wf_infer *r)
{
    const wf_attr_adamw *a = r->attr;
    for (int i = 0; i < 4; i++)
        WF_RULE(r, wf_is_float(r->in[i]) && wf_same_shape(r->in[0], r->in[i]),
                "p, m, v and grad must be floats of one shape");
    WF_RULE(r,
            wf_is_scalar(r->in[4], WF_F32) && wf_is_scalar(r->in[5], WF_I32) &&
                wf_is_scalar(r->in[6], WF_F32) && wf_is_scalar(r->in[7], WF_U8),
            "lr must be an f32 scalar, step i32, scale f32 and apply u8");
    WF_RULE(r, a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1 && a->eps >= 0,
            "betas must lie in [0, 1) and eps not be negative");
    for (int i = 0; i < 3; i++)
        wf_infer_out(r, r->in[i]->type, &r->in[i]->shape);
    return WF_OK;
}

static wf_value *blend(wf_graph *g, wf_value *old, wf_value *x, double beta)
{
    return wf_add(g, wf_scale(g, old, beta), wf_scale(g, x, 1 - beta));
}

/* 1 - beta^t. */
static wf_value *bias_correction(wf_graph *g, wf_value *t, double beta)
{
    return wf_neg(g, wf_expm1(g, wf_scale(g, t, log(beta > 1e-300 ? beta : 1e-300))));
}

static wf_value *assign_cast(wf_graph *g, wf_value *state, wf_value *x, wf_value *apply)
{
    return wf_assign(g, state, wf_cast(g, x, wf_value_type(state)), apply);
}

wf_status wf_expand_adamw(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_adamw *a = n->attr;
    wf_value *f[4], *lr = in[4], *t = wf_cast(g, in[5], WF_F32), *apply = in[7];
    for (int i = 0; i < 4; i++)
        f[i] = wf_cast(g, in[i], WF_F32);
    wf_value *grad = wf_mul(g, f[3], in[6]);
    wf_value *m = blend(g, f[1], grad, a->beta1);
    wf_value *v = blend(g, f[2], wf_mul(g, grad, grad), a->beta2);
    wf_value *root = wf_div(g, wf_sqrt(g, v), wf_sqrt(g, bias_correction(g, t, a->beta2)));
    wf_value *step = wf_div(g, m, wf_add(g, root, wf_like(g, root, a->eps)));
    wf_value *rate = wf_div(g, lr, bias_correction(g, t, a->beta1));
    wf_value *decay = wf_sub(g, wf_like(g, lr, 1), wf_scale(g, lr, a->weight_decay));
    wf_value *p = wf_sub(g, wf_mul(g, f[0], decay), wf_mul(g, step, rate));
    out[0] = assign_cast(g, in[0], p, apply);
    out[1] = assign_cast(g, in[1], m, apply);
    out[2] = assign_cast(g, in[2], v, apply);
    return WF_OK;
}

/* ---- sgd: (p, grad, lr, scale, apply) or (p, velocity, grad, lr, scale, apply) ---- */

wf_status wf_shape_sgd(wf_infer *r)
{
    const wf_attr_sgd *a = r->attr;
    int states = r->nin - 4;
    for (int i = 0; i <= states; i++)
        WF_RULE(r, wf_is_float(r->in[i]) && wf_same_shape(r->in[0], r->in[i]),
                "p, velocity and grad must be floats of one shape");
    WF_RULE(r,
            wf_is_scalar(r->in[states + 1], WF_F32) && wf_is_scalar(r->in[states + 2], WF_F32) &&
                wf_is_scalar(r->in[states + 3], WF_U8),
            "lr must be an f32 scalar, scale f32 and apply u8");
    WF_RULE(r, a->momentum >= 0 && (a->momentum == 0 || states == 2),
            "momentum must not be negative, and needs a velocity");
    WF_RULE(r, !a->nesterov || a->momentum > 0, "nesterov needs momentum");
    for (int i = 0; i < states; i++)
        wf_infer_out(r, r->in[i]->type, &r->in[i]->shape);
    return WF_OK;
}

wf_status wf_expand_sgd(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_sgd *a = n->attr;
    int states = n->nin - 4;
    wf_value *lr = in[states + 1], *scale = in[states + 2], *apply = in[states + 3];
    wf_value *p = wf_cast(g, in[0], WF_F32);
    wf_value *grad = wf_mul(g, wf_cast(g, in[states], WF_F32), scale);
    grad = wf_add(g, grad, wf_scale(g, p, a->weight_decay));
    wf_value *velocity = NULL, *step = grad;
    if (states == 2) {
        velocity = wf_add(g, wf_scale(g, wf_cast(g, in[1], WF_F32), a->momentum), grad);
        step = a->nesterov ? wf_add(g, grad, wf_scale(g, velocity, a->momentum)) : velocity;
    }
    out[0] = assign_cast(g, in[0], wf_sub(g, p, wf_mul(g, step, lr)), apply);
    if (velocity)
        out[1] = assign_cast(g, in[1], velocity, apply);
    return WF_OK;
}
