/* SPDX-License-Identifier: MIT */
/*
 * reduce.c - sum and mean of floats, and global_norm.
 *
 * Floats are added in f64 lanes, which keeps up with memory bandwidth. The elements of one result
 * are cut into blocks of fixed size, and block sums are added in order. The result does not depend
 * on the number of threads, yet threads share one large sum or the columns of a tall matrix.
 *
 * Order of a sum along a row: element i goes to lane i % (2 WF_VL); the lanes are added at the end.
 * So the bits depend on the vector length, that is on the instruction set, but on nothing else.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/simd/reduce.h"
#include "device/walk.h"
#include "graph/quant/block.h"

#define BLOCK 16384    /* contiguous elements per block */
#define BLOCK_ROWS 256 /* rows per block */
#define TILE 1024      /* columns per tile */
#define TILE_ALONG 16  /* rows per tile when each row is one result */

/* n - i lanes at the end of a row; the others are 0. */
static inline vf load(wf_type type, const void *p, int64_t i, int64_t n)
{
    const char *at = (const char *)p + i * (type == WF_F32 ? 4 : 2);
    return n - i >= WF_VL ? vf_load_as(type, at) : vf_load_as_n(type, at, (int)(n - i));
}

/* ---- One sum of n contiguous elements ---- */

/* Two vectors of f32 as four of f64: independent sums hide the latency of additions. */
typedef struct {
    vd low[2], high[2];
} lanes;

static inline double lanes_total(const lanes *a)
{
    return vd_sum(vd_add(vd_add(a->low[0], a->high[0]), vd_add(a->low[1], a->high[1])));
}

static inline void lanes_add(lanes *a, int k, vf x, bool squares)
{
    vd low = vd_low(x), high = vd_high(x);
    a->low[k] = squares ? vd_fma(low, low, a->low[k]) : vd_add(a->low[k], low);
    a->high[k] = squares ? vd_fma(high, high, a->high[k]) : vd_add(a->high[k], high);
}

static inline double total_of(wf_type type, const void *x, int64_t n, bool squares)
{
    lanes a = {{vd_zero(), vd_zero()}, {vd_zero(), vd_zero()}};
    int64_t i = 0;
    for (; i + 2 * WF_VL <= n; i += 2 * WF_VL) {
        lanes_add(&a, 0, load(type, x, i, n), squares);
        lanes_add(&a, 1, load(type, x, i + WF_VL, n), squares);
    }
    for (; i < n; i += WF_VL)
        lanes_add(&a, 0, load(type, x, i, n), squares);
    return lanes_total(&a);
}

static double sum(wf_type type, const void *x, int64_t n)
{
    return type == WF_F32   ? total_of(WF_F32, x, n, false)
           : type == WF_F16 ? total_of(WF_F16, x, n, false)
                            : total_of(WF_BF16, x, n, false);
}

static double sum_of_squares(wf_type type, const void *x, int64_t n)
{
    return type == WF_F32   ? total_of(WF_F32, x, n, true)
           : type == WF_F16 ? total_of(WF_F16, x, n, true)
                            : total_of(WF_BF16, x, n, true);
}

/* ---- n sums, one per column ---- */

static inline void add_one(double *t, vf x)
{
    vd_store(t, vd_add(vd_load(t), vd_low(x)));
    vd_store(t + WF_VL / 2, vd_add(vd_load(t + WF_VL / 2), vd_high(x)));
}

/* t has room for whole vectors. */
static inline void add_row(wf_type type, double *t, const void *x, int64_t n)
{
    for (int64_t i = 0; i < n; i += WF_VL)
        add_one(t + i, load(type, x, i, n));
}

/* Four rows, `pitch` bytes apart: a quarter of the loads and stores of t. */
static inline void add_four(wf_type type, double *t, const char *x, int64_t pitch, int64_t n)
{
    for (int64_t i = 0; i < n; i += WF_VL) {
        vd low = vd_load(t + i), high = vd_load(t + i + WF_VL / 2);
        for (int r = 0; r < 4; r++) {
            vf row = load(type, x + r * pitch, i, n);
            low = vd_add(low, vd_low(row));
            high = vd_add(high, vd_high(row));
        }
        vd_store(t + i, low);
        vd_store(t + i + WF_VL / 2, high);
    }
}

static inline void add_rows_of(wf_type type, double *t, const char *x, int64_t pitch, int64_t rows,
                               int64_t n)
{
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4)
        add_four(type, t, x + r * pitch, pitch, n);
    for (; r < rows; r++)
        add_row(type, t, x + r * pitch, n);
}

static void add_rows(wf_type type, double *t, const char *x, int64_t pitch, int64_t rows, int64_t n)
{
    if (type == WF_F32)
        add_rows_of(WF_F32, t, x, pitch, rows, n);
    else if (type == WF_F16)
        add_rows_of(WF_F16, t, x, pitch, rows, n);
    else
        add_rows_of(WF_BF16, t, x, pitch, rows, n);
}

/* ---- sum and mean ---- */

/* How the work is cut; depends on the shape only. */
typedef struct {
    int64_t outputs, length; /* results, and elements per result */
    bool across;             /* neighbours in memory belong to different results */
    int64_t tile, tiles;     /* results processed together */
    int64_t block, blocks;   /* elements of a result per block */
} cut;

static cut cut_up(int rank, const int64_t *dim, int64_t axes)
{
    cut c = {.outputs = 1, .length = 1};
    for (int i = 0; i < rank; i++) {
        bool gone = axes >> i & 1;
        *(gone ? &c.length : &c.outputs) *= dim[i];
        if (dim[i] != 1)
            c.across = !gone;
    }
    /* Sizes are part of the result's definition: they fix the order. */
    c.tile = c.across ? TILE : TILE_ALONG;
    c.block = c.across ? BLOCK_ROWS : BLOCK;
    c.tiles = (c.outputs + c.tile - 1) / c.tile;
    c.blocks = c.length > c.block ? (c.length + c.block - 1) / c.block : 1;
    return c;
}

typedef struct {
    const wf_view *x, *y;
    double divisor;
    cut c;
    wf_walk kept, gone; /* the kept and the reduced axes; operand: the input */
    double *partial;    /* [blocks][outputs]; NULL: a single block */
} reduction;

/* Sums elements [from, to) of results [first, end). Rows with gaps (which a last axis of 1 may
 * hide) are gathered first, one chunk at a time. */
static void sum_across(const reduction *r, int64_t first, int64_t end, int64_t from, int64_t to,
                       double *t)
{
    const wf_view *x = r->x;
    int64_t step = wf_walk_step(&r->kept, 0), next = wf_walk_step(&r->gone, 0);
    /* Rows with gaps come one at a time. */
    int64_t width = step == 1 ? TILE : WF_CHUNK, height = step == 1 ? BLOCK_ROWS : 1;
    wf_chunk buf;
    for (wf_run k = wf_run_over(&r->kept, first, end); wf_run_next(&k, width); t += k.n)
        for (wf_run g = wf_run_over(&r->gone, from, to); wf_run_next(&g, height);) {
            int64_t at = k.offset[0] + g.offset[0];
            add_rows(x->type, t, wf_chunk_load(x, at, step, k.n, &buf),
                     next * wf_type_get(x->type)->block_bytes, g.n, k.n);
        }
}

static void sum_along(const reduction *r, int64_t first, int64_t end, int64_t from, int64_t to,
                      double *t)
{
    const wf_view *x = r->x;
    int64_t step = wf_walk_step(&r->gone, 0), width = step == 1 ? BLOCK : WF_CHUNK;
    wf_chunk buf;
    for (wf_run k = wf_run_over(&r->kept, first, end); wf_run_next(&k, 1); t++)
        for (wf_run g = wf_run_over(&r->gone, from, to); wf_run_next(&g, width);) {
            int64_t at = k.offset[0] + g.offset[0];
            *t += sum(x->type, wf_chunk_load(x, at, step, g.n, &buf), g.n);
        }
}

static void store(const reduction *r, int64_t first, int64_t n, const double *t)
{
    const wf_view *out = r->y;
    float y[TILE]; /* n is at most a tile */
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)(t[i] / r->divisor);
    wf_convert_from_f32(out->type, y, wf_view_at(out, first), n);
}

/* Item i is tile i % tiles of block i / tiles. */
static void reduce_range(void *arg, int64_t begin, int64_t stop, int thread)
{
    (void)thread;
    const reduction *r = arg;
    const cut *c = &r->c;
    for (int64_t item = begin; item < stop; item++) {
        int64_t block = item / c->tiles, first = item % c->tiles * c->tile, from = block * c->block;
        int64_t end = first + c->tile < c->outputs ? first + c->tile : c->outputs;
        int64_t to = from + c->block < c->length ? from + c->block : c->length;
        double t[TILE + WF_VL] = {0}; /* the last vector of a row may exceed the tile */
        (c->across ? sum_across : sum_along)(r, first, end, from, to, t);
        if (r->partial)
            memcpy(r->partial + block * c->outputs + first, t, (size_t)(end - first) * sizeof t[0]);
        else
            store(r, first, end - first, t);
    }
}

/* Combines the block sums of tiles [begin, stop). */
static void join_range(void *arg, int64_t begin, int64_t stop, int thread)
{
    (void)thread;
    const reduction *r = arg;
    const cut *c = &r->c;
    for (int64_t tile = begin; tile < stop; tile++) {
        int64_t first = tile * c->tile;
        int64_t n = first + c->tile < c->outputs ? c->tile : c->outputs - first;
        double *t = r->partial + first; /* add to the first block's sums */
        for (int64_t b = 1; b < c->blocks; b++)
            for (int64_t i = 0; i < n; i++)
                t[i] += t[b * c->outputs + i];
        store(r, first, n, t);
    }
}

/* Reduces over the bit set of axes, with the launch's threads and workspace. */
static void reduce(const wf_launch *l, const wf_view *x, const wf_view *y, int64_t axes)
{
    reduction r = {.x = x, .y = y, .c = cut_up(x->rank, x->dim, axes)};
    if (!y->data)
        return;
    wf_walk_split(x, axes, &r.kept, &r.gone);
    r.divisor = l->node->op == WF_OP_mean ? (double)r.c.length : 1;
    r.partial = r.c.blocks > 1 ? l->workspace : NULL;
    int64_t width = r.c.outputs < r.c.tile ? r.c.outputs : r.c.tile;
    int64_t height = r.c.length < r.c.block ? r.c.length : r.c.block;
    wf_parallel_for(l->threads, r.c.tiles * r.c.blocks, wf_grain(width * height), reduce_range, &r);
    if (r.partial)
        wf_parallel_for(l->threads, r.c.tiles, wf_grain(width * r.c.blocks), join_range, &r);
}

static wf_status launch_sum(const wf_launch *l)
{
    reduce(l, &l->in[0], &l->out[0], ((const wf_attr_reduce *)l->attr)->axes);
    return WF_OK;
}

static size_t partial_bytes(int rank, const int64_t *dim, int64_t axes)
{
    cut c = cut_up(rank, dim, axes);
    return c.blocks > 1 ? (size_t)(c.outputs * c.blocks) * sizeof(double) : 0;
}

static size_t sum_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    const wf_dims *shape = &n->in[0]->shape;
    return partial_bytes((int)shape->n, shape->d, ((const wf_attr_reduce *)n->attr)->axes);
}

void WF_SIMD(wf_simd_sum_rows)(const wf_launch *l, const wf_view *x, const wf_view *y)
{
    reduce(l, x, y, 1);
}

size_t WF_SIMD(wf_simd_sum_rows_workspace)(int64_t rows, int64_t columns)
{
    return partial_bytes(2, (int64_t[]){rows, columns}, 1);
}

/* ---- global_norm ---- */

static int64_t blocks_of(int64_t count)
{
    return (count + BLOCK - 1) / BLOCK;
}

static double block_squares(const wf_view *v, const wf_walk *w, int64_t begin, int64_t end)
{
    double total = 0;
    wf_chunk buf;
    int64_t step = wf_walk_step(w, 0);
    for (wf_run r = wf_run_over(w, begin, end); wf_run_next(&r, step == 1 ? BLOCK : WF_CHUNK);)
        total += sum_of_squares(v->type, wf_chunk_load(v, r.offset[0], step, r.n, &buf), r.n);
    return total;
}

/* Blocks are numbered through all inputs; no block spans two inputs. */
static void norm_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const wf_launch *l = arg;
    double *partial = l->workspace;
    int64_t first = 0; /* first block of input i */
    for (int i = 0; i < l->nin && first < end; i++) {
        const wf_view *v = &l->in[i];
        int64_t count = wf_view_count(v), next = first + blocks_of(count);
        wf_walk w = wf_walk_over(v->rank, v->dim);
        wf_walk_add(&w, v);
        wf_walk_fold(&w);
        for (int64_t b = begin > first ? begin : first; b < end && b < next; b++) {
            int64_t from = (b - first) * BLOCK;
            partial[b] = block_squares(v, &w, from, from + BLOCK < count ? from + BLOCK : count);
        }
        first = next;
    }
}

static wf_status launch_global_norm(const wf_launch *l)
{
    int64_t blocks = 0;
    if (!l->out[0].data)
        return WF_OK;
    for (int i = 0; i < l->nin; i++)
        blocks += blocks_of(wf_view_count(&l->in[i]));
    wf_parallel_for(l->threads, blocks, wf_grain(BLOCK), norm_range, (void *)l);
    double total = 0;
    for (int64_t b = 0; b < blocks; b++)
        total += ((const double *)l->workspace)[b];
    *(float *)l->out[0].data = (float)sqrt(total);
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
#define ROW(name_, launch_, workspace_)                                                            \
    {.op = WF_OP_##name_, .name = "simd", .types = WF_TYPES_FLOAT, .strided = true,                 \
     .workspace = workspace_, .launch = launch_}
const wf_kernel WF_SIMD(wf_cpu_reduce)[] = {
    ROW(sum, launch_sum, sum_workspace),
    ROW(mean, launch_sum, sum_workspace),
    ROW(global_norm, launch_global_norm, global_norm_workspace),
    {0},
};
