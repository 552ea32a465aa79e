/* SPDX-License-Identifier: MIT */
/* math.h - functions of a vector. Each says how far from the exact value it may be. */
#ifndef WF_DEVICE_CPU_SIMD_MATH_H
#define WF_DEVICE_CPU_SIMD_MATH_H

#include "device/cpu/simd/simd.h"

/* 2^n for -150 <= n <= 128 as two factors, since one alone may leave the range. */
static inline vf vf_scale2(vf x, vi n)
{
    vi half = vi_sra(n, 1), rest = vi_sub(n, half), bias = vi_set(127);
    x = vf_mul(x, vi_as_vf(vi_shl(vi_add(half, bias), 23)));
    return vf_mul(x, vi_as_vf(vi_shl(vi_add(rest, bias), 23)));
}

/* e^x within 1.5 ulp, also where it is subnormal. x = n ln 2 + r, e^x = 2^n e^r. */
static inline vf vf_exp(vf x)
{
    x = vf_min(vf_set(89), vf_max(vf_set(-104), x)); /* past these it is 0 or Inf; NaN stays */
    vf n = vf_round(vf_mul(x, vf_set(0x1.715476p+0f)));
    vf r = vf_fnma(n, vf_set(0x1.62e4p-1f), x);
    r = vf_fnma(n, vf_set(0x1.7f7d1cp-20f), r);
    vf p = vf_set(0x1.a0d2cep-13f);
    p = vf_fma(p, r, vf_set(0x1.6e879cp-10f));
    p = vf_fma(p, r, vf_set(0x1.111318p-7f));
    p = vf_fma(p, r, vf_set(0x1.555502p-5f));
    p = vf_fma(p, r, vf_set(0x1.555554p-3f));
    p = vf_fma(p, r, vf_set(0.5f));
    p = vf_fma(vf_mul(r, r), p, vf_add(r, vf_set(1)));
    return vf_scale2(p, vf_to_vi(n));
}

#endif
