/* SPDX-License-Identifier: MIT */
/*
 * matmul.c - matrix products: matmul (batched, either operand transposed), linear, and linear with
 * an activation, which is applied to each tile while it is in the cache.
 *
 * The output is cut into tiles, which threads share out among themselves. For a tile, blocks of
 * both operands are packed into panels of f32; types, strides and transposes end there:
 *
 *     a panel: MR rows    [nk][MR]        b panel: NR columns    [nk][NR]
 *
 * and the micro-kernel multiplies one panel by the other with all MR x NR sums in registers. Every
 * element is summed over k in the same order, blocks of KC after one another, whatever the shape,
 * the tile and the number of threads: a row of the result has the same bits alone or among others.
 */
#include <string.h>

#include "base/thread.h"
#include "device/cpu/activation.h"
#include "device/cpu/row.h"

enum {
    MR = 4,           /* 4 x 8 sums take 8 of the 16 registers of SSE2, the least that x86-64 */
    NR = 8,           /* has, and leave room for the operands */
    KC = 256,         /* one panel of each operand: 12 KB of the first-level cache */
    TILE_M = 32 * MR, /* packed blocks and sums of a tile: 320 KB of the second-level cache */
    TILE_N = 16 * NR,
    DIRECT_M = 2,       /* with so few rows b is not packed */
    GRAIN = 256 * 1024, /* multiplications worth waking a thread for */
    LINE = 16           /* floats in a cache line */
};

/* One matrix per batch, stored as rows of the view. */
typedef struct {
    const wf_view *view;
    int64_t rows;  /* of each matrix */
    bool k_is_row; /* a row holds all elements of one k; else all k of one element */
} operand;

typedef void row_fn(const float *x, float *y, int64_t n);

typedef struct {
    const wf_launch *l;
    operand a, b;
    const wf_view *bias;    /* [n], or NULL */
    row_fn *act;            /* of the product, or NULL */
    const wf_view *y, *pre; /* with and without act; NULL: nobody reads it */
    int64_t batch, m, n, k;
    int64_t tiles_m, tiles_n;
    int64_t mc, nc;             /* of the largest tile, in whole panels */
    int64_t packed_a, packed_b; /* floats of packed blocks */
} gemm;

/* One tile of the output, [i0, i0 + m) by [j0, j0 + n) of product `index`, and one block of k. */
typedef struct {
    int64_t index, i0, m, j0, n, k0, nk;
} block;

static int64_t min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

/* Floats from one panel to the next: a cache line more than it holds, or else the panels of a block
 * would begin a power of two apart and push each other out of the cache. */
static int64_t panel_floats(int64_t nk, int width)
{
    return nk * width + LINE;
}

static void set_sizes(gemm *g, int64_t batch, int64_t m, int64_t n, int64_t k)
{
    g->batch = batch;
    g->m = m;
    g->n = n;
    g->k = k;
    g->tiles_m = divide_up(m, TILE_M);
    g->tiles_n = divide_up(n, TILE_N);
    g->mc = min64(TILE_M, divide_up(m, MR) * MR);
    g->nc = min64(TILE_N, divide_up(n, NR) * NR);
    g->packed_a = g->mc / MR * panel_floats(min64(KC, k), MR);
    g->packed_b = g->nc / NR * panel_floats(min64(KC, k), NR);
}

/* Scratch of one thread: packed a, packed b, sums [mc][nc], and one row. */
static int64_t scratch_floats(const gemm *g)
{
    int64_t row = KC > TILE_N ? KC : TILE_N;
    return g->packed_a + g->packed_b + g->mc * g->nc + row;
}

/* Deals the n elements of one k out to the panels, which are `stride` apart. */
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
 * the last one filled up with zeros. */
static inline void pack(const operand *o, int64_t index, int64_t first, int64_t n, int64_t k0,
                        int64_t nk, int width, float *to, float *buf)
{
    int64_t base = index * o->rows, stride = panel_floats(nk, width);
    if (o->k_is_row) {
        for (int64_t k = 0; k < nk; k++)
            pack_row_of_k(to + k * width, wf_row_part(o->view, base + k0 + k, first, n, buf), n,
                          width, stride);
        return;
    }
    int64_t full = divide_up(n, width) * width;
    for (int64_t i = 0; i < full; i++) {
        float *panel = to + i / width * stride + i % width;
        const float *from = i < n ? wf_row_part(o->view, base + first + i, k0, nk, buf) : NULL;
        for (int64_t k = 0; k < nk; k++)
            panel[k * width] = from ? from[k] : 0;
    }
}

/* c[MR][NR] += a b over one block of k; ldc: floats from one row of c to the next. */
static void micro_kernel(int64_t nk, const float *restrict a, const float *restrict b,
                         float *restrict c, int64_t ldc)
{
    float sum[MR][NR] = {{0}};
    for (int64_t k = 0; k < nk; k++, a += MR, b += NR)
        for (int i = 0; i < MR; i++)
            for (int j = 0; j < NR; j++)
                sum[i][j] += a[i] * b[j];
    for (int i = 0; i < MR; i++)
        for (int j = 0; j < NR; j++)
            c[i * ldc + j] += sum[i][j];
}

/* One row of the same with b not packed: b[j] is the row of k of column j. */
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

/* Part of row r, from column j0 on. */
static void store_part(const wf_view *v, int64_t r, int64_t j0, const float *from, int64_t n)
{
    wf_convert_from_f32(v->type, from, wf_view_at(v, wf_view_row(v, r) + j0), n);
}

/* Stores the sums c [m][nc] of a tile. The activation is of the product as its type has it: where
 * the product itself is not kept, the place of the result serves to round it. */
static void store_tile(const gemm *g, const block *t, float *c, float *buf)
{
    const wf_view *product = g->pre ? g->pre : g->y;
    const float *bias = g->bias ? wf_row_part(g->bias, 0, t->j0, t->n, buf) : NULL;
    int64_t first = t->index * g->m + t->i0;
    for (int64_t i = 0; i < t->m; i++) {
        float *row = c + i * g->nc;
        if (bias)
            for (int64_t j = 0; j < t->n; j++)
                row[j] += bias[j];
        store_part(product, first + i, t->j0, row, t->n);
        if (g->act && g->y) {
            g->act(wf_row_part(product, first + i, t->j0, t->n, row), row, t->n);
            store_part(g->y, first + i, t->j0, row, t->n);
        }
    }
}

static void multiply_packed(const gemm *g, const block *t, const float *a, float *b, float *c,
                            float *buf)
{
    int64_t stride_a = panel_floats(t->nk, MR), stride_b = panel_floats(t->nk, NR);
    pack(&g->b, t->index, t->j0, t->n, t->k0, t->nk, NR, b, buf);
    for (int64_t j = 0; j < t->n; j += NR)
        for (int64_t i = 0; i < t->m; i += MR)
            micro_kernel(t->nk, a + i / MR * stride_a, b + j / NR * stride_b, c + i * g->nc + j,
                         g->nc);
}

/* Packing b costs as much as it saves when few rows are multiplied by it, as in decoding. */
static void multiply_direct(const gemm *g, const block *t, const float *a, float *b, float *c)
{
    int64_t base = t->index * g->b.rows + t->j0;
    for (int64_t j = 0; j < t->n; j += NR) {
        const float *rows[NR];
        for (int i = 0; i < NR; i++) /* past the last column: that one again, to be dropped */
            rows[i] =
                wf_row_part(g->b.view, base + min64(j + i, t->n - 1), t->k0, t->nk, b + i * t->nk);
        for (int64_t i = 0; i < t->m; i++)
            direct_kernel(t->nk, a + i, rows, c + i * g->nc + j);
    }
}

static void one_tile(const gemm *g, int64_t tile, float *scratch)
{
    block t = {.index = tile / (g->tiles_m * g->tiles_n),
               .i0 = tile / g->tiles_n % g->tiles_m * TILE_M,
               .j0 = tile % g->tiles_n * TILE_N};
    t.m = min64(g->m - t.i0, TILE_M);
    t.n = min64(g->n - t.j0, TILE_N);
    float *a = scratch, *b = a + g->packed_a, *c = b + g->packed_b, *buf = c + g->mc * g->nc;

    memset(c, 0, (size_t)(g->mc * g->nc) * sizeof *c);
    for (; t.k0 < g->k; t.k0 += KC) {
        t.nk = min64(g->k - t.k0, KC);
        pack(&g->a, t.index, t.i0, t.m, t.k0, t.nk, MR, a, buf);
        if (g->m <= DIRECT_M && !g->b.k_is_row)
            multiply_direct(g, &t, a, b, c);
        else
            multiply_packed(g, &t, a, b, c, buf);
    }
    store_tile(g, &t, c, buf);
}

static void some_tiles(void *arg, int64_t begin, int64_t end, int thread)
{
    const gemm *g = arg;
    float *scratch = wf_row_buffer(g->l, thread, 1, 0, scratch_floats(g));
    for (int64_t tile = begin; tile < end; tile++)
        one_tile(g, tile, scratch);
}

static wf_status run(gemm *g)
{
    if ((!g->y && !g->pre) || g->batch * g->m * g->n == 0)
        return WF_OK;
    int64_t tiles = g->batch * g->tiles_m * g->tiles_n;
    int64_t grain = GRAIN / (g->mc * g->nc * (g->k + 1)) + 1;
    wf_parallel_for(g->l->threads, tiles, grain, some_tiles, g);
    return WF_OK;
}

static const wf_view *output(const wf_launch *l, int i)
{
    return l->out[i].data ? &l->out[i] : NULL;
}

/* ---- matmul: a [..., M, K] or [..., K, M], b [..., K, N] or [..., N, K] -> [..., M, N] ---- */

static void matmul_sizes(gemm *g, const wf_dims *a, const wf_dims *y, const wf_attr_matmul *attr)
{
    int64_t m = y->d[y->n - 2], n = y->d[y->n - 1], batch = 1;
    for (int i = 0; i < y->n - 2; i++)
        batch *= y->d[i];
    set_sizes(g, batch, m, n, a->d[attr->transpose_a ? a->n - 2 : a->n - 1]);
}

static size_t matmul_workspace(const wf_node *n, int threads)
{
    gemm g = {0};
    matmul_sizes(&g, &n->in[0]->shape, &n->out[0].shape, n->attr);
    return wf_row_workspace(threads, 1, scratch_floats(&g));
}

static wf_status launch_matmul(const wf_launch *l)
{
    const wf_attr_matmul *attr = l->attr;
    gemm g = {.l = l, .y = output(l, 0)};
    matmul_sizes(&g, &l->node->in[0]->shape, &l->node->out[0].shape, attr);
    g.a = (operand){&l->in[0], attr->transpose_a ? g.k : g.m, attr->transpose_a};
    g.b = (operand){&l->in[1], attr->transpose_b ? g.n : g.k, !attr->transpose_b};
    return run(&g);
}

/* ---- linear: x [..., K], w [N, K], bias [N]? -> [..., N] ---- */

static void linear_sizes(gemm *g, const wf_dims *x, const wf_dims *w)
{
    set_sizes(g, 1, wf_dims_rows(x), w->d[0], w->d[1]);
}

static size_t linear_workspace(const wf_node *n, int threads)
{
    gemm g = {0};
    linear_sizes(&g, &n->in[0]->shape, &n->in[1]->shape);
    return wf_row_workspace(threads, 1, scratch_floats(&g));
}

static wf_status run_linear(gemm *g)
{
    const wf_launch *l = g->l;
    linear_sizes(g, &l->node->in[0]->shape, &l->node->in[1]->shape);
    g->bias = l->nin > 2 ? &l->in[2] : NULL;
    g->a = (operand){&l->in[0], g->m, false};
    g->b = (operand){&l->in[1], g->n, false};
    return run(g);
}

static wf_status launch_linear(const wf_launch *l)
{
    gemm g = {.l = l, .y = output(l, 0)};
    return run_linear(&g);
}

/* ---- linear_act: the same -> act(pre), pre ---- */

#define ACTIVATE_ROW(name, expr)                                   \
    static void name##_row(const float *in, float *out, int64_t n) \
    {                                                              \
        for (int64_t i = 0; i < n; i++) {                          \
            const float x = in[i];                                 \
            out[i] = expr;                                         \
        }                                                          \
    }
WF_ACTIVATIONS(ACTIVATE_ROW)

#define ROW_OF_OP(name, expr) [WF_OP_##name] = name##_row,
static row_fn *const activations[WF_OP_COUNT] = {WF_ACTIVATIONS(ROW_OF_OP)};

static wf_status launch_linear_act(const wf_launch *l)
{
    const wf_attr_linear_act *attr = l->attr;
    gemm g = {
        .l = l, .act = activations[wf_act_op(attr->act)], .y = output(l, 0), .pre = output(l, 1)};
    return run_linear(&g);
}

static bool all_float(const wf_node *n)
{
    for (int i = 0; i < n->nin; i++)
        if (!(wf_type_bit(n->in[i]->type) & WF_TYPES_FLOAT))
            return false;
    return true;
}

/* clang-format off */
#define ROW(name_, workspace_)                                                                     \
    {.op = WF_OP_##name_, .name = "reference", .types = WF_TYPES_FLOAT, .strided = true,           \
     .accepts = all_float, .workspace = workspace_, .launch = launch_##name_}
const wf_kernel wf_cpu_matmul[] = {
    ROW(matmul, matmul_workspace),
    ROW(linear, linear_workspace),
    ROW(linear_act, linear_workspace),
    {0},
};
