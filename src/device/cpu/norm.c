/* SPDX-License-Identifier: MIT */
/*
 * norm.c - layer norm and rms norm of rows [C], and their gradients.
 *
 *     y = xhat * gamma + beta     xhat = (x - mean) * rstd     rstd = 1 / sqrt(mean square + eps)
 *
 * The rms norm is the same with mean = 0 and no beta, so one implementation serves both.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/row.h"
#include "device/cpu/walk.h"

enum {
    LANES = 4,   /* partial sums side by side, for vector units; the order is fixed all the same */
    COLUMNS = 64 /* whole cache lines of every type */
};

typedef struct {
    const wf_launch *l;
    int64_t rows, length;
    double eps;
    bool centered;                        /* layer norm: the mean is taken off */
    const wf_view *dy, *x, *gamma, *beta; /* gamma, beta: NULL when there are none */
    const wf_view *mean, *rstd;           /* saved statistics: outputs, or inputs of the gradient */
    const wf_view *y, *dx, *dgamma, *dbeta; /* outputs: NULL when nobody reads them */
    double *sums;                           /* [2][length], for dgamma and dbeta */
} norm;

static double sum(const float *x, int64_t n)
{
    double s[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            s[j] += x[i + j];
    for (; i < n; i++)
        rest += x[i];
    return (s[0] + s[1]) + (s[2] + s[3]) + rest;
}

static double dot(const float *x, const float *y, int64_t n)
{
    double s[LANES] = {0}, rest = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            s[j] += (double)x[i + j] * y[i + j];
    for (; i < n; i++)
        rest += (double)x[i] * y[i];
    return (s[0] + s[1]) + (s[2] + s[3]) + rest;
}

static const wf_view *input(const wf_launch *l, int i)
{
    return i < l->nin ? &l->in[i] : NULL;
}

static const wf_view *output(const wf_launch *l, int i)
{
    return i < l->nout && l->out[i].data ? &l->out[i] : NULL;
}

/* Where the statistic of row r is. */
static float *statistic(const wf_view *v, int64_t r)
{
    int64_t last = wf_view_last(v);
    return wf_view_at(v, wf_view_row(v, r / last) + r % last);
}

/* ---- Forward ---- */

enum { X, Y, GAMMA, BETA, FORWARD_BUFFERS };

static void forward_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm *o = arg;
    int64_t n = o->length;
    float *buf[FORWARD_BUFFERS];
    for (int i = 0; i < FORWARD_BUFFERS; i++)
        buf[i] = wf_row_buffer(o->l, thread, FORWARD_BUFFERS, i, n);
    const float *gamma = o->gamma ? wf_row_read(o->gamma, 0, buf[GAMMA]) : NULL;
    const float *beta = o->beta ? wf_row_read(o->beta, 0, buf[BETA]) : NULL;

    for (int64_t r = begin; r < end; r++) {
        const float *x = wf_row_read(o->x, r, buf[X]);
        float *y = o->y ? wf_row_begin(o->y, r, buf[Y]) : buf[Y];
        double mean = o->centered ? sum(x, n) / (double)n : 0;
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)(x[i] - mean);
        double rstd = 1 / sqrt(dot(y, y, n) / (double)n + o->eps);
        for (int64_t i = 0; i < n; i++)
            y[i] *= (float)rstd;
        if (gamma)
            for (int64_t i = 0; i < n; i++)
                y[i] *= gamma[i];
        if (beta)
            for (int64_t i = 0; i < n; i++)
                y[i] += beta[i];
        if (o->y)
            wf_row_end(o->y, r, y);
        if (o->mean)
            *statistic(o->mean, r) = (float)mean;
        if (o->rstd)
            *statistic(o->rstd, r) = (float)rstd;
    }
}

static size_t forward_workspace(const wf_node *n, int threads)
{
    return wf_row_workspace(threads, FORWARD_BUFFERS, wf_dims_last(&n->in[0]->shape));
}

static wf_status forward(norm *o)
{
    const wf_launch *l = o->l;
    o->eps = ((const wf_attr_norm *)l->attr)->eps;
    o->x = &l->in[0];
    o->gamma = input(l, 1);
    o->rows = wf_view_rows(o->x);
    o->length = wf_view_last(o->x);
    o->y = output(l, 0);
    wf_parallel_for(l->threads, o->rows, wf_grain(o->length), forward_rows, o);
    return WF_OK;
}

/* layer_norm: (x, gamma?, beta?) -> y, mean, rstd */
static wf_status launch_layer_norm(const wf_launch *l)
{
    norm o = {.l = l, .centered = true, .beta = input(l, 2)};
    o.mean = output(l, 1);
    o.rstd = output(l, 2);
    return forward(&o);
}

/* rms_norm: (x, gamma?) -> y, rstd */
static wf_status launch_rms_norm(const wf_launch *l)
{
    norm o = {.l = l, .rstd = output(l, 1)};
    return forward(&o);
}

/* ---- Gradients ----
 *
 * With g = dy * gamma:  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), the second term for the
 * layer norm only; dgamma and dbeta are the sums of dy * xhat and of dy over all rows. */

enum { G, XHAT, DX, SCALE, BACKWARD_BUFFERS };

/* The same of xhat, always in buf. */
static void xhat_part(const norm *o, int64_t r, int64_t begin, int64_t n, float *buf)
{
    const float *x = wf_row_part(o->x, r, begin, n, buf);
    float mean = o->mean ? *statistic(o->mean, r) : 0, rstd = *statistic(o->rstd, r);
    for (int64_t i = 0; i < n; i++)
        buf[i] = (x[i] - mean) * rstd;
}

static void dx_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm *o = arg;
    int64_t n = o->length;
    float *buf[BACKWARD_BUFFERS];
    for (int i = 0; i < BACKWARD_BUFFERS; i++)
        buf[i] = wf_row_buffer(o->l, thread, BACKWARD_BUFFERS, i, n);
    float *g = buf[G], *xhat = buf[XHAT];
    const float *gamma = o->gamma ? wf_row_read(o->gamma, 0, buf[SCALE]) : NULL;

    for (int64_t r = begin; r < end; r++) {
        const float *dy = wf_row_read(o->dy, r, g);
        float *dx = wf_row_begin(o->dx, r, buf[DX]);
        xhat_part(o, r, 0, n, xhat);
        for (int64_t i = 0; i < n; i++)
            g[i] = gamma ? dy[i] * gamma[i] : dy[i];
        float rstd = *statistic(o->rstd, r);
        float along = (float)(dot(g, xhat, n) / (double)n);
        float mean = o->centered ? (float)(sum(g, n) / (double)n) : 0;
        for (int64_t i = 0; i < n; i++)
            dx[i] = rstd * (g[i] - mean - xhat[i] * along);
        wf_row_end(o->dx, r, dx);
    }
}

static void store_sums(const wf_view *v, const double *sums, int64_t begin, int64_t n, float *buf)
{
    for (int64_t i = 0; i < n; i++)
        buf[i] = (float)sums[begin + i];
    wf_convert_from_f32(v->type, buf, wf_view_at(v, begin), n);
}

/* Each thread adds up whole columns [begin, end), so that the order of rows is always the same. */
static void sum_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm *o = arg;
    begin *= COLUMNS;
    end = end * COLUMNS < o->length ? end * COLUMNS : o->length;
    int64_t n = end - begin;
    float *buf = wf_row_buffer(o->l, thread, BACKWARD_BUFFERS, G, o->length);
    float *xhat = wf_row_buffer(o->l, thread, BACKWARD_BUFFERS, XHAT, o->length);
    double *dgamma = o->sums, *dbeta = o->sums + o->length;

    for (int64_t i = begin; i < end; i++)
        dgamma[i] = dbeta[i] = 0;
    for (int64_t r = 0; r < o->rows; r++) {
        const float *dy = wf_row_part(o->dy, r, begin, n, buf);
        xhat_part(o, r, begin, n, xhat);
        for (int64_t i = 0; i < n; i++) {
            dgamma[begin + i] += (double)dy[i] * xhat[i];
            dbeta[begin + i] += dy[i];
        }
    }
    if (o->dgamma)
        store_sums(o->dgamma, dgamma, begin, n, buf);
    if (o->dbeta)
        store_sums(o->dbeta, dbeta, begin, n, buf);
}

static size_t backward_workspace(const wf_node *n, int threads)
{
    int64_t length = wf_dims_last(&n->in[0]->shape);
    return wf_row_workspace(threads, BACKWARD_BUFFERS, length) +
           2 * (size_t)length * sizeof(double);
}

static wf_status backward(norm *o)
{
    const wf_launch *l = o->l;
    o->dy = &l->in[0];
    o->x = &l->in[1];
    o->rows = wf_view_rows(o->x);
    o->length = wf_view_last(o->x);
    o->dx = output(l, 0);
    o->dgamma = output(l, 1);
    o->dbeta = output(l, 2);
    size_t buffers = wf_row_workspace(l->threads, BACKWARD_BUFFERS, o->length);
    o->sums = (double *)(void *)((char *)l->workspace + buffers);

    if (o->dx)
        wf_parallel_for(l->threads, o->rows, wf_grain(o->length), dx_rows, o);
    if (o->dgamma || o->dbeta) {
        int64_t blocks = (o->length + COLUMNS - 1) / COLUMNS;
        wf_parallel_for(l->threads, blocks, wf_grain(COLUMNS * o->rows), sum_columns, o);
    }
    return WF_OK;
}

/* layer_norm_grad: (dy, x, mean, rstd, gamma?) -> dx, dgamma, dbeta */
static wf_status launch_layer_norm_grad(const wf_launch *l)
{
    norm o = {.l = l, .centered = true, .gamma = input(l, 4)};
    o.mean = &l->in[2];
    o.rstd = &l->in[3];
    return backward(&o);
}

/* rms_norm_grad: (dy, x, rstd, gamma?) -> dx, dgamma */
static wf_status launch_rms_norm_grad(const wf_launch *l)
{
    norm o = {.l = l, .gamma = input(l, 3)};
    o.rstd = &l->in[2];
    return backward(&o);
}

/* clang-format off */
#define ROW(name_, workspace_)                                                                     \
    {.op = WF_OP_##name_, .name = "reference", .types = WF_TYPES_FLOAT, .strided = true,           \
     .workspace = workspace_, .launch = launch_##name_}
const wf_kernel wf_cpu_norm[] = {
    ROW(layer_norm, forward_workspace),
    ROW(layer_norm_grad, backward_workspace),
    ROW(rms_norm, forward_workspace),
    ROW(rms_norm_grad, backward_workspace),
    {0},
};
