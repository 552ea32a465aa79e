/* SPDX-License-Identifier: MIT */
/*
 * norm.c - layer norm and rms norm of rows [C], also of sums x + residual, and their gradients.
 *
 * A row passes twice: once from memory, for its statistics, and once from the cache, for its result.
 * Statistics are sums in double. Those of the layer norm are taken of x - p with p the row's own first
 * element: then (mean - p)^2 is at most C times the variance, so that
 *
 *     variance = mean((x - p)^2) - mean(x - p)^2
 *
 * loses to cancellation no more than a factor C of double's precision, whatever offset the row has.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/reduce.h"
#include "device/cpu/row.h"
#include "device/cpu/simd/lanes.h"
#include "device/cpu/simd/reduce.h"
#include "device/cpu/walk.h"

typedef struct {
    const wf_launch *l;
    int64_t rows, length;
    double eps;
    bool centered;                        /* layer norm: the mean is taken off */
    const wf_view *dy, *x, *gamma, *beta; /* gamma, beta: NULL when there are none */
    const wf_view *residual;              /* added to x before, or to dx after; or NULL */
    const wf_view *mean, *rstd;           /* saved statistics: outputs, or inputs of the gradient */
    const wf_view *total, *y, *dx, *dgamma, *dbeta; /* outputs: NULL when nobody reads them */
    const wf_view *dx_sum;                          /* of the rows of dx; likewise */
    int64_t part, parts; /* rows that dgamma and dbeta are first summed over */
    float *sums;         /* [parts][2][stride]: of dgamma, of dbeta */
    int64_t stride;      /* the length in whole cache lines */
} norm;

static const wf_view *input(const wf_launch *l, int i)
{
    return i < l->nin ? &l->in[i] : NULL;
}

static const wf_view *output(const wf_launch *l, int i)
{
    return i < l->nout && l->out[i].data ? &l->out[i] : NULL;
}

/* A parameter [C] as f32, NULL when there is none. */
static const float *param(const wf_view *v, float *buf)
{
    return v ? lanes_widen(v->type, v->data, wf_view_last(v), buf) : NULL;
}

/* ---- Forward ---- */

enum { GAMMA, BETA, TOTAL, FORWARD_BUFFERS };

typedef struct {
    double mean, rstd;
} moments;

/* The row that the statistics are of: x, or x + residual as an add would have stored it. */
static inline vf row_of(wf_type type, const void *x, const void *residual, void *total, int64_t i,
                        int64_t n)
{
    vf v = lanes_load(type, x, i, n);
    if (!residual)
        return v;
    v = vf_add(v, lanes_load(type, residual, i, n));
    lanes_store(type, total, i, n, v);
    return type == WF_F32 ? v : lanes_load(type, total, i, n);
}

static inline moments rms_moments(wf_type type, const norm *o, const void *x, const void *residual,
                                  void *total)
{
    lanes_sum square = lanes_sum_zero();
    for (int64_t i = 0; i < o->length; i += WF_VL) {
        vf v = row_of(type, x, residual, total, i, o->length);
        lanes_sum_fma(&square, v, v);
    }
    return (moments){0, 1 / sqrt(lanes_sum_end(&square) / (double)o->length + o->eps)};
}

static inline moments layer_moments(wf_type type, const norm *o, const void *x,
                                    const void *residual, void *total)
{
    int64_t n = o->length;
    float first = vf_sum(row_of(type, x, residual, total, 0, 1));
    first = isfinite(first) ? first : 0;
    vf rest = vf_set(first);
    vd p = vd_set(first);
    lanes_sum sum = lanes_sum_zero(), square = lanes_sum_zero();
    for (int64_t i = 0; i < n; i += WF_VL) {
        vf v = lanes_or(row_of(type, x, residual, total, i, n), i, n, rest);
        vd low = vd_sub(vd_low(v), p), high = vd_sub(vd_high(v), p);
        sum.low = vd_add(sum.low, low);
        sum.high = vd_add(sum.high, high);
        square.low = vd_fma(low, low, square.low);
        square.high = vd_fma(high, high, square.high);
    }
    double off = lanes_sum_end(&sum) / (double)n;
    double variance = lanes_sum_end(&square) / (double)n - off * off;
    return (moments){first + off, 1 / sqrt((variance < 0 ? 0 : variance) + o->eps)};
}

/* y = (x - mean) * rstd * gamma + beta, the mean in two parts: x may be close to it. */
static inline void normalize(wf_type type, const void *x, void *y, int64_t n, moments m,
                             const float *gamma, const float *beta)
{
    vf near = vf_set((float)m.mean), rest = vf_set((float)(m.mean - (float)m.mean));
    vf rstd = vf_set((float)m.rstd);
    for (int64_t i = 0; i < n; i += WF_VL) {
        vf v = vf_mul(vf_sub(vf_sub(lanes_load(type, x, i, n), near), rest), rstd);
        if (gamma)
            v = vf_mul(v, lanes_load(WF_F32, gamma, i, n));
        if (beta)
            v = vf_add(v, lanes_load(WF_F32, beta, i, n));
        lanes_store(type, y, i, n, v);
    }
}

static inline void forward_of(wf_type type, const norm *o, int64_t begin, int64_t end, int thread)
{
    float *buf[FORWARD_BUFFERS];
    for (int i = 0; i < FORWARD_BUFFERS; i++)
        buf[i] = wf_row_buffer(o->l, thread, FORWARD_BUFFERS, i, o->length);
    const float *gamma = param(o->gamma, buf[GAMMA]), *beta = param(o->beta, buf[BETA]);

    for (int64_t r = begin; r < end; r++) {
        const void *x = lanes_row(o->x, r),
                   *residual = o->residual ? lanes_row(o->residual, r) : NULL;
        void *total = o->total ? lanes_row(o->total, r) : buf[TOTAL];
        moments m = o->centered ? layer_moments(type, o, x, residual, total)
                                : rms_moments(type, o, x, residual, total);
        if (o->y)
            normalize(type, residual ? total : x, lanes_row(o->y, r), o->length, m, gamma, beta);
        if (o->mean)
            *(float *)lanes_item(o->mean, r) = (float)m.mean;
        if (o->rstd)
            *(float *)lanes_item(o->rstd, r) = (float)m.rstd;
    }
}

static void forward_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm *o = arg;
    LANES_BY_TYPE(o->x->type, forward_of, o, begin, end, thread);
}

static size_t forward_workspace(const wf_node *n, int threads)
{
    return wf_row_workspace(threads, FORWARD_BUFFERS, wf_dims_last(&n->in[0]->shape));
}

/* (x, gamma?, beta?) -> y, mean if centered, rstd; from their second operand and output on, the
 * forms with a residual are the same. */
static wf_status forward(const wf_launch *l, bool centered, bool residual)
{
    int first = residual ? 1 : 0;
    norm o = {.l = l,
              .eps = ((const wf_attr_norm *)l->attr)->eps,
              .centered = centered,
              .x = &l->in[0],
              .residual = residual ? &l->in[1] : NULL,
              .gamma = input(l, first + 1),
              .beta = centered ? input(l, first + 2) : NULL,
              .total = residual ? output(l, 0) : NULL,
              .y = output(l, first),
              .mean = centered ? output(l, first + 1) : NULL,
              .rstd = output(l, first + (centered ? 2 : 1)),
              .rows = wf_view_rows(&l->in[0]),
              .length = wf_view_last(&l->in[0])};
    wf_parallel_for(l->threads, o.rows, wf_grain(o.length), forward_rows, &o);
    return WF_OK;
}

static wf_status launch_layer_norm(const wf_launch *l)
{
    return forward(l, true, false);
}

static wf_status launch_rms_norm(const wf_launch *l)
{
    return forward(l, false, false);
}

static wf_status launch_residual_layer_norm(const wf_launch *l)
{
    return forward(l, true, true);
}

static wf_status launch_residual_rms_norm(const wf_launch *l)
{
    return forward(l, false, true);
}

/* ---- Gradients ----
 *
 * With g = dy * gamma:  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), the second term for the
 * layer norm only; dgamma and dbeta are the sums of dy * xhat and of dy over all rows. These are summed
 * while the row is at hand, in f32 over parts of the rows that the number of rows alone determines, then
 * in double over the parts. */

enum { PART_LEAST = 4, PART_MOST = 64, PARTS_WANTED = 32, COLUMNS = 64 };

static int64_t part_of(int64_t rows)
{
    int64_t part = (rows + PARTS_WANTED - 1) / PARTS_WANTED;
    return part < PART_LEAST ? PART_LEAST : part > PART_MOST ? PART_MOST : part;
}

/* A row of the operands, and the statistics that were saved of it. */
typedef struct {
    const void *dy, *x, *dsum; /* dsum: NULL when there is none */
    const float *gamma;
    vf mean, rstd;
    int64_t n;
} grad_row;

static inline vf xhat_at(wf_type type, const grad_row *w, int64_t i)
{
    return vf_mul(vf_sub(lanes_load(type, w->x, i, w->n), w->mean), w->rstd);
}

static inline vf g_at(const grad_row *w, int64_t i, vf dy)
{
    return w->gamma ? vf_mul(dy, lanes_load(WF_F32, w->gamma, i, w->n)) : dy;
}

/* Adds the row to the sums, and gives mean(g), mean(g * xhat). Lanes past the end have dy = 0. */
static inline void grad_means(wf_type type, const grad_row *w, float *dgamma, float *dbeta,
                              float *mean, float *along)
{
    lanes_sum sum = lanes_sum_zero(), dot = lanes_sum_zero();
    for (int64_t i = 0; i < w->n; i += WF_VL) {
        vf dy = lanes_load(type, w->dy, i, w->n), xhat = xhat_at(type, w, i);
        vf g = g_at(w, i, dy);
        lanes_sum_add(&sum, g);
        lanes_sum_fma(&dot, g, lanes_or(xhat, i, w->n, vf_zero()));
        if (dgamma)
            vf_store(dgamma + i, vf_fma(dy, xhat, vf_load(dgamma + i)));
        if (dbeta)
            vf_store(dbeta + i, vf_add(dy, vf_load(dbeta + i)));
    }
    *mean = (float)(lanes_sum_end(&sum) / (double)w->n);
    *along = (float)(lanes_sum_end(&dot) / (double)w->n);
}

static inline void grad_dx(wf_type type, const grad_row *w, float mean, float along, void *dx)
{
    vf m = vf_set(mean), a = vf_set(along);
    for (int64_t i = 0; i < w->n; i += WF_VL) {
        vf g = g_at(w, i, lanes_load(type, w->dy, i, w->n));
        vf d = vf_fnma(xhat_at(type, w, i), a, vf_sub(g, m));
        d = vf_mul(w->rstd, d);
        if (w->dsum)
            d = vf_add(d, lanes_load(type, w->dsum, i, w->n));
        lanes_store(type, dx, i, w->n, d);
    }
}

static inline void backward_of(wf_type type, const norm *o, int64_t begin, int64_t end, int thread)
{
    float *buf = wf_row_buffer(o->l, thread, 1, 0, o->length), mean, along;
    grad_row w = {.n = o->length, .gamma = param(o->gamma, buf)};
    for (int64_t part = begin; part < end; part++) {
        int64_t last = (part + 1) * o->part < o->rows ? (part + 1) * o->part : o->rows;
        float *sums = o->sums + 2 * part * o->stride;
        float *dgamma = o->dgamma ? sums : NULL, *dbeta = o->dbeta ? sums + o->stride : NULL;
        memset(sums, 0, 2 * (size_t)o->stride * sizeof *sums);
        for (int64_t r = part * o->part; r < last; r++) {
            w.dy = lanes_row(o->dy, r);
            w.x = lanes_row(o->x, r);
            w.dsum = o->residual ? lanes_row(o->residual, r) : NULL;
            w.mean = vf_set(o->mean ? *(const float *)lanes_item(o->mean, r) : 0);
            w.rstd = vf_set(*(const float *)lanes_item(o->rstd, r));
            grad_means(type, &w, dgamma, dbeta, &mean, &along);
            if (o->dx)
                grad_dx(type, &w, o->centered ? mean : 0, along, lanes_row(o->dx, r));
        }
    }
}

static void backward_parts(void *arg, int64_t begin, int64_t end, int thread)
{
    const norm *o = arg;
    LANES_BY_TYPE(o->x->type, backward_of, o, begin, end, thread);
}

/* The parts' sums, in order, from `sums` on. */
static void join_parts(const norm *o, const float *sums, int64_t begin, int64_t end,
                       const wf_view *out)
{
    for (int64_t i = begin; i < end; i += WF_VL) {
        lanes_sum s = lanes_sum_zero();
        for (int64_t part = 0; part < o->parts; part++)
            lanes_sum_add(&s, vf_load(sums + 2 * part * o->stride + i));
        lanes_store(out->type, out->data, i, end, vd_to_vf(s.low, s.high));
    }
}

static void join_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const norm *o = arg;
    begin *= COLUMNS;
    end = end * COLUMNS < o->length ? end * COLUMNS : o->length;
    if (o->dgamma)
        join_parts(o, o->sums, begin, end, o->dgamma);
    if (o->dbeta)
        join_parts(o, o->sums + o->stride, begin, end, o->dbeta);
}

static int64_t stride_of(int64_t length)
{
    return (length + COLUMNS - 1) / COLUMNS * COLUMNS;
}

static size_t backward_workspace(const wf_node *n, int threads)
{
    int64_t length = wf_dims_last(&n->in[0]->shape), rows = wf_dims_rows(&n->in[0]->shape);
    int64_t part = part_of(rows), parts = (rows + part - 1) / part;
    return wf_row_workspace(threads, 1, length) +
           2 * (size_t)(parts * stride_of(length)) * sizeof(float);
}

/* The sum of dx's rows comes after the rest. */
static size_t residual_backward_workspace(const wf_node *n, int threads)
{
    const wf_dims *x = &n->in[0]->shape;
    size_t rest = backward_workspace(n, threads);
    size_t sum = WF_SIMD(wf_simd_sum_rows_workspace)(wf_dims_rows(x), wf_dims_last(x));
    return rest > sum ? rest : sum;
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
    o->dbeta = o->centered ? output(l, 2) : NULL;
    o->dx_sum = o->residual ? output(l, l->nout - 1) : NULL;
    o->part = part_of(o->rows);
    o->parts = (o->rows + o->part - 1) / o->part;
    o->stride = stride_of(o->length);
    o->sums = (void *)((char *)l->workspace + wf_row_workspace(l->threads, 1, o->length));

    if (o->dx || o->dgamma || o->dbeta)
        wf_parallel_for(l->threads, o->parts, wf_grain(o->part * o->length), backward_parts, o);
    if (o->dgamma || o->dbeta)
        wf_parallel_for(l->threads, o->stride / COLUMNS, wf_grain(COLUMNS * o->parts), join_columns,
                        o);
    if (o->dx_sum) {
        const wf_view dx = wf_flat_rows(o->dx);
        WF_SIMD(wf_simd_sum_rows)(l, &dx, o->dx_sum);
    }
    return WF_OK;
}

/* (dy, x, mean, rstd, gamma?) -> dx, dgamma, dbeta; with dsum before gamma and the sum of dx's rows last where there
 * is a residual */
static wf_status layer_norm_grad(const wf_launch *l, bool residual)
{
    norm o = {.l = l, .centered = true, .mean = &l->in[2], .rstd = &l->in[3]};
    o.residual = residual ? &l->in[4] : NULL;
    o.gamma = input(l, residual ? 5 : 4);
    return backward(&o);
}

/* (dy, x, rstd, gamma?) -> dx, dgamma; likewise */
static wf_status rms_norm_grad(const wf_launch *l, bool residual)
{
    norm o = {.l = l, .rstd = &l->in[2]};
    o.residual = residual ? &l->in[3] : NULL;
    o.gamma = input(l, residual ? 4 : 3);
    return backward(&o);
}

static wf_status launch_layer_norm_grad(const wf_launch *l)
{
    return layer_norm_grad(l, false);
}

static wf_status launch_rms_norm_grad(const wf_launch *l)
{
    return rms_norm_grad(l, false);
}

static wf_status launch_residual_layer_norm_grad(const wf_launch *l)
{
    return layer_norm_grad(l, true);
}

static wf_status launch_residual_rms_norm_grad(const wf_launch *l)
{
    return rms_norm_grad(l, true);
}

/* clang-format off */
#define ROW(name_, workspace_, ...)                                                                \
    {.op = WF_OP_##name_, .name = "simd", .types = WF_TYPES_FLOAT, .strided = true,                \
     .workspace = workspace_, .launch = launch_##name_, __VA_ARGS__}
const wf_kernel WF_SIMD(wf_cpu_norm)[] = {
    ROW(layer_norm, forward_workspace),
    ROW(layer_norm_grad, backward_workspace),
    ROW(rms_norm, forward_workspace),
    ROW(rms_norm_grad, backward_workspace),
    ROW(residual_layer_norm, forward_workspace),
    ROW(residual_rms_norm, forward_workspace),
    ROW(residual_layer_norm_grad, residual_backward_workspace, .in_place = 1u << 4 /* dsum */,
        .from_first = 1u << 3),
    ROW(residual_rms_norm_grad, residual_backward_workspace, .in_place = 1u << 3, .from_first = 1u << 2),
    {0},
};
