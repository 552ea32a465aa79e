/* SPDX-License-Identifier: MIT */
/*
 * loss.c - ops on rows of logits [V]: softmax, cross entropy, their gradients, and argmax.
 *
 * Rows are cut into chunks of fixed length that fit in L1. For each chunk, one pass finds the
 * maximum and a second sums relative to it, so the row is read from memory once:
 *
 *     sum e^x = sum over chunks of e^most_c * sum e^(x - most_c)
 *
 * Chunk sums are combined in order, in f64. The bits of a row depend neither on other rows nor on
 * threads. Threads share rows if there are enough, else chunks.
 */
#include "device/cpu/simd/loss.h"

#include <math.h>

#include "base/thread.h"
#include "device/cpu/simd/lanes.h"
#include "device/cpu/simd/math.h"
#include "device/walk.h"

enum { CHUNK = 4096 }; /* elements: 16 KB of f32, half of a usual L1 */

/* A chunk's maximum, and its sums of e^(x - most) and of x. */
typedef struct {
    double exps, sum;
    float most;
} chunk;

/* One launch. */
typedef struct {
    const wf_launch *l;
    const wf_view *x; /* the rows */
    wf_loss loss;     /* cross entropy only */
    int64_t rows, length, chunks;
    chunk *found; /* [rows][chunks], if threads share chunks */
    int cheap;    /* elements per unit of cost; others have 1 */
} rows_job;

typedef void chunk_fn(const rows_job *o, int64_t row, int64_t begin, int64_t n, chunk *out);
typedef void row_fn(const rows_job *o, int64_t row, const chunk *found);

static rows_job job_of(const wf_launch *l, const wf_view *x)
{
    rows_job o = {.l = l, .x = x, .rows = wf_view_rows(x), .length = wf_view_last(x)};
    o.chunks = (o.length + CHUNK - 1) / CHUNK;
    o.found = l->workspace;
    o.cheap = 1;
    return o;
}

/* Address of element `begin` of a row of v. */
static void *elements(const wf_view *v, int64_t row, int64_t begin)
{
    return lanes_at(v->type, lanes_row(v, row), begin);
}

/* ---- Chunks ---- */

/* The maximum; ignores NaN. */
static inline float most_of(wf_type type, const void *x, int64_t n)
{
    vf rest = vf_set(-INFINITY), a = rest, b = rest;
    int64_t i = 0;
    for (; i + 2 * WF_VL <= n; i += 2 * WF_VL) {
        a = vf_max(vf_load_as(type, lanes_at(type, x, i)), a);
        b = vf_max(vf_load_as(type, lanes_at(type, x, i + WF_VL)), b);
    }
    for (; i < n; i += WF_VL)
        a = vf_max(lanes_or(lanes_load(type, x, i, n), i, n, rest), a);
    return vf_most(vf_max(a, b));
}

static inline void sum_exps(wf_type type, const void *x, int64_t n, chunk *out)
{
    float most = most_of(type, x, n);
    vf shift = vf_set(isinf(most) ? 0 : most); /* x - Inf would be NaN; exps_of reports it */
    lanes_sum exps = lanes_sum_zero();
    int64_t i = 0;
    for (; i + 2 * WF_VL <= n; i += 2 * WF_VL) { /* adding two in f32 is accurate enough */
        vf a = vf_exp(vf_sub(vf_load_as(type, lanes_at(type, x, i)), shift));
        vf b = vf_exp(vf_sub(vf_load_as(type, lanes_at(type, x, i + WF_VL)), shift));
        lanes_sum_add(&exps, vf_add(a, b));
    }
    for (; i < n; i += WF_VL) {
        vf v = lanes_or(lanes_load(type, x, i, n), i, n, vf_set(-INFINITY));
        lanes_sum_add(&exps, vf_exp(vf_sub(v, shift)));
    }
    *out = (chunk){.most = most, .exps = lanes_sum_end(&exps)};
}

static void chunk_exps(const rows_job *o, int64_t row, int64_t begin, int64_t n, chunk *out)
{
    LANES_BY_TYPE(o->x->type, sum_exps, elements(o->x, row, begin), n, out);
}

static inline void sum_plain(wf_type type, const void *x, int64_t n, double *out)
{
    lanes_sum sum = lanes_sum_zero();
    for (int64_t i = 0; i < n; i += WF_VL)
        lanes_sum_add(&sum, lanes_load(type, x, i, n));
    *out = lanes_sum_end(&sum);
}

/* The same, and the sum of x for label smoothing. */
static inline void sum_logits(wf_type type, const wf_loss *o, const void *x, int64_t n, chunk *out)
{
    sum_exps(type, x, n, out);
    if (o->attr->label_smoothing != 0)
        sum_plain(type, x, n, &out->sum);
}

static void chunk_loss(const rows_job *o, int64_t row, int64_t begin, int64_t n, chunk *out)
{
    LANES_BY_TYPE(o->x->type, sum_logits, &o->loss, elements(o->x, row, begin), n, out);
}

/* Combines a chunk with the earlier ones; start from `nothing`. */
static const chunk nothing = {.most = -INFINITY};

static void join(chunk *whole, const chunk *c)
{
    if (c->most > whole->most) {
        /* The first chunk: exp(-Inf) is 0, and so is the sum so far. */
        whole->exps *= exp((double)whole->most - c->most);
        whole->most = c->most;
    }
    whole->exps += c->exps * (c->most == whole->most ? 1 : exp((double)c->most - whole->most));
    whole->sum += c->sum;
}

static chunk join_row(const rows_job *o, const chunk *found)
{
    chunk whole = nothing;
    for (int64_t c = 0; c < o->chunks; c++)
        join(&whole, &found[c]);
    return whole;
}

/* The sum of exponentials of n elements. NaN if the maximum is Inf or all are -Inf. */
static double exps_of(const chunk *whole, int64_t n)
{
    return isinf(whole->most) && n > 0 ? NAN : whole->exps;
}

/* ---- Sharing rows, or chunks of few rows, among threads ---- */

typedef struct {
    const rows_job *o;
    chunk_fn *chunk;
    row_fn *row;
} pass;

static int64_t chunk_length(const rows_job *o, int64_t c)
{
    int64_t left = o->length - c * CHUNK;
    return left < CHUNK ? left : CHUNK;
}

static void row_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const pass *p = arg;
    const rows_job *o = p->o;
    chunk *found = o->found + thread * o->chunks; /* each thread has its own row of chunks */
    for (int64_t r = begin; r < end; r++) {
        for (int64_t c = 0; c < o->chunks; c++)
            p->chunk(o, r, c * CHUNK, chunk_length(o, c), &found[c]);
        if (p->row)
            p->row(o, r, found);
    }
}

static void chunk_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const pass *p = arg;
    const rows_job *o = p->o;
    for (int64_t i = begin; i < end; i++)
        p->chunk(o, i / o->chunks, i % o->chunks * CHUNK, chunk_length(o, i % o->chunks),
                 &o->found[i]);
}

/* Calls of_chunk for all chunks, then of_row (if not NULL) for all rows. */
static void run(const rows_job *o, chunk_fn *of_chunk, row_fn *of_row)
{
    pass p = {o, of_chunk, of_row};
    int threads = o->l->threads;
    /* Enough rows: a thread takes whole rows. Otherwise threads share the chunks, and one thread
     * finishes the few rows. */
    if (o->rows >= threads || o->chunks <= 1) {
        wf_parallel_for(threads, o->rows, wf_grain(o->length / o->cheap), row_range, &p);
        return;
    }
    wf_parallel_for(threads, o->rows * o->chunks, wf_grain(CHUNK / o->cheap), chunk_range, &p);
    for (int64_t r = 0; r < o->rows && of_row; r++)
        of_row(o, r, o->found + r * o->chunks);
}

static size_t chunk_workspace(const wf_device *device, const wf_node *n)
{
    const wf_value *x = n->in[n->op == WF_OP_cross_entropy_grad ? 1 : 0];
    int64_t chunks = (wf_dims_last(&x->shape) + CHUNK - 1) / CHUNK;
    return (size_t)(wf_device_threads(device) * chunks) * sizeof(chunk);
}

/* ---- softmax ---- */

static inline void store_softmax(wf_type type, const void *x, void *y, int64_t n, float most,
                                 double exps)
{
    vf shift = vf_set(most);
    vf share = vf_set((float)(1 / exps));
    for (int64_t i = 0; i < n; i += WF_VL) {
        vf e = vf_exp(vf_sub(lanes_load(type, x, i, n), shift));
        lanes_store(type, y, i, n, vf_mul(e, share));
    }
}

static void softmax_row(const rows_job *o, int64_t row, const chunk *found)
{
    chunk whole = join_row(o, found);
    LANES_BY_TYPE(o->x->type, store_softmax, lanes_row(o->x, row), lanes_row(&o->l->out[0], row),
                  o->length, whole.most, exps_of(&whole, o->length));
}

static wf_status launch_softmax(const wf_launch *l)
{
    rows_job o = job_of(l, &l->in[0]);
    if (l->out[0].data)
        run(&o, chunk_exps, softmax_row);
    return WF_OK;
}

static inline void sum_products(wf_type type, const void *a, const void *b, int64_t n, double *out)
{
    lanes_sum dot = lanes_sum_zero();
    for (int64_t i = 0; i < n; i += WF_VL)
        lanes_sum_fma(&dot, lanes_load(type, a, i, n), lanes_load(type, b, i, n));
    *out = lanes_sum_end(&dot);
}

static void chunk_products(const rows_job *o, int64_t row, int64_t begin, int64_t n, chunk *out)
{
    LANES_BY_TYPE(o->x->type, sum_products, elements(&o->l->in[0], row, begin),
                  elements(&o->l->in[1], row, begin), n, &out->sum);
}

/* dx = y * (dy - sum(dy * y)), in f64 where it cancels. */
static inline void store_softmax_grad(wf_type type, const void *dy, const void *y, void *dx,
                                      int64_t n, double dot)
{
    vd sum = vd_set(dot);
    for (int64_t i = 0; i < n; i += WF_VL) {
        vf d = lanes_load(type, dy, i, n);
        d = vd_to_vf(vd_sub(vd_low(d), sum), vd_sub(vd_high(d), sum));
        lanes_store(type, dx, i, n, vf_mul(lanes_load(type, y, i, n), d));
    }
}

static void softmax_grad_row(const rows_job *o, int64_t row, const chunk *found)
{
    double dot = 0;
    for (int64_t c = 0; c < o->chunks; c++)
        dot += found[c].sum;
    LANES_BY_TYPE(o->x->type, store_softmax_grad, lanes_row(&o->l->in[0], row),
                  lanes_row(&o->l->in[1], row), lanes_row(&o->l->out[0], row), o->length, dot);
}

static wf_status launch_softmax_grad(const wf_launch *l)
{
    rows_job o = job_of(l, &l->in[0]);
    if (l->out[0].data)
        run(&o, chunk_products, softmax_grad_row);
    return WF_OK;
}

/* ---- argmax ---- */

/* The maximum, or NaN if any element is NaN. */
static inline void most_or_nan(wf_type type, const void *x, int64_t n, float *out)
{
    vf rest = vf_set(-INFINITY), most = rest, nan = rest;
    for (int64_t i = 0; i < n; i += WF_VL) {
        vf v = lanes_or(lanes_load(type, x, i, n), i, n, rest);
        most = vf_max(v, most);
        nan = vf_select(vf_nan(v), v, nan); /* remembers any NaN: vf_max ignores them */
    }
    *out = vm_any(vf_nan(nan)) ? NAN : vf_most(most);
}

static void chunk_most(const rows_job *o, int64_t row, int64_t begin, int64_t n, chunk *out)
{
    LANES_BY_TYPE(o->x->type, most_or_nan, elements(o->x, row, begin), n, &out->most);
}

/* Index of the first element equal to `most`, which must exist. */
static inline void find_first(wf_type type, const void *x, int64_t n, float most, int32_t *out)
{
    float v[WF_VL];
    int64_t i = 0;
    for (; i + WF_VL <= n; i += WF_VL) {
        vf lanes = vf_load_as(type, lanes_at(type, x, i));
        if (vm_any(isnan(most) ? vf_nan(lanes) : vf_eq(lanes, vf_set(most))))
            break;
    }
    vf_store(v, lanes_load(type, x, i, n));
    int32_t lane = 0;
    /* The first lane; vm_any has found one. */
    while (isnan(most) ? !isnan(v[lane]) : v[lane] != most)
        lane++;
    *out = (int32_t)i + lane;
}

static void argmax_row(const rows_job *o, int64_t row, const chunk *found)
{
    int64_t best = 0;
    int32_t where = 0;
    for (int64_t c = 1; c < o->chunks; c++)
        if (found[c].most > found[best].most || (isnan(found[c].most) && !isnan(found[best].most)))
            best = c;
    if (o->length > 0)
        LANES_BY_TYPE(o->x->type, find_first, elements(o->x, row, best * CHUNK),
                      chunk_length(o, best), found[best].most, &where);
    ((int32_t *)o->l->out[0].data)[row] = (int32_t)(best * CHUNK) + where;
}

static bool last_axis(const wf_device *device, const wf_node *n)
{
    (void)device;
    return ((const wf_attr_axis *)n->attr)->axis == n->in[0]->shape.n - 1;
}

static wf_status launch_argmax(const wf_launch *l)
{
    rows_job o = job_of(l, &l->in[0]);
    o.cheap = 8; /* 50000 elements take less time than starting a thread */
    if (l->out[0].data)
        run(&o, chunk_most, argmax_row);
    return WF_OK;
}

/* ---- cross_entropy ---- */

static bool no_cap(const wf_device *device, const wf_node *n)
{
    (void)device;
    return ((const wf_attr_cross_entropy *)n->attr)->softcap == 0;
}

/* Stores loss and log-sum-exp of row i; returns the latter. */
static float store_loss(const wf_loss *o, int64_t i, wf_type type, const void *z,
                        const chunk *whole, const wf_view *loss, const wf_view *lse)
{
    const wf_attr_cross_entropy *attr = o->attr;
    int64_t t = wf_loss_target(o, i);
    double log_sum = whole->most + log(exps_of(whole, o->classes)), total = 0;
    if (t != attr->ignore_index) {
        /* The target's logit alone. */
        double target = vf_sum(vf_load_as_n(type, lanes_at(type, z, t), 1));
        double smooth = attr->label_smoothing;
        total = (1 - smooth) * (log_sum - target);
        if (smooth != 0)
            total += smooth * (log_sum - whole->sum / (double)o->classes);
        if (attr->z_loss != 0)
            total += attr->z_loss * log_sum * log_sum;
    }
    if (loss->data)
        *(float *)wf_loss_at(loss, i) = (float)total;
    if (lse->data)
        *(float *)wf_loss_at(lse, i) = (float)log_sum;
    return (float)log_sum;
}

static void loss_row(const rows_job *o, int64_t row, const chunk *found)
{
    chunk whole = join_row(o, found);
    store_loss(&o->loss, row, o->x->type, lanes_row(o->x, row), &whole, &o->l->out[0],
               &o->l->out[1]);
}

float WF_SIMD(wf_loss_row)(const wf_loss *o, int64_t i, wf_type type, const void *z,
                           const wf_view *loss, const wf_view *lse)
{
    chunk whole = nothing, c;
    for (int64_t begin = 0; begin < o->classes; begin += CHUNK) {
        int64_t n = o->classes - begin < CHUNK ? o->classes - begin : CHUNK;
        LANES_BY_TYPE(type, sum_logits, o, lanes_at(type, z, begin), n, &c);
        join(&whole, &c);
    }
    return store_loss(o, i, type, z, &whole, loss, lse);
}

static wf_status loss_job(const wf_launch *l, const wf_view *logits, rows_job *o)
{
    *o = job_of(l, logits);
    o->loss = (wf_loss){l->attr, logits + 1, o->rows, o->length};
    return wf_loss_check(&o->loss, l);
}

/* cross_entropy: (logits [..., V], targets i32[...]) -> loss f32[...], lse f32[...] */
static wf_status launch_cross_entropy(const wf_launch *l)
{
    rows_job o;
    WF_TRY(loss_job(l, &l->in[0], &o));
    run(&o, chunk_loss, loss_row);
    return WF_OK;
}

/* dz = dloss * (e^(z - lse) * factor - rest), minus `hit` at the target. */
typedef struct {
    float dloss, lse, factor, rest, hit;
} slope;

static inline vf slope_at(const slope *s, vf z, vf hit)
{
    vf d = vf_sub(vf_mul(vf_exp(vf_sub(z, vf_set(s->lse))), vf_set(s->factor)), vf_set(s->rest));
    return vf_mul(vf_set(s->dloss), vf_sub(d, hit));
}

/* target may lie outside of the n elements. z and dz may alias. */
static inline void store_slopes(wf_type type, const slope *s, const void *z, void *dz, int64_t n,
                                int64_t target)
{
    bool here = target >= 0 && target < n;
    vf at_target = here ? vf_load_as_n(type, lanes_at(type, z, target), 1) : vf_zero();
    for (int64_t i = 0; i < n; i += WF_VL)
        lanes_store(type, dz, i, n, slope_at(s, lanes_load(type, z, i, n), vf_zero()));
    if (here)
        vf_store_as_n(type, lanes_at(type, dz, target), slope_at(s, at_target, vf_set(s->hit)), 1);
}

/* Computes classes [begin, begin + n) of row i. */
static void store_grad(const wf_loss *o, int64_t i, wf_type type, const void *z, void *dz,
                       int64_t begin, int64_t n, float dloss, float lse)
{
    const wf_attr_cross_entropy *attr = o->attr;
    int64_t t = wf_loss_target(o, i);
    slope s = {.dloss = dloss,
               .lse = lse,
               .factor = (float)(1 + 2 * attr->z_loss * lse),
               .rest = (float)(attr->label_smoothing / (double)o->classes),
               .hit = (float)(1 - attr->label_smoothing)};
    if (t == attr->ignore_index)
        memset(dz, 0, (size_t)n * (type == WF_F32 ? 4 : 2));
    else
        LANES_BY_TYPE(type, store_slopes, &s, z, dz, n, t - begin);
}

static void chunk_grad(const rows_job *o, int64_t row, int64_t begin, int64_t n, chunk *out)
{
    (void)out;
    const float *dloss = wf_loss_at(&o->l->in[0], row), *lse = wf_loss_at(&o->l->in[3], row);
    store_grad(&o->loss, row, o->x->type, elements(o->x, row, begin),
               elements(&o->l->out[0], row, begin), begin, n, *dloss, *lse);
}

void WF_SIMD(wf_loss_row_grad)(const wf_loss *o, int64_t i, wf_type type, const void *z,
                               float dloss, float lse, void *dz)
{
    store_grad(o, i, type, z, dz, 0, o->classes, dloss, lse);
}

/* cross_entropy_grad: (dloss f32[...], logits, targets, lse f32[...]) -> dlogits */
static wf_status launch_cross_entropy_grad(const wf_launch *l)
{
    rows_job o;
    if (!l->out[0].data)
        return WF_OK;
    WF_TRY(loss_job(l, &l->in[1], &o));
    run(&o, chunk_grad, NULL);
    return WF_OK;
}

/* clang-format off */
#define ROW(name_, ...)                                                                            \
    {.op = WF_OP_##name_, .name = "simd", .types = WF_TYPES_FLOAT, .strided = true,                \
     .workspace = chunk_workspace, .launch = launch_##name_, __VA_ARGS__}
const wf_kernel WF_SIMD(wf_cpu_loss)[] = {
    ROW(softmax, .in_place = 1),
    ROW(softmax_grad, .in_place = 3),
    ROW(argmax, .accepts = last_axis),
    ROW(cross_entropy, .accepts = no_cap),
    ROW(cross_entropy_grad, .accepts = no_cap, .in_place = 2), /* dlogits may overwrite logits */
    {0},
};
