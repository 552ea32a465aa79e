/* SPDX-License-Identifier: MIT */
/*
 * loss_scale.c - dynamic loss scaling, gradient clipping and outlier skipping, built from ordinary
 * nodes and states.
 *
 * Nodes compute every decision of a step (are the gradients finite, does the scale grow or shrink,
 * does the step count), and update ops store the results. No value travels to the host in between.
 * States start at 0, so a scale of 0 means the initial scale.
 *
 * States: NAME (scale), NAME.good (good steps since the scale changed), NAME.steps, NAME.skipped,
 * and with outlier skipping NAME.average (gradient norm) and NAME.outliers.
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/build.h"
#include "graph/op/rule.h"

#define MAX_NAME 128 /* longer names do not fit into scalar_state's buffer */
#define SETTLED 20   /* good steps before the average norm is used to detect outliers */
#define WEIGHT 0.02  /* weight of a step in the average norm, once 1/steps is smaller */

/* ---- Options ---- */

/* 0 means "not given" in a zeroed struct. */
static double or_default(double v, double otherwise)
{
    return v == 0 ? otherwise : v;
}

/* f16 overflows at 65504: the default scale starts near it, and the first steps halve it as often
 * as needed. */
static wf_loss_scale_options with_defaults(const wf_loss_scale_options *given)
{
    wf_loss_scale_options o = given ? *given : (wf_loss_scale_options){0};
    o.name = o.name ? o.name : "loss_scale";
    o.initial = or_default(o.initial, 65536);
    o.growth = or_default(o.growth, 2);
    o.backoff = or_default(o.backoff, 0.5);
    /* Never above the initial scale, even if that is below 1. */
    o.smallest = or_default(o.smallest, fmin(1, o.initial));
    o.largest = or_default(o.largest, fmax(0x1p24, o.initial));
    o.interval = o.interval == 0 ? 2000 : o.interval;
    return o;
}

/* The conditions are negated so that NaN fails them, too. */
static wf_status check_options(wf_graph *g, const wf_loss_scale_options *o)
{
    if (g->status != WF_OK)
        return wf_fail(g->ctx, g->status, "%s", g->message);
    if (!*o->name || strlen(o->name) > MAX_NAME)
        return wf_graph_fail(g, WF_ERR_USAGE, "loss scale: the name must have 1 to %d bytes",
                             MAX_NAME);
    if (!(o->smallest > 0 && o->smallest <= o->initial && o->initial <= o->largest &&
          o->largest <= 0x1p126))
        return wf_graph_fail(g, WF_ERR_USAGE,
                             "loss scale: smallest %g, initial %g and largest %g must satisfy "
                             "0 < smallest <= initial <= largest <= 2^126",
                             o->smallest, o->initial, o->largest);
    if (!(o->growth >= 1 && o->backoff > 0 && o->backoff <= 1 && isfinite(o->growth)))
        return wf_graph_fail(
            g, WF_ERR_USAGE,
            "loss scale: growth %g must be 1 or more and backoff %g must be in (0, 1]", o->growth,
            o->backoff);
    if (!(o->clip >= 0) || o->interval > INT32_MAX)
        return wf_graph_fail(g, WF_ERR_USAGE,
                             "loss scale: clip %g must be 0 or more and interval %lld below 2^31",
                             o->clip, (long long)o->interval);
    if (!(o->outlier == 0 || o->outlier >= 1))
        return wf_graph_fail(
            g, WF_ERR_USAGE,
            "loss scale: outlier %g must be 0 (off), or 1 or more times the average norm",
            o->outlier);
    return WF_OK;
}

/* A fixed scale needs no state: the scale is a constant of the graph. */
static bool is_fixed(const wf_loss_scale_options *o)
{
    return o->interval < 0;
}

/* ---- Nodes ---- */

/* Scalar constants. Every use is a node of its own; fold merges them. */
static wf_value *f32(wf_graph *g, double v)
{
    return wf_fill(g, WF_F32, 0, NULL, v);
}

static wf_value *i32(wf_graph *g, int64_t v)
{
    return wf_fill(g, WF_I32, 0, NULL, (double)v);
}

/* Returns the scalar state NAME SUFFIX of the graph, version 0; creates it if it is missing. */
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
        wf_graph_fail(g, WF_ERR_USAGE,
                      "loss scale: the graph has a state '%s' that is not a scalar of type %s",
                      name, wf_type_name(type));
        return NULL;
    }
    return wf_state(g, name, type, 0, NULL);
}

/* A state starts at 0, which stands for the initial scale. */
static wf_value *current_scale(wf_graph *g, const wf_loss_scale_options *o)
{
    if (is_fixed(o))
        return f32(g, o->initial);
    wf_value *state = scalar_state(g, o, "", WF_F32);
    return wf_where(g, wf_eq(g, state, f32(g, 0)), f32(g, o->initial), state);
}

/* u8: whether norm <= outlier * average norm. Always 1 during the first SETTLED good steps. */
static wf_value *is_usual(wf_graph *g, const wf_loss_scale_options *o, wf_value *norm)
{
    wf_value *average = scalar_state(g, o, ".average", WF_F32);
    wf_value *fresh = wf_lt(g, scalar_state(g, o, ".steps", WF_I32), i32(g, SETTLED));
    /* FLT_MAX accepts every finite norm; NaN and infinity fail the comparison in any case. */
    wf_value *most = wf_where(g, fresh, f32(g, FLT_MAX), wf_scale(g, average, o->outlier));
    return wf_le(g, norm, most);
}

/* Weight 1/step: the mean of all norms. From step 1/WEIGHT on: an exponential moving average. */
static void update_average(wf_graph *g, const wf_loss_scale_options *o, const wf_scaled *s)
{
    /* Reads version 0 of the state, the average before this step. */
    wf_value *average = scalar_state(g, o, ".average", WF_F32);
    wf_value *weight = wf_div(g, f32(g, 1), wf_cast(g, s->step, WF_F32));
    weight = wf_maximum(g, weight, f32(g, WEIGHT));
    wf_value *change = wf_mul(g, wf_sub(g, s->norm, average), weight);
    wf_assign(g, average, wf_add(g, average, change), s->apply);
}

/* Updates the scale and the count of good steps since it last changed. `finite` is u8. Finite
 * outliers are skipped (apply is 0) but leave scale and count unchanged. */
static void update_scale(wf_graph *g, const wf_loss_scale_options *o, const wf_scaled *s,
                         wf_value *finite)
{
    wf_value *state = scalar_state(g, o, "", WF_F32), *good = scalar_state(g, o, ".good", WF_I32);
    wf_value *more = wf_add(g, good, i32(g, 1)), *full = wf_le(g, i32(g, o->interval), more);
    wf_value *grown = wf_minimum(g, wf_scale(g, s->scale, o->growth), f32(g, o->largest));
    wf_value *shrunk = wf_maximum(g, wf_scale(g, s->scale, o->backoff), f32(g, o->smallest));
    /* The count restarts whenever the scale changes. `row` is the number of good steps in a row. */
    wf_value *kept = wf_where(g, full, grown, s->scale), *zero = i32(g, 0);
    wf_value *row = wf_where(g, full, zero, more);
    if (o->outlier > 0) {
        kept = wf_where(g, s->apply, kept, s->scale);
        row = wf_where(g, s->apply, row, good);
    }
    /* No apply flag: a step with infinite gradients must shrink the scale. */
    wf_assign(g, state, wf_where(g, finite, kept, shrunk), NULL);
    wf_assign(g, good, wf_where(g, finite, row, zero), NULL);
}

/* Every step is counted once: as a step, or as skipped; finite skipped ones also as outliers. */
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

/* ---- Public functions ---- */

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
    /* Norm of the scaled gradients: finite if and only if all are, unless a square overflows
     * f32. */
    wf_value *scaled = wf_global_norm(g, grads, n);
    /* With `count` the gradients are sums over that many units: divide by it as well. */
    wf_value *inverse = wf_div(g, f32(g, 1), count ? wf_mul(g, s.scale, count) : s.scale);
    wf_value *finite = wf_le(g, scaled, f32(g, FLT_MAX));
    s.norm = wf_mul(g, scaled, inverse);
    s.apply = o.outlier > 0 ? wf_and(g, finite, is_usual(g, &o, s.norm)) : finite;
    s.factor = inverse;
    if (o.clip > 0) {
        wf_value *most = f32(g, o.clip);
        /* clip / max(norm, clip) is 1 for norms up to clip and scales larger ones down to it. */
        s.factor = wf_mul(g, inverse, wf_div(g, most, wf_maximum(g, s.norm, most)));
    }
    /* The step that this run performs, if it counts; the state is advanced in count_step. */
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
    /* wf_grad reports an unusable loss, so pass it on unscaled. */
    bool usable = loss && wf_is_float(loss) && loss->shape.n == 0;
    WF_TRY(wf_grad(g, usable ? wf_mul(g, wf_cast(g, loss, WF_F32), scale) : loss, wrt, n, grads));
    return wf_unscale(g, grads, n, NULL, options, out);
}
