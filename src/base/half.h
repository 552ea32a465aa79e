/* SPDX-License-Identifier: MIT */
/* half.h - conversions between f32 and the narrow floats, rounding to nearest, ties to even.
 *
 *            exponent  mantissa  largest   beyond it
 *     f16       5         10      65504    Inf
 *     bf16      8          7      3.4e38   Inf
 *     e5m2      5          2      57344    Inf
 *     e4m3      4          3        448    448 if finite; Inf becomes NaN (OCP "fn": it has no Inf)
 *
 * NaN stays NaN and keeps its sign and, where there is one, as much of its payload as fits; so
 * narrow -> f32 -> narrow gives back every code of every format. This is the reference that faster
 * kernels are held to: plain integer code, the same on every machine and under every rounding or
 * flush-to-zero mode. */
#ifndef WF_BASE_HALF_H
#define WF_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t wf_f32_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

static inline float wf_bits_f32(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* x / 2^shift to nearest even, for 1 <= shift <= 24 and x below 2^31. */
static inline uint32_t wf_round_shift(uint32_t x, int shift)
{
    uint32_t odd = x >> shift & 1;
    return (x + (1u << (shift - 1)) - 1 + odd) >> shift;
}

/* The magnitude code of finite |f|, given by its bits, with e exponent and m mantissa bits, e < 8.
 * Codes count up through the values, so one past the largest simply comes out larger than it, and a
 * mantissa that rounds up to 2 carries into the exponent by itself. */
static inline uint32_t wf_narrow_finite(uint32_t abs, int e, int m)
{
    const uint32_t rebias = 127u - ((1u << (e - 1)) - 1u);
    const int drop = 23 - m;
    if (abs >= (rebias + 1) << 23) /* a normal number there, too */
        return wf_round_shift(abs - (rebias << 23), drop);

    /* Subnormal: the mantissa, with its leading one, counts in steps of the least value. Below half
     * a step it is zero, which takes in zero itself and every subnormal f32. */
    uint32_t shift = (uint32_t)drop + rebias + 1 - (abs >> 23);
    return shift > 24 ? 0 : wf_round_shift((abs & 0x7FFFFFu) | 0x800000u, (int)shift);
}

/* The same for the formats that have Inf, and for any f. */
static inline uint32_t wf_narrow_ieee(uint32_t abs, int e, int m)
{
    const uint32_t inf = ((1u << e) - 1) << m;
    if (abs > 0x7F800000u) {
        uint32_t payload = (abs & 0x7FFFFFu) >> (23 - m);
        return inf | (payload ? payload : 1u << (m - 1)); /* an empty payload would read as Inf */
    }
    uint32_t code = wf_narrow_finite(abs, e, m);
    return code < inf ? code : inf;
}

/* The f32 bits of a finite magnitude code. */
static inline uint32_t wf_widen_finite(uint32_t code, int e, int m)
{
    const uint32_t rebias = 127u - ((1u << (e - 1)) - 1u);
    if (code >> m)
        return (code << (23 - m)) + (rebias << 23);
    if (code == 0)
        return 0;
    int lead = 31 - __builtin_clz(code); /* subnormal: f32 can give it a leading one */
    uint32_t exponent = rebias + 1 - (uint32_t)(m - lead);
    return exponent << 23 | (code << (23 - lead) & 0x7FFFFFu);
}

static inline uint32_t wf_widen_ieee(uint32_t code, int e, int m)
{
    const uint32_t inf = ((1u << e) - 1) << m;
    return code < inf ? wf_widen_finite(code, e, m) : 0x7F800000u | (code - inf) << (23 - m);
}

static inline uint16_t wf_f32_to_f16(float f)
{
    uint32_t x = wf_f32_bits(f);
    return (uint16_t)((x >> 16 & 0x8000u) | wf_narrow_ieee(x & 0x7FFFFFFFu, 5, 10));
}

static inline float wf_f16_to_f32(uint16_t h)
{
    return wf_bits_f32((h & 0x8000u) << 16 | wf_widen_ieee(h & 0x7FFFu, 5, 10));
}

/* bf16 is the upper half of an f32, so the rounding carry does everything but keep a NaN. */
static inline uint16_t wf_f32_to_bf16(float f)
{
    uint32_t x = wf_f32_bits(f);
    if ((x & 0x7FFFFFFFu) > 0x7F800000u)
        return (uint16_t)(x >> 16 | (x & 0x7F0000u ? 0 : 0x40u));
    return (uint16_t)((x + 0x7FFFu + (x >> 16 & 1)) >> 16);
}

static inline float wf_bf16_to_f32(uint16_t h)
{
    return wf_bits_f32((uint32_t)h << 16);
}

static inline uint8_t wf_f32_to_e5m2(float f)
{
    uint32_t x = wf_f32_bits(f);
    return (uint8_t)((x >> 24 & 0x80u) | wf_narrow_ieee(x & 0x7FFFFFFFu, 5, 2));
}

static inline float wf_e5m2_to_f32(uint8_t h)
{
    return wf_bits_f32((h & 0x80u) << 24 | wf_widen_ieee(h & 0x7Fu, 5, 2));
}

static inline uint8_t wf_f32_to_e4m3(float f)
{
    uint32_t x = wf_f32_bits(f), abs = x & 0x7FFFFFFFu, code = 0x7F;
    if (abs < 0x7F800000u) {
        code = wf_narrow_finite(abs, 4, 3);
        code = code < 0x7E ? code : 0x7E;
    }
    return (uint8_t)((x >> 24 & 0x80u) | code);
}

static inline float wf_e4m3_to_f32(uint8_t h)
{
    uint32_t code = h & 0x7Fu;
    uint32_t bits = code == 0x7F ? 0x7FC00000u : wf_widen_finite(code, 4, 3);
    return wf_bits_f32((h & 0x80u) << 24 | bits);
}

#endif
