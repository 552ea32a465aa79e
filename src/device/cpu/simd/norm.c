/* SPDX-License-Identifier: MIT */
/*
 * norm.c - layer norm and rms norm of rows [C], also of sums x + residual, and their gradients.
 *
 * Each row is read twice: from memory for its statistics, then from the cache for its result.
 * Statistics are sums in f64. Layer norm sums x - p, where p is the row's first element. Then (mean
 * - p)^2 is at most C times the variance, so that
 *
 *     variance = mean((x - p)^2) - mean(x - p)^2
 *
 * loses at most a factor C of f64's precision to cancellation, whatever offset the row has.
 *
 * Threads share rows. Lanes are added at the end of a row, so the bits depend on the instruction
 * set, but not on threads or other rows.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/norm.h"
#include "device/cpu/reduce.h"
#include "device/cpu/row.h"
#include "device/cpu/simd/lanes.h"
#include "device/cpu/simd/reduce.h"
#include "device/walk.h"

/* Returns a parameter [C] as f32, or NULL when it is absent. */
static const float *param(const wf_view *v, float *buf)
{
    return v ? lanes_widen(v->type, v->data, wf_view_last(v), buf) : NULL;
}

/* ---- Forward ---- */

/* Row buffers of a thread, f32 [C] each. */
enum { GAMMA, BETA, TOTAL, FORWARD_BUFFERS };

typedef struct {
    double mean, rstd;
} moments;

/* Returns lanes of the row that is normalized: x, or x + residual as an add would have stored it.
 * Stores the sum in `total`. */
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

static inline moments rms_moments(wf_type type, const wf_norm *o, const void *x,
                                  const void *residual, void *total)
{
    lanes_sum square = lanes_sum_zero();
    for (int64_t i = 0; i < o->length; i += WF_VL) {
        vf v = row_of(type, x, residual, total, i, o->length);
        lanes_sum_fma(&square, v, v);
    }
    return (moments){0, 1 / sqrt(lanes_sum_end(&square) / (double)o->length + o->eps)};
}

static inline moments layer_moments(wf_type type, const wf_norm *o, const void *x,
                                    const void *residual, void *total)
{
    int64_t n = o->length;
    float first = vf_sum(row_of(type, x, residual, total, 0, 1));
    first = isfinite(first) ? first : 0; /* an infinite p would make every difference NaN */
    vf rest = vf_set(first);
    vd p = vd_set(first);
    lanes_sum sum = lanes_sum_zero(), square = lanes_sum_zero();
    for (int64_t i = 0; i < n; i += WF_VL) {
        /* Lanes past the end count as p: differences of 0. */
        vf v = lanes_or(row_of(type, x, residual, total, i, n), i, n, rest);
        vd low = vd_sub(vd_low(v), p), high = vd_sub(vd_high(v), p);
        sum.low = vd_add(sum.low, low);
        sum.high = vd_add(sum.high, high);
        square.low = vd_fma(low, low, square.low);
        square.high = vd_fma(high, high, square.high);
    }
    double off = lanes_sum_end(&sum) / (double)n;
    double variance = lanes_sum_end(&square) / (double)n - off * off;
    /* Rounding may make it slightly negative. */
    return (moments){first + off, 1 / sqrt((variance < 0 ? 0 : variance) + o->eps)};
}

/* y = (x - mean) * rstd * gamma + beta, the mean in two parts: x may be close to it. */
static inline void normalize(wf_type type, const void *x, void *y, int64_t n, moments m,
                             const float *gamma, const float *beta)
{
    /* Two floats together hold the mean more precisely than one. */
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

static inline void forward_of(wf_type type, const wf_norm *o, int64_t begin, int64_t end,
                              int thread)
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
    const wf_norm *o = arg;
    LANES_BY_TYPE(o->x->type, forward_of, o, begin, end, thread);
}

static size_t forward_workspace(const wf_device *device, const wf_node *n)
{
    return wf_row_workspace(wf_device_threads(device), FORWARD_BUFFERS,
                            wf_dims_last(&n->in[0]->shape));
}

/* ---- Gradients ----
 *
 * With g = dy * gamma:  dx = rstd * (g - mean(g) - xhat * mean(g * xhat)), the second term for the
 * layer norm only; dgamma and dbeta are the sums of dy * xhat and of dy over all rows. Both are
 * summed while the row is cached: in f32 over the rows of a part, then in f64 over the parts. */

/* Rows per part, the number of parts to aim at, and columns per item of join_columns. Parts depend
 * on the number of rows only. */
enum { PART_LEAST = 4, PART_MOST = 64, PARTS_WANTED = 32, COLUMNS = 64 };

static int64_t part_of(int64_t rows)
{
    int64_t part = (rows + PARTS_WANTED - 1) / PARTS_WANTED;
    return part < PART_LEAST ? PART_LEAST : part > PART_MOST ? PART_MOST : part;
}

/* A row of the operands, and the statistics that were saved of it. */
typedef struct {
    const void *dy, *x, *dsum; /* dsum: NULL without a residual */
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

/* Adds the row to the sums, and returns mean(g) and mean(g * xhat). Lanes past the end have dy =
 * 0. */
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

/* dgamma and dbeta are first summed over parts of the rows. */
typedef struct {
    const wf_norm *norm;
    int64_t part, parts; /* rows in a part, and number of parts */
    float *sums;         /* [parts][2][stride]: of dgamma, of dbeta */
    int64_t stride;      /* the length in whole cache lines */
} gradient;

static inline void backward_of(wf_type type, const gradient *d, int64_t begin, int64_t end,
                               int thread)
{
    const wf_norm *o = d->norm;
    float *buf = wf_row_buffer(o->l, thread, 1, 0, o->length), mean, along;
    grad_row w = {.n = o->length, .gamma = param(o->gamma, buf)};
    for (int64_t part = begin; part < end; part++) {
        int64_t last = (part + 1) * d->part < o->rows ? (part + 1) * d->part : o->rows;
        float *sums = d->sums + 2 * part * d->stride;
        float *dgamma = o->dgamma ? sums : NULL, *dbeta = o->dbeta ? sums + d->stride : NULL;
        /* Also the padding: whole vectors are added. */
        memset(sums, 0, 2 * (size_t)d->stride * sizeof *sums);
        for (int64_t r = part * d->part; r < last; r++) {
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
    const gradient *d = arg;
    LANES_BY_TYPE(d->norm->x->type, backward_of, d, begin, end, thread);
}

/* Adds up the sums of all parts, in order; `sums` points to the first. */
static void join_parts(const gradient *d, const float *sums, int64_t begin, int64_t end,
                       const wf_view *out)
{
    for (int64_t i = begin; i < end; i += WF_VL) {
        lanes_sum s = lanes_sum_zero();
        for (int64_t part = 0; part < d->parts; part++)
            lanes_sum_add(&s, vf_load(sums + 2 * part * d->stride + i));
        lanes_store(out->type, out->data, i, end, vd_to_vf(s.low, s.high));
    }
}

static void join_columns(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const gradient *d = arg;
    const wf_norm *o = d->norm;
    begin *= COLUMNS;
    end = end * COLUMNS < o->length ? end * COLUMNS : o->length;
    if (o->dgamma)
        join_parts(d, d->sums, begin, end, o->dgamma);
    if (o->dbeta)
        join_parts(d, d->sums + d->stride, begin, end, o->dbeta);
}

static int64_t stride_of(int64_t length)
{
    return (length + COLUMNS - 1) / COLUMNS * COLUMNS;
}

static size_t backward_workspace(const wf_device *device, const wf_node *n)
{
    int64_t length = wf_dims_last(&n->in[0]->shape), rows = wf_dims_rows(&n->in[0]->shape);
    int64_t part = part_of(rows), parts = (rows + part - 1) / part;
    return wf_row_workspace(wf_device_threads(device), 1, length) +
           2 * (size_t)(parts * stride_of(length)) * sizeof(float);
}

/* The sum of dx's rows runs after the rest and reuses its memory. */
static size_t residual_backward_workspace(const wf_device *device, const wf_node *n)
{
    const wf_dims *x = &n->in[0]->shape;
    size_t rest = backward_workspace(device, n);
    size_t sum = WF_SIMD(wf_simd_sum_rows_workspace)(wf_dims_rows(x), wf_dims_last(x));
    return rest > sum ? rest : sum;
}

static void backward(const wf_norm *o)
{
    const wf_launch *l = o->l;
    const int64_t part = part_of(o->rows), parts = (o->rows + part - 1) / part;
    gradient d = {.norm = o,
                  .part = part,
                  .parts = parts,
                  .sums =
                      (void *)((char *)l->workspace + wf_row_workspace(l->threads, 1, o->length)),
                  .stride = stride_of(o->length)};
    if (o->dx || o->dgamma || o->dbeta)
        wf_parallel_for(l->threads, parts, wf_grain(part * o->length), backward_parts, &d);
    if (o->dgamma || o->dbeta)
        wf_parallel_for(l->threads, d.stride / COLUMNS, wf_grain(COLUMNS * parts), join_columns,
                        &d);
}

static wf_status launch(const wf_launch *l)
{
    static const wf_norm_rows rows = {forward_rows, backward, WF_SIMD(wf_simd_sum_rows)};
    return wf_norm_launch(l, &rows);
}

/* clang-format off */
#define ROW(name_, workspace_, ...)                                                                \
    {.op = WF_OP_##name_, .name = "simd", .types = WF_TYPES_FLOAT, .strided = true,                \
     .workspace = workspace_, .launch = launch, __VA_ARGS__}
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
