/* SPDX-License-Identifier: MIT */
/*
 * ref_update.c - ops that update states: assign, accumulate, adamw, sgd, lion.
 *
 * The operands of an update start with its states, in the order of its outputs. `apply`, the last
 * operand, is a scalar; 0 leaves every state as it is.
 */
#include "selftest/number.h"
#include "selftest/ref_priv.h"

/* Copies the old states, the first nout operands, to the outputs: the result when apply is 0. */
static void keep_states(const wf_ref_call *c)
{
    for (int i = 0; i < c->nout; i++) {
        int64_t count = wf_dims_count(&c->out[i].shape);
        for (int64_t e = 0; e < count; e++)
            wf_ref_set(&c->out[i], e, c->in[i].v[e], 0);
    }
}

/* (state, x, apply?) */
wf_status wf_ref_assign(const wf_ref_call *c)
{
    keep_states(c);
    if (c->nin > 2 && c->in[2].v[0] == 0)
        return WF_OK;
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++)
        c->out->v[e] = c->in[1].v[e];
    return WF_OK;
}

/* (state, x, apply?) */
wf_status wf_ref_accumulate(const wf_ref_call *c)
{
    keep_states(c);
    if (c->nin > 2 && c->in[2].v[0] == 0)
        return WF_OK;
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        double state = c->in[0].v[e], x = c->in[1].v[e];
        if (wf_ref_is_int(c->out->type))
            c->out->v[e] = wf_ref_wrap((int64_t)(state + x));
        else
            wf_ref_set(c->out, e, state + x, fabs(state) + fabs(x));
    }
    return WF_OK;
}

/* Runs update i of n. Its operand k is operand i + k n, for k < own; `shared` operands of all
 * updates follow. */
static wf_status one_of_many(const wf_ref_call *c, wf_ref_fn *fn, int n, int i, int own, int shared)
{
    /* Most operands and outputs of one update: adamw with a copy. */
    wf_ref in[9], out[4];
    wf_ref_call one = {c->ctx, c->node, c->attr, own + shared, c->nout / n, in, out};
    for (int k = 0; k < own; k++)
        in[k] = c->in[i + k * n];
    for (int k = 0; k < shared; k++)
        in[own + k] = c->in[own * n + k];
    for (int k = 0; k < one.nout; k++)
        out[k] = c->out[i + k * n];
    return fn(&one);
}

/* (state_0, ..., x_0, ..., apply?) */
wf_status wf_ref_accumulate_many(const wf_ref_call *c)
{
    for (int i = 0; i < c->nout; i++)
        WF_TRY(one_of_many(c, wf_ref_accumulate, c->nout, i, 2, c->nin % 2));
    return WF_OK;
}

/* (p, m, v, grad, lr, step, scale, apply) -> p, m, v, as PyTorch's AdamW:
 *
 *     p (1 - lr decay) - lr m' / (sqrt(v') + eps),   m' = m / (1 - beta1^step), v' likewise
 */
wf_status wf_ref_adamw(const wf_ref_call *c)
{
    const wf_attr_adamw *attr = c->attr;
    keep_states(c);
    if (c->in[7].v[0] == 0)
        return WF_OK;
    double lr = c->in[4].v[0], step = c->in[5].v[0], scale = c->in[6].v[0];
    double fix1 = 1 - pow(attr->beta1, step), fix2 = 1 - pow(attr->beta2, step);
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        double p = c->in[0].v[e], g = c->in[3].v[e] * scale;
        double m_old = attr->beta1 * c->in[1].v[e], m_new = (1 - attr->beta1) * g;
        double m = m_old + m_new, m_mag = fabs(m_old) + fabs(m_new);
        double v = attr->beta2 * c->in[2].v[e] + (1 - attr->beta2) * g * g;
        double rate = lr / fix1 / (sqrt(v / fix2) + attr->eps);
        double decay = lr * attr->weight_decay * p;
        wf_ref_set(&c->out[0], e, p - decay - rate * m,
                   fabs(p) + fabs(decay) + fabs(rate) * (m_mag + fabs(m)));
        wf_ref_set(&c->out[1], e, m, m_mag);
        wf_ref_set(&c->out[2], e, v, fabs(v));
    }
    return WF_OK;
}

/* (p, m, v, copy, grad, lr, step, scale, apply) -> p, m, v, copy: the copy is the new p. */
static wf_status adamw_with_copy(const wf_ref_call *c)
{
    wf_ref in[8] = {c->in[0], c->in[1], c->in[2]};
    wf_ref_call plain = {c->ctx, c->node, c->attr, 8, 3, in, c->out};
    for (int k = 3; k < 8; k++)
        in[k] = c->in[k + 1];
    keep_states(c);
    WF_TRY(wf_ref_adamw(&plain));
    int64_t count = c->in[8].v[0] != 0 ? wf_dims_count(&c->out->shape) : 0;
    for (int64_t e = 0; e < count; e++)
        wf_ref_set(&c->out[3], e, c->out[0].v[e], c->out[0].mag[e]);
    return WF_OK;
}

/* (p_0, ..., m_0, ..., v_0, ..., copies?, grad_0, ..., lr, step, scale, apply) */
wf_status wf_ref_adamw_many(const wf_ref_call *c)
{
    const wf_attr_adamw *attr = c->attr;
    int n = c->nout / (attr->copies ? 4 : 3);
    for (int i = 0; i < n; i++)
        WF_TRY(attr->copies ? one_of_many(c, adamw_with_copy, n, i, 5, 4)
                            : one_of_many(c, wf_ref_adamw, n, i, 4, 4));
    return WF_OK;
}

/* (p, velocity?, grad, lr, scale, apply) -> p, velocity?, as PyTorch's SGD. */
wf_status wf_ref_sgd(const wf_ref_call *c)
{
    const wf_attr_sgd *attr = c->attr;
    bool moving = c->nout == 2;
    const wf_ref *rest = c->in + c->nout; /* grad, lr, scale, apply */
    keep_states(c);
    if (rest[3].v[0] == 0)
        return WF_OK;
    double lr = rest[1].v[0], scale = rest[2].v[0];
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        double p = c->in[0].v[e], grad = rest[0].v[e] * scale, decay = attr->weight_decay * p;
        double d = grad + decay, d_mag = fabs(grad) + fabs(decay);
        if (moving) {
            double g = d, g_mag = d_mag, carried = attr->momentum * c->in[1].v[e];
            d = carried + g;
            d_mag = fabs(carried) + g_mag;
            wf_ref_set(&c->out[1], e, d, d_mag);
            if (attr->nesterov) {
                d = g + attr->momentum * d;
                d_mag = g_mag + fabs(attr->momentum) * d_mag;
            }
        }
        wf_ref_set(&c->out[0], e, p - lr * d, fabs(p) + fabs(lr) * d_mag);
    }
    return WF_OK;
}

/* (p, m, grad, lr, scale, apply) -> p, m: p (1 - lr decay) - lr sign(beta1 m + (1 - beta1) grad).
 * If that sum is only roundoff, either sign is correct. */
wf_status wf_ref_lion(const wf_ref_call *c)
{
    const wf_attr_lion *attr = c->attr;
    keep_states(c);
    if (c->in[5].v[0] == 0)
        return WF_OK;
    double lr = c->in[3].v[0], scale = c->in[4].v[0];
    int64_t count = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        double p = c->in[0].v[e], m = c->in[1].v[e], g = c->in[2].v[e] * scale;
        double a = attr->beta1 * m, b = (1 - attr->beta1) * g, decay = lr * attr->weight_decay * p;
        double old = attr->beta2 * m, new = (1 - attr->beta2) * g;
        double step = a + b > 0 ? lr : a + b < 0 ? -lr : 0;
        bool either = fabs(a + b) < 4 * WF_ROUNDOFF_F32 * (fabs(a) + fabs(b));
        wf_ref_set(&c->out[0], e, p - decay - step,
                   fabs(p) + fabs(decay) + lr + (either ? 2 * lr / WF_ROUNDOFF_F32 : 0));
        wf_ref_set(&c->out[1], e, old + new, fabs(old) + fabs(new));
    }
    return WF_OK;
}
