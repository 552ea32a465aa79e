/* SPDX-License-Identifier: MIT */
/*
 * norm.c - layer norm and rms norm of rows [C], also of sums x + residual, and their gradients.
 *
 *     y = xhat * gamma + beta     xhat = (x - mean) * rstd     rstd = 1 / sqrt(mean square + eps)
 *
 * The rms norm is the same with mean = 0 and no beta, so one implementation serves both. With a
 * residual, x is the sum as an add would have stored it: the bits are those of two nodes. In
 * gradients, dsum is added before dx is rounded to its type.
 *
 * Threads share rows. Statistics are summed in f64, in LANES partial sums; column sums run over the
 * rows in ascending order, a block of columns per thread.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/norm.h"
#include "device/cpu/reduce.h"
#include "device/cpu/row.h"
#include "device/walk.h"

enum {
    LANES = 4,   /* partial sums side by side, for vector units; the order is fixed */
    COLUMNS = 64 /* columns per item of sum_columns: whole cache lines of every type */
};

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

/* Returns the address of the statistic of row r. */
static float *statistic(const wf_view *v, int64_t r)
{
    int64_t last = wf_view_last(v);
    return wf_view_at(v, wf_view_row(v, r / last) + r % last);
}

/* ---- Forward ---- */

/* Row buffers of a thread, f32 [C] each. */
enum { X, Y, GAMMA, BETA, PLAIN_BUFFERS, RESIDUAL = PLAIN_BUFFERS, RESIDUAL_BUFFERS };

/* Row r of x + residual, rounded to the type of both; stored as well if somebody reads it. */
static const float *add_residual(const wf_norm *o, int64_t r, float *const *buf)
{
    wf_type type = o->x->type;
    const float *x = wf_row_read(o->x, r, buf[X]);
    const float *residual = wf_row_read(o->residual, r, buf[RESIDUAL]);
    /* In place where the sum is an f32 output. */
    float *total = o->total ? wf_row_begin(o->total, r, buf[X]) : buf[X];
    for (int64_t i = 0; i < o->length; i++)
        total[i] = x[i] + residual[i];
    if (type != WF_F32) {
        void *narrow = o->total ? wf_view_at(o->total, wf_view_row(o->total, r)) : buf[RESIDUAL];
        wf_convert_from_f32(type, total, narrow, o->length);
        wf_convert_to_f32(type, narrow, total, o->length);
    }
    return total;
}

static void forward_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const wf_norm *o = arg;
    int64_t n = o->length;
    float *buf[RESIDUAL_BUFFERS];
    int buffers = o->residual ? RESIDUAL_BUFFERS : PLAIN_BUFFERS;
    for (int i = 0; i < buffers; i++)
        buf[i] = wf_row_buffer(o->l, thread, buffers, i, n);
    const float *gamma = o->gamma ? wf_row_read(o->gamma, 0, buf[GAMMA]) : NULL;
    const float *beta = o->beta ? wf_row_read(o->beta, 0, buf[BETA]) : NULL;

    for (int64_t r = begin; r < end; r++) {
        const float *x = o->residual ? add_residual(o, r, buf) : wf_row_read(o->x, r, buf[X]);
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

static size_t plain_workspace(const wf_device *device, const wf_node *n)
{
    return wf_row_workspace(wf_device_threads(device), PLAIN_BUFFERS,
                            wf_dims_last(&n->in[0]->shape));
}

static size_t residual_workspace(const wf_device *device, const wf_node *n)
{
    return wf_row_workspace(wf_device_threads(device), RESIDUAL_BUFFERS,
                            wf_dims_last(&n->in[0]->shape));
}

/* ---- Gradients ----
 *
 * With g = dy * gamma:  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), the second term for the
 * layer norm only; dgamma and dbeta are the sums of dy * xhat and of dy over all rows. */

/* Row buffers of a thread, f32 [C] each. */
enum { G, XHAT, DX, SCALE, DSUM, BACKWARD_BUFFERS };

/* Computes elements [begin, begin + n) of row r of xhat in buf. */
static void xhat_part(const wf_norm *o, int64_t r, int64_t begin, int64_t n, float *buf)
{
    const float *x = wf_row_part(o->x, r, begin, n, buf);
    float mean = o->mean ? *statistic(o->mean, r) : 0, rstd = *statistic(o->rstd, r);
    for (int64_t i = 0; i < n; i++)
        buf[i] = (x[i] - mean) * rstd;
}

static void dx_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const wf_norm *o = arg;
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
            g[i] = rstd * (g[i] - mean - xhat[i] * along);
        const float *dsum = o->residual ? wf_row_read(o->residual, r, buf[DSUM]) : NULL;
        for (int64_t i = 0; i < n; i++)
            dx[i] = dsum ? g[i] + dsum[i] : g[i];
        wf_row_end(o->dx, r, dx);
    }
}

static void store_sums(const wf_view *v, const double *sums, int64_t begin, int64_t n, float *buf)
{
    for (int64_t i = 0; i < n; i++)
        buf[i] = (float)sums[begin + i];
    wf_convert_from_f32(v->type, buf, wf_view_at(v, begin), n);
}

typedef struct {
    const wf_norm *norm;
    double *sums; /* [2][length]: of dgamma, of dbeta */
} column_sums;

/* Each thread sums whole columns, so the order of the rows does not depend on the threads. */
static void sum_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    const column_sums *s = arg;
    const wf_norm *o = s->norm;
    begin *= COLUMNS;
    end = end * COLUMNS < o->length ? end * COLUMNS : o->length;
    int64_t n = end - begin;
    float *buf = wf_row_buffer(o->l, thread, BACKWARD_BUFFERS, G, o->length);
    float *xhat = wf_row_buffer(o->l, thread, BACKWARD_BUFFERS, XHAT, o->length);
    double *dgamma = s->sums, *dbeta = s->sums + o->length;

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

static size_t backward_workspace(const wf_device *device, const wf_node *n)
{
    int64_t length = wf_dims_last(&n->in[0]->shape);
    return wf_row_workspace(wf_device_threads(device), BACKWARD_BUFFERS, length) +
           2 * (size_t)length * sizeof(double);
}

/* The sum of dx's rows runs after the rest and reuses its memory. */
static size_t residual_backward_workspace(const wf_device *device, const wf_node *n)
{
    const wf_dims *x = &n->in[0]->shape;
    size_t rest = backward_workspace(device, n);
    size_t sum = wf_sum_rows_workspace(wf_dims_rows(x), wf_dims_last(x));
    return rest > sum ? rest : sum;
}

static void backward(const wf_norm *o)
{
    const wf_launch *l = o->l;
    if (o->dx)
        wf_parallel_for(l->threads, o->rows, wf_grain(o->length), dx_rows, (void *)o);
    if (o->dgamma || o->dbeta) {
        size_t buffers = wf_row_workspace(l->threads, BACKWARD_BUFFERS, o->length);
        column_sums s = {o, (double *)(void *)((char *)l->workspace + buffers)};
        int64_t blocks = (o->length + COLUMNS - 1) / COLUMNS;
        wf_parallel_for(l->threads, blocks, wf_grain(COLUMNS * o->rows), sum_columns, &s);
    }
}

static wf_status launch(const wf_launch *l)
{
    static const wf_norm_rows rows = {forward_rows, backward, wf_sum_rows};
    return wf_norm_launch(l, &rows);
}

/* clang-format off */
#define ROW(name_, workspace_, ...)                                                                \
    {.op = WF_OP_##name_, .name = "reference", .types = WF_TYPES_FLOAT, .strided = true,           \
     .workspace = workspace_, .launch = launch, __VA_ARGS__}
const wf_kernel wf_cpu_norm[] = {
    ROW(layer_norm, plain_workspace),
    ROW(layer_norm_grad, backward_workspace),
    ROW(rms_norm, plain_workspace),
    ROW(rms_norm_grad, backward_workspace),
    ROW(residual_layer_norm, residual_workspace),
    ROW(residual_rms_norm, residual_workspace),
    ROW(residual_layer_norm_grad, residual_backward_workspace, .in_place = 1u << 4 /* dsum */,
        .from_first = 1u << 3),
    ROW(residual_rms_norm_grad, residual_backward_workspace, .in_place = 1u << 3, .from_first = 1u << 2),
    {0},
};
