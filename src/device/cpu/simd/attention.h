/* SPDX-License-Identifier: MIT */
/*
 * attention.h - tiles, the building blocks of attention and its gradient.
 *
 * A tile is LANES queries of one sequence and kv head (a lane is a token and a head of the group)
 * against a block of up to KEYS keys. Keys and values are gathered into f32 panels [KEYS][width]
 * first, which handles types, strides and pages. Queries are stored in both orders. Scores are
 * stored [key][lane]: a vector holds one key's scores of several queries, so the softmax needs no
 * horizontal sums.
 *
 * All matmuls here are chains of fma in ascending order that start with the previous sum. An
 * invisible key adds 0 times its value, which changes nothing. So no result depends on how
 * sequences are cut into tiles, nor a query's result on other queries.
 *
 * The order of sums, in tiles and in decode attention (attention_decode.h), for one query:
 *
 *  1. Keys are cut at multiples of CHUNK, and chunks at multiples of KEYS, counted from the first
 *     key of the sequence. Keys that the query does not see, and blocks and chunks of such keys,
 *     change nothing.
 *  2. A score is a chain of fma over d, in ascending order from 0, then score_of.
 *  3. In a chunk, each block raises the maximum m so far. With f = e^(m before - m), which is 1 if m
 *     stays, and p = e^(score - m): total = fma(total, f, sum of p), values = values f + p v. Both
 *     sums run over the keys in ascending order, the first from 0, the second as a chain of fma that
 *     starts with values f.
 *  4. Chunks are merged in ascending order (merge_of). The first one starts from sums of 0.
 *  5. divide_row.
 *
 * An element of a q8_0 key or value is the f32 product of its integer and its scale, which is exact,
 * and then counts like any other.
 */
#ifndef WF_DEVICE_CPU_SIMD_ATTENTION_H
#define WF_DEVICE_CPU_SIMD_ATTENTION_H

#include <math.h>

#include "device/cpu/simd/math.h"
#include "graph/quant/codec.h"

/* ROWS x VECTORS registers of sums: enough to hide fma latency, few enough to avoid spills. */
#if WF_VREGS >= 32
enum { ROWS = 8, VECTORS = 2 };
#else
enum { ROWS = 4, VECTORS = 2 };
#endif
enum { LANES = VECTORS * WF_VL, KEYS = 64, CHUNK = 256 };
_Static_assert(KEYS % ROWS == 0 && LANES % ROWS == 0,
               "a tile must be a multiple of the register block");
_Static_assert(CHUNK % KEYS == 0 && KEYS % WF_VL == 0, "a chunk must be whole blocks of vectors");

typedef struct {
    const wf_launch *l;
    float scale, cap;
    bool causal;
    int64_t window;
    const wf_view *q;         /* [N, H, D] */
    const wf_view *k, *v;     /* [N, Hk, D], [N, Hk, Dv]; or pools [P, page, Hk, ...] */
    const int32_t *start;     /* [S + 1] */
    const int32_t *positions; /* [N] */
    const wf_view *table;     /* i32[S, pages]; NULL: packed */
    const int32_t *lengths;   /* [S] */
    int64_t n, sequences, kv_heads, group, d, dv;
    bool paged, quantized;   /* quantized: k and v are q8_0 */
    int64_t keys;            /* most keys of a sequence */
    int64_t d_wide, dv_wide; /* rounded up to whole vectors */
} wf_attention_problem;

/* Inputs from `first`: (q, k, v, seq_start, positions, table?, lengths?). l == NULL: set sizes
 * only. */
void WF_SIMD(wf_attention_open)(wf_attention_problem *o, const wf_node *n, int first,
                                const wf_launch *l);

static inline int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Carves cache-line aligned arrays out of memory. base == NULL: count bytes only. */
typedef struct {
    char *base;
    size_t used;
} wf_carver;

static inline void *carve(wf_carver *c, int64_t bytes)
{
    void *p = c->base ? c->base + c->used : NULL;
    c->used += (size_t)round_up(bytes, 64);
    return p;
}

static inline float *carve_floats(wf_carver *c, int64_t n)
{
    return carve(c, n * (int64_t)sizeof(float));
}

/* Loads a row of n elements of any type as f32, with zeros up to `wide`. */
static inline __attribute__((always_inline)) void load_row(wf_type type, int64_t size,
                                                           const char *from, int64_t n,
                                                           int64_t wide, float *to)
{
    int64_t i = 0;
    for (; i + WF_VL <= n; i += WF_VL)
        vf_store(to + i, vf_load_as(type, from + i * size));
    if (i < wide)
        vf_store(to + i, vf_load_as_n(type, from + i * size, (int)(n - i)));
}

enum { Q8_BLOCK = 32 }; /* elements of a q8_0 block */

/* A vector of the integers that are `at` elements into a row of q8_0 blocks. */
static inline vf load_integers(const char *row, int64_t at)
{
    row += at / Q8_BLOCK * (int64_t)sizeof(wf_block_q8_0) + at % Q8_BLOCK;
    return vi_to_vf(vi_from_i8((const int8_t *)row + offsetof(wf_block_q8_0, q)));
}

/* n is a multiple of Q8_BLOCK. */
static inline void load_q8_0_row(const char *from, int64_t n, float *to)
{
    for (int64_t b = 0; b < n; b += Q8_BLOCK) {
        uint16_t half[WF_VL] = {0};
        float scale[WF_VL];
        memcpy(half, from + b / Q8_BLOCK * (int64_t)sizeof(wf_block_q8_0), sizeof *half);
        vf_store(scale, vf_load_f16(half));
        for (int64_t i = b; i < b + Q8_BLOCK; i += WF_VL)
            vf_store(to + i, vf_mul(load_integers(from, i), vf_set(scale[0])));
    }
}

static inline void load_any_row(wf_type type, const char *from, int64_t n, int64_t wide, float *to)
{
    if (type == WF_Q8_0)
        load_q8_0_row(from, n, to);
    else if (type == WF_F32)
        load_row(WF_F32, 4, from, n, wide, to);
    else if (type == WF_F16)
        load_row(WF_F16, 2, from, n, wide, to);
    else
        load_row(WF_BF16, 2, from, n, wide, to);
}

/* ---- Keys ---- */

/* Keys [begin, begin + n) of a sequence and kv head, padded with zeros to a multiple of ROWS. */
typedef struct {
    int64_t sequence, kv_head, begin, n;
    float *k, *v;            /* [KEYS][d_wide], [KEYS][dv_wide] */
    int32_t position[KEYS];  /* positions in the sequence */
    int32_t nearest, latest; /* smallest and largest position */
} wf_key_block;

static inline int64_t key_count(const wf_attention_problem *o, int64_t sequence)
{
    return o->table ? o->lengths[sequence] : o->start[sequence + 1] - o->start[sequence];
}

/* Sets the block's keys and positions, without loading them. */
void WF_SIMD(wf_key_block_find)(const wf_attention_problem *o, wf_key_block *b, int64_t sequence,
                                int64_t kv_head, int64_t begin);
/* Loads the panels. Keys at positions outside [low, high] become zeros without being read: no query
 * sees them, and their pages may have been returned. */
void WF_SIMD(wf_key_block_load)(const wf_attention_problem *o, wf_key_block *b, int32_t low,
                                int32_t high);

/* Bytes of `elements` of x's type, whole blocks. */
static inline int64_t row_bytes(const wf_view *x, int64_t elements)
{
    const wf_type_info *info = wf_type_get(x->type);
    return (info->block == 1 ? elements : elements / Q8_BLOCK) * info->block_bytes;
}

/* Address of key j's row in a pool or a packed matrix. */
static inline const char *key_row(const wf_attention_problem *o, const wf_view *x, int64_t sequence,
                                  int64_t kv_head, int64_t j)
{
    int64_t offset;
    if (o->table) {
        const int32_t *pages = (const int32_t *)o->table->data + sequence * o->table->stride[0];
        int64_t page = x->dim[1];
        offset = pages[j / page] * x->stride[0] + j % page * x->stride[1] + kv_head * x->stride[2];
    } else {
        offset = (o->start[sequence] + j) * x->stride[0] + kv_head * x->stride[1];
    }
    return (const char *)x->data + row_bytes(x, offset);
}

/* ---- Queries ---- */

/* n <= LANES queries, with zeros for the rest. */
typedef struct {
    int64_t n;
    int64_t token[LANES], head[LANES]; /* lane i is row [token][head] of q */
    int32_t low[LANES], high[LANES];   /* visible positions, low to high inclusive */
    int32_t least_low, most_low;       /* over the lanes in use */
    int32_t least_high, most_high;     /* likewise */
} wf_lanes;

/* Sets lanes [begin, begin + n) of a sequence and kv head; a token has `group` lanes. */
void WF_SIMD(wf_lanes_find)(const wf_attention_problem *o, wf_lanes *t, int64_t sequence,
                            int64_t kv_head, int64_t begin, int64_t n);
/* Loads the lanes' rows of x [N, H, ...] as [LANES][wide], and transposed as [wide][LANES]. */
void WF_SIMD(wf_lanes_load)(const wf_lanes *t, const wf_view *x, int64_t wide, float *rows,
                            float *columns);

static inline char *lane_row(const wf_lanes *t, const wf_view *x, int64_t lane)
{
    return (char *)x->data + (t->token[lane] * x->stride[0] + t->head[lane] * x->stride[1]) *
                                 wf_type_get(x->type)->block_bytes;
}

/* Visibility of a block of keys: only keys in [begin, end) may be seen; begin is a multiple of
 * ROWS. If not masked, every lane sees all of these. */
typedef struct {
    int64_t begin, end;
    bool masked;
} wf_sight;

wf_sight WF_SIMD(wf_lanes_sight)(const wf_lanes *t, const wf_key_block *b);

static inline bool lane_sees(const wf_lanes *t, int64_t lane, const wf_key_block *b, int64_t key)
{
    return t->low[lane] <= b->position[key] && b->position[key] <= t->high[lane];
}

/* Selects y where vector v of the lanes sees a key at this position, else x. */
static inline vf where_seen(const wf_lanes *t, int v, vi position, vf y, vf x)
{
    y = vf_select(vi_lt(position, vi_load(t->low + v * WF_VL)), x, y);
    return vf_select(vi_lt(vi_load(t->high + v * WF_VL), position), x, y);
}

/* ---- Matmuls ---- */

/* c[i][j] = scale[i] c[i][j] + sum over k < n of a[i][k] b[k][j], for ROWS rows and nv vectors. ai
 * and ak are a's strides. scale == NULL means 1; `fresh` starts from 0. Inlined with constants. */
static inline __attribute__((always_inline)) void block_product(int nv, bool fresh,
                                                                const float *scale, const float *a,
                                                                int64_t ai, int64_t ak,
                                                                const float *b, int64_t ldb,
                                                                int64_t n, float *c, int64_t ldc)
{
    vf sum[ROWS][VECTORS];
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < nv; v++) {
            sum[i][v] = fresh ? vf_zero() : vf_load(c + i * ldc + v * WF_VL);
            if (scale)
                sum[i][v] = vf_mul(sum[i][v], vf_set(scale[i]));
        }
    for (int64_t k = 0; k < n; k++) {
        vf row[VECTORS];
        for (int v = 0; v < nv; v++)
            row[v] = vf_load(b + k * ldb + v * WF_VL);
        for (int i = 0; i < ROWS; i++) {
            vf x = vf_set(a[i * ai + k * ak]);
            for (int v = 0; v < nv; v++)
                sum[i][v] = vf_fma(x, row[v], sum[i][v]);
        }
    }
    for (int i = 0; i < ROWS; i++)
        for (int v = 0; v < nv; v++)
            vf_store(c + i * ldc + v * WF_VL, sum[i][v]);
}

/* to[key][lane] = panel[key] . column[lane] over d elements, for keys [begin, end) rounded up to
 * ROWS. */
void WF_SIMD(wf_tile_dots)(float *to, const float *panel, int64_t wide, const float *columns,
                           int64_t d, wf_sight sight);
/* to[lane][] = scale[lane] to[lane][] + sum over keys of p[key][lane] panel[key][]; scale NULL:
 * 1 */
void WF_SIMD(wf_tile_add_keys)(float *to, const float *scale, const float *p, const float *panel,
                               int64_t wide, wf_sight sight);
/* to[key][] += sum over lanes of p[key][lane] rows[lane][]; p is 0 up to a whole number of ROWS */
void WF_SIMD(wf_tile_add_lanes)(float *to, const float *p, const float *rows, int64_t wide,
                                int64_t lanes, wf_sight sight);

/* Whether n rows of a panel are finite: 0 times Inf or NaN is not 0. If not, the next two functions
 * replace those above and skip invisible keys. */
bool WF_SIMD(wf_panel_finite)(const float *panel, int64_t wide, int64_t n);
void WF_SIMD(wf_tile_add_keys_seen)(float *to, const float *scale, const float *p,
                                    const float *panel, int64_t wide, wf_sight sight,
                                    const wf_lanes *t, const wf_key_block *b);
void WF_SIMD(wf_tile_add_lanes_seen)(float *to, const float *p, const float *rows, int64_t wide,
                                     wf_sight sight, const wf_lanes *t, const wf_key_block *b);

/* Stores n floats to a row of another type. */
static inline void store_row(wf_type type, char *to, const float *x, int64_t n)
{
    int64_t i = 0, size = wf_type_get(type)->block_bytes;
    for (; i + WF_VL <= n; i += WF_VL)
        vf_store_as(type, to + i * size, vf_load(x + i));
    if (i < n)
        vf_store_as_n(type, to + i * size, vf_load_n(x + i, (int)(n - i)), (int)(n - i));
}

/* Zeroes the rows of x [N, H, ...] that belong to no sequence. */
void WF_SIMD(wf_attention_clear)(const wf_attention_problem *o, const wf_view *x);

/* The sequence of item i, where first[s] items precede those of sequence s. */
static inline int64_t wf_attention_find(const int64_t *first, int64_t sequences, int64_t i)
{
    int64_t low = 0, high = sequences; /* invariant: first[low] <= i < first[high] */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (first[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* attention_grad.c */
size_t WF_SIMD(wf_attention_grad_workspace)(const wf_device *device, const wf_node *n);
wf_status WF_SIMD(wf_attention_grad)(const wf_launch *l);

/* ---- Scores ---- */

/* Turns a dot product into a score: scale, then cap. */
static inline vf score_of(const wf_attention_problem *o, vf dot)
{
    vf s = vf_mul(vf_set(o->scale), dot);
    return o->cap != 0 ? vf_mul(vf_set(o->cap), vf_tanh(vf_div(s, vf_set(o->cap)))) : s;
}

/* ---- Chunks ---- */

/* Factors that scale the sums of the earlier chunks and of the next one to a common maximum. */
typedef struct {
    vf earlier, next;
} wf_merge;

/* Raises *most to the maximum with the next chunk's, both -Inf before the first visible key. */
static inline wf_merge merge_of(vf *most, vf next)
{
    vf before = *most, now = vf_max(next, before);
    vf finite = vf_select(vf_eq(now, vf_set(-INFINITY)), vf_zero(), now);
    *most = now;
    return (wf_merge){vf_exp(vf_sub(before, finite)), vf_exp(vf_sub(next, finite))};
}

static inline vf merged(const wf_merge *m, vf earlier, vf next)
{
    return vf_fma(next, m->next, vf_mul(earlier, m->earlier));
}

static inline float log_sum(float most, float total)
{
    return total != 0 ? (float)(most + log((double)total)) : -INFINITY;
}

/* Divides sums of p v by the sum of p. Adding 0 turns -0 into 0: products with invisible keys may
 * do the same to a sum. */
static inline void divide_row(float *sum, int64_t wide, float total)
{
    vf by = vf_set(total != 0 ? 1 / total : 0);
    for (int64_t c = 0; c < wide; c += WF_VL)
        vf_store(sum + c, vf_add(vf_mul(vf_load(sum + c), by), vf_zero()));
}

#endif
