/* SPDX-License-Identifier: MIT */
/*
 * number_block.c - decodes one element of a quantized block in float64, from the definition of the
 * format. It shares no code with the decoders of the devices.
 */
#include <math.h>

#include "graph/quant/block.h"
#include "selftest/number.h"

/* Decodes an f16 in little endian. */
static double half(const uint8_t *at)
{
    int bits = at[0] | at[1] << 8, exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 31  ? (fraction ? NAN : INFINITY)
                  : exponent == 0 ? ldexp(fraction, -24)
                                  : ldexp(1024 + fraction, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

/* Returns bits [first, first + n) of a byte. */
static int bits(uint8_t byte, int first, int n)
{
    return byte >> first & ((1 << n) - 1);
}

/* Returns the 4-bit value i of a block of 32. */
static int half_byte(const uint8_t *q, int i)
{
    return bits(q[i % 16], i / 16 * 4, 4);
}

/* 32 elements in 34 bytes: f16 d, 32 signed bytes. */
static double number_q8_0(const uint8_t *b, int i)
{
    return half(b) * (int8_t)b[2 + i];
}

/* 32 elements in 18 bytes: f16 d, 16 bytes of 4-bit numbers. */
static double number_q4_0(const uint8_t *b, int i)
{
    return half(b) * (half_byte(b + 2, i) - 8);
}

/* 32 elements in 20 bytes: f16 d, f16 minimum, 16 bytes of 4-bit numbers. */
static double number_q4_1(const uint8_t *b, int i)
{
    return half(b) * half_byte(b + 4, i) + half(b + 2);
}

/* 32 elements in 22 bytes: f16 d, 32 bits, of which bit i is the fifth bit of element i, 16 bytes
 * with the lower 4 bits. */
static double number_q5_0(const uint8_t *b, int i)
{
    return half(b) * (half_byte(b + 6, i) + 16 * bits(b[2 + i / 8], i % 8, 1) - 16);
}

/* Returns element i of q4_K or q5_K, whose number is q. Both begin with f16 d, f16 dmin, 8 scales
 * and 8 minima of 6 bits in 12 bytes, one of each per group of 32. An element is d scale q - dmin
 * min. */
static double scaled_k(const uint8_t *b, int i, int q)
{
    const uint8_t *s = b + 4;
    int group = i / 32, scale, min;
    /* The upper two bits of the last four groups are in the bytes of the first four. */
    if (group < 4) {
        scale = bits(s[group], 0, 6);
        min = bits(s[group + 4], 0, 6);
    } else {
        scale = bits(s[group + 4], 0, 4) + 16 * bits(s[group - 4], 6, 2);
        min = bits(s[group + 4], 4, 4) + 16 * bits(s[group], 6, 2);
    }
    return half(b) * scale * q - half(b + 2) * min;
}

/* Returns the lower 4 bits of element i of q4_K or q5_K. Two groups share 32 bytes, the even one in
 * the low halves. */
static int low_k(const uint8_t *q, int i)
{
    return bits(q[i / 64 * 32 + i % 32], i / 32 % 2 * 4, 4);
}

/* 256 elements in 144 bytes: scales as above, 128 bytes of 4-bit numbers. */
static double number_q4_k(const uint8_t *b, int i)
{
    return scaled_k(b, i, low_k(b + 16, i));
}

/* 256 elements in 176 bytes: scales as above, 32 bytes with the fifth bits, of which element i has
 * bit i / 32 of byte i % 32, 128 bytes with the lower 4 bits. */
static double number_q5_k(const uint8_t *b, int i)
{
    return scaled_k(b, i, low_k(b + 48, i) + 16 * bits(b[16 + i % 32], i / 32, 1));
}

/* 256 elements in 210 bytes: 128 bytes with the lower 4 bits, 64 with the upper 2, 16 scales of 8
 * bits, f16 d. An element is d scale (number - 32). */
static double number_q6_k(const uint8_t *b, int i)
{
    const uint8_t *low = b + i / 128 * 64, *high = b + 128 + i / 128 * 32;
    int in_half = i % 128;
    int number = bits(low[in_half % 64], in_half / 64 * 4, 4) +
                 16 * bits(high[in_half % 32], in_half / 32 * 2, 2);
    return half(b + 208) * (int8_t)b[192 + i / 16] * (number - 32);
}

/* 32 elements in 24 bytes: f16 d, f16 minimum, then as q5_0. */
static double number_q5_1(const uint8_t *b, int i)
{
    return half(b) * (half_byte(b + 8, i) + 16 * bits(b[4 + i / 8], i % 8, 1)) + half(b + 2);
}

/* Returns the 2-bit value i of a block of 256: 128 elements share 32 bytes. */
static int quarter_byte(const uint8_t *q, int i)
{
    return bits(q[i / 128 * 32 + i % 32], i % 128 / 32 * 2, 2);
}

/* 256 elements in 84 bytes: 16 bytes with 4-bit scales below 4-bit minima, one per group of 16, 64
 * bytes of 2-bit numbers, f16 d, f16 dmin. */
static double number_q2_k(const uint8_t *b, int i)
{
    uint8_t scales = b[i / 16];
    return half(b + 80) * bits(scales, 0, 4) * quarter_byte(b + 16, i) -
           half(b + 82) * bits(scales, 4, 4);
}

/* 256 elements in 110 bytes: 32 bytes with the third bits, of which element i has bit i / 32 of byte
 * i % 32, 64 bytes with the lower 2 bits, 16 scales of 6 bits in 12 bytes, f16 d. An element is d
 * (scale - 32) (number - 4). */
static double number_q3_k(const uint8_t *b, int i)
{
    const uint8_t *s = b + 96;
    int group = i / 16;
    int scale =
        bits(s[group % 8], group / 8 * 4, 4) + 16 * bits(s[8 + group % 4], group / 4 * 2, 2);
    int number = quarter_byte(b + 32, i) + 4 * bits(b[i % 32], i / 32, 1);
    return half(b + 108) * (scale - 32) * (number - 4);
}

static const int levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};

/* 32 elements in 18 bytes: f16 d, 16 bytes of 4-bit indices of levels. */
static double number_iq4_nl(const uint8_t *b, int i)
{
    return half(b) * levels[half_byte(b + 2, i)];
}

/* 256 elements in 136 bytes: f16 d, 2 bytes with the upper 2 bits of 8 scales, 4 bytes with their
 * lower 4 bits, 16 bytes of indices for each group of 32. An element is d (scale - 32) level. */
static double number_iq4_xs(const uint8_t *b, int i)
{
    int group = i / 32;
    int scale =
        bits(b[4 + group / 2], group % 2 * 4, 4) + 16 * bits(b[2 + group / 4], group % 4 * 2, 2);
    return half(b) * (scale - 32) * levels[half_byte(b + 8 + 16 * group, i % 32)];
}

typedef double definition(const uint8_t *block, int i);
static definition *const definitions[WF_TYPE_COUNT] = {
    [WF_Q8_0] = number_q8_0, [WF_Q4_0] = number_q4_0,     [WF_Q4_1] = number_q4_1,
    [WF_Q5_0] = number_q5_0, [WF_Q4_K] = number_q4_k,     [WF_Q5_K] = number_q5_k,
    [WF_Q6_K] = number_q6_k, [WF_Q5_1] = number_q5_1,     [WF_Q3_K] = number_q3_k,
    [WF_Q2_K] = number_q2_k, [WF_IQ4_NL] = number_iq4_nl, [WF_IQ4_XS] = number_iq4_xs,
};

bool wf_number_block_defined(wf_type type)
{
    return definitions[type] != NULL;
}

double wf_number_of_block(wf_type type, const void *from, int64_t index)
{
    const wf_type_info *info = wf_type_get(type);
    const uint8_t *b = (const uint8_t *)from + index / info->block * info->block_bytes;
    int i = (int)(index % info->block);
    if (definitions[type])
        return definitions[type](b, i);
    float x[8];
    wf_block_decode8(type, b, i / 8, x);
    return x[i % 8];
}
