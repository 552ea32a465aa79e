/* SPDX-License-Identifier: MIT */
/*
 * gemm.c - the reference GEMM.
 *
 * The output is cut into tiles, which the threads share. For a tile, blocks of both operands are
 * packed into f32 panels; packing handles types, strides and transposition:
 *
 *     a panel: MR rows    [nk][MR]        b panel: NR columns    [nk][NR]
 *
 * The micro-kernel multiplies two panels with all MR x NR sums in registers. Every element is
 * summed over k in the same order, one block of KC after another, for any shape, tile and number of
 * threads. A row of the result has the same bits alone and in a batch.
 *
 * Quantized blocks of b are decoded during packing, once per tile; panels start at block parts. A
 * weight packed by the device (pack.c) is already in panels of b, in its own type: f32 is used in
 * place, and narrow types are widened one panel at a time.
 *
 * Memory traffic: a tile reads TILE_M rows of a and TILE_N columns of b once each, so b is read
 * ceil(m / TILE_M) times and a ceil(n / TILE_N) times.
 */
#include "device/cpu/gemm.h"

#include <string.h>

#include "base/thread.h"
#include "device/cpu/count.h"
#include "device/cpu/row.h"

enum {
    MR = 4,               /* 4 x 8 sums take 8 of SSE2's 16 registers */
    NR = WF_GEMM_COLUMNS, /* and leave room for the operands */
    KC = WF_GEMM_BLOCK,   /* one panel of each operand: 12 KB of L1 */
    TILE_M = 32 * MR,     /* packed blocks and sums of a tile: 320 KB of L2 */
    TILE_N = 16 * NR,     /* 128 x 128 sums: 64 KB */
    FEW_M = 2,            /* up to this many rows, b is not packed */
    GRAIN = 256 * 1024,   /* fewest multiplications per thread */
    LINE = 16             /* floats in a cache line */
};
_Static_assert(KC % 256 == 0 && TILE_N % 128 == 0, "tiles must not cut parts of quantized blocks");

typedef struct {
    const wf_gemm *g;
    int64_t tiles_m, tiles_n;
    int64_t mc, nc; /* rows and columns of the largest tile, rounded up to whole panels */
    int64_t packed_a, packed_b; /* floats of all panels of one block of k */
} tiling;

/* One tile of the output, [i0, i0 + m) by [j0, j0 + n) of matrix `index`, and one block of k. */
typedef struct {
    int64_t index, i0, m, j0, n, k0, nk;
} block;

/* The stride between panels in floats: one cache line more than a panel holds. Panels a power of
 * two apart would evict each other. */
static int64_t panel_floats(int64_t nk, int width)
{
    return nk * width + LINE;
}

/* `stored` is the type of a packed b, or WF_TYPE_NONE if b is not packed. */
static tiling cut(int64_t m, int64_t n, int64_t k, wf_type stored)
{
    tiling t = {.tiles_m = wf_divide_up(m, TILE_M), .tiles_n = wf_divide_up(n, TILE_N)};
    t.mc = wf_min64(TILE_M, wf_divide_up(m, MR) * MR);
    t.nc = wf_min64(TILE_N, wf_divide_up(n, NR) * NR);
    t.packed_a = t.mc / MR * panel_floats(wf_min64(KC, k), MR);
    /* A stored f32 panel is used in place; a narrow one needs a single panel. */
    int64_t panels_b = stored == WF_TYPE_NONE ? t.nc / NR : stored != WF_F32;
    t.packed_b = panels_b * panel_floats(wf_min64(KC, k), NR);
    return t;
}

/* Scratch per thread: packed a, packed b, sums [mc][nc], and one row. */
static int64_t scratch_floats(const tiling *t)
{
    int64_t row = KC > TILE_N ? KC : TILE_N;
    return t->packed_a + t->packed_b + t->mc * t->nc + row;
}

size_t wf_gemm_scratch(int64_t m, int64_t n, int64_t k, int threads)
{
    tiling t = cut(m, n, k, WF_TYPE_NONE);
    return wf_row_workspace(threads, 1, scratch_floats(&t));
}

size_t wf_gemm_scratch_packed(int64_t m, int64_t n, int64_t k, wf_type b, int threads)
{
    tiling t = cut(m, n, k, b);
    return wf_row_workspace(threads, 1, scratch_floats(&t));
}

/* Distributes the n elements of one k to the panels, `stride` floats apart. */
static inline void pack_row_of_k(float *to, const float *from, int64_t n, int width, int64_t stride)
{
    for (; n >= width; n -= width, from += width, to += stride)
        for (int i = 0; i < width; i++)
            to[i] = from[i];
    if (n > 0)
        for (int i = 0; i < width; i++)
            to[i] = i < n ? from[i] : 0;
}

/* Packs elements [first, first + n) by k in [k0, k0 + nk) of matrix `index` into panels of `width`,
 * the last one padded with zeros: padded sums are computed and dropped. */
static inline void pack(const wf_gemm_operand *o, int64_t index, int64_t first, int64_t n,
                        int64_t k0, int64_t nk, int width, float *to, float *buf)
{
    int64_t base = o->first + index * o->rows, stride = panel_floats(nk, width);
    if (o->k_is_row) {
        for (int64_t k = 0; k < nk; k++)
            pack_row_of_k(to + k * width, wf_row_part(o->view, base + k0 + k, first, n, buf), n,
                          width, stride);
        return;
    }
    int64_t full = wf_divide_up(n, width) * width;
    for (int64_t i = 0; i < full; i++) {
        float *panel = to + i / width * stride + i % width;
        const float *from = i < n ? wf_row_part(o->view, base + first + i, k0, nk, buf) : NULL;
        for (int64_t k = 0; k < nk; k++)
            panel[k * width] = from ? from[k] : 0;
    }
}

/* c[rows][NR] += a b over one block of k. ldc: row stride of c in floats. */
static inline void multiply_panels(int rows, int64_t nk, const float *restrict a,
                                   const float *restrict b, float *restrict c, int64_t ldc)
{
    float sum[MR][NR] = {{0}};
    for (int64_t k = 0; k < nk; k++, a += MR, b += NR)
        for (int i = 0; i < rows; i++)
            for (int j = 0; j < NR; j++)
                sum[i][j] += a[i] * b[j];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < NR; j++)
            c[i * ldc + j] += sum[i][j];
}

static void micro_kernel(int64_t nk, const float *a, const float *b, float *c, int64_t ldc)
{
    multiply_panels(MR, nk, a, b, c, ldc);
}

/* The same order of additions as micro_kernel, so a batch of one has the same bits. */
static void row_kernel(int64_t nk, const float *a, const float *b, float *c)
{
    multiply_panels(1, nk, a, b, c, 0);
}

/* Like row_kernel with an unpacked b: b[j] holds column j along k. */
static void direct_kernel(int64_t nk, const float *restrict a, const float *const *b,
                          float *restrict c)
{
    float sum[NR] = {0};
    for (int64_t k = 0; k < nk; k++)
        for (int j = 0; j < NR; j++)
            sum[j] += a[k * MR] * b[j][k];
    for (int j = 0; j < NR; j++)
        c[j] += sum[j];
}

/* First row of y that a tile covers. */
static int64_t first_row(const wf_gemm *g, const block *b)
{
    return g->y_first + b->index * g->m + b->i0;
}

/* Initializes the sums c [mc][nc] of a tile: bias, y's old values, or 0. */
static void begin_tile(const tiling *t, const block *b, float *c)
{
    const wf_view *y = t->g->y;
    memset(c, 0, (size_t)(t->mc * t->nc) * sizeof *c);
    for (int64_t i = 0; t->g->add && i < b->m; i++) /* a sum that continues an earlier GEMM's */
        memcpy(c + i * t->nc, wf_view_at(y, wf_view_row(y, first_row(t->g, b) + i) + b->j0),
               (size_t)b->n * sizeof *c);
}

/* Stores n elements of row r from column j0 on. */
static void store_part(const wf_view *v, int64_t r, int64_t j0, const float *from, int64_t n)
{
    wf_convert_from_f32(v->type, from, wf_view_at(v, wf_view_row(v, r) + j0), n);
}

/* Stores the sums c [m][nc] of a tile. If pre is not kept, y's memory serves to round it before the
 * activation. */
static void end_tile(const tiling *t, const block *b, float *c, float *buf)
{
    const wf_gemm *g = t->g;
    const wf_view *product = g->pre ? g->pre : g->y;
    const float *bias = g->bias ? wf_row_part(g->bias, 0, b->j0, b->n, buf) : NULL;
    for (int64_t i = 0; i < b->m; i++) {
        float *row = c + i * t->nc;
        int64_t r = first_row(g, b) + i;
        if (bias)
            for (int64_t j = 0; j < b->n; j++)
                row[j] += bias[j];
        store_part(product, r, b->j0, row, b->n);
        if (g->act && g->y) {
            g->act(wf_row_part(product, r, b->j0, b->n, row), row, b->n);
            store_part(g->y, r, b->j0, row, b->n);
        }
    }
}

/* The same, times an activation's derivative. */
static void end_tile_slope(const tiling *t, const block *b, float *c, float *buf)
{
    const wf_gemm *g = t->g;
    for (int64_t i = 0; i < b->m; i++) {
        int64_t r = first_row(g, b) + i;
        g->slope(wf_row_part(g->at, r, b->j0, b->n, buf), c + i * t->nc, b->n);
        store_part(g->y, r, b->j0, c + i * t->nc, b->n);
    }
}

/* Returns one block of k of column j's panel of a packed b, [k][NR], as f32. */
static const float *stored_panel(const wf_gemm *g, const block *k, int64_t j, float *buf)
{
    const wf_view *w = g->b.view;
    /* Panels follow each other: NR columns by all of k. */
    const void *from = wf_view_at(w, ((k->j0 + j) / NR * g->k + k->k0) * NR);
    if (w->type == WF_F32)
        return from;
    wf_convert_to_f32(w->type, from, buf, k->nk * NR);
    return buf;
}

static void multiply_packed(const tiling *t, const block *k, const float *a, float *b, float *c,
                            float *buf)
{
    const wf_gemm *g = t->g;
    int64_t stride_a = panel_floats(k->nk, MR), stride_b = panel_floats(k->nk, NR);
    bool stored = g->b.view->packed;
    if (!stored)
        pack(&g->b, k->index, k->j0, k->n, k->k0, k->nk, NR, b, buf);
    for (int64_t j = 0; j < k->n; j += NR) {
        const float *panel = stored ? stored_panel(g, k, j, b) : b + j / NR * stride_b;
        if (g->m <= FEW_M)
            for (int64_t i = 0; i < k->m; i++)
                row_kernel(k->nk, a + i, panel, c + i * t->nc + j);
        else
            for (int64_t i = 0; i < k->m; i += MR)
                micro_kernel(k->nk, a + i / MR * stride_a, panel, c + i * t->nc + j, t->nc);
    }
}

/* Multiplies an unpacked b: for a few rows, as in decode, packing does not pay. */
static void multiply_direct(const tiling *t, const block *k, const float *a, float *b, float *c)
{
    const wf_gemm_operand *o = &t->g->b;
    int64_t base = o->first + k->index * o->rows + k->j0;
    for (int64_t j = 0; j < k->n; j += NR) {
        const float *rows[NR];
        for (int i = 0; i < NR; i++) /* past the last column: repeat it; the result is dropped */
            rows[i] =
                wf_row_part(o->view, base + wf_min64(j + i, k->n - 1), k->k0, k->nk, b + i * k->nk);
        for (int64_t i = 0; i < k->m; i++)
            direct_kernel(k->nk, a + i, rows, c + i * t->nc + j);
    }
}

static void one_tile(const tiling *t, int64_t tile, float *scratch)
{
    const wf_gemm *g = t->g;
    block k = {.index = tile / (t->tiles_m * t->tiles_n),
               .i0 = tile / t->tiles_n % t->tiles_m * TILE_M,
               .j0 = tile % t->tiles_n * TILE_N};
    k.m = wf_min64(g->m - k.i0, TILE_M);
    k.n = wf_min64(g->n - k.j0, TILE_N);
    float *a = scratch, *b = a + t->packed_a, *c = b + t->packed_b, *buf = c + t->mc * t->nc;

    begin_tile(t, &k, c);
    for (; k.k0 < g->k; k.k0 += KC) {
        k.nk = wf_min64(g->k - k.k0, KC);
        pack(&g->a, k.index, k.i0, k.m, k.k0, k.nk, MR, a, buf);
        if (g->m <= FEW_M && !g->b.k_is_row && !g->b.view->packed)
            multiply_direct(t, &k, a, b, c);
        else
            multiply_packed(t, &k, a, b, c, buf);
    }
    (g->slope ? end_tile_slope : end_tile)(t, &k, c, buf);
}

static void some_tiles(void *arg, int64_t begin, int64_t end, int thread)
{
    const tiling *t = arg;
    float *scratch = wf_row_buffer_in(t->g->scratch, thread, 1, 0, scratch_floats(t));
    for (int64_t tile = begin; tile < end; tile++)
        one_tile(t, tile, scratch);
}

void wf_gemm_run(const wf_gemm *g)
{
    bool wanted = g->pre || (g->y && g->y->data);
    if (!wanted || g->batch * g->m * g->n == 0)
        return;
    wf_assert(!g->add || g->y->type == WF_F32);
    wf_assert(!g->b.view->packed || g->batch == 1);
    tiling t = cut(g->m, g->n, g->k, g->b.view->packed ? g->b.view->type : WF_TYPE_NONE);
    t.g = g;
    int64_t tiles = g->batch * t.tiles_m * t.tiles_n;
    /* Whole tiles; small GEMMs stay on one thread. */
    int64_t grain = GRAIN / (t.mc * t.nc * (g->k + 1)) + 1;
    wf_parallel_for(g->threads, tiles, grain, some_tiles, &t);
}
