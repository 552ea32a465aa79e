/* SPDX-License-Identifier: MIT */
/*
 * gradient.c - compares gradients on the device with central differences of the float64 reference.
 *
 * The loss is sum(w * output 0) with random w. For an element x of an operand, the reference is
 * evaluated in float64 at x - h and x + h. The step h balances curvature and roundoff. Next to a
 * kink the one-sided differences disagree, and the element is skipped.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "selftest/job.h"

#define SAMPLES 48      /* checked elements of an operand */
#define SAMPLES_LARGE 3 /* ... of a large case, whose evaluation is slow */

typedef struct {
    wf_case *c;
    wf_eval *eval;
    /* [elements of output 0] weights of the loss. */
    const double *w;
    double *at, *low, *high; /* output 0 of the reference at x, x - h, x + h */
} differ;

/* The numeric gradient of one element. */
typedef struct {
    int64_t index;
    double numeric;
    double terms; /* sum of |w_j dy_j/dx| */
    bool kink;
} slope;

static wf_status evaluate(differ *d, double *y)
{
    WF_TRY(wf_eval_run(d->eval, false));
    const wf_ref *r = &d->eval->node[d->c->node->id].out[0];
    memcpy(y, r->v, (size_t)wf_dims_count(&r->shape) * sizeof *y);
    return WF_OK;
}

/* Differentiates the loss by one element of v, the values that the evaluation reads, and restores that element. h is near the cube root of
 * double's roundoff, where the truncation error h^2 and the roundoff 1/h of a central difference
 * are about equal. For a smooth function the two one-sided slopes differ by about h times its
 * curvature, far below the threshold for kinks. */
static wf_status find_slope(differ *d, double *v, int64_t index, slope *s)
{
    double x = v[index], h = 1e-6 * fmax(1, fabs(x));
    v[index] = x + h;
    wf_status status = evaluate(d, d->high);
    v[index] = x - h;
    if (status == WF_OK)
        status = evaluate(d, d->low);
    v[index] = x;
    WF_TRY(status);

    double up = 0, down = 0, g = 0, terms = 0;
    int64_t count = wf_dims_count(&d->c->node->out[0].shape);
    for (int64_t i = 0; i < count; i++) {
        double whole = d->w[i] * (d->high[i] - d->low[i]) / (2 * h);
        g += whole;
        terms += fabs(whole);
        up += d->w[i] * (d->high[i] - d->at[i]) / h;
        down += d->w[i] * (d->at[i] - d->low[i]) / h;
    }
    *s = (slope){index, g, terms, fabs(up - down) > 1e-3 * terms + 1e-5};
    return WF_OK;
}

/* Only f32 sources before the node under test have a gradient to check. */
static bool differentiated(const wf_case *c, const wf_operand *o)
{
    return o->value->type == WF_F32 && !o->constant && o->node->id < c->node->id;
}

/* Compares the gradient of one operand, read from the device, element by element. */
static wf_status judge_operand(wf_job *j, differ *d, const wf_operand *o, const wf_read *r,
                               int samples)
{
    slope slopes[SAMPLES];
    int64_t count = wf_dims_count(&o->value->shape);
    int n = count < samples ? (int)count : samples, kinks = 0;
    /* Other builds of the case share o->v. */
    double *v = wf_arena_copy(&d->c->arena, o->v, (size_t)count * sizeof *v);
    if (!v)
        return WF_ERR_MEMORY;
    d->eval->given[o->node->id] = v;
    double most = 0;
    for (int i = 0; i < n; i++) {
        int64_t index = i;
        if (count > samples)
            index = (int64_t)wf_rng_below(&d->c->rng, (uint64_t)count);
        WF_TRY(find_slope(d, v, index, &slopes[i]));
        most = fmax(most, slopes[i].terms);
        kinks += slopes[i].kink;
    }
    /* A case whose elements are mostly skipped would test nothing. */
    if (kinks > 2 && kinks * 4 > n)
        wf_job_fail(j, "gradient",
                    "%d of %d elements are at kinks; choose other operands for this case", kinks,
                    n);

    wf_verdict worst = {.ratio = 0};
    double c = d->c->gradient > 0 ? d->c->gradient : j->row->gradient;
    c = c > 0 ? c : WF_CASE_GRADIENT;
    c *= wf_job_slack(j);
    for (int i = 0; i < n; i++) {
        double got = wf_number_load(WF_F32, r->bytes, slopes[i].index);
        double numeric = slopes[i].numeric * (1 + j->options->distort_gradient);
        wf_verdict verdict = wf_compare_gradient(got, numeric, slopes[i].terms, most, c);
        verdict.index = slopes[i].index;
        if (!slopes[i].kink && !(verdict.ratio <= worst.ratio))
            worst = verdict;
    }
    char which[64];
    snprintf(which, sizeof which, "the gradient of operand %d", (int)(o - d->c->operand));
    wf_job_judge(j, "gradient", which, &worst);
    return WF_OK;
}

/* Appends loss and gradients to the graph and reads them after the run. */
static wf_status add_gradients(wf_case *c, const wf_operand **w)
{
    wf_value *out = &c->node->out[0], *wrt[WF_CASE_OPERANDS], *grads[WF_CASE_OPERANDS];
    int n = 0;
    for (int i = 0; i < c->operands; i++)
        if (differentiated(c, &c->operand[i]))
            wrt[n++] = c->operand[i].value;
    wf_value *weighted = wf_binary(c->g, "mul", out, wf_case_f32(c, out->shape, -1, 1));
    if (out->shape.n > 0)
        weighted = wf_reduce(c->g, "sum", weighted, (1u << out->shape.n) - 1, false);
    WF_TRY(wf_case_status(c));
    *w = &c->operand[c->operands - 1];
    WF_TRY(wf_grad(c->g, weighted, wrt, n, grads));
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "g%d", i);
        if (grads[i]->type != wrt[i]->type || !wf_dims_equal(&grads[i]->shape, &wrt[i]->shape))
            return wf_fail(c->ctx, WF_ERR_INTERNAL,
                           "gradient %d differs from its operand in type or shape", i);
        WF_TRY(wf_case_read(c, name, grads[i], NULL));
    }
    return WF_OK;
}

/* Compares after the device has run. Allocates from the arena of the case. */
static wf_status judge_gradients(wf_job *j, wf_case *c, const wf_operand *w)
{
    differ d = {.c = c, .w = w->v};
    WF_TRY(wf_eval_new(c, c->node, &d.eval));
    size_t bytes = (size_t)wf_value_count(&c->node->out[0]) * sizeof(double);
    d.at = wf_arena_alloc(&c->arena, bytes);
    d.low = wf_arena_alloc(&c->arena, bytes);
    d.high = wf_arena_alloc(&c->arena, bytes);
    if (!d.at || !d.low || !d.high)
        return WF_ERR_MEMORY;
    WF_TRY(evaluate(&d, d.at));

    int samples = wf_case_size(c) > WF_CASE_LARGE ? SAMPLES_LARGE : SAMPLES;
    const wf_read *r = c->read;
    for (int i = 0; i < c->operands; i++)
        if (differentiated(c, &c->operand[i]))
            WF_TRY(judge_operand(j, &d, &c->operand[i], r++, samples));
    return WF_OK;
}

wf_status wf_job_gradient(wf_job *j)
{
    const char *what = "gradient";
    wf_case *c;
    const wf_operand *w = NULL;
    WF_TRY(wf_job_build(j, what, 0, &c));
    if (!c)
        return WF_OK;
    wf_status status = WF_OK;
    if (c->node->out[0].type == WF_F32 && !c->no_gradient) {
        status = add_gradients(c, &w);
        if (status == WF_OK && c->reads > 0)
            status = wf_case_run(c, c->g, j->device, NULL);
        if (status == WF_OK && c->reads > 0)
            status = judge_gradients(j, c, w);
        status = wf_job_status(j, what, status);
    }
    wf_case_free(c);
    return status;
}
