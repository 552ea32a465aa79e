/* SPDX-License-Identifier: MIT */
/*
 * ref_reduce.c - sum, mean, max, argmax, top_k, softmax, global_norm.
 *
 * Sums of i32 are exact in a double: the cases have fewer than 2^21 elements of at most 2^31.
 */
#include "selftest/ref_priv.h"

/* ---- Over a set of axes ---- */

/* Returns the element of the result that element e of x contributes to. Keeping reduced axes does
 * not change the dense index. */
static int64_t reduced(const wf_dims *x, int64_t axes, int64_t e)
{
    int64_t index[WF_MAX_RANK], to = 0;
    wf_ref_unravel(x, e, index);
    for (int64_t a = 0; a < x->n; a++)
        if (!(axes >> a & 1))
            to = to * x->d[a] + index[a];
    return to;
}

static int64_t reduced_length(const wf_dims *x, int64_t axes)
{
    int64_t length = 1;
    for (int64_t a = 0; a < x->n; a++)
        if (axes >> a & 1)
            length *= x->d[a];
    return length;
}

wf_status wf_ref_sum(const wf_ref_call *c)
{
    const wf_attr_reduce *attr = c->attr;
    int64_t count = wf_dims_count(&c->in->shape), results = wf_dims_count(&c->out->shape);
    for (int64_t e = 0; e < count; e++) {
        int64_t to = reduced(&c->in->shape, attr->axes, e);
        c->out->v[to] += c->in->v[e];
        c->out->mag[to] += fabs(c->in->v[e]);
    }
    if (wf_ref_is_int(c->out->type))
        for (int64_t i = 0; i < results; i++)
            wf_ref_set(c->out, i, wf_ref_wrap((int64_t)c->out->v[i]), 0);
    return WF_OK;
}

wf_status wf_ref_mean(const wf_ref_call *c)
{
    const wf_attr_reduce *attr = c->attr;
    int64_t count = wf_dims_count(&c->in->shape), results = wf_dims_count(&c->out->shape);
    double length = (double)reduced_length(&c->in->shape, attr->axes);
    for (int64_t e = 0; e < count; e++) {
        int64_t to = reduced(&c->in->shape, attr->axes, e);
        c->out->v[to] += c->in->v[e];
        c->out->mag[to] += fabs(c->in->v[e]);
    }
    for (int64_t i = 0; i < results; i++) /* the mean of an empty set is 0 / 0 */
        wf_ref_set(c->out, i, c->out->v[i] / length, c->out->mag[i] / length);
    return WF_OK;
}

/* Order of max, argmax and top_k: NaN is above every value. */
static bool above(double a, double b)
{
    return isnan(a) ? !isnan(b) : a > b;
}

/* The maximum of an empty set is -inf or the smallest integer. */
wf_status wf_ref_max(const wf_ref_call *c)
{
    const wf_attr_reduce *attr = c->attr;
    int64_t count = wf_dims_count(&c->in->shape), results = wf_dims_count(&c->out->shape);
    bool is_int = wf_ref_is_int(c->out->type);
    for (int64_t i = 0; i < results; i++)
        c->out->v[i] = is_int ? wf_ref_to_int(c->out->type, -INFINITY) : -INFINITY;
    for (int64_t e = 0; e < count; e++) {
        double *best = &c->out->v[reduced(&c->in->shape, attr->axes, e)];
        if (above(c->in->v[e], *best))
            *best = c->in->v[e];
    }
    return WF_OK;
}

wf_status wf_ref_argmax(const wf_ref_call *c)
{
    const wf_attr_axis *attr = c->attr;
    const wf_dims *shape = &c->in->shape;
    int64_t results = wf_dims_count(&c->out->shape), inner = 1;
    for (int64_t a = attr->axis + 1; a < shape->n; a++)
        inner *= shape->d[a];
    int64_t length = shape->d[attr->axis];
    for (int64_t i = 0; i < results; i++) {
        const double *x = c->in->v + i / inner * length * inner + i % inner;
        int64_t best = 0;
        for (int64_t j = 1; j < length; j++)
            if (above(x[j * inner], x[best * inner]))
                best = j;
        c->out->v[i] = (double)best;
    }
    return WF_OK;
}

/* ---- Over the last axis ---- */

/* The rank of an element is the number of elements that sort before it. */
wf_status wf_ref_top_k(const wf_ref_call *c)
{
    const wf_attr_top_k *attr = c->attr;
    int64_t rows = wf_dims_rows(&c->in->shape), length = wf_dims_last(&c->in->shape);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->in->v + r * length;
        for (int64_t j = 0; j < length; j++) {
            int64_t rank = 0;
            for (int64_t i = 0; i < length && rank < attr->k; i++)
                rank += above(x[i], x[j]) || (i < j && !above(x[j], x[i]));
            if (rank < attr->k) {
                c->out[0].v[r * attr->k + rank] = x[j];
                c->out[1].v[r * attr->k + rank] = (double)j;
            }
        }
    }
    return WF_OK;
}

/* Rounding x - max changes e^(x - max) by d = |x - max| roundoffs of itself, and the sum by the
 * mean of d. */
wf_status wf_ref_softmax(const wf_ref_call *c)
{
    int64_t rows = wf_dims_rows(&c->in->shape), length = wf_dims_last(&c->in->shape);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->in->v + r * length;
        double max = -INFINITY, sum = 0, shift = 0;
        for (int64_t j = 0; j < length; j++)
            max = above(x[j], max) ? x[j] : max;
        for (int64_t j = 0; j < length; j++) {
            double e = exp(x[j] - max);
            sum += e;
            shift += e > 0 ? e * (max - x[j]) : 0;
        }
        for (int64_t j = 0; j < length; j++) {
            double y = exp(x[j] - max) / sum;
            wf_ref_set(c->out, r * length + j, y, y * (1 + (max - x[j]) + shift / sum));
        }
    }
    return WF_OK;
}

/* (dy, y) -> dx = y (dy - dy.y) */
wf_status wf_ref_softmax_grad(const wf_ref_call *c)
{
    int64_t rows = wf_dims_rows(&c->out->shape), length = wf_dims_last(&c->out->shape);
    for (int64_t r = 0; r < rows; r++) {
        const double *dy = c->in[0].v + r * length, *y = c->in[1].v + r * length;
        double dot = 0, dot_mag = 0;
        for (int64_t j = 0; j < length; j++) {
            dot += dy[j] * y[j];
            dot_mag += fabs(dy[j] * y[j]);
        }
        for (int64_t j = 0; j < length; j++)
            wf_ref_set(c->out, r * length + j, y[j] * (dy[j] - dot),
                       fabs(y[j]) * (fabs(dy[j]) + dot_mag));
    }
    return WF_OK;
}

/* ---- Over everything ---- */

wf_status wf_ref_global_norm(const wf_ref_call *c)
{
    double sum = 0;
    for (int i = 0; i < c->nin; i++) {
        int64_t count = wf_dims_count(&c->in[i].shape);
        for (int64_t e = 0; e < count; e++)
            sum += c->in[i].v[e] * c->in[i].v[e];
    }
    wf_ref_set(c->out, 0, sqrt(sum), sqrt(sum));
    return WF_OK;
}
