/* SPDX-License-Identifier: MIT */
/*
 * gemm_run.c - the blocked GEMM.
 *
 * A GEMM is cut into pieces along rows, columns or both, a few per thread so that the pool can
 * balance them. Pieces are cut into their blocks if that packs nothing twice. A piece runs these
 * loops, outermost first:
 *
 *     columns, NC at a time, or half as many
 *       k, KC at a time: b is packed, [KC, NC], and stays in an outer cache
 *         rows, MC at a time: a is packed, [MC, KC], and stays in L2
 *           rows, GROUP tiles at a time
 *             columns, one panel at a time, which stays in L1
 *               rows, one tile at a time (gemm_tile.h)
 *
 * Sums are kept in y, or in scratch if y is narrow. Every element is summed over k in the same
 * order, one block of KC after another, for any shape, cut and path.
 */
#include <string.h>

#include "base/sanitize.h"
#include "base/thread.h"
#include "device/cpu/count.h"
#include "device/cpu/simd/gemm.h"
#include "device/cpu/simd/gemm_few.h"
#include "device/cpu/simd/gemm_finish.h"

enum {
    MR = WF_TILE_ROWS,    /* rows of a tile: sums of MR x NR stay in registers */
    NR = WF_TILE_COLUMNS, /* columns of a tile, two vectors */
    KC = WF_TILE_K,       /* k per block: one panel of b in L1 */
    GROUP = 4,            /* tiles of a per panel of b in L1: about as much of a as of b */
    /* Rows of packed a in L2; more registers mean larger tiles, so fewer of them. */
    MC = WF_VREGS == 32 ? 12 * MR : 24 * MR,
    NC = WF_PACK_COLUMNS,  /* columns of packed b in an outer cache */
    SUM_ROWS = 1024,       /* rows of narrow results at a time, since their sums take scratch */
    GRAIN = 1024 * 1024,   /* fewest multiplications per thread */
    FEW_GRAIN = 64 * 1024, /* fewest weight elements per thread in small-batch GEMM */
    PACK_COST = 24,        /* cost of packing an element, in multiplications */
    LINE = 16              /* floats in a cache line */
};

/* ---- Kernels by number of rows ---- */

/* Kernels for 1 to WF_FEW_ROWS rows, so that all sums stay in registers. */
#define FEW(rows)                                                         \
    static void few_f32_##rows(const wf_few *f, vf(*total)[WF_FEW_ROWS])  \
    {                                                                     \
        wf_few_multiply(rows, WF_F32, f, total);                          \
    }                                                                     \
    static void few_f16_##rows(const wf_few *f, vf(*total)[WF_FEW_ROWS])  \
    {                                                                     \
        wf_few_multiply(rows, WF_F16, f, total);                          \
    }                                                                     \
    static void few_bf16_##rows(const wf_few *f, vf(*total)[WF_FEW_ROWS]) \
    {                                                                     \
        wf_few_multiply(rows, WF_BF16, f, total);                         \
    }
WF_FEW_NUMBERS(FEW)

#define FEW_F32(rows) few_f32_##rows,
#define FEW_F16(rows) few_f16_##rows,
#define FEW_BF16(rows) few_bf16_##rows,
static wf_few_fn *const few[WF_TYPE_COUNT][WF_FEW_ROWS] = {[WF_F32] = {WF_FEW_NUMBERS(FEW_F32)},
                                                           [WF_F16] = {WF_FEW_NUMBERS(FEW_F16)},
                                                           [WF_BF16] = {WF_FEW_NUMBERS(FEW_BF16)}};

/* ---- Cutting ---- */

/* How a GEMM is cut. Depends on sizes, types and threads. */
typedef struct {
    const wf_gemm *g;
    int threads;
    int64_t pieces_m, pieces_n;
    int64_t rows, columns; /* size of the largest piece */
    /* Scratch per thread in floats: panels of a and b, and sums of narrow results. */
    int64_t floats_a, floats_b, floats_c;
} tiling;

/* Part of a result: [i0, i0 + m) by [j0, j0 + n) of matrix `index`, and one block of k. */
typedef struct {
    int64_t index, i0, m, j0, n, k0, nk;
} block;

/* Distributes n rows to as few tiles as possible; their sizes differ by at most one. */
static wf_deal deal_rows(int64_t n)
{
    int64_t tiles = wf_divide_up(n, MR);
    return (wf_deal){tiles, n / tiles, n % tiles};
}

static wf_deal deal_columns(int64_t n)
{
    return (wf_deal){wf_divide_up(n, NR), NR, 0};
}

/* The stride of a's panels in floats: no power of two, as those would share cache sets, and with
 * room for packing to overrun. */
static int64_t stride_a(int64_t nk)
{
    return nk * MR + WF_VL;
}

/* Columns per block of a piece. Several blocks are half as wide, so that a block's sums stay
 * cached. */
static int64_t block_columns(int64_t columns)
{
    return columns <= NC ? NC : NC / 2;
}

static int log2_of(int x)
{
    return x > 1 ? 1 + log2_of(x / 2) : 0;
}

/* The cost of cutting into pm x pn pieces, in multiplications per k. An incomplete last round
 * counts half: idle threads leave the others more bandwidth. The final wait grows with the threads,
 * to a quarter of a piece with 16. */
static int64_t cost(int64_t batch, int64_t m, int64_t n, int64_t pm, int64_t pn, int threads)
{
    /* The largest piece: whole panels of columns. */
    const int64_t rows = wf_divide_up(m, pm), columns = wf_divide_up(wf_divide_up(n, NR), pn) * NR;
    const int64_t a = wf_divide_up(columns, block_columns(columns)),
                  b = wf_divide_up(rows, SUM_ROWS);
    /* The longest piece, with its packing. */
    const int64_t one = rows * columns + PACK_COST * (rows * a + columns * b);
    /* The work of all pieces: a is packed once per column block of each piece, b once per row
     * block. */
    const int64_t all = batch * (m * n + PACK_COST * (m * a * pn + n * b * pm));
    const int64_t pieces = batch * pm * pn, left = pieces % threads;
    const int64_t rounds = pieces / threads;
    const int64_t share =
        all / pieces * rounds + (left ? all / pieces / (2 * threads) * (left + threads) : 0);
    return wf_max64(one, share) + one / 64 * log2_of(threads) * log2_of(threads);
}

/* 1, 2, 3, 4, 6, 8, 12, 16, ... */
static int64_t next_number(int64_t i)
{
    return i + (i & (i - 1) ? i / 3 : (i + 1) / 2);
}

/* Chooses the number of pieces: one per thread, or about three. Three balance late threads and
 * uneven divisions, but pack more. */
static void cut_pieces(tiling *t, int64_t batch, int64_t m, int64_t n)
{
    static const int thirds[] = {3, 8, 9}; /* pieces per thread, in thirds */
    const int64_t panels = wf_divide_up(n, NR);
    int64_t best = cost(batch, m, n, 1, 1, t->threads);
    for (int64_t pm = 1; pm <= wf_min64(m, 3 * t->threads); pm = next_number(pm))
        for (int i = 0; i < 3; i++) {
            int64_t pn = wf_min64(thirds[i] * t->threads / (3 * batch * pm), panels);
            int64_t takes = pn > 0 ? cost(batch, m, n, pm, pn, t->threads) : best;
            if (takes >= best)
                continue;
            best = takes;
            t->pieces_m = pm;
            t->pieces_n = pn;
        }
    t->rows = wf_divide_up(m, t->pieces_m);
    t->columns = wf_divide_up(panels, t->pieces_n) * NR;
}

/* Column blocks repack a, and row blocks repack b, so they may as well be pieces. */
static void cut_blocks(tiling *t, wf_type product)
{
    int64_t blocks_n = wf_divide_up(t->columns, block_columns(t->columns));
    int64_t blocks_m = product == WF_F32 ? 1 : wf_divide_up(t->rows, SUM_ROWS);
    t->pieces_n *= blocks_n;
    t->pieces_m *= blocks_m;
    t->columns = wf_divide_up(t->columns, blocks_n * NR) * NR;
    t->rows = wf_divide_up(t->rows, blocks_m);
}

static tiling cut(int64_t batch, int64_t m, int64_t n, int64_t k, wf_type product, int threads)
{
    tiling t = {0};
    /* m n k / GRAIN without overflow: k multiplies the quotient and the rest. */
    int64_t worth = batch * m * n / GRAIN * k + batch * m * n % GRAIN * k / GRAIN;
    t.threads = (int)(worth < 1 ? 1 : wf_min64(worth, threads));
    t.pieces_m = t.pieces_n = 1;
    t.rows = m;
    t.columns = wf_divide_up(n, NR) * NR;
    if (t.threads > 1) {
        cut_pieces(&t, batch, m, n);
        cut_blocks(&t, product);
    }
    int64_t nk = wf_min64(k, KC), nc = wf_min64(t.columns, NC), mc = wf_min64(t.rows, MC);
    t.floats_a = wf_divide_up(mc, MR) * stride_a(nk);
    t.floats_a = wf_divide_up(t.floats_a, LINE) * LINE;
    t.floats_b = wf_divide_up(nc * nk, LINE) * LINE;
    t.floats_c = product == WF_F32 ? 0 : wf_min64(t.rows, SUM_ROWS) * nc;
    return t;
}

static int64_t scratch_floats(const tiling *t)
{
    return t->floats_a + t->floats_b + t->floats_c;
}

static bool is_few(int64_t m)
{
    return m <= WF_FEW_ROWS;
}

size_t WF_SIMD(wf_simd_gemm_scratch)(int64_t batch, int64_t m, int64_t n, int64_t k,
                                     wf_type product, int threads)
{
    if (batch * m * n == 0)
        return 0;
    tiling t = cut(batch, m, n, k, product, threads);
    size_t floats = (size_t)t.threads * (size_t)scratch_floats(&t);
    /* Small batches keep all rows of a as f32 instead. */
    size_t rows = is_few(m) ? (size_t)(batch * m * k) : 0;
    rows = (rows + LINE - 1) / LINE * LINE;
    return (floats > rows ? floats : rows) * sizeof(float);
}

/* ---- Many rows ---- */

/* Applies the epilogue to the sums c [m][ldc] of a block. */
static void finish_block(const wf_gemm *g, const block *b, const float *c, int64_t ldc)
{
    for (int64_t i = 0; i < b->m; i++)
        for (int64_t j = 0; j < b->n; j += WF_GEMM_CHUNK)
            wf_gemm_finish(g, b->index, b->i0 + i, b->j0 + j, wf_min64(b->n - j, WF_GEMM_CHUNK),
                           c + i * ldc + j);
}

static void pack(const wf_gemm_part *p, int64_t all, const wf_deal *d, int64_t stride, float *to)
{
    switch (p->of->view->type) {
    case WF_F32: wf_pack_typed(WF_F32, p, all, d, stride, to); break;
    case WF_F16: wf_pack_typed(WF_F16, p, all, d, stride, to); break;
    case WF_BF16: wf_pack_typed(WF_BF16, p, all, d, stride, to); break;
    default: wf_pack_blocks(p, d, stride, to);
    }
}

/* Checks what a tile accesses: a panel [nk, rows] of a, a panel [nk, NR] of b, and n columns of c.
 * The sanitizers do not instrument the tiles themselves (cmake/simd.cmake). */
static void check_tile(int64_t rows, int64_t nk, const float *a, const float *b, const float *c,
                       int64_t ldc, int n)
{
    wf_check_bytes(a, (size_t)(nk * rows) * sizeof *a);
    if (nk > 0) /* the last row of a narrow panel ends after one vector */
        wf_check_bytes(b, (size_t)((nk - 1) * NR + (n <= WF_VL ? WF_VL : NR)) * sizeof *b);
    for (int64_t i = 0; i < rows; i++)
        wf_check_bytes(c + i * ldc, (size_t)n * sizeof *c);
}

/* Multiplies at most MC rows of a block over one block of k, with packed b. c = a b for the first
 * block of k without g->add, else c += a b. */
static void multiply_rows(const tiling *t, const block *b, float *a, const float *panels, float *c,
                          int64_t ldc)
{
    const wf_gemm *g = t->g;
    wf_gemm_part part = {&g->a, b->index, b->i0, b->m, b->k0, b->nk};
    wf_deal d = deal_rows(b->m);
    bool add = g->add || b->k0 > 0; /* continues the sums of the block of k before */
    pack(&part, g->k, &d, stride_a(b->nk), a);
    for (int64_t first = 0; first < d.tiles; first += GROUP)
        for (int64_t j = 0; j < b->n; j += NR) {
            int n = (int)wf_min64(b->n - j, NR);
            wf_tile_fn *const *kernel = WF_SIMD(wf_tiles)[n <= WF_VL];
            /* wf_deal_width: rows of the last tiles may differ by one. */
            for (int64_t i = first; i < wf_min64(first + GROUP, d.tiles); i++) {
                const int64_t rows = wf_deal_width(&d, i);
                const float *a_panel = a + i * stride_a(b->nk), *b_panel = panels + j * b->nk;
                float *to = c + wf_deal_first(&d, i) * ldc + j;
                check_tile(rows, b->nk, a_panel, b_panel, to, ldc, n);
                kernel[rows - 1](b->nk, a_panel, b_panel, to, ldc, n, add);
            }
        }
}

/* Computes a block of at most SUM_ROWS x NC over all of k. */
static void multiply_block(const tiling *t, block b, float *scratch)
{
    const wf_gemm *g = t->g;
    const wf_view *to = wf_gemm_product(g);
    float *a = scratch, *panels = a + t->floats_a, *sums = panels + t->floats_b;
    bool narrow = to->type != WF_F32;
    int64_t ldc = narrow ? wf_divide_up(b.n, NR) * NR : g->n;
    int64_t parts = wf_divide_up(b.m, MC), first = b.i0, rows = b.m;
    /* Runs once for k = 0: the result is 0, the bias or act(bias); with g->add y is unchanged. */
    for (; b.k0 == 0 || b.k0 < g->k; b.k0 += KC) {
        b.nk = wf_min64(g->k - b.k0, KC);
        wf_gemm_part part = {&g->b, b.index, b.j0, b.n, b.k0, b.nk};
        wf_deal d = deal_columns(b.n);
        pack(&part, g->k, &d, b.nk * NR, panels);
        for (int64_t p = 0; p < parts; p++) {
            b.i0 = first + rows * p / parts; /* parts of nearly equal size, at most MC */
            b.m = first + rows * (p + 1) / parts - b.i0;
            float *c = narrow ? sums + (b.i0 - first) * ldc
                              : (float *)(void *)wf_gemm_result_at(g, to, b.index, b.i0, b.j0);
            multiply_rows(t, &b, a, panels, c, ldc);
            /* The last block of k: the sums are complete and still cached. */
            if (b.k0 + b.nk == g->k && (narrow || g->bias || g->act || g->slope))
                finish_block(g, &b, c, ldc);
        }
    }
}

static void some_pieces(void *arg, int64_t begin, int64_t end, int thread)
{
    const tiling *t = arg;
    const wf_gemm *g = t->g;
    float *scratch = (float *)g->scratch + thread * scratch_floats(t);
    int64_t panels = wf_divide_up(g->n, NR);
    bool narrow = wf_gemm_product(g)->type != WF_F32;
    for (int64_t p = begin; p < end; p++) {
        /* Pieces of a row of pieces are neighbours: they share rows of a. */
        int64_t pm = p / t->pieces_n % t->pieces_m, pn = p % t->pieces_n;
        int64_t i1 = g->m * (pm + 1) / t->pieces_m;
        int64_t j1 = wf_min64(panels * (pn + 1) / t->pieces_n * NR, g->n);
        block b = {.index = p / (t->pieces_m * t->pieces_n)};
        for (b.i0 = g->m * pm / t->pieces_m; b.i0 < i1; b.i0 += b.m) {
            b.m = narrow ? wf_min64(i1 - b.i0, SUM_ROWS) : i1 - b.i0;
            const int64_t j0 = panels * pn / t->pieces_n * NR, nc = block_columns(j1 - j0);
            for (b.j0 = j0; b.j0 < j1; b.j0 += b.n) {
                b.n = wf_min64(j1 - b.j0, nc);
                multiply_block(t, b, scratch);
            }
        }
    }
}

/* ---- Small batch ---- */

/* Columns per kernel call. */
static int few_width(int64_t m)
{
    return wf_few_vectors((int)m) * WF_VL;
}

/* Computes columns [j, j + few_width(m)); the first `skip` are already done. */
static void few_columns(const wf_gemm *g, int64_t index, int64_t j, int skip)
{
    wf_gemm_part part = {.of = &g->b, .index = index};
    const int width = few_width(g->m);
    /* Columns of b are rows in memory. */
    wf_few f = {.from = wf_gemm_row(&part, j, 0), .k = g->k, .lda = g->k, .add = g->add};
    vf total[WF_FEW_STREAMS / WF_VL][WF_FEW_ROWS];
    f.stride = wf_gemm_row(&part, j + 1, 0) - f.from;
    f.a = (const float *)g->scratch + index * g->m * g->k;
    for (int64_t i = 0; g->add && i < g->m; i++) {
        float sum[WF_FEW_STREAMS] = {0}; /* other threads may be writing the skipped columns */
        memcpy(sum + skip, wf_gemm_result_at(g, g->y, index, i, j + skip),
               (size_t)(width - skip) * sizeof *sum);
        for (int v = 0; v * WF_VL < width; v++)
            total[v][i] = vf_load(sum + v * WF_VL);
    }
    few[g->b.view->type][g->m - 1](&f, total);
    for (int64_t i = 0; i < g->m; i++) {
        float sum[WF_FEW_STREAMS];
        for (int v = 0; v * WF_VL < width; v++)
            vf_store(sum + v * WF_VL, total[v][i]);
        wf_gemm_finish(g, index, i, j + skip, width - skip, sum + skip);
    }
}

static void few_groups(void *arg, int64_t begin, int64_t end, int thread)
{
    const wf_gemm *g = arg;
    const int width = few_width(g->m);
    int64_t groups = wf_divide_up(g->n, width);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        int64_t j = i % groups * width;
        int skip =
            (int)wf_max64(j + width - g->n, 0); /* the last group starts earlier, to be whole */
        few_columns(g, i / groups, j - skip, skip);
    }
}

static bool takes_few(const wf_gemm *g)
{
    return is_few(g->m) && g->n >= few_width(g->m) && !g->b.k_is_row && few[g->b.view->type][0] &&
           !g->b.view->packed;
}

/* Widens the rows of a to f32 [batch][m][k] in scratch. */
static void widen_rows(const wf_gemm *g)
{
    float *to = g->scratch;
    for (int64_t index = 0; index < g->batch; index++) {
        wf_gemm_part part = {&g->a, index, 0, g->m, 0, g->k};
        for (int64_t i = 0; i < g->m; i++, to += g->k) {
            if (!g->a.k_is_row) {
                wf_convert_to_f32(g->a.view->type, wf_gemm_row(&part, i, 0), to, g->k);
                continue;
            }
            for (int64_t k = 0; k < g->k; k++)
                wf_convert_to_f32(g->a.view->type, wf_gemm_row(&part, k, i), to + k, 1);
        }
    }
}

void WF_SIMD(wf_simd_gemm_run)(const wf_gemm *g)
{
    bool wanted = g->pre || (g->y && g->y->data);
    if (!wanted || g->batch * g->m * g->n == 0)
        return;
    /* Results are dense: only operands may be strided. */
    wf_assert(wf_gemm_product(g)->dense && (!g->add || g->y->type == WF_F32));
    if (takes_few(g)) {
        const int width = few_width(g->m);
        int64_t groups = wf_divide_up(g->n, width);
        widen_rows(g);
        wf_parallel_share(g->threads, g->batch * groups, FEW_GRAIN / (width * (g->k + 1)) + 1,
                          few_groups, (void *)g);
        return;
    }
    tiling t = cut(g->batch, g->m, g->n, g->k, wf_gemm_product(g)->type, g->threads);
    t.g = g;
    /* Multiplications per piece, for the grain. */
    int64_t pieces = t.pieces_m * t.pieces_n, each = g->m * g->n / pieces * g->k;
    wf_parallel_share(t.threads, g->batch * pieces, GRAIN / 4 / (each + 1) + 1, some_pieces, &t);
}
