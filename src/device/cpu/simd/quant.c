/* SPDX-License-Identifier: MIT */
/*
 * quant.c - matmuls by quantized weights, packed (quant.h) or in the file's layout
 * (quant_direct.c): linear, linear_act, and embed of a packed table.
 *
 * Small batches (decode) multiply integers as they come out of a panel, which is read once. Large
 * batches (prefill) first unpack DEPTH blocks of two panels to i16; a register tile of rows and
 * panels then only multiplies. Both paths add the same values in the same order.
 *
 * Activations are rounded to integers per block of 32 first (quant_rows.c), so a dot product of a
 * block is exact in i32 and scaled once: c += sum * (scale of w) * (scale of x). Blocks are added
 * in ascending k in f32, so a row has the same bits alone and in a batch, for any number of
 * threads.
 */
#include "device/cpu/simd/quant.h"

#include "base/thread.h"
#include "device/cpu/index.h"
#include "device/cpu/row.h"
#include "device/cpu/simd/gemm.h"
#include "device/cpu/simd/quant_block.h"
#include "graph/quant/block.h"

enum {
    PANELS = 4, /* panels that a batch of one or two rows reads at the same time */
    ROWS = 4,   /* rows of x that a small-batch kernel multiplies at once */
    /* Sums that fit the registers of each vector length. */
    TILE_ROWS = WF_VL == 16 ? 6 : (WF_VL == 8 ? 4 : 3),
    TILE_VECTORS = 2,                /* panels per tile */
    DEPTH = WF_VL == 8 ? 16 : 8,     /* blocks of 32 that are unpacked at a time */
    STEPS = WF_VREGS == 16 ? 16 : 4, /* unrolled steps of a tile */
    CHUNK = 48 * TILE_ROWS,          /* rows of x that share unpacked blocks */
    FETCH = 8 * 1024,                /* bytes of a panel from a prefetch to its use */
    GRAIN = 64 * 1024                /* multiplications that justify waking a thread */
};

/* ---- Small batches ---- */

/* Types whose panels are multiplied one by one. Words of q6_K serve two parts: long vectors, which
 * have more registers, keep them. */
#define ALONE(type) (WF_VREGS > 16 && wf_quant_layouts[type].bits == 6)

/* The part of a small batch that is multiplied at once: rows of x by panels. Extracted words then
 * serve several rows and broadcast activations several panels, and the sums, which fit the registers
 * of AVX2, do not wait for each other. */
typedef struct {
    wf_type type;
    int rows, panels;     /* panels x rows is at most PANELS */
    wf_quant_panel first; /* the others are `next` bytes apart */
    int64_t next;
    const int32_t *numbers[ROWS]; /* activations of the current block */
    const int32_t *off[ROWS];
} batch;

WF_INLINE wf_quant_panel panel_of(const batch *a, int j)
{
    return (wf_quant_panel){a->first.scales + j * a->next, a->first.words + j * a->next,
                            a->first.scale_step, a->first.word_step};
}

/* Hides where a pointer comes from. Otherwise the compiler keeps one pointer per offset and spills
 * registers. */
WF_INLINE const int32_t *hide(const int32_t *p)
{
    __asm__("" : "+r"(p));
    return p;
}

/* Makes the compiler read memory again. Otherwise it keeps words that several parts share, and
 * spills registers. */
WF_INLINE void reload(void)
{
    __asm__ volatile("" : : : "memory");
}

/* Adds to sum[j][r] the dot product of words [u, u + n) of a part of panel j with both digits of row
 * r. Without WF_VQ_WIDE vq_dot sums two products per word in i16: as many words are safe as make 2 x
 * words x (largest weight) x 128 less than 2^15. */
WF_INLINE void dot_fours(const batch *a, int part, int u, int n, vi sum[][ROWS])
{
    const int safe = INT16_MAX / (256 * ((1 << wf_quant_layouts[a->type].bits) - 1));
    const int most = WF_VQ_WIDE || safe > n ? n : safe;
#pragma GCC unroll 8
    for (int i = u; i < u + n; i += most) {
        vq high[PANELS][ROWS], low[PANELS][ROWS];
        for (int j = 0; j < a->panels; j++)
            for (int r = 0; r < a->rows; r++)
                high[j][r] = low[j][r] = vq_zero();
#pragma GCC unroll 8
        for (int k = i; k < i + most; k++) {
            reload();
            for (int j = 0; j < a->panels; j++) {
                const uint8_t *words = panel_of(a, j).words;
                vi w = vi_keep(wf_quant_bytes_of(a->type, !WF_VQ_SIGNED, words, part, k));
                for (int r = 0; r < a->rows; r++) {
                    high[j][r] = vq_dot(high[j][r], w, a->numbers[r] + k);
                    low[j][r] = vq_dot(low[j][r], w, a->numbers[r] + WF_QUANT_FOURS + k);
                }
            }
        }
        for (int j = 0; j < a->panels; j++)
            for (int r = 0; r < a->rows; r++)
                sum[j][r] = vi_add(sum[j][r], vi_add(vq_sum(high[j][r], 8), vq_sum(low[j][r], 0)));
    }
}

/* Dot products of a part of each panel with each row. `off` subtracts the weights' offset: it is
 * -offset times the sums of 16 activations. The sums of groups are multiplied by their scales. */
WF_INLINE void dot_digits(const batch *a, int part, vi sum[][ROWS])
{
    const bool offset = wf_quant_digits_offset(a->type) != 0;
    const int groups = wf_quant_grouped(a->type) ? 2 : 1;
#pragma GCC unroll 2
    for (int g = 0; g < groups; g++) {
        vi group[PANELS][ROWS];
        for (int j = 0; j < a->panels; j++)
            for (int r = 0; r < a->rows; r++) {
                const int32_t *off = a->off[r];
                group[j][r] = !offset      ? vi_zero()
                              : groups > 1 ? vi_set(off[g])
                                           : vi_add(vi_set(off[0]), vi_set(off[1]));
            }
        dot_fours(a, part, g * WF_QUANT_FOURS / groups, WF_QUANT_FOURS / groups, group);
        for (int j = 0; j < a->panels; j++)
            for (int r = 0; r < a->rows; r++) {
                if (groups > 1)
                    group[j][r] =
                        vi_mul(group[j][r],
                               wf_quant_group_scale(a->type, panel_of(a, j).scales, 2 * part + g));
                sum[j][r] = g ? vi_add(sum[j][r], group[j][r]) : group[j][r];
            }
    }
}

/* The same for pairs of i16. Levels have flipped sign bits: to extend zeros takes fewer
 * instructions than to extend signs. */
WF_INLINE void dot_words(const batch *a, int part, vi sum[][ROWS])
{
    const bool flip = wf_quant_layouts[a->type].levels;
    for (int j = 0; j < a->panels; j++)
        for (int r = 0; r < a->rows; r++)
            sum[j][r] = flip ? vi_add(vi_set(a->off[r][0]), vi_set(a->off[r][1])) : vi_zero();
#pragma GCC unroll 8
    for (int u = 0; u < WF_QUANT_FOURS; u++) {
        const int at = u % 4 * 4 + u / 4 * 2; /* wf_quant_four */
        for (int j = 0; j < a->panels; j++) {
            const uint8_t *words = panel_of(a, j).words;
            vi w = vi_keep(wf_quant_bytes_of(a->type, flip, words, part, u));
            vi even = flip ? vi_and(w, vi_set(0x00ff00ff)) : vp_sra(vp_shl(w, 8), 8);
            vi odd = flip ? vp_shr(w, 8) : vp_sra(w, 8);
            for (int r = 0; r < a->rows; r++) {
                sum[j][r] = vi_keep(vp_dot(sum[j][r], even, vi_set(a->numbers[r][at])));
                sum[j][r] = vi_keep(vp_dot(sum[j][r], odd, vi_set(a->numbers[r][at + 1])));
            }
        }
    }
}

/* Adds to c[j][r] the product of a part of panel j with block b of row r. */
WF_INLINE void add_part(batch a, int part, const wf_quant_rows *x, int64_t b, vf c[][ROWS])
{
    const int64_t blocks = x->k / WF_QUANT_BLOCK;
    const int mins = wf_quant_layouts[a.type].mins;
    vi sum[PANELS][ROWS];
    for (int r = 0; r < a.rows; r++) {
        a.numbers[r] = hide(x->pair + (r * blocks + b) * WF_QUANT_PAIRS);
        a.off[r] = x->off + 2 * (r * blocks + b);
    }
    if (wf_quant_digits(a.type, true))
        dot_digits(&a, part, sum);
    else
        dot_words(&a, part, sum);
    for (int j = 0; j < a.panels; j++) {
        const uint8_t *scales = panel_of(&a, j).scales;
        vf scale = wf_quant_scale_of(a.type, scales, part), min[2];
        for (int i = 0; i < mins; i++)
            min[i] = wf_quant_min_of(a.type, scales, part, i);
        for (int r = 0; r < a.rows; r++) {
            const int64_t at = r * blocks + b;
            c[j][r] = vf_fma(vi_to_vf(sum[j][r]), vf_mul(scale, vf_set(x->scale[at])), c[j][r]);
            for (int i = 0; i < mins; i++)
                c[j][r] = vf_fma(min[i], vf_set(x->total[at * mins + i]), c[j][r]);
        }
    }
}

/* Prefetches this part's share of a later block. The first cache has too few miss buffers to hide the
 * latency of memory, so bytes that are FETCH away go to the second one. Parts of a large block are not
 * read sequentially, so hardware does not bring them to the first cache: those of the next block do. Short
 * vectors have twice the instructions per byte, and one prefetch per line is all that pays. */
WF_INLINE void fetch_ahead(wf_type type, wf_quant_panel p, int part)
{
    const wf_quant_layout *y = &wf_quant_layouts[type];
    const int words = y->words * 4 * WF_VL, scales = (2 * y->halves + y->scales) * WF_VL;
    const int parts = wf_quant_parts(type), share = words / parts;
    const bool far = parts == 1 || WF_VL == 16;
    const int blocks = far ? FETCH / words : 1;
    for (int i = 0; i < share; i += 64) {
        if (far)
            v_prefetch_far(p.words + blocks * words + part * share + i);
        if (parts > 1)
            v_prefetch(p.words + words + part * share + i);
    }
    if (64 * part < scales)
        v_prefetch_far(p.scales + blocks * scales + 64 * part);
}

/* out [panels][rows][WF_VL] = rows of x by panels that are `next` bytes apart. Several panels at
 * once are several memory streams, which full bandwidth requires. */
WF_INLINE void few_rows(wf_type type, int rows, int panels, wf_quant_panel p, int64_t next,
                        const wf_quant_rows *x, float *out)
{
    const int parts = wf_quant_parts(type);
    const int some = panels == 1 || ALONE(type) ? 1 : PANELS / rows;
    vf c[PANELS][ROWS];
    for (int j = 0; j < panels; j++)
        for (int r = 0; r < rows; r++)
            c[j][r] = vf_zero();
    for (int64_t b = 0; b < x->k / WF_QUANT_BLOCK; b += parts) {
#pragma GCC unroll 8
        for (int part = 0; part < parts; part++)
            for (int j = 0; j < panels; j += some) {
                batch a = {type, rows, some, p, next, {0}, {0}};
                a.first = panel_of(&a, j);
                for (int i = 0; i < some; i++)
                    fetch_ahead(type, panel_of(&a, i), part);
                add_part(a, part, x, b + part, c + j);
            }
        p = wf_quant_panel_next(p, 1);
    }
    for (int j = 0; j < panels; j++)
        for (int r = 0; r < rows; r++)
            vf_store(out + (j * rows + r) * WF_VL, c[j][r]);
}

/* next: bytes from one panel to the next. */
typedef void few_fn(wf_quant_panel p, int64_t next, const wf_quant_rows *x, float *out);

#define FEW_ROWS(type, rows, panels)                                               \
    static void few_##type##_##rows##_##panels(wf_quant_panel p, int64_t next,     \
                                               const wf_quant_rows *x, float *out) \
    {                                                                              \
        few_rows(WF_##type, rows, panels, p, next, x, out);                        \
    }
#define FEW_OF_TYPE(type) \
    FEW_ROWS(type, 1, 1)  \
    FEW_ROWS(type, 2, 1)  \
    FEW_ROWS(type, 3, 1)  \
    FEW_ROWS(type, 4, 1)  \
    FEW_ROWS(type, 1, 4)  \
    FEW_ROWS(type, 2, 4)
WF_QUANT_TYPES(FEW_OF_TYPE)
#define FEW_ENTRY(type)                                                                      \
    [WF_##type] = {{few_##type##_1_1, few_##type##_2_1, few_##type##_3_1, few_##type##_4_1}, \
                   {few_##type##_1_4, few_##type##_2_4}},
/* [type][PANELS panels at once][rows - 1] */
static few_fn *const few_table[][2][ROWS] = {WF_QUANT_TYPES(FEW_ENTRY)};

/* ---- Large batches ---- */

/* DEPTH blocks of TILE_VECTORS panels, unpacked: i16 pairs without offset, times the scales of
 * groups, and the scale and minima of each block. */
typedef struct {
    int32_t pair[DEPTH * WF_QUANT_PAIRS][TILE_VECTORS][WF_VL];
    float scale[DEPTH][TILE_VECTORS][WF_VL];
    float min[DEPTH][2][TILE_VECTORS][WF_VL];
} apart;

/* Unpacks one part of the panel of vector v to block `at`. */
WF_INLINE void take_part(wf_type type, wf_quant_panel p, int part, int v, int at, apart *to)
{
    const wf_quant_layout *y = &wf_quant_layouts[type];
    vf_store(to->scale[at][v], wf_quant_scale_of(type, p.scales, part));
    for (int i = 0; i < y->mins; i++)
        vf_store(to->min[at][i][v], wf_quant_min_of(type, p.scales, part, i));
#pragma GCC unroll 8
    for (int u = 0; u < WF_QUANT_FOURS; u++) {
        const vi bytes = wf_quant_bytes_of(type, false, p.words, part, u);
        /* The first and third byte, and the second and fourth (wf_quant_four). */
        vi pair[2] = {vi_and(bytes, vi_set(0x00ff00ff)), vp_shr(bytes, 8)};
        if (wf_quant_signed(type)) {
            pair[0] = vp_sra(vp_shl(bytes, 8), 8);
            pair[1] = vp_sra(bytes, 8);
        }
        for (int j = 0; j < 2; j++) {
            if (y->offset)
                pair[j] = vp_sub(pair[j], vi_set(y->offset * 0x00010001));
            if (wf_quant_grouped(type))
                pair[j] = vp_mul(pair[j], wf_quant_group_pair(type, p.scales, 2 * part + u / 4));
            vi_store(to->pair[at * WF_QUANT_PAIRS + u % 4 * 4 + u / 4 * 2 + j][v], pair[j]);
        }
    }
}

WF_INLINE void take_apart(wf_type type, wf_quant_panel p, int64_t block, int blocks, int v,
                          apart *to)
{
    const int parts = wf_quant_parts(type);
    p = wf_quant_panel_next(p, block / parts);
    for (int at = 0; at < blocks; at += parts, p = wf_quant_panel_next(p, 1)) {
#pragma GCC unroll 8
        for (int part = 0; part < parts; part++)
            take_part(type, p, part, v, at + part, to);
    }
}

typedef void apart_fn(wf_quant_panel p, int64_t block, int blocks, int v, apart *to);
#define TAKE_APART(type)                                                                    \
    static void apart_##type(wf_quant_panel p, int64_t block, int blocks, int v, apart *to) \
    {                                                                                       \
        take_apart(WF_##type, p, block, blocks, v, to);                                     \
    }
WF_QUANT_TYPES(TAKE_APART)
#define APART_ENTRY(type) [WF_##type] = apart_##type,
static apart_fn *const apart_table[] = {WF_QUANT_TYPES(APART_ENTRY)};

/* c [TILE_ROWS][TILE_VECTORS][WF_VL] += a group of rows of x, blocks [block, block + blocks), by
 * the unpacked weights. With few registers the integer sums of the block take them; the f32 sums
 * are spilled and used once per 16 steps. */
WF_INLINE void tile(int mins, const apart *w, const wf_quant_rows *x, int64_t block, int blocks,
                    float *c)
{
    const int32_t *a = x->pair + block * WF_QUANT_PAIRS * TILE_ROWS;
    const float *scale = x->scale + block * TILE_ROWS, *total = x->total + block * mins * TILE_ROWS;
    vf sum[TILE_ROWS][TILE_VECTORS];
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < TILE_VECTORS; v++)
            sum[r][v] = vf_load(c + (r * TILE_VECTORS + v) * WF_VL);
    const int32_t *next = a + x->k / 2 * TILE_ROWS; /* the group after this one */
    for (int b = 0; b < blocks; b++, scale += TILE_ROWS, total += mins * TILE_ROWS) {
        for (int i = 0; i < WF_QUANT_PAIRS * TILE_ROWS; i += 16, next += 16)
            __builtin_prefetch(next);
        vi dot[TILE_ROWS][TILE_VECTORS];
        for (int r = 0; r < TILE_ROWS; r++)
            for (int v = 0; v < TILE_VECTORS; v++)
                dot[r][v] = vi_zero();
#pragma GCC unroll STEPS
        for (int i = 0; i < WF_QUANT_PAIRS; i++, a += TILE_ROWS) {
            vi by[TILE_VECTORS];
            for (int v = 0; v < TILE_VECTORS; v++)
                by[v] = vi_load(w->pair[b * WF_QUANT_PAIRS + i][v]);
            for (int r = 0; r < TILE_ROWS; r++) {
                vi one = vi_set(a[r]);
                for (int v = 0; v < TILE_VECTORS; v++)
                    dot[r][v] = vi_keep(vp_dot(dot[r][v], by[v], one));
            }
        }
        for (int r = 0; r < TILE_ROWS; r++)
            for (int v = 0; v < TILE_VECTORS; v++) {
                vf by = vf_mul(vf_load(w->scale[b][v]), vf_set(scale[r]));
                sum[r][v] = vf_fma(vi_to_vf(dot[r][v]), by, sum[r][v]);
                for (int i = 0; i < mins; i++)
                    sum[r][v] = vf_fma(vf_load(w->min[b][i][v]), vf_set(total[i * TILE_ROWS + r]),
                                       sum[r][v]);
            }
    }
    for (int r = 0; r < TILE_ROWS; r++)
        for (int v = 0; v < TILE_VECTORS; v++)
            vf_store(c + (r * TILE_VECTORS + v) * WF_VL, sum[r][v]);
}

typedef void tile_fn(const apart *w, const wf_quant_rows *x, int64_t block, int blocks, float *c);
#define TILE(mins)                                                                             \
    static void tile_##mins(const apart *w, const wf_quant_rows *x, int64_t block, int blocks, \
                            float *c)                                                          \
    {                                                                                          \
        tile(mins, w, x, block, blocks, c);                                                    \
    }
TILE(0)
TILE(1)
TILE(2)
static tile_fn *const tile_table[] = {tile_0, tile_1, tile_2}; /* [minima] */

/* ---- linear and linear_act ---- */

typedef struct {
    const wf_launch *l;
    const wf_view *w;
    wf_quant_result to;
    wf_quant_rows x;
    int64_t m, panels;
    int64_t chunk, chunks; /* rows of x per item; items along rows */
    char *scratch;         /* [threads] of struct scratch */
} product;

/* Memory of a thread. blocks: panel of a weight in the file's layout, packed on the way. */
typedef struct {
    apart w;
    uint8_t blocks[DEPTH * (2 + WF_QUANT_BLOCK) * WF_VL + 64];
    float c[CHUNK * TILE_VECTORS * WF_VL];
} scratch;

/* Multiplies by `count` vectors of rows of w in the file's layout. Lane k of vector i is row
 * first + i + k gap, with the lanes spread over the whole weight: each lane then reads its rows
 * sequentially, a stream that hardware prefetches. Lane k yields `count` neighbouring columns. */
static void some_columns(const product *o, int64_t first, int64_t gap, int count)
{
    float c[ROWS][WF_VL][WF_VL] = {0}, one[ROWS * WF_VL];
    for (int64_t r = 0; r < o->m; r += ROWS) {
        int rows = (int)(o->m - r < ROWS ? o->m - r : ROWS);
        wf_quant_rows x = wf_quant_rows_from(&o->x, r);
        for (int i = 0; i < count; i++) {
            wf_quant_direct_few(o->w, first + i, gap, &x, rows, one);
            for (int k = 0; k < rows * WF_VL; k++)
                c[k / WF_VL][k % WF_VL][i] = one[k];
        }
        for (int64_t k = 0; k < rows * WF_VL; k++)
            wf_quant_finish_columns(&o->to, r + k / WF_VL, first + k % WF_VL * gap, count,
                                    c[k / WF_VL][k % WF_VL]);
    }
}

/* Multiplies by the last rows of w, from `first` on: fewer than WF_VL. */
static void last_columns(const product *o, int64_t first)
{
    float c[ROWS * WF_VL];
    for (int64_t r = 0; r < o->m; r += ROWS) {
        int rows = (int)(o->m - r < ROWS ? o->m - r : ROWS);
        wf_quant_rows x = wf_quant_rows_from(&o->x, r);
        wf_quant_direct_few(o->w, first, 1, &x, rows, c);
        for (int k = 0; k < rows; k++)
            wf_quant_finish(&o->to, r + k, first / WF_VL, 1, c + k * WF_VL);
    }
}

static void some_direct(void *arg, int64_t begin, int64_t end, int thread)
{
    const product *o = arg;
    (void)thread;
    const int64_t gap = o->w->dim[0] / WF_VL;
    for (int64_t i = begin; i < end && i < gap; i += WF_VL) {
        int64_t left = (end < gap ? end : gap) - i;
        some_columns(o, i, gap, (int)(left < WF_VL ? left : WF_VL));
    }
    if (end > gap)
        last_columns(o, gap * WF_VL);
}

/* Distance in panels between the PANELS that are read at once: as far apart as possible, so that
 * each is a sequential stream. 0: one panel at a time. */
static int64_t gap_of(const product *o)
{
    return o->m <= 2 ? o->panels / PANELS : 0;
}

/* Items [0, gap) are PANELS panels, `gap` apart; the items after them are one of the remaining
 * panels. */
static void some_panels(void *arg, int64_t begin, int64_t end, int thread)
{
    const product *o = arg;
    const int64_t next = wf_quant_panel_bytes(wf_quant_layout_of(o->w->type), o->x.k);
    const int64_t gap = gap_of(o);
    float c[PANELS * ROWS * WF_VL];
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const bool several = i < gap;
        const int panels = several ? PANELS : 1;
        const int64_t first = several ? i : i + (PANELS - 1) * gap;
        for (int64_t r = 0; r < o->m; r += ROWS) {
            int rows = (int)(o->m - r < ROWS ? o->m - r : ROWS);
            wf_quant_rows x = wf_quant_rows_from(&o->x, r);
            few_table[o->w->type][several][rows - 1](wf_quant_panel_at(o->w, first), gap * next, &x,
                                                     c);
            for (int k = 0; k < panels * rows; k++)
                wf_quant_finish(&o->to, r + k % rows, first + k / rows * gap, 1, c + k * WF_VL);
        }
    }
}

/* Prefetches the part of result row r that panels from p on write. Rows are far apart, so each
 * store would miss the cache. */
static void fetch_result(const wf_quant_result *o, int64_t r, int64_t p)
{
    const wf_view *to = o->pre ? o->pre : o->y;
    const char *at = wf_view_at(to, wf_view_row(to, r) + p * WF_VL);
    int bytes = TILE_VECTORS * WF_VL * (to->type == WF_F32 ? 4 : 2);
    for (int i = 0; i < bytes; i += 64)
        v_prefetch(at + i);
}

/* Item i: TILE_VECTORS panels by a chunk of rows of x. */
static void one_item(const product *o, int64_t i, scratch *s)
{
    const int64_t blocks = o->x.k / WF_QUANT_BLOCK;
    int64_t p0 = i / o->chunks * TILE_VECTORS, r0 = i % o->chunks * o->chunk;
    int64_t rows = o->m - r0 < o->chunk ? o->m - r0 : o->chunk;
    tile_fn *const multiply = tile_table[wf_quant_layouts[o->w->type].mins];
    int64_t whole = (rows + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    memset(s->c, 0, (size_t)whole * TILE_VECTORS * WF_VL * sizeof *s->c);
    for (int64_t b = 0; b < blocks; b += DEPTH) {
        int n = (int)(blocks - b < DEPTH ? blocks - b : DEPTH);
        bool last = b + n == blocks;
        for (int v = 0; v < TILE_VECTORS; v++) {
            int64_t p = p0 + v < o->panels ? p0 + v : o->panels - 1; /* past the last: ignored */
            if (o->w->packed)
                apart_table[o->w->type](wf_quant_panel_at(o->w, p), b, n, v, &s->w);
            else
                apart_table[o->w->type](wf_quant_direct_part(o->w, p, b, n, s->blocks), 0, n, v,
                                        &s->w);
        }
        for (int64_t r = 0; r < rows; r += TILE_ROWS) {
            wf_quant_rows x = wf_quant_rows_from(&o->x, r0 + r);
            for (int64_t j = r; j < r + TILE_ROWS && j < rows && last; j++)
                fetch_result(&o->to, r0 + j, p0);
            multiply(&s->w, &x, b, n, s->c + r * TILE_VECTORS * WF_VL);
        }
    }
    for (int64_t r = 0; r < rows; r++)
        wf_quant_finish(&o->to, r0 + r, p0, TILE_VECTORS, s->c + r * TILE_VECTORS * WF_VL);
}

static void some_items(void *arg, int64_t begin, int64_t end, int thread)
{
    const product *o = arg;
    scratch *s = (void *)(o->scratch + (size_t)thread * sizeof(scratch));
    for (int64_t i = begin; i < end; i++)
        one_item(o, i, s);
}

static void fill_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const product *o = arg;
    (void)thread;
    wf_quant_rows_fill(&o->x, &o->l->in[0], begin, end);
}

static int group_of(int64_t m)
{
    return m > WF_QUANT_FEW ? TILE_ROWS : 1;
}

static size_t workspace(const wf_device *device, const wf_node *n)
{
    int64_t m = wf_dims_rows(&n->in[0]->shape), k = n->in[1]->shape.d[1];
    return wf_quant_rows_bytes(m, k, group_of(m), wf_quant_totals(n->in[1]->type)) +
           (m > WF_QUANT_FEW ? (size_t)wf_device_threads(device) * sizeof(scratch) : 0);
}

/* Chooses the rows of x per item: at most CHUNK, and few enough to give each thread four items. */
static void cut(product *o, int threads)
{
    int64_t tiles = (o->panels + TILE_VECTORS - 1) / TILE_VECTORS;
    o->chunks = (o->m + CHUNK - 1) / CHUNK;
    while (tiles * o->chunks < 4 * threads && o->m / (o->chunks + 1) >= 8 * TILE_ROWS)
        o->chunks++;
    o->chunk = (o->m / o->chunks / TILE_ROWS + 1) * TILE_ROWS;
    o->chunk = o->chunk < CHUNK ? o->chunk : CHUNK;
    o->chunks = (o->m + o->chunk - 1) / o->chunk;
}

static wf_status launch_linear(const wf_launch *l)
{
    const wf_view *w = &l->in[1];
    product o = {.l = l, .w = w, .to = wf_quant_result_of(l)};
    o.m = wf_view_rows(&l->in[0]);
    o.panels = (w->dim[0] + WF_VL - 1) / WF_VL;
    if (o.m == 0 || (!o.to.y && !o.to.pre))
        return WF_OK;
    o.x = wf_quant_rows_at(l->workspace, o.m, w->dim[1], group_of(o.m), wf_quant_totals(w->type));
    if (o.m <= WF_QUANT_FEW) {
        o.x.digits = wf_quant_digits(w->type, w->packed);
        o.x.offset = wf_quant_few_offset(w->type, w->packed);
    }
    wf_parallel_for(l->threads, (o.m + o.x.group - 1) / o.x.group,
                    GRAIN / (w->dim[1] * o.x.group) + 1, fill_rows, &o);
    if (o.m <= WF_QUANT_FEW) {
        int64_t cost = WF_VL * w->dim[1] * o.m, gap = w->packed ? gap_of(&o) : 0;
        wf_parallel_share(l->threads, o.panels - gap * (PANELS - 1),
                          GRAIN / cost / (gap > 0 ? PANELS : 1) + 1,
                          w->packed ? some_panels : some_direct, &o);
        return WF_OK;
    }
    o.scratch = (char *)l->workspace + wf_quant_rows_bytes(o.m, w->dim[1], o.x.group, o.x.totals);
    cut(&o, l->threads);
    int64_t items = (o.panels + TILE_VECTORS - 1) / TILE_VECTORS * o.chunks;
    wf_parallel_share(l->threads, items, 1, some_items, &o);
    return WF_OK;
}

/* ---- embed: rows of a packed table ---- */

static int64_t block_bytes(wf_type type, int64_t k)
{
    const wf_quant_layout *y = wf_quant_layout_of(type);
    return (k / y->block * y->bytes + 63) / 64 * 64;
}

static size_t embed_workspace(const wf_device *device, const wf_node *n)
{
    return (size_t)wf_device_threads(device) *
           (size_t)block_bytes(n->in[0]->type, n->in[0]->shape.d[1]);
}

static void some_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    const wf_launch *l = arg;
    const wf_view *table = &l->in[0];
    int64_t k = table->dim[1];
    char *blocks = (char *)l->workspace + thread * block_bytes(table->type, k);
    for (int64_t i = begin; i < end; i++) {
        wf_quant_unpack_row(table->data, table->type, k, wf_index_at(&l->in[1], i), blocks);
        wf_block_decode(table->type, blocks, 0, k, wf_view_at(&l->out[0], i * k));
    }
}

static wf_status launch_embed(const wf_launch *l)
{
    if (!l->out[0].data)
        return WF_OK;
    WF_TRY(wf_index_check(l));
    wf_parallel_for(l->threads, wf_view_count(&l->in[1]), GRAIN / l->in[0].dim[1] + 1, some_rows,
                    (void *)l);
    return WF_OK;
}

/* clang-format off */
const wf_kernel WF_SIMD(wf_cpu_quant)[] = {
    {.op = WF_OP_linear, .name = "packed", .types = WF_TYPES_FLOAT, .weights = WF_QUANT_PANEL_TYPES,
     .strided = true, .packed = 1u << 1, .workspace = workspace, .launch = launch_linear},
    {.op = WF_OP_linear_act, .name = "packed", .types = WF_TYPES_FLOAT, .weights = WF_QUANT_PANEL_TYPES,
     .strided = true, .packed = 1u << 1, .workspace = workspace, .launch = launch_linear},
    {.op = WF_OP_linear, .name = "direct", .types = WF_TYPES_FLOAT, .weights = WF_QUANT_DIRECT_TYPES,
     .strided = true, .accepts = wf_quant_direct_accepts, .workspace = workspace, .launch = launch_linear},
    {.op = WF_OP_linear_act, .name = "direct", .types = WF_TYPES_FLOAT, .weights = WF_QUANT_DIRECT_TYPES,
     .strided = true, .accepts = wf_quant_direct_accepts, .workspace = workspace, .launch = launch_linear},
    {.op = WF_OP_embed, .name = "packed", .types = WF_QUANT_PANEL_TYPES, .packed = 1u << 0,
     .workspace = embed_workspace, .launch = launch_embed},
    {0},
};
