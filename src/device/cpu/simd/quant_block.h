/* SPDX-License-Identifier: MIT */
/* quant_block.h - where the blocks of a weight lie, packed (quant.h) or as a file has them, and
 * what scales their integers. */
#ifndef WF_DEVICE_CPU_SIMD_QUANT_BLOCK_H
#define WF_DEVICE_CPU_SIMD_QUANT_BLOCK_H

#include "device/cpu/simd/quant.h"

/* Types of weft_quant.def that have panels, and those that are multiplied where they lie, too. */
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
/* X(NAME) for each type that has panels, and the sets of types. */
#define WF_QUANT_TYPES(X) WF_QUANT_TABLE(WF_QUANT_IF_PANEL, X)
#define WF_QUANT_PANEL_TYPES (0 WF_QUANT_TYPES(WF_QUANT_OR_BIT))
#define WF_QUANT_DIRECT_TYPES (0 WF_QUANT_TABLE(WF_QUANT_IF_DIRECT, WF_QUANT_OR_BIT))

/* A panel, and how far it is to the next block of the file. */
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

/* Weights of q8_0 or q6_K that are rows of blocks, as in a file (quant_direct.c): out
 * [count][WF_VL], `count` rows of x, at most 4, by WF_VL rows of w that are so many apart, or by
 * neighbours, as many as there are; and some blocks of 32 of a panel, made in memory of
 * wf_quant_panel_bytes. */
#define wf_quant_direct_few WF_SIMD(wf_quant_direct_few)
#define wf_quant_direct_part WF_SIMD(wf_quant_direct_part)
void wf_quant_direct_few(const wf_view *w, int64_t first, int64_t apart, const wf_quant_rows *x,
                         int count, float *out);
wf_quant_panel wf_quant_direct_part(const wf_view *w, int64_t panel, int64_t block, int blocks,
                                    void *to);
/* What lies in a file is multiplied by numbers that are rounded only where the session may do
 * so. */
#define wf_quant_direct_accepts WF_SIMD(wf_quant_direct_accepts)
bool wf_quant_direct_accepts(const wf_device *device, const wf_node *n);

/* Blocks of 32 in a block of the type. */
#define WF_QUANT_PARTS(type) ((type) == WF_Q4_K || (type) == WF_Q6_K ? 8 : 1)
/* Whether a number has something added that does not depend on its integer. */
#define WF_QUANT_HAS_MINS(type) ((type) == WF_Q4_1 || (type) == WF_Q4_K)
/* Whether few rows meet weights digit by digit: where integers as they are stored are not negative.
 * Those of q8_0 have their sign turned on the way from a file, or are taken as they are. */
#define WF_QUANT_DIGITS(type, packed) ((type) != WF_Q8_0 || (!(packed) && WF_VQ_WIDE))
/* What is to be taken off the integers as they are stored, or as they are once their sign was
 * turned. */
#define WF_QUANT_OFFSET(type) ((type) == WF_Q4_0 ? 8 : (type) == WF_Q6_K ? 32 : 0)
#define WF_QUANT_TURNED_OFFSET (WF_VQ_SIGNED ? 0 : 128)

/* The groups of 16 of q6_K: what each is multiplied by. */
WF_INLINE vi wf_quant_group_scale(const uint8_t *scales, int group)
{
    return vi_from_i8((const int8_t *)scales + (2 + group) * WF_VL);
}

/* What an integer of the part is multiplied by, and what is added. */
WF_INLINE vf wf_quant_scale_of(wf_type type, const uint8_t *scales, int part)
{
    vf d = vf_load_f16((const void *)scales);
    if (type == WF_Q4_K)
        d = vf_mul(d, vi_to_vf(vi_from_u8(scales + (4 + 2 * part) * WF_VL)));
    return d;
}

WF_INLINE vf wf_quant_min_of(wf_type type, const uint8_t *scales, int part)
{
    vf m = vf_load_f16((const void *)(scales + 2 * WF_VL));
    if (type == WF_Q4_K)
        m = vf_mul(vf_neg(m), vi_to_vf(vi_from_u8(scales + (5 + 2 * part) * WF_VL)));
    return m;
}

/* A word each of what a file has of q6_K: the low bits of the first and third 32 numbers of 128,
 * those of the second and fourth, the high bits of all; to the three that quant.h wants. */
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

/* Four u of part `part`, 0 to 7, in the bytes of a lane: integers as they are stored, none of them
 * negative. Not for q8_0, whose words are what they are. */
WF_INLINE vi wf_quant_bytes_of(wf_type type, const uint8_t *words, int part, int u)
{
    const int word = 4 * WF_VL;
    const vi low4 = vi_set(0x0f0f0f0f);
    if (type == WF_Q6_K) {
        const uint8_t *three = words + (part / 4 * 24 + u) * word;
        if (part % 4 < 3)
            return vi_and(vi_load(three + part % 4 * 8 * word), vi_set(0x3f3f3f3f));
        vi low = vi_and(vi_shr(vi_load(three), 6), vi_set(0x03030303));
        vi mid = vi_and(vi_shr(vi_load(three + 8 * word), 4), vi_set(0x0c0c0c0c));
        vi high = vi_and(vi_shr(vi_load(three + 16 * word), 2), vi_set(0x30303030));
        return vi_or(vi_or(low, mid), high);
    }
    if (type == WF_Q4_K)
        return vi_and(vi_shr(vi_load(words + (8 * (part / 2) + u) * word), 4 * (part % 2)), low4);
    return vi_and(vi_shr(vi_load(words + u % 4 * word), 4 * (u / 4)), low4);
}

/* Words of a block of q8_0 by the pairs of a block of activations. */
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
