/* SPDX-License-Identifier: MIT */
/*
 * reduce.c - reductions: sum, mean, max, argmax, top_k, softmax, global_norm.
 *
 * Floats are added in f64. The elements of one result are cut into blocks of fixed size. Each block
 * is summed in order, and the block sums are added in order. The result does not depend on the
 * number of threads, yet threads can share one large sum.
 *
 * "Along": neighbours in memory belong to one result, which a thread sums by itself. "Across":
 * neighbours belong to different results; a tile of TILE results is summed side by side, so that
 * memory is still read in order.
 *
 * NaN: sum, mean and max return NaN if any element is NaN. argmax and top_k treat NaN as the
 * largest element, above Inf and equal to any other NaN.
 */
#include <math.h>
#include <string.h>

#include "base/thread.h"
#include "device/cpu/reduce.h"
#include "device/cpu/row.h"
#include "device/walk.h"

#define BLOCK 4096 /* elements of one partial sum; part of the result's definition */

static int64_t blocks_of(int64_t count)
{
    return (count + BLOCK - 1) / BLOCK;
}

/* ---- sum, mean, max ---- */

typedef union {
    double f;  /* for floats */
    int64_t i; /* for i32; the low 32 bits wrap on overflow */
} total;

/* A kind of reduction. along adds n elements to one total; across adds one element to each of n. */
typedef struct {
    total start;
    void (*along)(total *t, const void *x, int64_t n);
    void (*across)(total *t, const void *x, int64_t n);
    void (*join)(total *t, const total *u, int64_t n);
} folding;

/* `expr` combines a and b in the wide type; one row makes the three loops. */
#define FOLDING(name, wide, field, narrow, first, expr)            \
    static void name##_along(total *t, const void *x, int64_t n)   \
    {                                                              \
        wide a = t->field;                                         \
        for (int64_t i = 0; i < n; i++) {                          \
            const wide b = ((const narrow *)x)[i];                 \
            a = expr;                                              \
        }                                                          \
        t->field = a;                                              \
    }                                                              \
    static void name##_across(total *t, const void *x, int64_t n)  \
    {                                                              \
        for (int64_t i = 0; i < n; i++) {                          \
            const wide a = t[i].field, b = ((const narrow *)x)[i]; \
            t[i].field = expr;                                     \
        }                                                          \
    }                                                              \
    static void name##_join(total *t, const total *u, int64_t n)   \
    {                                                              \
        for (int64_t i = 0; i < n; i++) {                          \
            const wide a = t[i].field, b = u[i].field;             \
            t[i].field = expr;                                     \
        }                                                          \
    }                                                              \
    static const folding name = {{.field = first}, name##_along, name##_across, name##_join};

FOLDING(sum_f32, double, f, float, 0, a + b)
FOLDING(max_f32, double, f, float, -INFINITY, a >= b || a != a ? a : b)
FOLDING(sum_i32, int64_t, i, int32_t, 0, (int64_t)((uint64_t)a + (uint64_t)b))
FOLDING(max_i32, int64_t, i, int32_t, INT32_MIN, a >= b ? a : b)

#define TILE WF_CHUNK /* results processed together */

typedef struct {
    const wf_view *x, *y;
    double divisor; /* for floats */
    const folding *fold;
    wf_walk kept, gone;      /* axes that stay and axes that are reduced; operand: x */
    int64_t outputs, length; /* results, and elements per result */
    int64_t tiles, blocks;   /* tiles of results, blocks of elements */
    bool across;             /* neighbours in memory belong to different results */
    total *partial;          /* [blocks][outputs]; NULL: a single block */
} reduction;

/* Reduces block b of results [first, end), all in one tile. */
static void reduce_across(const reduction *r, int64_t first, int64_t end, int64_t b, total *t)
{
    const wf_view *x = r->x;
    int64_t stop = b * BLOCK + BLOCK < r->length ? b * BLOCK + BLOCK : r->length;
    int64_t kept_step = wf_walk_step(&r->kept, 0), gone_step = wf_walk_step(&r->gone, 0);
    wf_chunk buf;
    for (wf_run k = wf_run_over(&r->kept, first, end); wf_run_next(&k, TILE); t += k.n)
        for (wf_run g = wf_run_over(&r->gone, b * BLOCK, stop); wf_run_next(&g, BLOCK);)
            for (int64_t i = 0; i < g.n; i++) {
                int64_t at = k.offset[0] + g.offset[0] + i * gone_step;
                r->fold->across(t, wf_chunk_widen(x, at, kept_step, k.n, &buf), k.n);
            }
}

/* The same, one result at a time. */
static void reduce_along(const reduction *r, int64_t first, int64_t end, int64_t b, total *t)
{
    const wf_view *x = r->x;
    int64_t stop = b * BLOCK + BLOCK < r->length ? b * BLOCK + BLOCK : r->length;
    int64_t gone_step = wf_walk_step(&r->gone, 0);
    wf_chunk buf;
    for (wf_run k = wf_run_over(&r->kept, first, end); wf_run_next(&k, 1); t++)
        for (wf_run g = wf_run_over(&r->gone, b * BLOCK, stop); wf_run_next(&g, WF_CHUNK);) {
            int64_t at = k.offset[0] + g.offset[0];
            r->fold->along(t, wf_chunk_widen(x, at, gone_step, g.n, &buf), g.n);
        }
}

/* Rounds once, from f64. */
static void store(const reduction *r, int64_t first, int64_t n, const total *t)
{
    const wf_view *out = r->y;
    wf_chunk y;
    for (int64_t i = 0; i < n; i++)
        if (out->type == WF_I32)
            y.i32[i] = (int32_t)(uint32_t)(uint64_t)t[i].i;
        else
            y.f32[i] = (float)(t[i].f / r->divisor);
    if (out->type == WF_I32)
        memcpy(wf_view_at(out, first), y.i32, (size_t)n * sizeof y.i32[0]);
    else
        wf_convert_from_f32(out->type, y.f32, wf_view_at(out, first), n);
}

/* Item i is tile i % tiles of block i / tiles. */
static void reduce_range(void *arg, int64_t begin, int64_t stop, int thread)
{
    (void)thread;
    const reduction *r = arg;
    for (int64_t item = begin; item < stop; item++) {
        int64_t block = item / r->tiles, first = item % r->tiles * TILE;
        int64_t end = first + TILE < r->outputs ? first + TILE : r->outputs;
        total t[TILE];
        for (int64_t i = 0; i < end - first; i++)
            t[i] = r->fold->start;
        (r->across ? reduce_across : reduce_along)(r, first, end, block, t);
        if (r->partial)
            memcpy(r->partial + block * r->outputs + first, t, (size_t)(end - first) * sizeof t[0]);
        else
            store(r, first, end - first, t);
    }
}

/* Combines the block totals of tiles [begin, stop). */
static void join_range(void *arg, int64_t begin, int64_t stop, int thread)
{
    (void)thread;
    const reduction *r = arg;
    for (int64_t tile = begin; tile < stop; tile++) {
        int64_t first = tile * TILE;
        int64_t n = first + TILE < r->outputs ? TILE : r->outputs - first;
        total *t = r->partial + first; /* add to the first block's totals */
        for (int64_t b = 1; b < r->blocks; b++)
            r->fold->join(t, t + b * r->outputs, n);
        store(r, first, n, t);
    }
}

/* Reduces over the bit set of axes, with the launch's threads and workspace. */
static void reduce(const wf_launch *l, reduction r, int64_t axes)
{
    const wf_view *x = r.x;
    if (!r.y->data)
        return;
    wf_walk_split(x, axes, &r.kept, &r.gone);
    r.outputs = wf_walk_count(&r.kept);
    r.length = wf_walk_count(&r.gone);
    r.tiles = (r.outputs + TILE - 1) / TILE;
    r.blocks = r.length > BLOCK ? blocks_of(r.length) : 1;
    r.partial = r.blocks > 1 ? l->workspace : NULL;
    for (int i = 0; i < x->rank; i++) /* the innermost axis longer than 1 decides */
        if (x->dim[i] != 1)
            r.across = !(axes >> i & 1);
    r.divisor = l->node->op == WF_OP_mean ? (double)r.length : 1;

    /* Elements per item, for the grain. */
    int64_t size = (r.outputs < TILE ? r.outputs : TILE) * (r.length < BLOCK ? r.length : BLOCK);
    wf_parallel_for(l->threads, r.tiles * r.blocks, wf_grain(size), reduce_range, &r);
    if (r.partial)
        wf_parallel_for(l->threads, r.tiles, wf_grain(TILE * r.blocks), join_range, &r);
}

static wf_status launch_reduce(const wf_launch *l)
{
    const wf_attr_reduce *attr = l->attr;
    const wf_view *x = &l->in[0];
    bool max = l->node->op == WF_OP_max, ints = x->type == WF_I32;
    const folding *fold = max ? ints ? &max_i32 : &max_f32 : ints ? &sum_i32 : &sum_f32;
    reduce(l, (reduction){.x = x, .y = &l->out[0], .fold = fold}, attr->axes);
    return WF_OK;
}

static size_t partial_bytes(int64_t outputs, int64_t length)
{
    int64_t blocks = blocks_of(length);
    return blocks > 1 ? (size_t)(outputs * blocks) * sizeof(total) : 0;
}

static size_t reduce_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    int64_t outputs = wf_dims_count(&n->out[0].shape);
    return outputs > 0 ? partial_bytes(outputs, wf_dims_count(&n->in[0]->shape) / outputs) : 0;
}

/* Over axis 0: [rows, columns] -> [columns]. */
void wf_sum_rows(const wf_launch *l, const wf_view *x, const wf_view *y)
{
    reduce(l, (reduction){.x = x, .y = y, .fold = &sum_f32}, 1);
}

size_t wf_sum_rows_workspace(int64_t rows, int64_t columns)
{
    return partial_bytes(columns, rows);
}

/* ---- argmax ---- */

typedef struct {
    const wf_launch *l;
    wf_walk kept, gone; /* `gone` is the reduced axis */
} argmax_job;

/* Continues the search through n elements; the first has index `first`. */
static void argmax_f32(const float *x, int64_t first, int64_t n, float *best, int32_t *where)
{
    for (int64_t i = 0; i < n; i++)
        /* NaN replaces any number once; the first NaN stays. */
        if (x[i] > *best || (isnan(x[i]) && !isnan(*best))) {
            *best = x[i];
            *where = (int32_t)(first + i);
        }
}

static void argmax_i32(const int32_t *x, int64_t first, int64_t n, int32_t *best, int32_t *where)
{
    for (int64_t i = 0; i < n; i++)
        if (x[i] > *best) {
            *best = x[i];
            *where = (int32_t)(first + i);
        }
}

static void argmax_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const argmax_job *j = arg;
    const wf_view *x = &j->l->in[0];
    int32_t *out = j->l->out[0].data;
    int64_t length = wf_walk_count(&j->gone), step = wf_walk_step(&j->gone, 0), at = begin;
    for (wf_run k = wf_run_over(&j->kept, begin, end); wf_run_next(&k, 1); at++) {
        wf_chunk buf;
        float best = -INFINITY;
        int32_t best_int = INT32_MIN, where = 0;
        for (int64_t i = 0; i < length; i += WF_CHUNK) {
            int64_t n = length - i < WF_CHUNK ? length - i : WF_CHUNK;
            const void *chunk = wf_chunk_widen(x, k.offset[0] + i * step, step, n, &buf);
            if (x->type == WF_I32)
                argmax_i32(chunk, i, n, &best_int, &where);
            else
                argmax_f32(chunk, i, n, &best, &where);
        }
        out[at] = where;
    }
}

static wf_status launch_argmax(const wf_launch *l)
{
    const wf_attr_axis *attr = l->attr;
    argmax_job j = {.l = l};
    if (!l->out[0].data)
        return WF_OK;
    wf_walk_split(&l->in[0], (int64_t)1 << attr->axis, &j.kept, &j.gone);
    wf_parallel_for(l->threads, wf_walk_count(&j.kept), wf_grain(wf_walk_count(&j.gone)),
                    argmax_range, &j);
    return WF_OK;
}

/* ---- top_k ---- */

/* Whether element a comes before element b. The order is total, so the result is unique. */
static bool before(const float *x, int32_t a, int32_t b)
{
    if (isnan(x[a]) || isnan(x[b]))
        return isnan(x[a]) && isnan(x[b]) ? a < b : isnan(x[a]);
    return x[a] > x[b] || (x[a] == x[b] && a < b);
}

/* Restores the heap below `at`. The root of the heap is the last element in order. */
static void sink(const float *x, int32_t *heap, int64_t n, int64_t at)
{
    for (int64_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(x, heap[child], heap[child + 1]))
            child++;
        if (!before(x, heap[at], heap[child]))
            return;
        int32_t swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

/* Selects the first k of n in order, by a heap of the k best so far. */
static void select_top(const float *x, int64_t n, int32_t *heap, int64_t k)
{
    for (int64_t i = 0; i < k; i++)
        heap[i] = (int32_t)i;
    for (int64_t i = k / 2; i-- > 0;)
        sink(x, heap, k, i);
    for (int64_t i = k; i < n; i++)
        if (before(x, (int32_t)i, heap[0])) {
            heap[0] = (int32_t)i;
            sink(x, heap, k, 0);
        }
    /* Move the last element in order to the end, and repeat: a heap sort in place. */
    for (int64_t left = k - 1; left > 0; left--) {
        int32_t last = heap[0];
        heap[0] = heap[left];
        heap[left] = last;
        sink(x, heap, left, 0);
    }
}

static void top_k_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const wf_launch *l = arg;
    const wf_view *x = &l->in[0], *values = &l->out[0], *places = &l->out[1];
    int64_t n = wf_view_last(x), k = wf_view_last(values);
    size_t bytes = (size_t)wf_type_get(x->type)->block_bytes;
    float *buf = wf_row_buffer(l, thread, 2, 0, n);
    /* Indices fit into the memory of a float row. */
    int32_t *top = (void *)wf_row_buffer(l, thread, 2, 1, n);
    for (int64_t r = begin; r < end; r++) {
        select_top(wf_row_read(x, r, buf), n, top, k);
        const char *row = wf_view_at(x, wf_view_row(x, r));
        for (int64_t i = 0; i < k && values->data; i++)
            memcpy(wf_view_at(values, r * k + i), row + (size_t)top[i] * bytes, bytes);
        if (places->data)
            memcpy(wf_view_at(places, r * k), top, (size_t)k * sizeof *top);
    }
}

static wf_status launch_top_k(const wf_launch *l)
{
    const wf_view *x = &l->in[0], *values = &l->out[0], *places = &l->out[1];
    if ((values->data || places->data) && wf_view_last(values) > 0)
        wf_parallel_for(l->threads, wf_view_rows(x), wf_grain(wf_view_last(x)), top_k_range,
                        (void *)l);
    return WF_OK;
}

static size_t top_k_workspace(const wf_device *device, const wf_node *n)
{
    return wf_row_workspace(wf_device_threads(device), 2, wf_dims_last(&n->in[0]->shape));
}

/* ---- softmax ---- */

static void softmax_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const wf_launch *l = arg;
    const wf_view *in = &l->in[0], *out = &l->out[0];
    int64_t n = wf_view_last(in);
    float *buf = wf_row_buffer(l, thread, 2, 0, n);
    for (int64_t r = begin; r < end; r++) {
        const float *x = wf_row_read(in, r, buf);
        float *y = wf_row_begin(out, r, buf), top = -INFINITY;
        for (int64_t i = 0; i < n; i++)
            top = x[i] > top ? x[i] : top;
        double sum = 0;
        for (int64_t i = 0; i < n; i++) {
            y[i] = expf(x[i] - top); /* all -Inf: -Inf - -Inf is NaN, in the whole row */
            sum += y[i];
        }
        for (int64_t i = 0; i < n; i++)
            y[i] = (float)(y[i] / sum);
        wf_row_end(out, r, y);
    }
}

/* dx = y * (dy - sum(dy * y)) */
static void softmax_grad_range(void *arg, int64_t begin, int64_t end, int thread)
{
    const wf_launch *l = arg;
    const wf_view *out = &l->out[0];
    int64_t n = wf_view_last(out);
    float *buf0 = wf_row_buffer(l, thread, 2, 0, n), *buf1 = wf_row_buffer(l, thread, 2, 1, n);
    for (int64_t r = begin; r < end; r++) {
        const float *dy = wf_row_read(&l->in[0], r, buf0), *y = wf_row_read(&l->in[1], r, buf1);
        float *dx = wf_row_begin(out, r, buf0);
        double dot = 0;
        for (int64_t i = 0; i < n; i++)
            dot += (double)dy[i] * y[i];
        for (int64_t i = 0; i < n; i++)
            dx[i] = (float)(y[i] * (dy[i] - dot));
        wf_row_end(out, r, dx);
    }
}

static wf_status launch_rows(const wf_launch *l, wf_range_fn *fn)
{
    const wf_view *out = &l->out[0];
    if (out->data)
        wf_parallel_for(l->threads, wf_view_rows(out), wf_grain(wf_view_last(out)), fn, (void *)l);
    return WF_OK;
}

static wf_status launch_softmax(const wf_launch *l)
{
    return launch_rows(l, softmax_range);
}

static wf_status launch_softmax_grad(const wf_launch *l)
{
    return launch_rows(l, softmax_grad_range);
}

static size_t softmax_workspace(const wf_device *device, const wf_node *n)
{
    bool direct = n->in[0]->type == WF_F32;
    return direct ? 0
                  : wf_row_workspace(wf_device_threads(device), 2, wf_dims_last(&n->in[0]->shape));
}

/* ---- global_norm ---- */

static wf_walk walk_of(const wf_view *v)
{
    wf_walk w = wf_walk_over(v->rank, v->dim);
    wf_walk_add(&w, v);
    wf_walk_fold(&w);
    return w;
}

static double sum_of_squares(const wf_view *v, const wf_walk *w, int64_t begin, int64_t end)
{
    double sum = 0;
    wf_chunk buf;
    for (wf_run r = wf_run_over(w, begin, end); wf_run_next(&r, WF_CHUNK);) {
        const float *x = wf_chunk_widen(v, r.offset[0], wf_walk_step(w, 0), r.n, &buf);
        for (int64_t i = 0; i < r.n; i++)
            sum += (double)x[i] * x[i];
    }
    return sum;
}

/* Blocks are numbered through all inputs; no block spans two inputs. */
static void norm_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const wf_launch *l = arg;
    double *partial = l->workspace;
    int64_t first = 0; /* first block of input i */
    for (int i = 0; i < l->nin && first < end; i++) {
        int64_t count = wf_view_count(&l->in[i]), next = first + blocks_of(count);
        wf_walk w = walk_of(&l->in[i]);
        for (int64_t b = begin > first ? begin : first; b < end && b < next; b++) {
            int64_t from = (b - first) * BLOCK;
            partial[b] =
                sum_of_squares(&l->in[i], &w, from, from + BLOCK < count ? from + BLOCK : count);
        }
        first = next;
    }
}

static wf_status launch_global_norm(const wf_launch *l)
{
    if (!l->out[0].data)
        return WF_OK;
    int64_t blocks = 0;
    for (int i = 0; i < l->nin; i++)
        blocks += blocks_of(wf_view_count(&l->in[i]));
    wf_parallel_for(l->threads, blocks, wf_grain(BLOCK), norm_range, (void *)l);
    double sum = 0;
    for (int64_t b = 0; b < blocks; b++)
        sum += ((const double *)l->workspace)[b];
    *(float *)l->out[0].data = (float)sqrt(sum);
    return WF_OK;
}

static size_t global_norm_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    int64_t blocks = 0;
    for (int i = 0; i < n->nin; i++)
        blocks += blocks_of(wf_dims_count(&n->in[i]->shape));
    return (size_t)blocks * sizeof(double);
}

/* clang-format off */
#define ROW(name_, types_, launch_, workspace_, ...)                                               \
    {.op = WF_OP_##name_, .name = "reference", .types = types_, .strided = true,                   \
     .workspace = workspace_, .launch = launch_, __VA_ARGS__}
const wf_kernel wf_cpu_reduce[] = {
    ROW(sum, WF_TYPES_NUMBER, launch_reduce, reduce_workspace),
    ROW(mean, WF_TYPES_FLOAT, launch_reduce, reduce_workspace),
    ROW(max, WF_TYPES_NUMBER, launch_reduce, reduce_workspace),
    ROW(argmax, WF_TYPES_NUMBER, launch_argmax, NULL),
    ROW(top_k, WF_TYPES_FLOAT, launch_top_k, top_k_workspace),
    ROW(softmax, WF_TYPES_FLOAT, launch_softmax, softmax_workspace, .in_place = 1),
    ROW(softmax_grad, WF_TYPES_FLOAT, launch_softmax_grad, softmax_workspace, .in_place = 3),
    ROW(global_norm, WF_TYPES_FLOAT, launch_global_norm, global_norm_workspace),
    {0},
};
