/* SPDX-License-Identifier: MIT */
/* half.h - conversions between f32 and the narrow floats, rounding to nearest, ties to even.
 *
 *            exponent  mantissa  largest   beyond it
 *     f16       5         10      65504    Inf
 *     bf16      8          7      3.4e38   Inf
 *     e5m2      5          2      57344    Inf
 *     e4m3      4          3        448    448 if finite; Inf becomes NaN (OCP "fn": no Inf)
 *
 * NaN stays NaN and keeps its sign and as much of its payload as fits, so narrow -> f32 -> narrow
 * returns every code of every format unchanged. Faster kernels are tested against this code. It
 * uses integers only, so the result is the same on every machine, whatever the rounding and
 * flush-to-zero modes. */
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

/* Returns x / 2^shift, rounded to nearest, ties to even; 1 <= shift <= 24, x < 2^31. */
static inline uint32_t wf_round_shift(uint32_t x, int shift)
{
    uint32_t odd = x >> shift & 1;
    return (x + (1u << (shift - 1)) - 1 + odd) >> shift;
}

/* Returns the magnitude code of a finite |f| in a format with e < 8 exponent and m mantissa bits.
 * abs: the f32 bits. Codes increase with the values: a value beyond the largest returns a larger
 * code, and a mantissa that rounds up to 2 carries into the exponent. */
static inline uint32_t wf_narrow_finite(uint32_t abs, int e, int m)
{
    const uint32_t rebias = 127u - ((1u << (e - 1)) - 1u);
    /* Bits of the f32 mantissa that the narrow format does not have. */
    const int drop = 23 - m;
    if (abs >= (rebias + 1) << 23) /* normal in the narrow format */
        return wf_round_shift(abs - (rebias << 23), drop);

    /* Subnormal: the mantissa, with its leading one, in units of the smallest value. Anything below
     * half a unit is zero, including zero itself and every subnormal f32. */
    uint32_t shift = (uint32_t)drop + rebias + 1 - (abs >> 23);
    return shift > 24 ? 0 : wf_round_shift((abs & 0x7FFFFFu) | 0x800000u, (int)shift);
}

/* As wf_narrow_finite, for formats with Inf and for any f, including Inf and NaN. */
static inline uint32_t wf_narrow_ieee(uint32_t abs, int e, int m)
{
    const uint32_t inf = ((1u << e) - 1) << m;
    if (abs > 0x7F800000u) {
        uint32_t payload = (abs & 0x7FFFFFu) >> (23 - m);
        return inf | (payload ? payload : 1u << (m - 1)); /* payload 0 would mean Inf */
    }
    uint32_t code = wf_narrow_finite(abs, e, m);
    return code < inf ? code : inf;
}

/* Returns the f32 bits of a finite magnitude code. */
static inline uint32_t wf_widen_finite(uint32_t code, int e, int m)
{
    const uint32_t rebias = 127u - ((1u << (e - 1)) - 1u);
    if (code >> m)
        return (code << (23 - m)) + (rebias << 23);
    if (code == 0)
        return 0;
    int lead = 31 - __builtin_clz(code); /* subnormal here, normal in f32 */
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

/* bf16 is the upper half of an f32: adding the rounding carry handles everything but NaN. */
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
