/* SPDX-License-Identifier: MIT */
/*
 * loss_scale.c - the loss scale and its life, built from ordinary nodes and states.
 *
 * Everything a step decides (was it finite, does the scale grow or shrink, did the step count) is
 * computed by nodes and stored by update ops, so that no number has to come to the host in between. A
 * scale of 0, which is how states begin, means that none has been set yet.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/build.h"
#include "graph/op/rule.h"

#define MAX_NAME 128
/* Of the average norm, by which outliers are known: good steps before it serves, and what a step weighs in
 * it in the long run. */
#define SETTLED 20
#define WEIGHT 0.02

/* ---- Options ---- */

static double or_default(double v, double otherwise)
{
    return v == 0 ? otherwise : v;
}

static wf_loss_scale_options with_defaults(const wf_loss_scale_options *given)
{
    wf_loss_scale_options o = given ? *given : (wf_loss_scale_options){0};
    o.name = o.name ? o.name : "loss_scale";
    o.initial = or_default(o.initial, 65536);
    o.growth = or_default(o.growth, 2);
    o.backoff = or_default(o.backoff, 0.5);
    o.smallest = or_default(o.smallest, fmin(1, o.initial));
    o.largest = or_default(o.largest, fmax(0x1p24, o.initial));
    o.interval = o.interval == 0 ? 2000 : o.interval;
    return o;
}

/* Written so that NaN is refused, too. */
static wf_status check_options(wf_graph *g, const wf_loss_scale_options *o)
{
    if (g->status != WF_OK)
        return wf_fail(g->ctx, g->status, "%s", g->message);
    if (!*o->name || strlen(o->name) > MAX_NAME)
        return wf_graph_fail(g, WF_ERR_USAGE, "loss scale: a name has 1 to %d bytes", MAX_NAME);
    if (!(o->smallest > 0 && o->smallest <= o->initial && o->initial <= o->largest &&
          o->largest <= 0x1p126))
        return wf_graph_fail(g, WF_ERR_USAGE,
                             "loss scale: 0 < smallest <= initial <= largest <= 2^126 must hold, "
                             "not %g, %g, %g",
                             o->smallest, o->initial, o->largest);
    if (!(o->growth >= 1 && o->backoff > 0 && o->backoff <= 1 && isfinite(o->growth)))
        return wf_graph_fail(g, WF_ERR_USAGE,
                             "loss scale: growth must be 1 or more and backoff within (0, 1], not "
                             "%g and %g",
                             o->growth, o->backoff);
    if (!(o->clip >= 0) || o->interval > INT32_MAX)
        return wf_graph_fail(g, WF_ERR_USAGE,
                             "loss scale: clip must not be negative, nor interval over 2^31");
    if (!(o->outlier == 0 || o->outlier >= 1))
        return wf_graph_fail(
            g, WF_ERR_USAGE,
            "loss scale: outlier, a multiple of the average norm, must be 1 or more, "
            "not %g",
            o->outlier);
    return WF_OK;
}

static bool is_fixed(const wf_loss_scale_options *o)
{
    return o->interval < 0;
}

/* ---- Nodes ---- */

static wf_value *f32(wf_graph *g, double v)
{
    return wf_fill(g, WF_F32, 0, NULL, v);
}

static wf_value *i32(wf_graph *g, int64_t v)
{
    return wf_fill(g, WF_I32, 0, NULL, (double)v);
}

/* The scalar state NAME SUFFIX: that which the graph has, or a new one. */
static wf_value *scalar_state(wf_graph *g, const wf_loss_scale_options *o, const char *suffix,
                              wf_type type)
{
    char name[MAX_NAME + 16];
    snprintf(name, sizeof name, "%s%s", o->name, suffix);
    for (int i = 0; i < g->node_count; i++) {
        wf_node *n = g->nodes[i];
        if (n->op != WF_OP_state || strcmp(n->name, name) != 0)
            continue;
        if (wf_is_scalar(&n->out[0], type))
            return &n->out[0];
        wf_graph_fail(g, WF_ERR_USAGE, "loss scale: the graph has another state '%s'", name);
        return NULL;
    }
    return wf_state(g, name, type, 0, NULL);
}

static wf_value *current_scale(wf_graph *g, const wf_loss_scale_options *o)
{
    if (is_fixed(o))
        return f32(g, o->initial);
    wf_value *state = scalar_state(g, o, "", WF_F32);
    return wf_where(g, wf_eq(g, state, f32(g, 0)), f32(g, o->initial), state);
}

/* u8: whether the norm is within what the average of those before allows. */
static wf_value *is_usual(wf_graph *g, const wf_loss_scale_options *o, wf_value *norm)
{
    wf_value *average = scalar_state(g, o, ".average", WF_F32);
    wf_value *fresh = wf_lt(g, scalar_state(g, o, ".steps", WF_I32), i32(g, SETTLED));
    wf_value *most = wf_where(g, fresh, f32(g, FLT_MAX), wf_scale(g, average, o->outlier));
    return wf_le(g, norm, most);
}

/* The mean of the first norms, which then turns into an average that forgets. */
static void update_average(wf_graph *g, const wf_loss_scale_options *o, const wf_scaled *s)
{
    wf_value *average = scalar_state(g, o, ".average", WF_F32);
    wf_value *weight = wf_div(g, f32(g, 1), wf_cast(g, s->step, WF_F32));
    weight = wf_maximum(g, weight, f32(g, WEIGHT));
    wf_value *change = wf_mul(g, wf_sub(g, s->norm, average), weight);
    wf_assign(g, average, wf_add(g, average, change), s->apply);
}

/* The scale after this step, and how many good steps there have been since it last changed. `finite`: u8,
 * as apply, but 1 for outliers, which say nothing about the scale. */
static void update_scale(wf_graph *g, const wf_loss_scale_options *o, const wf_scaled *s,
                         wf_value *finite)
{
    wf_value *state = scalar_state(g, o, "", WF_F32), *good = scalar_state(g, o, ".good", WF_I32);
    wf_value *more = wf_add(g, good, i32(g, 1)), *full = wf_le(g, i32(g, o->interval), more);
    wf_value *grown = wf_minimum(g, wf_scale(g, s->scale, o->growth), f32(g, o->largest));
    wf_value *shrunk = wf_maximum(g, wf_scale(g, s->scale, o->backoff), f32(g, o->smallest));
    wf_value *kept = wf_where(g, full, grown, s->scale), *zero = i32(g, 0);
    wf_value *row = wf_where(g, full, zero, more);
    if (o->outlier > 0) {
        kept = wf_where(g, s->apply, kept, s->scale);
        row = wf_where(g, s->apply, row, good);
    }
    wf_assign(g, state, wf_where(g, finite, kept, shrunk), NULL);
    wf_assign(g, good, wf_where(g, finite, row, zero), NULL);
}

static void count_step(wf_graph *g, const wf_loss_scale_options *o, const wf_scaled *s,
                       wf_value *finite)
{
    wf_value *done = wf_cast(g, s->apply, WF_I32);
    if (o->outlier > 0)
        wf_accumulate(g, scalar_state(g, o, ".outliers", WF_I32),
                      wf_sub(g, wf_cast(g, finite, WF_I32), done), NULL);
    wf_accumulate(g, scalar_state(g, o, ".steps", WF_I32), done, NULL);
    wf_accumulate(g, scalar_state(g, o, ".skipped", WF_I32), wf_sub(g, i32(g, 1), done), NULL);
}

/* ---- The interface ---- */

wf_value *wf_loss_scale(wf_graph *g, const wf_loss_scale_options *options)
{
    wf_loss_scale_options o = with_defaults(options);
    return check_options(g, &o) == WF_OK ? current_scale(g, &o) : NULL;
}

wf_status wf_unscale(wf_graph *g, wf_value *const *grads, int n, wf_value *count,
                     const wf_loss_scale_options *options, wf_scaled *out)
{
    wf_loss_scale_options o = with_defaults(options);
    wf_scaled s = {0};
    *out = s;
    WF_TRY(check_options(g, &o));
    if (count && !wf_is_scalar(count, WF_F32))
        return wf_graph_fail(g, WF_ERR_USAGE, "loss scale: the count must be an f32 scalar");
    s.scale = current_scale(g, &o);
    /* Of the gradients as they are: finite exactly when all are, up to squares beyond f32. */
    wf_value *scaled = wf_global_norm(g, grads, n);
    wf_value *inverse = wf_div(g, f32(g, 1), count ? wf_mul(g, s.scale, count) : s.scale);
    wf_value *finite = wf_le(g, scaled, f32(g, FLT_MAX));
    s.norm = wf_mul(g, scaled, inverse);
    s.apply = o.outlier > 0 ? wf_and(g, finite, is_usual(g, &o, s.norm)) : finite;
    s.factor = inverse;
    if (o.clip > 0) {
        wf_value *most = f32(g, o.clip);
        s.factor = wf_mul(g, inverse, wf_div(g, most, wf_maximum(g, s.norm, most)));
    }
    s.step = wf_add(g, scalar_state(g, &o, ".steps", WF_I32), i32(g, 1));
    if (o.outlier > 0)
        update_average(g, &o, &s);
    if (!is_fixed(&o))
        update_scale(g, &o, &s, finite);
    count_step(g, &o, &s, finite);
    WF_TRY(g->status);
    *out = s;
    return WF_OK;
}

wf_status wf_grad_scaled(wf_graph *g, wf_value *loss, wf_value *const *wrt, int n,
                         const wf_loss_scale_options *options, wf_value **grads, wf_scaled *out)
{
    *out = (wf_scaled){0};
    for (int i = 0; i < n; i++)
        grads[i] = NULL;
    wf_value *scale = wf_loss_scale(g, options);
    /* Left to wf_grad, which says what is wrong with it. */
    bool usable = loss && wf_is_float(loss) && loss->shape.n == 0;
    WF_TRY(wf_grad(g, usable ? wf_mul(g, wf_cast(g, loss, WF_F32), scale) : loss, wrt, n, grads));
    return wf_unscale(g, grads, n, NULL, options, out);
}
