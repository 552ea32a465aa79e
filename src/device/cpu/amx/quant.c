/* SPDX-License-Identifier: MIT */
/*
 * quant.c - matmuls of large batches by quantized weights, packed (simd/quant.h) or in the file's
 * layout, with AMX tiles of 8-bit integers. Results are bitwise identical to the AVX-512 kernel's.
 *
 * An activation is a 15-bit integer: 256 high + low, with digits high in [-64, 64] and low in
 * [-128, 127]. Tiles multiply a block of 32 by each digit. The two sums combine exactly, and are
 * scaled and added as in simd/quant.c. Integers of q6_K times the scale of their group have 14
 * bits, so they have two digits as well. One tile of activations, [high | low], by three tiles of
 * weights yields the three sums. The tiles of weights overlap in memory:
 *
 *     [ 0 | low ]            low by low
 *         [ low | high ]     high by low, and low by high
 *               [ high | 0 ] high by high
 *
 * While the tile unit multiplies one block, vector instructions scale and add the sums of the
 * previous block.
 */
#include "device/cpu/simd/quant.h"

#include "base/thread.h"
#include "device/cpu/amx/amx.h"
#include "device/cpu/amx/tile.h"
#include "device/cpu/simd/quant_block.h"

enum {
    ROWS = 16, /* rows of x per tile */
    LINE = 64, /* bytes per row of a tile */
    TILE = ROWS * LINE,
    PANELS = 4,        /* panels unpacked together; half as many for q6_K */
    DEPTH = 8,         /* blocks of 32 unpacked at a time */
    WORDS = 8 * LINE,  /* bytes of a block of 32 of a panel in a tile: 8 rows */
    CHUNK = 16 * ROWS, /* rows of x that share unpacked blocks */
    GRAIN = 64 * 1024  /* multiplications that justify waking a thread */
};
_Static_assert(WF_VL == ROWS, "a row of sums must be one vector");

/* ---- Activations ---- */

/* Rounded rows of x in groups of ROWS. The last group is padded with rows of zeros. */
typedef struct {
    int64_t blocks;       /* blocks of 32 per row */
    int totals;           /* per block, see quant.h */
    int8_t *digit;        /* [group][block][ROWS][high 32, low 32] */
    float *scale, *total; /* [group][block][ROWS] and [group][block][totals][ROWS] */
} activations;

static int64_t groups_of(int64_t m)
{
    return (m + ROWS - 1) / ROWS;
}

static size_t activation_bytes(int64_t m, int64_t k, int totals)
{
    return (size_t)(groups_of(m) * (k / WF_QUANT_BLOCK)) *
           (TILE + (1 + (size_t)totals) * ROWS * sizeof(float));
}

static activations activations_at(void *memory, int64_t m, int64_t k, int totals)
{
    activations x = {.blocks = k / WF_QUANT_BLOCK, .totals = totals};
    int64_t count = groups_of(m) * x.blocks;
    x.digit = memory;
    x.scale = (void *)((char *)memory + count * TILE);
    x.total = x.scale + count * ROWS;
    return x;
}

/* The rows of a group; NULL past the last row. */
typedef struct {
    wf_type type;
    const char *row[ROWS];
} source;

static inline vf read_half(const source *x, int lane, int64_t b, int half)
{
    int64_t at = b * WF_QUANT_BLOCK + half * WF_VL;
    if (!x->row[lane])
        return vf_zero();
    return vf_load_as(x->type, x->row[lane] + at * (x->type == WF_F32 ? 4 : 2));
}

/* Returns the scale of block b of each row, one row per lane: NaN if the block has a NaN or an
 * infinity. inverse: the factor that turns elements into integers, 0 for blocks with a NaN scale or
 * below 2^-100. */
static vf scales_of(const source *x, int64_t b, float inverse[ROWS])
{
    vf most[ROWS], bad[ROWS], largest = vf_zero();
    for (int lane = 0; lane < ROWS; lane++) {
        vf low = read_half(x, lane, b, 0), high = read_half(x, lane, b, 1);
        most[lane] = vf_max(vf_abs(high), vf_abs(low));
        bad[lane] = vf_fma(high, vf_zero(), vf_fma(low, vf_zero(), vf_zero()));
    }
    vf_transpose(most);
    for (int i = 0; i < ROWS; i++)
        largest = vf_max(most[i], largest);
    vf scale = vf_add(vf_mul(largest, vf_set(1.0f / WF_QUANT_MOST)), vf_sums(bad));
    vf inverses = vf_div(vf_set(WF_QUANT_MOST), largest);
    inverses = vf_select(vf_lt(vf_set(0x1p-100f), largest), inverses, vf_zero());
    vf_store(inverse, vf_select(vf_eq(scale, scale), inverses, vf_zero()));
    return scale;
}

/* Rounds block b of a group of rows, to the same integers as simd/quant_rows.c. */
static void fill_block(const activations *to, const source *x, int64_t group, int64_t b)
{
    int64_t at = group * to->blocks + b;
    float inverse[ROWS];
    vf scale = scales_of(x, b, inverse), sum[2][ROWS];
    for (int lane = 0; lane < ROWS; lane++) {
        int8_t *digit = to->digit + at * TILE + lane * LINE;
        for (int half = 0; half < 2; half++, digit += WF_VL) {
            vi integer = vf_to_vi(vf_mul(read_half(x, lane, b, half), vf_set(inverse[lane])));
            vi_store_bytes(digit, vi_sra(vi_add(integer, vi_set(128)), 8));
            vi_store_bytes(digit + WF_QUANT_BLOCK, integer);
            sum[half][lane] = vi_to_vf(integer);
        }
    }
    vf_store(to->scale + at * ROWS, scale);
    vf low = vf_sums(sum[0]), high = vf_sums(sum[1]); /* exact */
    float *total = to->total + at * to->totals * ROWS;
    vf_store(total, vf_mul(scale, to->totals == 2 ? low : vf_add(low, high)));
    if (to->totals == 2)
        vf_store(total + ROWS, vf_mul(scale, high));
}

/* ---- Weights ---- */

/* DEPTH blocks of a panel, unpacked: tiles, scales and minima. q8_0 does not use `words`: its tiles
 * are the panel itself. For q6_K `words` starts with half a tile of zeros, and half a tile of zeros
 * follows each block (see the file comment). */
typedef struct {
    uint8_t words[(3 * DEPTH + 1) * WORDS];
    float scale[DEPTH][WF_VL], min[DEPTH][2][WF_VL];
} apart;

/* Whether weights have two digits: integers times the scales of groups exceed i8. Those of q3_K are
 * at most 4 x 32. */
WF_INLINE bool two_digits(wf_type type)
{
    return wf_quant_grouped(type) && wf_quant_layouts[type].bits > 3;
}

/* Bytes from a block's tile to the next block's. */
WF_INLINE int step_of(bool two)
{
    return two ? 3 * WORDS : WORDS;
}

/* Stores the two digits of (integer - offset) x group scale. `by` holds the scale in both i16 of each
 * lane. */
WF_INLINE void store_digits(vi bytes, int less, vi by, uint8_t *low, uint8_t *high)
{
    const vi byte = vi_set(0x00ff00ff), offset = vi_set(less * 0x00010001);
    vi even = vp_mul(vp_sub(vi_and(bytes, byte), offset), by);
    vi odd = vp_mul(vp_sub(vp_shr(bytes, 8), offset), by);
    vi_store(low, vi_or(vi_and(even, byte), vp_shl(odd, 8)));
    even = _mm512_add_epi16(even, vi_set(0x00800080)); /* carry: the low digit is signed */
    odd = _mm512_add_epi16(odd, vi_set(0x00800080));
    vi_store(high, vi_or(vp_shr(even, 8), vi_and(odd, vi_set(~0x00ff00ff))));
}

/* Stores (offset - integer) x group scale in a byte: at least -4 x 32 in q3_K, where the negative
 * product would exceed i8. The scale of the block is negated as well. */
WF_INLINE void store_scaled(vi bytes, int less, vi by, uint8_t *to)
{
    const vi byte = vi_set(0x00ff00ff), offset = vi_set(less * 0x00010001);
    vi even = vp_mul(vp_sub(offset, vi_and(bytes, byte)), by);
    vi odd = vp_mul(vp_sub(offset, vp_shr(bytes, 8)), by);
    vi_store(to, vi_or(vi_and(even, byte), vp_shl(odd, 8)));
}

/* Unpacks one part of a panel to block `at`. */
WF_INLINE void take_part(wf_type type, wf_quant_panel p, int part, int at, apart *to)
{
    const wf_quant_layout *y = &wf_quant_layouts[type];
    const bool two = two_digits(type);
    uint8_t *words = to->words + at * step_of(two) + (two ? WORDS : 0);
    vf scale = wf_quant_scale_of(type, p.scales, part);
    vf_store(to->scale[at], wf_quant_grouped(type) && !two ? vf_neg(scale) : scale);
    for (int i = 0; i < y->mins; i++)
        vf_store(to->min[at][i], wf_quant_min_of(type, p.scales, part, i));
    if (y->bits == 8)
        return;
#pragma GCC unroll 8
    for (int u = 0; u < WF_QUANT_FOURS; u++, words += LINE) {
        const vi bytes = wf_quant_bytes_of(type, false, p.words, part, u);
        if (!wf_quant_grouped(type)) {
            vi_store(words, _mm512_sub_epi8(bytes, vi_set(y->offset * 0x01010101)));
            continue;
        }
        const vi by = wf_quant_group_pair(type, p.scales, 2 * part + u / 4);
        if (two)
            store_digits(bytes, y->offset, by, words, words + WORDS);
        else
            store_scaled(bytes, y->offset, by, words);
    }
}

WF_INLINE void take_apart(wf_type type, wf_quant_panel p, int blocks, apart *to)
{
    const int parts = wf_quant_parts(type);
    for (int at = 0; at < blocks; at += parts, p = wf_quant_panel_next(p, 1)) {
#pragma GCC unroll 8
        for (int part = 0; part < parts; part++)
            take_part(type, p, part, at + part, to);
    }
}

#define TAKE_APART(type)                                              \
    static void apart_##type(wf_quant_panel p, int blocks, apart *to) \
    {                                                                 \
        take_apart(WF_##type, p, blocks, to);                         \
    }
WF_QUANT_TYPES(TAKE_APART)
#define APART_ENTRY(type) [WF_##type] = apart_##type,
static void (*const apart_table[])(wf_quant_panel p, int blocks,
                                   apart *to) = {WF_QUANT_TYPES(APART_ENTRY)};

/* ---- Matmul of tiles ---- */

/* Types share the code of their kind. */
typedef struct {
    bool two;    /* weights have two digits, so there are three sums */
    bool narrow; /* weights are at most 15 */
    int mins;    /* minima per block */
} kind;

static kind kind_of(wf_type type)
{
    const wf_quant_layout *y = &wf_quant_layouts[type];
    return (kind){two_digits(type), y->bits == 4 && !y->levels, y->mins};
}

/* Use of the tiles: even blocks sum in tiles 0 to 2, odd blocks in 3 to 5; tile 7 has the weights.
 * With three sums tile 6 has the activations. With two sums tile 2 has the high digits and
 * tile 5 the low ones. */
static const wf_tile_config three_sums = {
    .palette = 1,
    .bytes = {LINE, LINE, LINE, LINE, LINE, LINE, LINE, LINE},
    .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS},
};
static const wf_tile_config two_sums = {
    .palette = 1,
    .bytes = {LINE, LINE, LINE / 2, LINE, LINE, LINE / 2, 0, LINE},
    .rows = {ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, 0, WORDS / LINE},
};

WF_INLINE void multiply_even(kind of, const int8_t *x, const uint8_t *w)
{
    wf_tile_zero(0);
    wf_tile_zero(1);
    if (of.two) {
        wf_tile_zero(2);
        wf_tile_load(6, x, LINE);
        wf_tile_load(7, w, LINE);
        wf_tile_multiply_i8(2, 6, 7);
        wf_tile_load(7, w + WORDS, LINE);
        wf_tile_multiply_i8(1, 6, 7);
        wf_tile_load(7, w + 2 * WORDS, LINE);
        wf_tile_multiply_i8(0, 6, 7);
    } else {
        wf_tile_load(7, w, LINE);
        wf_tile_load(2, x, LINE);
        wf_tile_multiply_i8(0, 2, 7);
        wf_tile_load(5, x + WF_QUANT_BLOCK, LINE);
        wf_tile_multiply_i8(1, 5, 7);
    }
}

WF_INLINE void multiply_odd(kind of, const int8_t *x, const uint8_t *w)
{
    wf_tile_zero(3);
    wf_tile_zero(4);
    if (of.two) {
        wf_tile_zero(5);
        wf_tile_load(6, x, LINE);
        wf_tile_load(7, w, LINE);
        wf_tile_multiply_i8(5, 6, 7);
        wf_tile_load(7, w + WORDS, LINE);
        wf_tile_multiply_i8(4, 6, 7);
        wf_tile_load(7, w + 2 * WORDS, LINE);
        wf_tile_multiply_i8(3, 6, 7);
    } else {
        wf_tile_load(7, w, LINE);
        wf_tile_load(2, x, LINE);
        wf_tile_multiply_i8(3, 2, 7);
        wf_tile_load(5, x + WF_QUANT_BLOCK, LINE);
        wf_tile_multiply_i8(4, 5, 7);
    }
}

/* Sums of a block. part: by high digits, by low digits; with two digits of weights: high by
 * high, mixed, low by low. */
typedef struct {
    _Alignas(LINE) int32_t part[3][ROWS][WF_VL];
} sums;

WF_INLINE void store_even(kind of, sums *to)
{
    wf_tile_store(0, to->part[0], LINE);
    wf_tile_store(1, to->part[1], LINE);
    if (of.two)
        wf_tile_store(2, to->part[2], LINE);
}

WF_INLINE void store_odd(kind of, sums *to)
{
    wf_tile_store(3, to->part[0], LINE);
    wf_tile_store(4, to->part[1], LINE);
    if (of.two)
        wf_tile_store(5, to->part[2], LINE);
}

/* Combines row r of the sums of digits. A sum of narrow weights by high digits fits in i16,
 * 32 x 64 x 15 < 2^15, so vp_dot multiplies by 256 and adds in one instruction. */
WF_INLINE vi whole(kind of, const sums *s, int r)
{
    vi high = vi_load(s->part[0][r]), low = vi_load(s->part[1][r]);
    if (of.narrow)
        return vp_dot(low, high, vi_set(256));
    vi both = vi_add(vi_shl(high, 8), low);
    return of.two ? vi_add(vi_shl(both, 8), vi_load(s->part[2][r])) : both;
}

WF_INLINE void add_block(kind of, const sums *s, const apart *w, int64_t at, const float *scale,
                         const float *total, vf c[ROWS])
{
    vf by = vf_load(w->scale[at]), min[2];
    for (int i = 0; i < of.mins; i++)
        min[i] = vf_load(w->min[at][i]);
    scale += at * ROWS;
    total += at * of.mins * ROWS;
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++) {
        vf product = vi_to_vf(whole(of, s, r));
        c[r] = vf_fma(product, vf_mul(by, vf_set(scale[r])), c[r]);
        for (int i = 0; i < of.mins; i++)
            c[r] = vf_fma(min[i], vf_set(total[i * ROWS + r]), c[r]);
    }
}

/* c [ROWS][PANELS][WF_VL] += a group of rows, blocks [block, block + blocks), by an unpacked panel,
 * whose tiles start at `words`. Storing a tile waits for its result, so a block's sums are stored
 * only after the next block's matmul was issued and the previous block was added. */
WF_INLINE void multiply(kind of, const apart *w, const uint8_t *words, const activations *x,
                        int64_t block, int blocks, float *c)
{
    const int8_t *digit = x->digit + block * TILE;
    const float *scale = x->scale + block * ROWS, *total = x->total + block * x->totals * ROWS;
    sums s;
    vf sum[ROWS];
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        sum[r] = vf_load(c + r * PANELS * WF_VL);
    multiply_even(of, digit, words);
    for (int64_t i = 0; i < blocks; i += 2) {
        if (i + 1 < blocks)
            multiply_odd(of, digit + (i + 1) * TILE, words + (i + 1) * step_of(of.two));
        if (i > 0)
            add_block(of, &s, w, i - 1, scale, total, sum);
        store_even(of, &s);
        if (i + 1 == blocks)
            break;
        if (i + 2 < blocks)
            multiply_even(of, digit + (i + 2) * TILE, words + (i + 2) * step_of(of.two));
        add_block(of, &s, w, i, scale, total, sum);
        store_odd(of, &s);
    }
    add_block(of, &s, w, blocks - 1, scale, total, sum);
#pragma GCC unroll 16
    for (int r = 0; r < ROWS; r++)
        vf_store(c + r * PANELS * WF_VL, sum[r]);
}

typedef void multiply_fn(const apart *w, const uint8_t *words, const activations *x, int64_t block,
                         int blocks, float *c);
#define MULTIPLY(name, ...)                                                                     \
    static void name(const apart *w, const uint8_t *words, const activations *x, int64_t block, \
                     int blocks, float *c)                                                      \
    {                                                                                           \
        multiply((kind){__VA_ARGS__}, w, words, x, block, blocks, c);                           \
    }
MULTIPLY(two_0, true, false, 0)
MULTIPLY(wide_0, false, false, 0)
MULTIPLY(wide_1, false, false, 1)
MULTIPLY(wide_2, false, false, 2)
MULTIPLY(narrow_0, false, true, 0)
MULTIPLY(narrow_1, false, true, 1)

/* Returns NULL for a kind that no type has. */
static multiply_fn *multiply_of(kind of)
{
    static multiply_fn *const two[3] = {two_0}, *const wide[3] = {wide_0, wide_1, wide_2},
                              *const narrow[3] = {narrow_0, narrow_1};
    return (of.two ? two : of.narrow ? narrow : wide)[of.mins];
}

/* ---- linear and linear_act ---- */

typedef struct {
    const wf_launch *l;
    const wf_view *w;
    wf_quant_result to;
    activations x;
    int64_t m, panels;
    int width;             /* panels per item; they share the cache with rows of x */
    int64_t columns;       /* items along panels */
    int64_t chunk, chunks; /* rows of x per item; items along rows */
    char *scratch;         /* [threads] of struct scratch */
} product;

/* Memory of a thread. blocks: panels of a weight in the file's layout, packed on the way. */
typedef struct {
    apart w[PANELS];
    float c[CHUNK * PANELS * WF_VL];
    uint8_t blocks[PANELS][(DEPTH * (2 + WF_QUANT_BLOCK) * WF_VL + LINE - 1) / LINE * LINE];
} scratch;
_Static_assert(sizeof(scratch) % LINE == 0, "each thread's scratch must start on a cache line");

/* Returns blocks [b, b + n) of a panel. `blocks` is memory for a weight that is not packed. */
static wf_quant_panel panel_part(const product *o, int64_t panel, int64_t b, int n, void *blocks)
{
    if (!o->w->packed)
        return wf_quant_direct_part(o->w, panel, b, n, blocks);
    return wf_quant_panel_next(wf_quant_panel_at(o->w, panel), b / wf_quant_parts(o->w->type));
}

/* Multiplies blocks [b, b + n) for all rows of an item. */
static void multiply_depth(const product *o, int64_t p0, int64_t r0, int64_t rows, int64_t b, int n,
                           scratch *s)
{
    const wf_type type = o->w->type;
    multiply_fn *const product_of = multiply_of(kind_of(type));
    const uint8_t *words[PANELS];
    for (int v = 0; v < o->width; v++) {
        int64_t last = o->panels - 1, at = p0 + v < last ? p0 + v : last; /* past it: ignored */
        wf_quant_panel p = panel_part(o, at, b, n, s->blocks[v]);
        apart_table[type](p, n, &s->w[v]);
        words[v] = wf_quant_layouts[type].bits == 8 ? p.words : s->w[v].words;
    }
    for (int64_t r = 0; r < rows; r += ROWS)
        for (int v = 0; v < o->width; v++)
            product_of(&s->w[v], words[v], &o->x, (r0 + r) / ROWS * o->x.blocks + b, n,
                       s->c + (r * PANELS + v) * WF_VL);
}

/* Item i: `width` panels by a chunk of rows of x. Neighbouring items share the rows, which stay
 * cached. */
static void one_item(const product *o, int64_t i, scratch *s)
{
    int64_t p0 = i % o->columns * o->width, r0 = i / o->columns * o->chunk;
    int64_t rows = o->m - r0 < o->chunk ? o->m - r0 : o->chunk;
    memset(s->c, 0, (size_t)(groups_of(rows) * ROWS * PANELS * WF_VL) * sizeof *s->c);
    for (int64_t b = 0; b < o->x.blocks; b += DEPTH) {
        int n = (int)(o->x.blocks - b < DEPTH ? o->x.blocks - b : DEPTH);
        multiply_depth(o, p0, r0, rows, b, n, s);
    }
    for (int64_t r = 0; r < rows; r++)
        wf_quant_finish(&o->to, r0 + r, p0, o->width, s->c + r * PANELS * WF_VL);
}

static void some_items(void *arg, int64_t begin, int64_t end, int thread)
{
    const product *o = arg;
    scratch *s = (void *)(o->scratch + (size_t)thread * sizeof(scratch));
    const bool two = two_digits(o->w->type);
    for (int v = 0; v < o->width && two; v++)
        memset(s->w[v].words, 0, sizeof s->w[v].words); /* the halves between blocks stay zero */
    wf_tile_configure(two ? &three_sums : &two_sums);
    for (int64_t i = begin; i < end; i++)
        one_item(o, i, s);
    wf_tile_release();
}

static void fill_groups(void *arg, int64_t begin, int64_t end, int thread)
{
    const product *o = arg;
    (void)thread;
    const wf_view *x = &o->l->in[0];
    for (int64_t g = begin; g < end; g++) {
        source from = {.type = x->type};
        for (int64_t r = g * ROWS; r < (g + 1) * ROWS && r < o->m; r++)
            from.row[r % ROWS] = wf_view_at(x, wf_view_row(x, r));
        for (int64_t b = 0; b < o->x.blocks; b++)
            fill_block(&o->x, &from, g, b);
    }
}

/* Types with two digits are left to the AVX-512 kernel: with three matmuls and three tile stores per block, tiles
 * measured slower. The emulator accepts them, so that tests cover the code. */
static bool accepts(const wf_device *device, const wf_node *n)
{
    (void)device;
    bool pays = WF_AMX_EMULATED || !two_digits(n->in[1]->type);
    return pays && wf_dims_rows(&n->in[0]->shape) > WF_QUANT_FEW;
}

static bool accepts_direct(const wf_device *device, const wf_node *n)
{
    return accepts(device, n) && wf_quant_direct_accepts(device, n);
}

static size_t workspace(const wf_device *device, const wf_node *n)
{
    int64_t m = wf_dims_rows(&n->in[0]->shape), k = n->in[1]->shape.d[1];
    return activation_bytes(m, k, wf_quant_totals(n->in[1]->type)) +
           (size_t)wf_device_threads(device) * sizeof(scratch);
}

/* Chooses the rows of x per item: at most CHUNK, and few enough to give each thread four items. */
static void cut(product *o, int threads)
{
    int64_t groups = groups_of(o->m);
    o->width = two_digits(o->w->type) ? PANELS / 2 : PANELS;
    o->columns = (o->panels + o->width - 1) / o->width;
    o->chunks = (o->m + CHUNK - 1) / CHUNK;
    while (o->columns * o->chunks < 4 * threads && groups / (o->chunks + 1) >= 4)
        o->chunks++;
    o->chunk = (groups + o->chunks - 1) / o->chunks * ROWS;
    o->chunks = (o->m + o->chunk - 1) / o->chunk;
}

static wf_status launch(const wf_launch *l)
{
    const wf_view *w = &l->in[1];
    product o = {.l = l, .w = w, .to = wf_quant_result_of(l)};
    o.m = wf_view_rows(&l->in[0]);
    o.panels = (w->dim[0] + WF_VL - 1) / WF_VL;
    if (!o.to.y && !o.to.pre)
        return WF_OK;
    o.x = activations_at(l->workspace, o.m, w->dim[1], wf_quant_totals(w->type));
    wf_parallel_for(l->threads, groups_of(o.m), GRAIN / (w->dim[1] * ROWS) + 1, fill_groups, &o);
    o.scratch = (char *)l->workspace + activation_bytes(o.m, w->dim[1], o.x.totals);
    cut(&o, l->threads);
    wf_parallel_for(l->threads, o.columns * o.chunks, 1, some_items, &o);
    return WF_OK;
}

/* clang-format off */
#define ROWS_OF(op_)                                                                              \
    {.op = op_, .name = "amx packed", .types = WF_TYPES_FLOAT, .weights = WF_QUANT_PANEL_TYPES,         \
     .strided = true, .packed = 1u << 1, .accepts = accepts, .workspace = workspace,              \
     .launch = launch},                                                                           \
    {.op = op_, .name = "amx direct", .types = WF_TYPES_FLOAT, .weights = WF_QUANT_DIRECT_TYPES,  \
     .strided = true, .accepts = accepts_direct, .workspace = workspace, .launch = launch},
const wf_kernel WF_AMX(wf_amx_quant)[] = {
    ROWS_OF(WF_OP_linear)
    ROWS_OF(WF_OP_linear_act)
    {0},
};
