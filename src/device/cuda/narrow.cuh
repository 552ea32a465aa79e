/* SPDX-License-Identifier: MIT */
/*
 * narrow.cuh - conversions between f32 and narrow floats, bitwise equal to base/half.h. NaN keeps
 * its sign and as much payload as fits, which the hardware's conversions do not guarantee.
 */
#ifndef WF_DEVICE_CUDA_NARROW_CUH
#define WF_DEVICE_CUDA_NARROW_CUH

#include "device/cuda/kernels.cuh"

/* fp8 types: stored and cast only, without arithmetic. */
typedef struct {
    uint8_t code;
} wf_e4m3;
typedef struct {
    uint8_t code;
} wf_e5m2;

static __device__ __forceinline__ bool wf_is_nan(uint32_t bits)
{
    return (bits & 0x7FFFFFFFu) > 0x7F800000u;
}

/* x / 2^shift rounded to nearest even, for 1 <= shift <= 24 and x < 2^31. */
static __device__ __forceinline__ uint32_t wf_rounded_shift(uint32_t x, uint32_t shift)
{
    return (x + (1u << (shift - 1)) - 1 + (x >> shift & 1)) >> shift;
}

/* The magnitude code of a finite |f|, given by its f32 bits, with E exponent and M mantissa bits.
 * Codes beyond the largest finite value keep counting; the caller saturates. */
template <int E, int M> static __device__ __forceinline__ uint32_t wf_narrow_code(uint32_t abs)
{
    constexpr uint32_t rebias = 127u - ((1u << (E - 1)) - 1u), drop = 23 - M;
    if (abs >= (rebias + 1) << 23) /* normal in the narrow type, too */
        return wf_rounded_shift(abs - (rebias << 23), drop);
    const uint32_t shift = drop + rebias + 1 - (abs >> 23);
    return shift > 24 ? 0 : wf_rounded_shift((abs & 0x7FFFFFu) | 0x800000u, shift);
}

/* The f32 bits of a finite magnitude code. A subnormal code counts multiples of the smallest
 * value. */
template <int E, int M> static __device__ __forceinline__ uint32_t wf_widened_bits(uint32_t code)
{
    constexpr uint32_t rebias = 127u - ((1u << (E - 1)) - 1u);
    constexpr uint32_t step = (rebias + 1 - M) << 23;
    if (code >> M)
        return (code << (23 - M)) + (rebias << 23);
    return __float_as_uint((float)code * __uint_as_float(step));
}

/* ---- To f32 ---- */

static __device__ __forceinline__ float wf_widen(float x)
{
    return x;
}
static __device__ __forceinline__ float wf_widen(wf_bf16 x)
{
    return __uint_as_float((uint32_t)__bfloat16_as_ushort(x) << 16);
}
static __device__ __forceinline__ float wf_widen(wf_f16 x)
{
    const uint32_t code = __half_as_ushort(x), size = code & 0x7FFFu;
    const float exact = __half2float(x);
    return size > 0x7C00u
               ? __uint_as_float((code & 0x8000u) << 16 | 0x7F800000u | (size - 0x7C00u) << 13)
               : exact;
}
static __device__ __forceinline__ float wf_widen(wf_e5m2 x)
{
    const uint32_t size = x.code & 0x7Fu, inf = 0x7Cu;
    const uint32_t bits =
        size < inf ? wf_widened_bits<5, 2>(size) : 0x7F800000u | (size - inf) << 21;
    return __uint_as_float((x.code & 0x80u) << 24 | bits);
}
static __device__ __forceinline__ float wf_widen(wf_e4m3 x)
{
    const uint32_t size = x.code & 0x7Fu;
    const uint32_t bits = size == 0x7F ? 0x7FC00000u : wf_widened_bits<4, 3>(size);
    return __uint_as_float((x.code & 0x80u) << 24 | bits);
}

/* ---- From f32 ---- */

template <typename T> static __device__ __forceinline__ T wf_narrow(float x);
template <> __device__ __forceinline__ float wf_narrow<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ wf_bf16 wf_narrow<wf_bf16>(float x)
{
    const uint32_t bits = __float_as_uint(x);
    const uint32_t kept =
        bits >> 16 | (bits & 0x7F0000u ? 0 : 0x40u); /* an empty payload would be Inf */
    return wf_is_nan(bits) ? __ushort_as_bfloat16((unsigned short)kept) : __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ wf_f16 wf_narrow<wf_f16>(float x)
{
    const uint32_t bits = __float_as_uint(x), payload = (bits & 0x7FFFFFu) >> 13;
    const uint32_t kept = (bits >> 16 & 0x8000u) | 0x7C00u | (payload ? payload : 0x200u);
    return wf_is_nan(bits) ? __ushort_as_half((unsigned short)kept) : __float2half_rn(x);
}
/* The same by hardware where it can. The code is unspecified for overflow and NaN. */
template <int E, int M> static __device__ __forceinline__ uint32_t wf_narrow_within(uint32_t abs)
{
#if !WF_CUDA_EMULATED && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
    uint16_t pair;
    if (E == 4)
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
            : "=h"(pair)
            : "f"(0.0f), "f"(__uint_as_float(abs)));
    else
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;"
            : "=h"(pair)
            : "f"(0.0f), "f"(__uint_as_float(abs)));
    return pair & 0xFFu;
#else
    return wf_narrow_code<E, M>(abs);
#endif
}

template <> __device__ __forceinline__ wf_e5m2 wf_narrow<wf_e5m2>(float x)
{
    const uint32_t bits = __float_as_uint(x), abs = bits & 0x7FFFFFFFu, inf = 0x7Cu;
    const uint32_t payload = (abs & 0x7FFFFFu) >> 21;
    uint32_t code = wf_narrow_within<5, 2>(abs);
    code =
        abs >= 0x47700000u ? inf : code; /* 61440: halfway between the largest value and the next */
    code = abs > 0x7F800000u ? inf | (payload ? payload : 2u) : code;
    return {(uint8_t)((bits >> 24 & 0x80u) | code)};
}
template <> __device__ __forceinline__ wf_e4m3 wf_narrow<wf_e4m3>(float x)
{
    const uint32_t bits = __float_as_uint(x), abs = bits & 0x7FFFFFFFu;
    uint32_t code = wf_narrow_within<4, 3>(abs);
    code = code < 0x7E ? code : 0x7E;
    code = abs >= 0x7F800000u ? 0x7F : code;
    return {(uint8_t)((bits >> 24 & 0x80u) | code)};
}

#endif
