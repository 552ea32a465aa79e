/* SPDX-License-Identifier: MIT */
/*
 * quant_direct.c - matmuls by q8_0 and q6_K weights in the file's layout: rows of blocks.
 *
 * A model can then run as soon as its file is mapped. The kernels transpose on the fly: they gather
 * the same words of WF_VL rows into one vector, a block or two at a time. This costs less time than
 * reading the weight from memory. Values and their order of summation are those of quant.c.
 *
 * `whole` is a constant: all WF_VL rows exist.
 */
#include "device/cpu/simd/quant_block.h"
#include "graph/quant/block.h"

enum {
    WORDS = 8,   /* 32-bit words of integers per q8_0 block */
    LINE = 64,   /* bytes per cache line */
    AHEAD = 512, /* prefetch distance within a row, bytes */
    ROWS = 4     /* rows of x at a time */
};

/* Up to WF_VL rows of w. Lanes past `count` read the last row again. */
typedef struct {
    const uint8_t *first;
    int64_t step; /* bytes from one row to the next */
    int count;
} rows;

static rows rows_of(const wf_view *w, int64_t first, int64_t apart)
{
    const wf_quant_layout *y = wf_quant_layout_of(w->type);
    const int64_t left = w->dim[0] - first, bytes = w->dim[1] / y->block * y->bytes;
    return (rows){(const uint8_t *)w->data + first * bytes, apart * bytes,
                  left < WF_VL ? (int)left : WF_VL};
}

WF_INLINE int64_t row_at(bool whole, const rows *r, int i)
{
    return (whole || i < r->count ? i : r->count - 1) * r->step;
}

/* Loads four neighbouring words of every row and transposes them: word[i] has word i of each row.
 * `from` is in the first row. */
WF_INLINE void load_four(bool whole, const rows *r, const uint8_t *from, vi word[4])
{
    vf x[4];
    for (int i = 0; i < 4; i++) {
        int64_t at[WF_VL / 4];
        for (int j = 0; j < WF_VL / 4; j++)
            at[j] = row_at(whole, r, 4 * j + i);
        x[i] = vi_as_vf(vi_load_fours(from, at));
    }
    vf_transpose_fours(x);
    for (int i = 0; i < 4; i++)
        word[i] = vf_as_vi(x[i]);
}

/* Loads one f16 of every row. */
WF_INLINE void load_halves(bool whole, const rows *r, const uint8_t *from, uint16_t half[WF_VL])
{
    for (int i = 0; i < WF_VL; i++)
        memcpy(&half[i], from + row_at(whole, r, i), sizeof *half);
}

/* Prefetches `bytes` of every row, AHEAD bytes from here. This may be in the next row. */
WF_INLINE void fetch_ahead(bool whole, const rows *r, const uint8_t *from, int bytes)
{
    for (int i = 0; i < WF_VL; i++)
        for (int at = 0; at < bytes; at += LINE)
            v_prefetch(from + row_at(whole, r, i) + AHEAD + at);
}

/* ---- q8_0 ---- */

WF_INLINE void load_words(bool whole, const rows *r, const uint8_t *block, vi word[WORDS])
{
    for (int i = 0; i < WORDS; i += 4)
        load_four(whole, r, block + offsetof(wf_block_q8_0, q) + 4 * i, word + i);
}

/* Dot product of a block with activations in digits. Unless vq_dot takes signed weights, 128 was
 * added to the integers, and `off` subtracts it again. */
WF_INLINE vi dot_digits(const vi word[WORDS], const int32_t *digits, const int32_t *off)
{
    vq high = vq_zero(), low = vq_zero();
#pragma GCC unroll 8
    for (int i = 0; i < WORDS; i++) {
        high = vq_dot(high, word[i], digits + i);
        low = vq_dot(low, word[i], digits + WF_QUANT_FOURS + i);
    }
    vi sum = WF_VQ_SIGNED ? vi_zero() : vi_add(vi_set(off[0]), vi_set(off[1]));
    return vi_add(sum, vi_add(vq_sum(high, 8), vq_sum(low, 0)));
}

/* Adds to c[row] the products of a block of w with block b of each row of x. */
WF_INLINE void add_q8_0(bool whole, int count, const rows *r, const uint8_t *block,
                        const wf_quant_rows *x, int64_t b, vf *c)
{
    vi word[WORDS];
    uint16_t scale[WF_VL];
    if (b % 2 == 0) /* a cache line holds almost two blocks */
        fetch_ahead(whole, r, block, LINE);
    load_halves(whole, r, block + offsetof(wf_block_q8_0, d), scale);
    load_words(whole, r, block, word);
    for (int i = 0; i < WORDS && WF_VQ_WIDE && !WF_VQ_SIGNED; i++)
        word[i] = vi_xor(word[i], vi_set((int32_t)0x80808080));
#pragma GCC unroll 4
    for (int i = 0; i < count; i++) {
        int64_t at = i * (x->k / WF_QUANT_BLOCK) + b;
        const int32_t *numbers = x->pair + at * WF_QUANT_PAIRS;
        vi sum = WF_VQ_WIDE ? dot_digits(word, numbers, x->off + 2 * at)
                            : wf_quant_dot_pairs(word, numbers);
        c[i] = vf_fma(vi_to_vf(sum), vf_mul(vf_load_f16(scale), vf_set(x->scale[at])), c[i]);
    }
}

WF_INLINE void store_q8_0(bool whole, const rows *r, const uint8_t *block, uint8_t *scales,
                          uint8_t *words)
{
    vi word[WORDS];
    fetch_ahead(whole, r, block, LINE);
    load_words(whole, r, block, word);
    load_halves(whole, r, block + offsetof(wf_block_q8_0, d), (uint16_t *)(void *)scales);
    for (int i = 0; i < WORDS; i++)
        vi_store(words + i * 4 * WF_VL, word[i]);
}

/* ---- q6_K ---- */

/* Loads words [4 group, 4 group + 4) of each of the three kinds (wf_quant_mix) of half a block. */
WF_INLINE void load_group(bool whole, const rows *r, const uint8_t *block, int half, int group,
                          vi word[3][4])
{
    const uint8_t *low = block + offsetof(wf_block_q6_k, low) + 64 * half + 16 * group;
    load_four(whole, r, low, word[0]);
    load_four(whole, r, low + 32, word[1]);
    load_four(whole, r, block + offsetof(wf_block_q6_k, high) + 32 * half + 16 * group, word[2]);
}

/* Returns elements [4 i, 4 i + 4) of the group's 16, of run `part` of 32 in the half block. */
WF_INLINE vi bytes_of(const vi word[3][4], int part, int i)
{
    vi low = vi_shr(word[part % 2][i], part / 2 * 4);
    vi high = part < 2 ? vi_shl(word[2][i], 4 - 2 * part) : vi_shr(word[2][i], 2 * part - 4);
    return vi_or(vi_and(low, vi_set(0x0f0f0f0f)), vi_and(high, vi_set(0x30303030)));
}

/* Returns the scale of a group of 16. A word holds four scales of 8 bits. */
WF_INLINE vi scale_of(const vi scale[4], int group)
{
    return vi_sra(vi_shl(scale[group / 4], 24 - group % 4 * 8), 24);
}

/* Dot product of a group of 16 with activations in digits. Sums in i16 (not WF_VQ_WIDE) hold two
 * words at most. */
WF_INLINE vi dot_group(const vi bytes[4], const int32_t *digits, int32_t off)
{
    const int most = WF_VQ_WIDE ? 4 : 2;
    vi sum = vi_set(off);
#pragma GCC unroll 2
    for (int i = 0; i < 4; i += most) {
        vq high = vq_zero(), low = vq_zero();
#pragma GCC unroll 4
        for (int j = i; j < i + most; j++) {
            high = vq_dot(high, bytes[j], digits + j);
            low = vq_dot(low, bytes[j], digits + WF_QUANT_FOURS + j);
        }
        sum = vi_add(sum, vi_add(vq_sum(high, 8), vq_sum(low, 0)));
    }
    return sum;
}

/* sum[part][row] = half a block of w by blocks b + part of x, with the groups' scales applied. */
WF_INLINE void dot_half(bool whole, int count, const rows *r, const uint8_t *block, int half,
                        const vi scale[4], const wf_quant_rows *x, int64_t b, vi sum[4][ROWS])
{
#pragma GCC unroll 2
    for (int group = 0; group < 2; group++) {
        vi word[3][4];
        load_group(whole, r, block, half, group, word);
#pragma GCC unroll 4
        for (int part = 0; part < 4; part++) {
            vi by = scale_of(scale, 8 * half + 2 * part + group), bytes[4];
            for (int i = 0; i < 4; i++)
                bytes[i] = bytes_of(word, part, i);
#pragma GCC unroll 4
            for (int i = 0; i < count; i++) {
                int64_t at = i * (x->k / WF_QUANT_BLOCK) + b + part;
                const int32_t *digits = x->pair + at * WF_QUANT_PAIRS + 4 * group;
                vi product = vi_mul(dot_group(bytes, digits, x->off[2 * at + group]), by);
                sum[part][i] = group ? vi_add(sum[part][i], product) : product;
            }
        }
    }
}

/* Adds to c[row] the products of a block of w with blocks [b, b + 8) of each row of x. */
WF_INLINE void add_q6_K(bool whole, int count, const rows *r, const uint8_t *block,
                        const wf_quant_rows *x, int64_t b, vf *c)
{
    vi scale[4], sum[4][ROWS];
    uint16_t d[WF_VL];
    fetch_ahead(whole, r, block, sizeof(wf_block_q6_k));
    load_halves(whole, r, block + offsetof(wf_block_q6_k, d), d);
    load_four(whole, r, block + offsetof(wf_block_q6_k, scales), scale);
    for (int half = 0; half < 2; half++, b += 4) {
        dot_half(whole, count, r, block, half, scale, x, b, sum);
        for (int part = 0; part < 4; part++)
            for (int i = 0; i < count; i++) {
                vf by = vf_set(x->scale[i * (x->k / WF_QUANT_BLOCK) + b + part]);
                c[i] = vf_fma(vi_to_vf(sum[part][i]), vf_mul(vf_load_f16(d), by), c[i]);
            }
    }
}

WF_INLINE void store_q6_K(bool whole, const rows *r, const uint8_t *block, uint8_t *scales,
                          uint8_t *words)
{
    vi scale[4];
    fetch_ahead(whole, r, block, sizeof(wf_block_q6_k));
    load_halves(whole, r, block + offsetof(wf_block_q6_k, d), (uint16_t *)(void *)scales);
    load_four(whole, r, block + offsetof(wf_block_q6_k, scales), scale);
    for (int i = 0; i < 16; i++)
        vi_store_bytes(scales + (2 + i) * WF_VL, vi_shr(scale[i / 4], i % 4 * 8));
    for (int group = 0; group < 4; group++) {
        vi word[3][4];
        load_group(whole, r, block, group / 2, group % 2, word);
        for (int i = 0; i < 4; i++) {
            vi three[3] = {word[0][i], word[1][i], word[2][i]};
            wf_quant_mix(three);
            for (int j = 0; j < 3; j++)
                vi_store(words + (group / 2 * 24 + j * 8 + group % 2 * 4 + i) * 4 * WF_VL,
                         three[j]);
        }
    }
}

/* ---- Both types ---- */

WF_INLINE void few_rows(wf_type type, bool whole, int count, const rows *r, const wf_quant_rows *x,
                        float *out)
{
    const int64_t blocks = x->k / WF_QUANT_BLOCK;
    const uint8_t *block = r->first;
    vf c[ROWS];
    for (int i = 0; i < count; i++)
        c[i] = vf_zero();
    if (type == WF_Q8_0)
        for (int64_t b = 0; b < blocks; b++, block += sizeof(wf_block_q8_0))
            add_q8_0(whole, count, r, block, x, b, c);
    else
        for (int64_t b = 0; b < blocks; b += wf_quant_parts(type), block += sizeof(wf_block_q6_k))
            add_q6_K(whole, count, r, block, x, b, c);
    for (int i = 0; i < count; i++)
        vf_store(out + i * WF_VL, c[i]);
}

#define FEW_ROWS(type, count_)                                                           \
    static void few_##type##_##count_(const rows *r, const wf_quant_rows *x, float *out) \
    {                                                                                    \
        if (r->count == WF_VL)                                                           \
            few_rows(WF_##type, true, count_, r, x, out);                                \
        else                                                                             \
            few_rows(WF_##type, false, count_, r, x, out);                               \
    }
#define FEW_OF_TYPE(type) FEW_ROWS(type, 1) FEW_ROWS(type, 2) FEW_ROWS(type, 3) FEW_ROWS(type, 4)
FEW_OF_TYPE(Q8_0)
FEW_OF_TYPE(Q6_K)
#define FEW_ENTRY(type) \
    [WF_##type] = {few_##type##_1, few_##type##_2, few_##type##_3, few_##type##_4}

void wf_quant_direct_few(const wf_view *w, int64_t first, int64_t apart, const wf_quant_rows *x,
                         int count, float *out)
{
    static void (*const few[][ROWS])(const rows *, const wf_quant_rows *,
                                     float *) = {FEW_ENTRY(Q8_0), FEW_ENTRY(Q6_K)};
    rows r = rows_of(w, first, apart);
    few[w->type][count - 1](&r, x, out);
}

/* Packs blocks of the file, from `block` on, into a panel. */
WF_INLINE void pack_blocks(wf_type type, bool whole, const rows *r, const uint8_t *block,
                           int blocks, wf_quant_panel to)
{
    uint8_t *scales = (uint8_t *)to.scales, *words = (uint8_t *)to.words;
    for (; blocks > 0; blocks--, scales += to.scale_step, words += to.word_step)
        if (type == WF_Q8_0) {
            store_q8_0(whole, r, block, scales, words);
            block += sizeof(wf_block_q8_0);
        } else {
            store_q6_K(whole, r, block, scales, words);
            block += sizeof(wf_block_q6_k);
        }
}

#define PACK_BLOCKS(type)                                                                       \
    static void pack_##type(const rows *r, const uint8_t *block, int blocks, wf_quant_panel to) \
    {                                                                                           \
        if (r->count == WF_VL)                                                                  \
            pack_blocks(WF_##type, true, r, block, blocks, to);                                 \
        else                                                                                    \
            pack_blocks(WF_##type, false, r, block, blocks, to);                                \
    }
PACK_BLOCKS(Q8_0)
PACK_BLOCKS(Q6_K)

wf_quant_panel wf_quant_direct_part(const wf_view *w, int64_t panel, int64_t block, int blocks,
                                    void *to)
{
    const wf_view part = {.data = to, .type = w->type, .dim = {WF_VL, blocks * WF_QUANT_BLOCK}};
    const int parts = wf_quant_parts(w->type);
    const rows r = rows_of(w, panel * WF_VL, 1);
    const uint8_t *from = r.first + block / parts * wf_quant_layout_of(w->type)->bytes;
    wf_quant_panel p = wf_quant_panel_at(&part, 0);
    (w->type == WF_Q8_0 ? pack_Q8_0 : pack_Q6_K)(&r, from, blocks / parts, p);
    return p;
}

bool wf_quant_direct_accepts(const wf_device *device, const wf_node *n)
{
    (void)device;
    const wf_value *w = n->in[1];
    return w->node->op == WF_OP_state && w->marks & WF_MARK_ROUNDED && wf_dims_count(&w->shape) > 0;
}
