/* SPDX-License-Identifier: MIT */
/* quant_block.h - reads blocks of quantized weights, in packed panels (quant.h) or in the file's
 * layout: their addresses, scales and integers. Functions take `type` as a constant and are
 * inlined. */
#ifndef WF_DEVICE_CPU_SIMD_QUANT_BLOCK_H
#define WF_DEVICE_CPU_SIMD_QUANT_BLOCK_H

#include "device/cpu/simd/quant.h"
#include "graph/quant/block.h"

/* PANEL selects the types of weft_quant.def that have panels, DIRECT those that kernels also
 * multiply in the file's layout. */
#define WF_QUANT_PANEL_GENERIC(...)
#define WF_QUANT_PANEL_PACKED(...) __VA_ARGS__
#define WF_QUANT_PANEL_DIRECT(...) __VA_ARGS__
#define WF_QUANT_DIRECT_GENERIC(...)
#define WF_QUANT_DIRECT_PACKED(...)
#define WF_QUANT_DIRECT_DIRECT(...) __VA_ARGS__
#define WF_QUANT_IF_PANEL(X, NAME, n, w, block, bytes, gguf, file, mix, stand_in, kernels, doc) \
    WF_QUANT_PANEL_##kernels(X(NAME))
#define WF_QUANT_IF_DIRECT(X, NAME, n, w, block, bytes, gguf, file, mix, stand_in, kernels, doc) \
    WF_QUANT_DIRECT_##kernels(X(NAME))
#define WF_QUANT_OR_BIT(NAME) | WF_TYPE_BIT(WF_##NAME)
/* WF_QUANT_TYPES expands X(NAME) for each type that has panels. */
#define WF_QUANT_TYPES(X) WF_QUANT_TABLE(WF_QUANT_IF_PANEL, X)
#define WF_QUANT_PANEL_TYPES (0 WF_QUANT_TYPES(WF_QUANT_OR_BIT))
#define WF_QUANT_DIRECT_TYPES (0 WF_QUANT_TABLE(WF_QUANT_IF_DIRECT, WF_QUANT_OR_BIT))

/* Size of a block of the file, and offsets of its first f16 value and its words. */
#define WF_QUANT_PLACES(word, half, words) \
    sizeof(wf_block_##word), offsetof(wf_block_##word, half), offsetof(wf_block_##word, words)

/* The properties of the types with panels; the columns are those of wf_quant_layout. */
/* clang-format off */
static const wf_quant_layout wf_quant_layouts[] = {
    [WF_Q8_0] = {32, WF_QUANT_PLACES(q8_0, d, q), 1, 0, WF_QUANT_BY_BLOCK, 8, 8, 1, 0, 0, false},
    [WF_Q4_0] = {32, WF_QUANT_PLACES(q4_0, d, q), 1, 0, WF_QUANT_BY_BLOCK, 4, 4, 1, 8, 0, false},
    [WF_Q4_1] = {32, WF_QUANT_PLACES(q4_1, d, q), 2, 0, WF_QUANT_BY_BLOCK, 4, 4, 1, 0, 1, false},
    [WF_Q4_K] = {256, WF_QUANT_PLACES(q4_k, d, q), 2, 16, WF_QUANT_BY_PART_MIN, 32, 4, 2, 0, 1, false},
    [WF_Q6_K] = {256, WF_QUANT_PLACES(q6_k, d, low), 1, 16, WF_QUANT_BY_GROUP, 48, 6, 4, 32, 0, false},
    [WF_Q5_0] = {32, WF_QUANT_PLACES(q5_0, d, high), 1, 0, WF_QUANT_BY_BLOCK, 5, 5, 1, 16, 0, false},
    [WF_Q5_K] = {256, WF_QUANT_PLACES(q5_k, d, high), 2, 16, WF_QUANT_BY_PART_MIN, 40, 5, 2, 0, 1, false},
    [WF_Q5_1] = {32, WF_QUANT_PLACES(q5_1, d, high), 2, 0, WF_QUANT_BY_BLOCK, 5, 5, 1, 0, 1, false},
    [WF_Q3_K] = {256, WF_QUANT_PLACES(q3_k, d, high), 1, 16, WF_QUANT_BY_GROUP, 24, 3, 4, 4, 0, false},
    [WF_Q2_K] = {256, WF_QUANT_PLACES(q2_k, d, q), 2, 16, WF_QUANT_BY_GROUP_MIN, 16, 2, 4, 0, 2, false},
    [WF_IQ4_NL] = {32, WF_QUANT_PLACES(iq4_nl, d, q), 1, 0, WF_QUANT_BY_BLOCK, 4, 4, 1, 0, 0, true},
    [WF_IQ4_XS] = {256, WF_QUANT_PLACES(iq4_xs, d, q), 1, 8, WF_QUANT_BY_PART, 32, 4, 1, 0, 0, true},
};
/* clang-format on */

/* Returns NULL for a type without panels. */
static inline const wf_quant_layout *wf_quant_layout_of(wf_type type)
{
    bool known = (size_t)type < sizeof wf_quant_layouts / sizeof *wf_quant_layouts &&
                 wf_quant_layouts[type].block;
    return known ? &wf_quant_layouts[type] : NULL;
}

/* Parts of a block: runs of 32 elements, each multiplied by one block of activations. */
WF_INLINE int wf_quant_parts(wf_type type)
{
    return wf_quant_layouts[type].block / WF_QUANT_BLOCK;
}

/* Whether integers are signed, so that pairs extend their sign. */
WF_INLINE bool wf_quant_signed(wf_type type)
{
    return wf_quant_layouts[type].bits == 8 || wf_quant_layouts[type].levels;
}

/* Whether each 16 elements have an integer scale, which multiplies the integers. */
WF_INLINE bool wf_quant_grouped(wf_type type)
{
    return wf_quant_layouts[type].scaling >= WF_QUANT_BY_GROUP;
}

/* Totals of activations per block: one for each minimum of a part, at least one. */
WF_INLINE int wf_quant_totals(wf_type type)
{
    return wf_quant_layouts[type].mins == 2 ? 2 : 1;
}

/* Whether small batches use digits (quant.h). The byte instructions take unsigned weights, so signed
 * integers get flipped sign bits unless there is an instruction for signed bytes. That needs wide
 * sums. Panels of q8_0 use pairs: extending a sign costs less than the second digit. */
WF_INLINE bool wf_quant_digits(wf_type type, bool packed)
{
    const bool flips = wf_quant_layouts[type].levels || !packed;
    return !wf_quant_signed(type) || (flips && WF_VQ_WIDE);
}

/* The constant to subtract from integers in digits: those of signed types have flipped sign bits
 * unless the byte instructions take signed weights. */
#define WF_QUANT_FLIPPED_OFFSET (WF_VQ_SIGNED ? 0 : 128)
WF_INLINE int wf_quant_digits_offset(wf_type type)
{
    return wf_quant_signed(type) ? WF_QUANT_FLIPPED_OFFSET : wf_quant_layouts[type].offset;
}

/* The same for all small batches. Levels in pairs have flipped sign bits: to extend zeros takes fewer
 * instructions than to extend signs. */
WF_INLINE int wf_quant_few_offset(wf_type type, bool packed)
{
    return wf_quant_digits(type, packed)   ? wf_quant_digits_offset(type)
           : wf_quant_layouts[type].levels ? 128
                                           : 0;
}

/* The current block of a panel. The steps are bytes to the next block. */
typedef struct {
    const uint8_t *scales, *words;
    int scale_step, word_step;
} wf_quant_panel;

static inline wf_quant_panel wf_quant_panel_at(const wf_view *w, int64_t index)
{
    const wf_quant_layout *y = wf_quant_layout_of(w->type);
    const uint8_t *base = (const uint8_t *)w->data + index * wf_quant_panel_bytes(y, w->dim[1]);
    return (wf_quant_panel){base, base + wf_quant_scale_bytes(y, w->dim[1]),
                            (2 * y->halves + y->scales) * WF_VL, y->words * 4 * WF_VL};
}

static inline wf_quant_panel wf_quant_panel_next(wf_quant_panel p, int64_t blocks)
{
    p.scales += blocks * p.scale_step;
    p.words += blocks * p.word_step;
    return p;
}

/* Weights of q8_0 or q6_K in the file's layout (quant_direct.c).
 *
 * wf_quant_direct_few multiplies `count` rows of x, at most 4, by WF_VL rows of w: `first`,
 * first + apart, and so on. The result is out [count][WF_VL]. Where w has fewer rows left, the remaining
 * lanes repeat the last row.
 *
 * wf_quant_direct_part packs `blocks` blocks of 32 of one panel, from `block` on, into `to`, which has
 * wf_quant_panel_bytes of these blocks. */
#define wf_quant_direct_few WF_SIMD(wf_quant_direct_few)
#define wf_quant_direct_part WF_SIMD(wf_quant_direct_part)
void wf_quant_direct_few(const wf_view *w, int64_t first, int64_t apart, const wf_quant_rows *x,
                         int count, float *out);
wf_quant_panel wf_quant_direct_part(const wf_view *w, int64_t panel, int64_t block, int blocks,
                                    void *to);
/* Accepts a weight in the file's layout only if the session allows rounded activations
 * (WF_MARK_ROUNDED). */
#define wf_quant_direct_accepts WF_SIMD(wf_quant_direct_accepts)
bool wf_quant_direct_accepts(const wf_device *device, const wf_node *n);

/* The integer scale of a group of 16 elements. */
WF_INLINE vi wf_quant_group_scale(wf_type type, const uint8_t *scales, int group)
{
    const wf_quant_layout *y = &wf_quant_layouts[type];
    const uint8_t *at = scales + (2 * y->halves + group) * WF_VL;
    return y->scaling == WF_QUANT_BY_GROUP_MIN ? vi_and(vi_from_u8(at), vi_set(15))
                                               : vi_from_i8((const int8_t *)at);
}

/* The same in both i16 of each lane. */
WF_INLINE vi wf_quant_group_pair(wf_type type, const uint8_t *scales, int group)
{
    vi s = wf_quant_group_scale(type, scales, group);
    return vi_or(vi_shl(s, 16), vi_and(s, vi_set(0xffff)));
}

/* The scale and the minimum of a part. Groups may have further scales. */
WF_INLINE vf wf_quant_scale_of(wf_type type, const uint8_t *scales, int part)
{
    vf d = vf_load_f16((const void *)scales);
    if (wf_quant_layouts[type].scaling == WF_QUANT_BY_PART_MIN)
        d = vf_mul(d, vi_to_vf(vi_from_u8(scales + (4 + 2 * part) * WF_VL)));
    if (wf_quant_layouts[type].scaling == WF_QUANT_BY_PART)
        d = vf_mul(d, vi_to_vf(vi_from_i8((const int8_t *)scales + (2 + part) * WF_VL)));
    return d;
}

/* With two minima per part, i is the half. */
WF_INLINE vf wf_quant_min_of(wf_type type, const uint8_t *scales, int part, int i)
{
    vf m = vf_load_f16((const void *)(scales + 2 * WF_VL));
    if (wf_quant_layouts[type].scaling == WF_QUANT_BY_PART_MIN)
        m = vf_mul(vf_neg(m), vi_to_vf(vi_from_u8(scales + (5 + 2 * part) * WF_VL)));
    if (wf_quant_layouts[type].scaling == WF_QUANT_BY_GROUP_MIN) {
        vi both = vi_from_u8(scales + (4 + 2 * part + i) * WF_VL);
        m = vf_mul(vf_neg(m), vi_to_vf(vi_shr(both, 4)));
    }
    return m;
}

/* q6_K: converts three words of the file to those of a panel (quant.h). On input, of 128 elements:
 * word[0] has the low 4 bits of runs 0 and 2 (of 32), word[1] those of runs 1 and 3, word[2] the
 * high 2 bits of all four. */
WF_INLINE void wf_quant_mix(vi word[3])
{
    const vi low4 = vi_set(0x0f0f0f0f), high2 = vi_set(0x30303030), top2 = vi_set((int)0xc0c0c0c0);
    const vi even = word[0], odd = word[1], high = word[2];
    vi first = vi_or(vi_and(even, low4), vi_and(vi_shl(high, 4), high2));
    vi second = vi_or(vi_and(odd, low4), vi_and(vi_shl(high, 2), high2));
    word[0] = vi_or(first, vi_and(vi_shl(odd, 2), top2));
    word[1] = vi_or(second, vi_and(odd, top2));
    word[2] = vi_or(vi_and(vi_shr(even, 4), low4), vi_and(high, vi_or(high2, top2)));
}

/* Levels of iq4_nl (wf_iq4_level), and the same with flipped sign bits. */
static const uint8_t wf_quant_levels[2][16] = {
    {129, 152, 173, 191, 207, 221, 234, 246, 1, 13, 25, 38, 53, 69, 89, 113},
    {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241},
};

/* Shifts bits of each lane to the left, or to the right if n < 0. */
WF_INLINE vi wf_quant_shift(vi x, int n)
{
    return n > 0 ? vi_shl(x, n) : n < 0 ? vi_shr(x, -n) : x;
}

/* Returns elements [4 u, 4 u + 4) of a part, u 0 to 7, in the bytes of each lane: integers as
 * stored, levels with flipped sign bits if `flip`. `part` and u are constants. */
WF_INLINE vi wf_quant_bytes_of(wf_type type, bool flip, const uint8_t *words, int part, int u)
{
    const wf_quant_layout *y = &wf_quant_layouts[type];
    const int word = 4 * WF_VL, i = part % y->run, first = part - i;
    if (y->bits == 8)
        return vi_load(words + u * word);
    if (y->bits == 6) {
        const uint8_t *three = words + (first * 6 + u) * word;
        if (i < 3)
            return vi_and(vi_load(three + i * 8 * word), vi_set(0x3f3f3f3f));
        vi low = vi_and(vi_shr(vi_load(three), 6), vi_set(0x03030303));
        vi mid = vi_and(vi_shr(vi_load(three + 8 * word), 4), vi_set(0x0c0c0c0c));
        vi high = vi_and(vi_shr(vi_load(three + 16 * word), 2), vi_set(0x30303030));
        return vi_or(vi_or(low, mid), high);
    }
    /* The lower 2 or 4 bits: `count` words per run. The fields of a byte are elements 16 apart, or
     * different parts. */
    const int highs = y->bits % 2, low = y->bits - highs, count = low * y->run;
    const uint8_t *run = words + (highs * wf_quant_parts(type) + first * low) * word;
    vi x = vi_and(vi_shr(vi_load(run + u % count * word), low * (u / count + i)),
                  vi_set(0x01010101 * ((1 << low) - 1)));
    if (highs) {
        vi high = vi_load(words + (first + u % y->run) * word);
        high = wf_quant_shift(high, low - (u - u % y->run + i));
        x = vi_or(x, vi_and(high, vi_set(0x01010101 << low)));
    }
    return y->levels ? vi_lookup(wf_quant_levels[flip], x) : x;
}

/* Dot product of signed bytes with a block of activations in pairs. Two sums shorten the chain. */
WF_INLINE vi wf_quant_dot_pairs(const vi word[WF_QUANT_FOURS], const int32_t *pairs)
{
    vi sum = vi_zero(), other = vi_zero();
#pragma GCC unroll 16
    for (int i = 0; i < WF_QUANT_PAIRS; i++) {
        vi w = word[wf_quant_four(i)], a = vi_set(pairs[i]);
        w = vp_sra(i % 2 ? w : vp_shl(w, 8), 8);
        if (wf_quant_four(i) < 4)
            sum = vp_dot(sum, w, a);
        else
            other = vp_dot(other, w, a);
    }
    return vi_add(sum, other);
}

#endif
