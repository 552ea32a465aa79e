/* SPDX-License-Identifier: MIT */
/*
 * codec.h - the definition of each quantized type: how a block is stored and how it is decoded.
 *
 * Device code and C compile this file alike, so a decode function is written once. wf_decode_WORD
 * decodes elements [8 part, 8 part + 8) of a block: in every type these share one scale. All
 * products are exact in f32, so an element is rounded at most once and has the same bits on every
 * device.
 *
 * Encode functions (wf_encode_fn of encode.h) are in encode.c and encode_k.c, short ones also here.
 * Only C compiles them.
 *
 *     type   elements  bytes  an element is        groups of a block
 *     q8_0      32       34   d q
 *     q4_0      32       18   d (q - 8)
 *     q4_1      32       20   d q + m
 *     q4_K     256      144   d s q - dmin m       8 of 32, s and m of 6 bits each
 *     q6_K     256      210   d s (q - 32)         16 of 16, s of 8 bits
 *     q5_0      32       22   d (q - 16)
 *     q5_K     256      176   d s q - dmin m       as q4_K
 *     q5_1      32       24   d q + m
 *     q3_K     256      110   d s (q - 4)          16 of 16, s of 6 bits, signed
 *     q2_K     256       84   d s q - dmin m       16 of 16, s and m of 4 bits each
 *     iq4_nl    32       18   d level[q]
 *     iq4_xs   256      136   d s level[q]         8 of 32, s of 6 bits, signed
 *
 * d, dmin and the m of q4_1 and q5_1 are f16. The layouts are those of GGUF files, byte for byte.
 */
#ifndef WF_GRAPH_QUANT_CODEC_H
#define WF_GRAPH_QUANT_CODEC_H

#include <stdint.h>

/* An includer that compiles for a device defines these first. */
#ifndef WF_CODEC
#include <string.h>

#include "base/half.h"
#include "graph/quant/encode.h"
#include "graph/quant/fit.h"
#define WF_CODEC static inline
#define WF_CODEC_F16(code) wf_f16_to_f32(code)
#define WF_CODEC_UNROLL
#endif

/* No struct has padding; all are aligned to 2 bytes. */
typedef struct {
    uint16_t d;
    int8_t q[32];
} wf_block_q8_0;

typedef struct {
    uint16_t d;
    uint8_t q[16]; /* low 4 bits: element i, high 4 bits: element i + 16; q4_1 is alike */
} wf_block_q4_0;

/* q as in q4_0. */
typedef struct {
    uint16_t d, m;
    uint8_t q[16];
} wf_block_q4_1;

typedef struct {
    uint16_t d, dmin;
    uint8_t scales[12]; /* s and m of the groups: wf_q4_k_scales */
    uint8_t q[128];     /* 32 bytes per two groups: low 4 bits are the first, high 4 the second */
} wf_block_q4_k;

typedef struct {
    uint8_t
        low[128]; /* for each half of 128 elements 64 bytes: low 4 bits, as in q4_K, of 4 x 32 */
    uint8_t high[64]; /* and 32 bytes: the high 2 bits of elements i, i + 32, i + 64, i + 96 */
    int8_t scales[16];
    uint16_t d;
} wf_block_q6_k;

/* Groups 0 .. 3 have the low 6 bits of bytes 0 .. 3 (s) and 4 .. 7 (m). Groups 4 .. 7 have their
 * low 4 bits in bytes 8 .. 11, s below m, and the high 2 bits on top of bytes 0 .. 3 and 4 .. 7. */
WF_CODEC void wf_q4_k_scales(const uint8_t *scales, int group, int *s, int *m)
{
    const int i = group & 3;
    *s = group < 4 ? scales[i] & 63 : (scales[i + 8] & 15) | scales[i] >> 6 << 4;
    *m = group < 4 ? scales[i + 4] & 63 : scales[i + 8] >> 4 | scales[i + 4] >> 6 << 4;
}

/* Eight bytes from an even address: blocks are aligned to 2 bytes only. */
WF_CODEC uint64_t wf_codec_bytes8(const void *from)
{
    const uint16_t *p = (const uint16_t *)from;
    return (uint64_t)p[0] | (uint64_t)p[1] << 16 | (uint64_t)p[2] << 32 | (uint64_t)p[3] << 48;
}

WF_CODEC void wf_decode_q8_0(const void *block, int part, float *to)
{
    const wf_block_q8_0 *b = (const wf_block_q8_0 *)block;
    const float d = WF_CODEC_F16(b->d);
    const uint64_t q = wf_codec_bytes8(b->q + 8 * part);
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++)
        to[i] = (float)(int8_t)(q >> 8 * i) * d; /* the cast to int8_t restores the sign */
}

WF_CODEC void wf_decode_q4_0(const void *block, int part, float *to)
{
    const wf_block_q4_0 *b = (const wf_block_q4_0 *)block;
    const float d = WF_CODEC_F16(b->d);
    /* Elements 16 to 31 (parts 2 and 3) are the high halves of the same bytes. */
    const uint64_t q = wf_codec_bytes8(b->q + 8 * (part & 1)) >> 4 * (part >> 1);
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++)
        to[i] = (float)((int)(q >> 8 * i & 15) - 8) * d;
}

WF_CODEC void wf_decode_q4_1(const void *block, int part, float *to)
{
    const wf_block_q4_1 *b = (const wf_block_q4_1 *)block;
    const float d = WF_CODEC_F16(b->d), m = WF_CODEC_F16(b->m);
    const uint64_t q = wf_codec_bytes8(b->q + 8 * (part & 1)) >> 4 * (part >> 1);
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++)
        to[i] = (float)(int)(q >> 8 * i & 15) * d + m;
}

WF_CODEC void wf_decode_q4_k(const void *block, int part, float *to)
{
    const wf_block_q4_k *b = (const wf_block_q4_k *)block;
    const int group = part >> 2;
    int s, m;
    wf_q4_k_scales(b->scales, group, &s, &m);
    const float d = WF_CODEC_F16(b->d) * (float)s, least = WF_CODEC_F16(b->dmin) * (float)m;
    const uint64_t q =
        /* Odd groups are the high halves. */
        wf_codec_bytes8(b->q + 32 * (group >> 1) + 8 * (part & 3)) >> 4 * (group & 1);
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++)
        to[i] = d * (float)(int)(q >> 8 * i & 15) - least;
}

WF_CODEC void wf_decode_q6_k(const void *block, int part, float *to)
{
    const wf_block_q6_k *b = (const wf_block_q6_k *)block;
    const int half = part >> 4, quarter = part >> 2 & 3, first = 8 * (part & 3);
    const float scale = WF_CODEC_F16(b->d) * (float)b->scales[part >> 1];
    const uint64_t low =
        wf_codec_bytes8(b->low + 64 * half + 32 * (quarter & 1) + first) >> 4 * (quarter >> 1);
    const uint64_t high = wf_codec_bytes8(b->high + 32 * half + first) >> 2 * quarter;
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++) {
        const int q = (int)(low >> 8 * i & 15) | (int)(high >> 8 * i & 3) << 4;
        to[i] = scale * (float)(q - 32);
    }
}

/* ---- q5_0 ---- */

typedef struct {
    uint16_t d;
    uint8_t high[4]; /* bit i of the 32: the fifth bit of element i */
    uint8_t low[16]; /* as in q4_0 */
} wf_block_q5_0;

WF_CODEC void wf_decode_q5_0(const void *block, int part, float *to)
{
    const wf_block_q5_0 *b = (const wf_block_q5_0 *)block;
    const float d = WF_CODEC_F16(b->d);
    const uint64_t low = wf_codec_bytes8(b->low + 8 * (part & 1)) >> 4 * (part >> 1);
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++) {
        const int q = (int)(low >> 8 * i & 15) | (b->high[part] >> i & 1) << 4;
        to[i] = (float)(q - 16) * d;
    }
}

#ifndef __cplusplus
static inline void wf_encode_q5_0(const float *x, const float *w, void *block)
{
    wf_block_q5_0 *b = block;
    float ones[32];
    for (int i = 0; i < 32; i++)
        ones[i] = 1;
    memset(b, 0, sizeof *b);
    b->d = wf_fit_store(wf_fit_scale(x, w ? w : ones, 32, -16, 15));
    const float d = wf_f16_to_f32(b->d), inverse = d != 0 ? 1 / d : 0;
    for (int i = 0; i < 32; i++) {
        const int q = (int)wf_fit_nearest(x[i] * inverse, -16, 15) + 16;
        b->low[i % 16] |= (uint8_t)((q & 15) << i / 16 * 4);
        b->high[i / 8] |= (uint8_t)(q >> 4 << i % 8);
    }
}
#endif

/* ---- q5_K ---- */

typedef struct {
    uint16_t d, dmin;
    uint8_t scales[12]; /* as in q4_K */
    uint8_t high[32];   /* bit g of byte i: the fifth bit of element i of group g */
    uint8_t low[128];   /* as in q4_K */
} wf_block_q5_k;

WF_CODEC void wf_decode_q5_k(const void *block, int part, float *to)
{
    const wf_block_q5_k *b = (const wf_block_q5_k *)block;
    const int group = part >> 2, first = 8 * (part & 3);
    int s, m;
    wf_q4_k_scales(b->scales, group, &s, &m);
    const float d = WF_CODEC_F16(b->d) * (float)s, least = WF_CODEC_F16(b->dmin) * (float)m;
    const uint64_t low = wf_codec_bytes8(b->low + 32 * (group >> 1) + first) >> 4 * (group & 1);
    const uint64_t high = wf_codec_bytes8(b->high + first) >> group;
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++) {
        const int q = (int)(low >> 8 * i & 15) | (int)(high >> 8 * i & 1) << 4;
        to[i] = d * (float)q - least;
    }
}

#ifndef __cplusplus
static inline void wf_encode_q5_k(const float *x, const float *w, void *block)
{
    wf_block_q5_k *to = block;
    wf_k_block b;
    wf_encode_k_affine(x, w, 31, &b);
    memset(to, 0, sizeof *to);
    to->d = b.d;
    to->dmin = b.dmin;
    memcpy(to->scales, b.scales, sizeof to->scales);
    for (int i = 0; i < 256; i++) {
        to->low[i / 64 * 32 + i % 32] |= (uint8_t)((b.q[i] & 15) << 4 * (i / 32 & 1));
        to->high[i % 32] |= (uint8_t)(b.q[i] >> 4 << i / 32);
    }
}
#endif

/* ---- q5_1 ---- */

typedef struct {
    uint16_t d, m;
    uint8_t high[4]; /* as in q5_0 */
    uint8_t low[16]; /* as in q4_0 */
} wf_block_q5_1;

WF_CODEC void wf_decode_q5_1(const void *block, int part, float *to)
{
    const wf_block_q5_1 *b = (const wf_block_q5_1 *)block;
    const float d = WF_CODEC_F16(b->d), m = WF_CODEC_F16(b->m);
    const uint64_t low = wf_codec_bytes8(b->low + 8 * (part & 1)) >> 4 * (part >> 1);
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++) {
        const int q = (int)(low >> 8 * i & 15) | (b->high[part] >> i & 1) << 4;
        to[i] = (float)q * d + m;
    }
}

/* ---- q3_K ---- */

typedef struct {
    uint8_t high[32];   /* bit g of byte i: the third bit of element i of the g-th 32 elements */
    uint8_t low[64];    /* for each half of 128 elements 32 bytes: 2 bits of i, i + 32, ... */
    uint8_t scales[12]; /* wf_q3_k_scale */
    uint16_t d;
} wf_block_q3_k;

/* Returns s of a group, -32 .. 31. Bytes 0 .. 7 have the low 4 bits of groups 0 .. 7 below those of
 * groups 8 .. 15; byte 8 + i has the high 2 bits of groups i, i + 4, i + 8 and i + 12. */
WF_CODEC int wf_q3_k_scale(const uint8_t *scales, int group)
{
    const int low = scales[group & 7] >> 4 * (group >> 3) & 15;
    const int high = scales[8 + (group & 3)] >> 2 * (group >> 2) & 3;
    return (low | high << 4) - 32;
}

WF_CODEC void wf_decode_q3_k(const void *block, int part, float *to)
{
    const wf_block_q3_k *b = (const wf_block_q3_k *)block;
    const int half = part >> 4, quarter = part >> 2 & 3, first = 8 * (part & 3);
    const float scale = WF_CODEC_F16(b->d) * (float)wf_q3_k_scale(b->scales, part >> 1);
    const uint64_t low = wf_codec_bytes8(b->low + 32 * half + first) >> 2 * quarter;
    const uint64_t high = wf_codec_bytes8(b->high + first) >> (part >> 2);
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++) {
        const int q = (int)(low >> 8 * i & 3) | (int)(high >> 8 * i & 1) << 2;
        to[i] = scale * (float)(q - 4);
    }
}

/* ---- q2_K ---- */

typedef struct {
    uint8_t scales[16]; /* low 4 bits: s, high 4 bits: m */
    uint8_t q[64];      /* as the low bits of q3_K */
    uint16_t d, dmin;
} wf_block_q2_k;

WF_CODEC void wf_decode_q2_k(const void *block, int part, float *to)
{
    const wf_block_q2_k *b = (const wf_block_q2_k *)block;
    const int half = part >> 4, quarter = part >> 2 & 3, scales = b->scales[part >> 1];
    const float d = WF_CODEC_F16(b->d) * (float)(scales & 15);
    const float least = WF_CODEC_F16(b->dmin) * (float)(scales >> 4);
    const uint64_t q = wf_codec_bytes8(b->q + 32 * half + 8 * (part & 3)) >> 2 * quarter;
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++)
        to[i] = d * (float)(int)(q >> 8 * i & 3) - least;
}

/* ---- iq4_nl and iq4_xs ---- */

/* The 16 levels: -127 -104 -83 -65 -49 -35 -22 -10 1 13 25 38 53 69 89 113. They are bytes of two
 * constants, because devices index registers faster than tables. */
WF_CODEC int wf_iq4_level(int q)
{
    const uint64_t levels = q & 8 ? 0x7159453526190D01u : 0xF6EADDCFBFAD9881u;
    return (int8_t)(levels >> 8 * (q & 7));
}

typedef struct {
    uint16_t d;
    uint8_t q[16]; /* as in q4_0 */
} wf_block_iq4_nl;

WF_CODEC void wf_decode_iq4_nl(const void *block, int part, float *to)
{
    const wf_block_iq4_nl *b = (const wf_block_iq4_nl *)block;
    const float d = WF_CODEC_F16(b->d);
    const uint64_t q = wf_codec_bytes8(b->q + 8 * (part & 1)) >> 4 * (part >> 1);
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++)
        to[i] = d * (float)wf_iq4_level((int)(q >> 8 * i & 15));
}

typedef struct {
    uint16_t d;
    uint16_t scales_high;  /* 2 bits per group, group 0 lowest */
    uint8_t scales_low[4]; /* 4 bits per group, the even group lower */
    uint8_t q[128];        /* 16 bytes per group, as in q4_0 */
} wf_block_iq4_xs;

WF_CODEC void wf_decode_iq4_xs(const void *block, int part, float *to)
{
    const wf_block_iq4_xs *b = (const wf_block_iq4_xs *)block;
    const int group = part >> 2;
    const int low = b->scales_low[group >> 1] >> 4 * (group & 1) & 15;
    const int s = (low | (b->scales_high >> 2 * group & 3) << 4) - 32;
    const float scale = WF_CODEC_F16(b->d) * (float)s;
    const uint64_t q = wf_codec_bytes8(b->q + 16 * group + 8 * (part & 1)) >> 4 * (part >> 1 & 1);
    WF_CODEC_UNROLL
    for (int i = 0; i < 8; i++)
        to[i] = scale * (float)wf_iq4_level((int)(q >> 8 * i & 15));
}

#endif
