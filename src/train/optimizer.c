/* SPDX-License-Identifier: MIT */
/* optimizer.c - the update nodes of each optimizer. Shared helpers come first, then one function
 * per kind. */
#include "train/optimizer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/build.h"
#include "graph/op/rule.h"

#define MAX_NAME 512 /* bytes of a parameter's name */

/* One parameter of an update. */
typedef struct {
    wf_graph *g;
    const wf_optimizer_options *o;
    const wf_scaled *s;
    wf_value *rate, *p, *grad; /* learning rate f32[]; the parameter; its scaled gradient */
    const char *name;          /* of p, for the names of its states */
    double decay;              /* weight decay of p */
} update;

static bool is_matrix(const update *u)
{
    return u->p->shape.n >= 2;
}

/* Returns the parameter's state KIND.NAME. */
static wf_value *companion(const update *u, const char *kind)
{
    char name[MAX_NAME + 8];
    snprintf(name, sizeof name, "%s.%s", kind, u->name);
    return wf_state(u->g, name, WF_F32, (int)u->p->shape.n, u->p->shape.d);
}

/* 0 means the default, a negative number 0. */
static double momentum_of(const update *u, double otherwise)
{
    double given = u->o->momentum;
    return given == 0 ? otherwise : given < 0 ? 0 : given;
}

/* ---- Optimizers: each returns the new parameter ---- */

static wf_value *update_adamw(const update *u)
{
    const wf_adamw_options o = {u->o->beta1, u->o->beta2, u->o->eps, u->decay};
    return wf_adamw(u->g, u->p, companion(u, "m"), companion(u, "v"), u->grad, u->rate, u->s->step,
                    u->s->factor, u->s->apply, &o);
}

static wf_value *update_sgd(const update *u)
{
    const wf_sgd_options o = {.momentum = momentum_of(u, 0), .weight_decay = u->decay};
    wf_value *velocity = o.momentum > 0 ? companion(u, "m") : NULL;
    return wf_sgd(u->g, u->p, velocity, u->grad, u->rate, u->s->factor, u->s->apply, &o);
}

static wf_value *update_lion(const update *u)
{
    const wf_lion_options o = {u->o->beta1, u->o->beta2, u->decay};
    return wf_lion(u->g, u->p, companion(u, "m"), u->grad, u->rate, u->s->factor, u->s->apply, &o);
}

/* ---- Muon ---- */

/* Returns the Frobenius norm of x, for a stack that of each matrix. */
static wf_value *matrix_norm(wf_graph *g, wf_value *x)
{
    if (x->shape.n == 2)
        return wf_global_norm(g, &x, 1);
    const uint32_t last_two = 3u << (x->shape.n - 2);
    return wf_sqrt(g, wf_sum(g, wf_mul(g, x, x), last_two, true));
}

/*
 * Five Newton-Schulz iterations with Keller Jordan's coefficients, which move the singular values
 * of a matrix of norm 1 close to 1: x = a x + (b A + c A A) x with A = x x^T. x is [R, C] with R <=
 * C, so A is the smaller of the two Gram matrices. A stack has any axes before these.
 */
static wf_value *orthogonalise(wf_graph *g, wf_value *x)
{
    const double a = 3.4445, b = -4.7750, c = 2.0315, eps = 1e-7;
    wf_value *norm = matrix_norm(g, x);
    x = wf_div(g, x, wf_maximum(g, norm, wf_like(g, norm, eps)));
    for (int i = 0; i < 5; i++) {
        wf_value *gram = wf_matmul(g, x, x, false, true);
        wf_value *square = wf_scale(g, wf_matmul(g, gram, gram, false, false), c);
        wf_value *both = wf_add(g, wf_scale(g, gram, b), square);
        x = wf_add(g, wf_scale(g, x, a), wf_matmul(g, both, x, false, false));
    }
    return x;
}

static bool is_in_block(const update *u)
{
    return is_matrix(u) && strncmp(u->name, "blk.", 4) == 0;
}

/* Like torch.optim.Muon with adjust_lr_fn = "match_rms_adamw", but in f32: one learning rate fits
 * these matrices and those that AdamW updates. A fused QKV matrix counts as one matrix, as in
 * torch. */
static wf_value *update_muon(const update *u)
{
    if (!is_in_block(u))
        return update_adamw(u);
    wf_graph *g = u->g;
    const int n = (int)u->p->shape.n;
    const int64_t rows = u->p->shape.d[n - 2], columns = u->p->shape.d[n - 1];
    int64_t order[WF_MAX_RANK]; /* swaps the last two axes */
    for (int i = 0; i < n; i++)
        order[i] = i < n - 2 ? i : 2 * n - 3 - i;
    const double momentum = momentum_of(u, 0.95);
    /* 0.2 sqrt(max(R, C)) gives the update the RMS of AdamW's. */
    const double size = 0.2 * sqrt((double)(rows > columns ? rows : columns));
    wf_value *old = companion(u, "m"), *p = wf_cast(g, u->p, WF_F32);
    wf_value *grad = wf_mul(g, wf_cast(g, u->grad, WF_F32), u->s->factor);
    wf_value *m = wf_add(g, wf_scale(g, old, momentum), wf_scale(g, grad, 1 - momentum));
    wf_value *ahead = wf_add(g, wf_scale(g, grad, 1 - momentum), wf_scale(g, m, momentum));
    ahead = orthogonalise(g, rows > columns ? wf_permute(g, ahead, order) : ahead);
    ahead = rows > columns ? wf_permute(g, ahead, order) : ahead;
    wf_value *kept =
        wf_mul(g, p, wf_sub(g, wf_like(g, u->rate, 1), wf_scale(g, u->rate, u->decay)));
    wf_value *moved = wf_sub(g, kept, wf_mul(g, ahead, wf_scale(g, u->rate, size)));
    wf_assign(g, old, m, u->s->apply);
    return wf_assign(g, u->p, wf_cast(g, moved, u->p->type), u->s->apply);
}

static wf_value *(*const kinds[])(const update *u) = {
    [WF_ADAMW] = update_adamw,
    [WF_SGD] = update_sgd,
    [WF_LION] = update_lion,
    [WF_MUON] = update_muon,
};

/* ---- Moving average of the weights ---- */

/* average += (1 - ema) (p - average), only if the step is applied. */
static void update_average(const update *u, wf_value *p)
{
    wf_value *average = companion(u, "ema");
    wf_value *gap = wf_sub(u->g, wf_cast(u->g, p, WF_F32), average);
    wf_value *moved = wf_add(u->g, average, wf_scale(u->g, gap, 1 - u->o->ema));
    wf_assign(u->g, average, moved, u->s->apply);
}

/* ---- The interface ---- */

static wf_status check_options(wf_graph *g, const wf_optimizer_options *o)
{
    if (!(o->momentum < 1))
        return wf_graph_fail(g, WF_ERR_USAGE,
                             "optimizer: momentum is %g; it must be at least 0 and below 1",
                             o->momentum);
    if (!(o->weight_decay >= 0) || !isfinite(o->weight_decay))
        return wf_graph_fail(g, WF_ERR_USAGE,
                             "optimizer: weight decay is %g; it must be finite and at least 0",
                             o->weight_decay);
    if (!(o->ema >= 0 && o->ema < 1))
        return wf_graph_fail(
            g, WF_ERR_USAGE,
            "optimizer: the decay of averaged weights is %g; it must be at least 0 and below 1",
            o->ema);
    return WF_OK;
}

static wf_status check_parameter(wf_graph *g, const wf_value *p)
{
    if (!p || !p->state || !wf_is_float(p))
        return wf_graph_fail(g, WF_ERR_USAGE, "optimizer: a parameter must be a float state");
    if (strlen(p->state->name) > MAX_NAME)
        return wf_graph_fail(g, WF_ERR_USAGE,
                             "optimizer: the name of a parameter may have at most %d bytes",
                             MAX_NAME);
    return WF_OK;
}

wf_status wf_optimizer_update(wf_graph *g, const wf_optimizer_options *o, wf_value *const *params,
                              wf_value *const *grads, int n, wf_value *rate, const wf_scaled *s)
{
    WF_TRY(check_options(g, o));
    for (int i = 0; i < n; i++) {
        WF_TRY(check_parameter(g, params[i]));
        update u = {g, o, s, rate, params[i], grads[i], params[i]->state->name, 0};
        u.decay = o->decay_all || is_matrix(&u) ? o->weight_decay : 0;
        wf_value *p = kinds[o->kind](&u);
        if (p && o->ema > 0)
            update_average(&u, p);
    }
    return wf_graph_status(g);
}
