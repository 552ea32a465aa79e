/* SPDX-License-Identifier: MIT */
/* ref_norm.c - layer_norm and rms_norm over the last axis, with and without a residual, and their
 * gradients. */
#include "selftest/number.h"
#include "selftest/ref_priv.h"

/* ---- layer_norm ---- */

/* The statistics of one row, with their mags. */
typedef struct {
    double mean, rstd;
    double mean_mag, rstd_mag;
} moments;

/* rstd = (var + eps)^(-1/2) has half the relative error of var. The terms (x - mean)^2 of var
 * inherit the error of x - mean, including that of the mean. */
static moments layer_moments(const double *x, int64_t n, double eps)
{
    moments s = {0};
    double var = 0, var_mag = 0;
    for (int64_t i = 0; i < n; i++) {
        s.mean += x[i] / (double)n;
        s.mean_mag += fabs(x[i]) / (double)n;
    }
    for (int64_t i = 0; i < n; i++) {
        double d = x[i] - s.mean;
        var += d * d / (double)n;
        var_mag += fabs(d) * (fabs(d) + s.mean_mag) / (double)n;
    }
    /* The mean of nothing is 0 / 0. */
    if (n == 0)
        s.mean = var = NAN;
    s.rstd = 1 / sqrt(var + eps);
    s.rstd_mag = s.rstd * (1 + var_mag / (var + eps));
    return s;
}

/* (x, gamma?, beta?) -> y, mean, rstd */
wf_status wf_ref_layer_norm(const wf_ref_call *c)
{
    const wf_attr_norm *attr = c->attr;
    int64_t rows = wf_dims_rows(&c->in->shape), n = wf_dims_last(&c->in->shape);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->in->v + r * n;
        moments s = layer_moments(x, n, attr->eps);
        for (int64_t i = 0; i < n; i++) {
            double gamma = c->nin > 1 ? c->in[1].v[i] : 1, beta = c->nin > 2 ? c->in[2].v[i] : 0;
            double d = x[i] - s.mean;
            double hat_mag = (fabs(x[i]) + s.mean_mag) * s.rstd + fabs(d) * s.rstd_mag;
            wf_ref_set(&c->out[0], r * n + i, d * s.rstd * gamma + beta,
                       hat_mag * fabs(gamma) + fabs(beta));
        }
        wf_ref_set(&c->out[1], r, s.mean, s.mean_mag);
        wf_ref_set(&c->out[2], r, s.rstd, s.rstd_mag);
    }
    return WF_OK;
}

/* (dy, x, mean, rstd, gamma?) -> dx, dgamma, dbeta. With h = (x - mean) rstd and g = dy gamma:
 * dx = rstd (g - mean(g) - h mean(g h)), dgamma = sum of dy h over rows, dbeta = that of dy. */
static wf_status layer_norm_grad(const wf_ref_call *c, const wf_ref *gamma)
{
    int64_t rows = wf_dims_rows(&c->in[1].shape), n = wf_dims_last(&c->in[1].shape);
    for (int64_t r = 0; r < rows; r++) {
        const double *dy = c->in[0].v + r * n, *x = c->in[1].v + r * n;
        double mean = c->in[2].v[r], rstd = c->in[3].v[r];
        double g_mean = 0, g_mag = 0, gh_mean = 0, gh_mag = 0;
        for (int64_t i = 0; i < n; i++) {
            double h = (x[i] - mean) * rstd, h_mag = (fabs(x[i]) + fabs(mean)) * rstd;
            double g = dy[i] * (gamma ? gamma->v[i] : 1);
            g_mean += g / (double)n;
            g_mag += fabs(g) / (double)n;
            gh_mean += g * h / (double)n;
            gh_mag += fabs(g) * h_mag / (double)n;
            if (c->nout > 1) {
                c->out[1].v[i] += dy[i] * h;
                c->out[1].mag[i] += fabs(dy[i]) * h_mag;
            }
            if (c->nout > 2) {
                c->out[2].v[i] += dy[i];
                c->out[2].mag[i] += fabs(dy[i]);
            }
        }
        for (int64_t i = 0; i < n; i++) {
            double h = (x[i] - mean) * rstd, h_mag = (fabs(x[i]) + fabs(mean)) * rstd;
            double g = dy[i] * (gamma ? gamma->v[i] : 1);
            wf_ref_set(&c->out[0], r * n + i, rstd * (g - g_mean - h * gh_mean),
                       rstd * (fabs(g) + g_mag + h_mag * fabs(gh_mean) + fabs(h) * gh_mag));
        }
    }
    return WF_OK;
}

/* Returns operand i, or NULL if there are fewer. */
static const wf_ref *operand(const wf_ref_call *c, int i)
{
    return c->nin > i ? &c->in[i] : NULL;
}

wf_status wf_ref_layer_norm_grad(const wf_ref_call *c)
{
    return layer_norm_grad(c, operand(c, 4));
}

/* ---- rms_norm ---- */

/* (x, gamma?) -> y, rstd. Nothing cancels: every factor has an error of a few roundoffs. */
wf_status wf_ref_rms_norm(const wf_ref_call *c)
{
    const wf_attr_norm *attr = c->attr;
    int64_t rows = wf_dims_rows(&c->in->shape), n = wf_dims_last(&c->in->shape);
    for (int64_t r = 0; r < rows; r++) {
        const double *x = c->in->v + r * n;
        double sum = 0;
        for (int64_t i = 0; i < n; i++)
            sum += x[i] * x[i];
        double rstd = 1 / sqrt(sum / (double)n + attr->eps);
        for (int64_t i = 0; i < n; i++) {
            double y = x[i] * rstd * (c->nin > 1 ? c->in[1].v[i] : 1);
            wf_ref_set(&c->out[0], r * n + i, y, 2 * fabs(y));
        }
        wf_ref_set(&c->out[1], r, rstd, rstd);
    }
    return WF_OK;
}

/* (dy, x, rstd, gamma?) -> dx, dgamma. With h = x rstd and g = dy gamma:
 * dx = rstd (g - h mean(g h)), dgamma = sum of dy h over rows. */
static wf_status rms_norm_grad(const wf_ref_call *c, const wf_ref *gamma)
{
    int64_t rows = wf_dims_rows(&c->in[1].shape), n = wf_dims_last(&c->in[1].shape);
    for (int64_t r = 0; r < rows; r++) {
        const double *dy = c->in[0].v + r * n, *x = c->in[1].v + r * n;
        double rstd = c->in[2].v[r], gh_mean = 0, gh_mag = 0;
        for (int64_t i = 0; i < n; i++) {
            double h = x[i] * rstd, g = dy[i] * (gamma ? gamma->v[i] : 1);
            gh_mean += g * h / (double)n;
            gh_mag += fabs(g * h) / (double)n;
            if (c->nout > 1) {
                c->out[1].v[i] += dy[i] * h;
                c->out[1].mag[i] += fabs(dy[i] * h);
            }
        }
        for (int64_t i = 0; i < n; i++) {
            double h = x[i] * rstd, g = dy[i] * (gamma ? gamma->v[i] : 1);
            wf_ref_set(&c->out[0], r * n + i, rstd * (g - h * gh_mean),
                       rstd * (fabs(g) + fabs(h) * gh_mag));
        }
    }
    return WF_OK;
}

wf_status wf_ref_rms_norm_grad(const wf_ref_call *c)
{
    return rms_norm_grad(c, operand(c, 3));
}

/* ---- With a residual ---- */

/* (x, residual, params...) -> sum, outputs of `norm`. The norm uses the sum rounded to its type.
 * The sum of two values has one correct rounding, which is used here. */
static wf_status residual(const wf_ref_call *c, wf_ref_fn *norm)
{
    const wf_ref *a = &c->in[0], *b = &c->in[1];
    wf_ref in[3] = {c->out[0]};
    int64_t count = wf_dims_count(&a->shape);
    for (int64_t e = 0; e < count; e++)
        wf_ref_set(&c->out[0], e, wf_number_round(a->type, a->v[e] + b->v[e]),
                   fabs(a->v[e]) + fabs(b->v[e]));
    for (int i = 2; i < c->nin; i++)
        in[i - 1] = c->in[i];
    wf_ref_call of_sum = {c->ctx, c->node, c->attr, c->nin - 1, c->nout - 1, in, &c->out[1]};
    return norm(&of_sum);
}

wf_status wf_ref_residual_layer_norm(const wf_ref_call *c)
{
    return residual(c, wf_ref_layer_norm);
}

wf_status wf_ref_residual_rms_norm(const wf_ref_call *c)
{
    return residual(c, wf_ref_rms_norm);
}

/* dx += dsum, rounded once. Then computes the last output, the sum of the rows of dx. */
static wf_status add_dsum(const wf_ref_call *c, const wf_ref *dsum)
{
    int64_t count = wf_dims_count(&dsum->shape);
    for (int64_t e = 0; e < count; e++)
        wf_ref_set(&c->out[0], e, c->out[0].v[e] + dsum->v[e], c->out[0].mag[e] + fabs(dsum->v[e]));
    wf_ref_add_rows(&c->out[0], &c->out[c->nout - 1]);
    return WF_OK;
}

/* (dy, x, mean, rstd, dsum, gamma?) -> dx, dgamma, dbeta, sum of dx */
wf_status wf_ref_residual_layer_norm_grad(const wf_ref_call *c)
{
    WF_TRY(layer_norm_grad(c, operand(c, 5)));
    return add_dsum(c, &c->in[4]);
}

/* (dy, x, rstd, dsum, gamma?) -> dx, dgamma, sum of dx */
wf_status wf_ref_residual_rms_norm_grad(const wf_ref_call *c)
{
    WF_TRY(rms_norm_grad(c, operand(c, 4)));
    return add_dsum(c, &c->in[3]);
}
