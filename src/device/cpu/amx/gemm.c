/* SPDX-License-Identifier: MIT */
/*
 * gemm.c - bf16 GEMM with many rows: matmul, linear, and their fused forms.
 *
 * A GEMM is cut into blocks of rows and columns, which the threads share. For a block both operands
 * are packed into tiles, KC values of k at a time. Operands are always bf16; packing handles
 * strides, transposition and padding:
 *
 *     a: [strip of 16 rows][k / 32][16][32]      b: [strip of 16 columns][k / 32][16][16][2]
 *
 * Sums are f32, 2 x 2 tiles at a time, and wait in scratch between blocks of k. Every element is
 * summed over k in the same order, in steps of 32, for any blocks and number of threads.
 *
 * 2 x 2 tiles of sums need two tiles of a and two of b: all eight tile registers. Each loaded tile
 * is then used twice.
 */
#include "device/cpu/simd/gemm.h"

#include "base/thread.h"
#include "device/cpu/amx/amx.h"
#include "device/cpu/amx/tile.h"
#include "device/cpu/count.h"
#include "device/cpu/matmul.h"
#include "device/cpu/simd/gemm_finish.h"
#include "device/cpu/simd/reduce.h"

enum {
    SIDE = 16,           /* rows or columns of a tile of sums */
    STEP = 32,           /* k per tile */
    LINE = 64,           /* bytes per row of a tile */
    TILE = SIDE * LINE,  /* bytes */
    KC = 512,            /* two strips of b this long fit in L1 */
    MOST = 512,          /* most rows and columns of a block: its strips fit in L2 */
    PACK_COST = 64,      /* cost of packing an element, in multiplications */
    GRAIN = 1024 * 1024, /* fewest multiplications per thread */
    LEAST = 16           /* fewest rows, columns and k that pay */
};
_Static_assert(WF_VL == SIDE, "a row of sums is a vector");

/* ---- Cutting ---- */

typedef struct {
    const wf_gemm *g;
    int threads;
    int64_t rows, columns;      /* per block, in whole strips; the last block may be smaller */
    int64_t blocks_m, blocks_n; /* blocks per matrix */
    /* Scratch per thread: bytes of strips, and sums with `stride` floats per row. */
    int64_t bytes_a, bytes_b, stride;
} tiling;

/* The size of equal pieces of n, at most `most`, in whole pairs of strips. */
static int64_t piece(int64_t n, int64_t most)
{
    return wf_divide_up(wf_divide_up(n, wf_divide_up(n, most)), 2 * SIDE) * 2 * SIDE;
}

static tiling cut(int64_t batch, int64_t m, int64_t n, int64_t k, int threads)
{
    tiling t = {0};
    /* m n k / GRAIN without overflow. */
    int64_t worth = batch * m * n / GRAIN * k + batch * m * n % GRAIN * k / GRAIN;
    int64_t best = INT64_MAX, steps = wf_divide_up(wf_min64(k, KC), STEP);
    t.threads = (int)(worth < 1 ? 1 : wf_min64(worth, threads));
    /* Try block sizes in powers of two; the cost is the longest thread's multiplications per k. */
    for (int64_t i = MOST; i >= 2 * SIDE; i /= 2)
        for (int64_t j = MOST; j >= 2 * SIDE; j /= 2) {
            int64_t rows = piece(m, i), columns = piece(n, j);
            int64_t blocks = batch * wf_divide_up(m, rows) * wf_divide_up(n, columns);
            int64_t cost =
                wf_divide_up(blocks, t.threads) * (rows * columns + PACK_COST * (rows + columns));
            if (cost < best) {
                best = cost;
                t.rows = rows;
                t.columns = columns;
            }
        }
    t.blocks_m = wf_divide_up(m, t.rows);
    t.blocks_n = wf_divide_up(n, t.columns);
    t.bytes_a = t.rows / SIDE * steps * TILE;
    t.bytes_b = t.columns / SIDE * steps * TILE;
    t.stride = t.columns + SIDE; /* not a power of two: rows would share cache sets */
    return t;
}

static int64_t scratch_bytes(const tiling *t)
{
    return t->bytes_a + t->bytes_b + t->rows * t->stride * (int64_t)sizeof(float);
}

/* ---- Packing ---- */

/* Reads 32 elements of each row from k on; only nk exist. Zeros for missing rows and elements. */
static inline void read_rows(const char *const *row, int rows, int64_t k, int64_t nk, vf r[SIDE])
{
    __mmask32 mask = nk >= STEP ? ~(__mmask32)0 : ((__mmask32)1 << nk) - 1;
    for (int i = 0; i < SIDE; i++)
        r[i] = i < rows ? vi_as_vf(_mm512_maskz_loadu_epi16(mask, row[i] + 2 * k)) : vf_zero();
}

/* Widens 16-bit elements to the low halves of 32-bit lanes; missing ones are 0. */
static inline vi read_lanes(const char *row, int64_t at, int lanes)
{
    return _mm512_cvtepu16_epi32(
        _mm256_maskz_loadu_epi16((__mmask16)((1u << lanes) - 1), row + 2 * at));
}

/* Reads pairs that are adjacent in k from nk rows, `lanes` lanes of them. */
static inline void read_pairs(const char *const *row, int64_t nk, int64_t at, int lanes, vf r[SIDE])
{
    for (int i = 0; i < SIDE; i++) {
        vi low = 2 * i < nk ? read_lanes(row[2 * i], at, lanes) : vi_zero();
        vi high = 2 * i + 1 < nk ? read_lanes(row[2 * i + 1], at, lanes) : vi_zero();
        r[i] = vi_as_vf(vi_or(low, vi_shl(high, 16)));
    }
}

/* `transposed`: transposes 16 x 16 words of 32 bits, that is pairs of bf16. */
static inline void store_tile(vf r[SIDE], bool transposed, char *to)
{
    if (transposed)
        vf_transpose(r);
    for (int i = 0; i < SIDE; i++)
        vf_store((float *)(void *)(to + i * LINE), r[i]);
}

/* Packs all strips of a part. pairs: in b's layout, where a lane holds two values adjacent in k. */
static void pack(const wf_gemm_part *p, bool pairs, char *to)
{
    int64_t strips = wf_divide_up(p->n, SIDE), steps = wf_divide_up(p->nk, STEP);
    const char *row[STEP];
    vf r[SIDE];
    /* Rows of the view run along k: a tile is 16 rows by 32 k, as stored. b needs it transposed. */
    for (int64_t s = 0; s < strips && !p->of->k_is_row; s++) {
        int rows = (int)wf_min64(p->n - s * SIDE, SIDE);
        for (int i = 0; i < rows; i++)
            row[i] = wf_gemm_row(p, p->first + s * SIDE + i, p->k0);
        for (int64_t k = 0; k < steps; k++) {
            read_rows(row, rows, k * STEP, p->nk - k * STEP, r);
            store_tile(r, pairs, to + (s * steps + k) * TILE);
        }
    }
    /* Rows of the view are one k each: pairs of rows give b's layout; a needs it transposed. */
    for (int64_t k = 0; k < steps && p->of->k_is_row; k++) {
        int64_t nk = wf_min64(p->nk - k * STEP, STEP);
        for (int64_t i = 0; i < nk; i++)
            row[i] = wf_gemm_row(p, p->k0 + k * STEP + i, p->first);
        for (int64_t s = 0; s < strips; s++) {
            read_pairs(row, nk, s * SIDE, (int)wf_min64(p->n - s * SIDE, SIDE), r);
            store_tile(r, !pairs, to + (s * steps + k) * TILE);
        }
    }
}

/* ---- Tiles ---- */

/* Eight tiles of 16 rows by 64 bytes. */
static const wf_tile_config all_whole = {
    .palette = 1,
    .bytes = {LINE, LINE, LINE, LINE, LINE, LINE, LINE, LINE},
    .rows = {SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE, SIDE},
};

/* Computes or adds to c, rows `stride` bytes apart, from one or two strips of each operand, `next`
 * bytes apart. */
WF_INLINE void multiply(bool two_a, bool two_b, int64_t steps, const char *a, const char *b,
                        char *c, int64_t stride, bool add)
{
    int64_t next = steps * TILE;
    char *below = c + SIDE * stride;
    wf_tile_zero(0); /* tiles that are not loaded below must not hold old sums */
    wf_tile_zero(1);
    wf_tile_zero(2);
    wf_tile_zero(3);
    if (add) {
        wf_tile_load(0, c, stride);
        if (two_b)
            wf_tile_load(1, c + LINE, stride);
        if (two_a)
            wf_tile_load(2, below, stride);
        if (two_a && two_b)
            wf_tile_load(3, below + LINE, stride);
    }
    for (int64_t k = 0; k < steps; k++, a += TILE, b += TILE) {
        wf_tile_load(4, a, LINE);
        wf_tile_load(6, b, LINE);
        wf_tile_multiply_bf16(0, 4, 6);
        if (two_b) {
            wf_tile_load(7, b + next, LINE);
            wf_tile_multiply_bf16(1, 4, 7);
        }
        if (two_a) {
            wf_tile_load(5, a + next, LINE);
            wf_tile_multiply_bf16(2, 5, 6);
        }
        if (two_a && two_b)
            wf_tile_multiply_bf16(3, 5, 7);
    }
    wf_tile_store(0, c, stride);
    if (two_b)
        wf_tile_store(1, c + LINE, stride);
    if (two_a)
        wf_tile_store(2, below, stride);
    if (two_a && two_b)
        wf_tile_store(3, below + LINE, stride);
}

typedef void multiply_fn(int64_t steps, const char *a, const char *b, char *c, int64_t stride,
                         bool add);
#define MULTIPLY(two_a, two_b)                                                                \
    static void multiply_##two_a##two_b(int64_t steps, const char *a, const char *b, char *c, \
                                        int64_t stride, bool add)                             \
    {                                                                                         \
        multiply(two_a, two_b, steps, a, b, c, stride, add);                                  \
    }
MULTIPLY(0, 0)
MULTIPLY(0, 1)
MULTIPLY(1, 0)
MULTIPLY(1, 1)
/* Indexed by whether there are two strips of a, and of b. */
static multiply_fn *const multiply_table[2][2] = {{multiply_00, multiply_01},
                                                  {multiply_10, multiply_11}};

/* ---- Blocks ---- */

/* Computes block i. */
static void one_block(const tiling *t, int64_t i, char *a)
{
    const wf_gemm *g = t->g;
    int64_t index = i / (t->blocks_m * t->blocks_n);
    int64_t i0 = i / t->blocks_n % t->blocks_m * t->rows, j0 = i % t->blocks_n * t->columns;
    int64_t m = wf_min64(g->m - i0, t->rows), n = wf_min64(g->n - j0, t->columns);
    int64_t strips_m = wf_divide_up(m, SIDE), strips_n = wf_divide_up(n, SIDE);
    char *b = a + t->bytes_a, *c = b + t->bytes_b;
    int64_t stride = t->stride * (int64_t)sizeof(float);
    for (int64_t k0 = 0; k0 < g->k; k0 += KC) {
        int64_t nk = wf_min64(g->k - k0, KC), steps = wf_divide_up(nk, STEP);
        pack(&(wf_gemm_part){&g->a, index, i0, m, k0, nk}, false, a);
        pack(&(wf_gemm_part){&g->b, index, j0, n, k0, nk}, true, b);
        /* Pairs of strips: b's two strips stay in L1 while all strips of a pass. */
        for (int64_t y = 0; y < strips_n; y += 2)
            for (int64_t x = 0; x < strips_m; x += 2)
                multiply_table[x + 1 < strips_m][y + 1 < strips_n](
                    steps, a + x * steps * TILE, b + y * steps * TILE,
                    c + x * SIDE * stride + y * LINE, stride, k0 > 0);
    }
    for (int64_t r = 0; r < m; r++) /* the block's sums are complete and still in L2 */
        for (int64_t j = 0; j < n; j += WF_GEMM_CHUNK)
            wf_gemm_finish(g, index, i0 + r, j0 + j, wf_min64(n - j, WF_GEMM_CHUNK),
                           (float *)(void *)(c + r * stride) + j);
}

static void some_blocks(void *arg, int64_t begin, int64_t end, int thread)
{
    const tiling *t = arg;
    wf_tile_configure(&all_whole); /* tile configuration belongs to the thread */
    for (int64_t i = begin; i < end; i++)
        one_block(t, i, (char *)t->g->scratch + thread * scratch_bytes(t));
    wf_tile_release(); /* unused tile state would slow down context switches */
}

static void run(const wf_gemm *g)
{
    bool wanted = g->pre || (g->y && g->y->data);
    if (!wanted || g->batch == 0)
        return;
    wf_assert(wf_gemm_product(g)->dense && !g->add);
    tiling t = cut(g->batch, g->m, g->n, g->k, g->threads);
    t.g = g;
    /* One block per item: blocks are large. */
    wf_parallel_for(t.threads, g->batch * t.blocks_m * t.blocks_n, 1, some_blocks, &t);
}

/* ---- Ops ---- */

/* Smaller GEMMs waste most of a tile. */
static bool pays(wf_gemm g)
{
    return g.m >= LEAST && g.n >= LEAST && g.k >= LEAST;
}

static size_t scratch(wf_gemm g, int threads)
{
    tiling t = cut(g.batch, g.m, g.n, g.k, threads);
    return (size_t)t.threads * (size_t)scratch_bytes(&t);
}

static bool accepts_matmul(const wf_device *device, const wf_node *n)
{
    (void)device;
    return pays(wf_matmul_sizes(n));
}

static bool accepts_linear(const wf_device *device, const wf_node *n)
{
    (void)device;
    return pays(wf_linear_sizes(n));
}

static size_t matmul_workspace(const wf_device *device, const wf_node *n)
{
    return scratch(wf_matmul_sizes(n), wf_device_threads(device));
}

static size_t linear_workspace(const wf_device *device, const wf_node *n)
{
    return scratch(wf_linear_sizes(n), wf_device_threads(device));
}

static wf_status launch_matmul(const wf_launch *l)
{
    wf_gemm g = wf_matmul_product(l);
    run(&g);
    return WF_OK;
}

static wf_status launch_linear(const wf_launch *l)
{
    wf_gemm g = wf_linear_product(l);
    if (l->node->op == WF_OP_linear_act) {
        const wf_attr_linear_act *attr = l->attr;
        g.act = WF_SIMD(wf_simd_activation)(attr->act);
    }
    run(&g);
    return WF_OK;
}

static bool accepts_matmul_act_grad(const wf_device *device, const wf_node *n)
{
    (void)device;
    return pays(wf_matmul_act_grad_sizes(n));
}

/* The GEMM and the sum run in sequence and share the workspace. */
static size_t matmul_act_grad_workspace(const wf_device *device, const wf_node *n)
{
    wf_gemm g = wf_matmul_act_grad_sizes(n);
    size_t product = scratch(g, wf_device_threads(device)),
           sum = WF_SIMD(wf_simd_sum_rows_workspace)(g.m, g.n);
    return product > sum ? product : sum;
}

static wf_status launch_matmul_act_grad(const wf_launch *l)
{
    wf_gemm g = wf_matmul_act_grad_product(l);
    g.slope = WF_SIMD(wf_simd_slope)(WF_ACT_GELU);
    run(&g);
    WF_SIMD(wf_simd_sum_rows)(l, &l->out[0], &l->out[1]);
    return WF_OK;
}

static bool accepts_linear_grad_weight(const wf_device *device, const wf_node *n)
{
    (void)device;
    return pays(wf_linear_grad_weight_sizes(n));
}

/* The GEMM and the sum share the workspace here, too. */
static size_t linear_grad_weight_workspace(const wf_device *device, const wf_node *n)
{
    wf_gemm g = wf_linear_grad_weight_sizes(n);
    size_t product = scratch(g, wf_device_threads(device)),
           sum = WF_SIMD(wf_simd_sum_rows_workspace)(g.k, g.m);
    return product > sum ? product : sum;
}

static wf_status launch_linear_grad_weight(const wf_launch *l)
{
    wf_gemm g = wf_linear_grad_weight_product(l);
    run(&g);
    WF_SIMD(wf_simd_sum_rows)(l, &l->in[0], &l->out[1]);
    return WF_OK;
}

/* clang-format off */
#define ROW(op_, kind, ...)                                                                          \
    {.op = WF_OP_##op_, .name = "amx", .types = WF_TYPE_BIT(WF_BF16), .weights = WF_TYPE_BIT(WF_BF16),             \
     .strided = true, .accepts = accepts_##kind, .workspace = kind##_workspace,                      \
     .launch = launch_##kind, __VA_ARGS__}
const wf_kernel WF_AMX(wf_amx_gemm)[] = {
    ROW(matmul, matmul),
    ROW(linear, linear),
    ROW(linear_act, linear),
    ROW(matmul_act_grad, matmul_act_grad, .from_first = 1u << 1),
    ROW(linear_grad_weight, linear_grad_weight),
    {0},
};
