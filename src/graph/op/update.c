/* SPDX-License-Identifier: MIT */
/*
 * update.c - rules of update ops: assign, accumulate and the optimizers.
 *
 * Output i of an update is the next version of operand i, a state. wf_node_add checks for all
 * update ops that these operands are states. AdamW and SGD compute what PyTorch's do; Lion is that
 * of Chen et al., 2023.
 *
 * Operands that optimizers share: grad is multiplied by `scale` (f32 scalar) first, and the states
 * change only if `apply` (u8 scalar) is not 0.
 */
#include <math.h>

#include "graph/op/rule.h"

/* ---- Merged updates: operand k of update i is operand i + k n of the node ---- */

/* The n updates run in any order, so no update may read a state that another one writes. Each may
 * read its own state, which holds the old version then. Operands from `shared` on are read by all
 * updates. */
static wf_status check_apart(wf_infer *r, int n, int shared)
{
    for (int i = r->nout; n > 1 && i < r->nin; i++) {
        const wf_node *state = wf_value_root(r->in[i])->state;
        for (int k = 0; state && k < r->nout; k++)
            WF_RULE(r, r->in[k]->state != state || (i < shared && i % n == k % n),
                    "operand %d is a state that another update of this node writes", i);
    }
    return WF_OK;
}

/* The new versions have the types and shapes of the old ones. */
static void infer_states(wf_infer *r, int states)
{
    for (int i = 0; i < states; i++)
        wf_infer_out(r, r->in[i]->type, &r->in[i]->shape);
}

/* ---- assign, accumulate: (state_0, ..., x_0, ..., apply?) ---- */

wf_status wf_shape_assign(wf_infer *r)
{
    int n = r->nin / 2;
    bool add = r->def != wf_op_get(WF_OP_assign); /* accumulate and accumulate_many */
    for (int i = 0; i < n; i++) {
        const wf_value *state = r->in[i], *x = r->in[n + i];
        bool floats = wf_is_float(state) && wf_is_float(x);
        WF_RULE(r, wf_same_shape(state, x), "x must have the state's shape");
        WF_RULE(r,
                floats || (state->type == x->type &&
                           wf_has_type(state, add ? WF_TYPES_NUMBER : WF_TYPES_PLAIN)),
                "state and x must both be floats, or have the same %s",
                add ? "number type" : "plain type");
    }
    WF_RULE(r, r->nin % 2 == 0 || wf_is_scalar(r->in[2 * n], WF_U8), "apply must be a u8 scalar");
    infer_states(r, n);
    return check_apart(r, n, 2 * n);
}

/* Narrow floats are added in f32 and rounded once. */
wf_status wf_expand_accumulate(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    wf_type type = in[0]->type, wide = type == WF_I32 ? WF_I32 : WF_F32;
    wf_value *sum = wf_add(g, wf_cast(g, in[0], wide), wf_cast(g, in[1], wide));
    out[0] = wf_assign(g, in[0], wf_cast(g, sum, type), n->nin > 2 ? in[2] : NULL);
    return WF_OK;
}

/* An odd number of operands means that the last one is apply. */
wf_status wf_expand_accumulate_many(wf_graph *g, const wf_node *n, wf_value *const *in,
                                    wf_value **out)
{
    for (int i = 0; i < n->nout; i++)
        out[i] = wf_accumulate(g, in[i], in[n->nout + i], n->nin % 2 ? in[n->nin - 1] : NULL);
    return WF_OK;
}

/* ---- adamw: (p..., m..., v..., copies of p?..., grad..., lr, step, scale, apply) ---- */

/* A copy is p rounded to bf16 or f16, kept as a state of its own. The update writes both. */
static wf_status check_copies(wf_infer *r, int n)
{
    WF_RULE(r, n <= WF_MAX_OUT / 4, "takes at most %d parameters with copies", WF_MAX_OUT / 4);
    for (int i = 0; i < n; i++)
        WF_RULE(r,
                r->in[i]->type == WF_F32 &&
                    (r->in[3 * n + i]->type == WF_BF16 || r->in[3 * n + i]->type == WF_F16),
                "p must be f32, and its copy bf16 or f16");
    return WF_OK;
}

wf_status wf_shape_adamw(wf_infer *r)
{
    const wf_attr_adamw *a = r->attr;
    WF_RULE(r, a->copies == 0 || (a->copies == 1 && r->def == wf_op_get(WF_OP_adamw_many)),
            "copies must be 0, or 1 for adamw_many");
    /* Own operands per parameter; 4 shared ones follow. */
    int own = 4 + (int)a->copies, n = (r->nin - 4) / own;
    wf_value *const *rest = r->in + own * n;
    WF_RULE(r, n > 0 && r->nin == own * n + 4,
            "takes p, m, v%s and grad for each parameter, then lr, step, scale and apply",
            a->copies ? ", a copy" : "");
    for (int i = 0; i < own * n; i++)
        WF_RULE(r, wf_is_float(r->in[i]) && wf_same_shape(r->in[i % n], r->in[i]),
                "p, m, v and grad must be floats of the same shape");
    WF_RULE(r,
            wf_is_scalar(rest[0], WF_F32) && wf_is_scalar(rest[1], WF_I32) &&
                wf_is_scalar(rest[2], WF_F32) && wf_is_scalar(rest[3], WF_U8),
            "lr must be an f32 scalar, step i32, scale f32 and apply u8");
    WF_RULE(r, a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1 && a->eps >= 0,
            "betas must lie in [0, 1), and eps must not be negative");
    if (a->copies)
        WF_TRY(check_copies(r, n));
    infer_states(r, (own - 1) * n);
    return check_apart(r, n, own * n);
}

/* beta old + (1 - beta) x: an exponential moving average. */
static wf_value *blend(wf_graph *g, wf_value *old, wf_value *x, double beta)
{
    return wf_add(g, wf_scale(g, old, beta), wf_scale(g, x, 1 - beta));
}

/* 1 - beta^t by expm1, which stays accurate while beta^t is near 1. */
static wf_value *bias_correction(wf_graph *g, wf_value *t, double beta)
{
    /* beta may be 0: keep the logarithm finite. */
    return wf_neg(g, wf_expm1(g, wf_scale(g, t, log(beta > 1e-300 ? beta : 1e-300))));
}

static wf_value *assign_cast(wf_graph *g, wf_value *state, wf_value *x, wf_value *apply)
{
    return wf_assign(g, state, wf_cast(g, x, wf_value_type(state)), apply);
}

/* p := p (1 - lr weight_decay) - lr m' / (sqrt(v') + eps), where m' and v' are the bias-corrected
 * moments. All in f32; each state rounds once, when it is assigned. */
wf_status wf_expand_adamw(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_adamw *a = n->attr;
    wf_value *f[4], *lr = in[4], *t = wf_cast(g, in[5], WF_F32), *apply = in[7];
    for (int i = 0; i < 4; i++)
        f[i] = wf_cast(g, in[i], WF_F32);
    wf_value *grad = wf_mul(g, f[3], in[6]); /* scale: 1 / loss scale, and clipping */
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

wf_status wf_expand_adamw_many(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    wf_attr_adamw attr = *(const wf_attr_adamw *)n->attr;
    bool copies = attr.copies;
    int states = copies ? 4 : 3, count = n->nout / states;
    wf_value *const *shared = in + (states + 1) * count;
    attr.copies = 0;
    for (int i = 0; i < count; i++) {
        wf_value *one[8];
        for (int k = 0; k < 4; k++) {
            one[k] = in[i + (k < 3 ? k : states) * count];
            one[4 + k] = shared[k];
        }
        wf_value *p = wf_node_add(g, WF_OP_adamw, &attr, NULL, one, 8);
        for (int k = 0; k < 3; k++)
            out[i + k * count] = wf_value_output(p, k);
        if (copies)
            /* The copy rounds the parameter as it was stored, so both stay equal when apply is 0,
             * too. */
            out[i + 3 * count] = assign_cast(g, in[i + 3 * count], p, shared[3]);
    }
    return WF_OK;
}

/* ---- sgd: (p, grad, lr, scale, apply) or (p, velocity, grad, lr, scale, apply) ---- */

wf_status wf_shape_sgd(wf_infer *r)
{
    const wf_attr_sgd *a = r->attr;
    int states = r->nin - 4;
    for (int i = 0; i <= states; i++)
        WF_RULE(r, wf_is_float(r->in[i]) && wf_same_shape(r->in[0], r->in[i]),
                "p, velocity and grad must be floats of the same shape");
    WF_RULE(r,
            wf_is_scalar(r->in[states + 1], WF_F32) && wf_is_scalar(r->in[states + 2], WF_F32) &&
                wf_is_scalar(r->in[states + 3], WF_U8),
            "lr must be an f32 scalar, scale f32 and apply u8");
    WF_RULE(r, a->momentum >= 0 && (a->momentum == 0 || states == 2),
            "momentum must not be negative, and needs a velocity operand");
    WF_RULE(r, !a->nesterov || a->momentum > 0, "nesterov needs momentum");
    infer_states(r, states);
    return WF_OK;
}

/* velocity := momentum velocity + grad; step is velocity, or with nesterov grad + momentum
 * velocity. Weight decay is part of the gradient, as in PyTorch's SGD. */
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

/* ---- lion: (p, m, grad, lr, scale, apply) ---- */

wf_status wf_shape_lion(wf_infer *r)
{
    const wf_attr_lion *a = r->attr;
    for (int i = 0; i < 3; i++)
        WF_RULE(r, wf_is_float(r->in[i]) && wf_same_shape(r->in[0], r->in[i]),
                "p, m and grad must be floats of the same shape");
    WF_RULE(r,
            wf_is_scalar(r->in[3], WF_F32) && wf_is_scalar(r->in[4], WF_F32) &&
                wf_is_scalar(r->in[5], WF_U8),
            "lr must be an f32 scalar, scale f32 and apply u8");
    WF_RULE(r, a->beta1 >= 0 && a->beta1 < 1 && a->beta2 >= 0 && a->beta2 < 1,
            "betas must lie in [0, 1)");
    infer_states(r, 2);
    return WF_OK;
}

/* p := p (1 - lr weight_decay) - lr sign(beta1 m + (1 - beta1) grad). The sign of 0 and of NaN is
 * 0. */
wf_status wf_expand_lion(wf_graph *g, const wf_node *n, wf_value *const *in, wf_value **out)
{
    const wf_attr_lion *a = n->attr;
    wf_value *p = wf_cast(g, in[0], WF_F32), *m = wf_cast(g, in[1], WF_F32), *lr = in[3];
    wf_value *grad = wf_mul(g, wf_cast(g, in[2], WF_F32), in[4]);
    wf_value *way = blend(g, m, grad, a->beta1), *zero = wf_like(g, way, 0);
    wf_value *down = wf_where(g, wf_lt(g, way, zero), wf_neg(g, lr), zero);
    wf_value *step = wf_where(g, wf_lt(g, zero, way), lr, down);
    wf_value *keep = wf_sub(g, wf_like(g, lr, 1), wf_scale(g, lr, a->weight_decay));
    out[0] = assign_cast(g, in[0], wf_sub(g, wf_mul(g, p, keep), step), in[5]);
    out[1] = assign_cast(g, in[1], blend(g, m, grad, a->beta2), in[5]);
    return WF_OK;
}
