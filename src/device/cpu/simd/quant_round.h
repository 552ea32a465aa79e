/* SPDX-License-Identifier: MIT */
/* quant_round.h - a block of activations as integers of 15 bits (quant.h). */
#ifndef WF_DEVICE_CPU_SIMD_QUANT_ROUND_H
#define WF_DEVICE_CPU_SIMD_QUANT_ROUND_H

#include "device/cpu/simd/quant.h"

enum { WF_QUANT_VECTORS = WF_QUANT_BLOCK / WF_VL };

/* Integers for the numbers of a block; gives what they are to be multiplied by. */
static inline float wf_quant_round(const vf x[WF_QUANT_VECTORS], vi integer[WF_QUANT_VECTORS])
{
    vf most = vf_zero(), bad = vf_zero();
    for (int i = 0; i < WF_QUANT_VECTORS; i++) {
        most = vf_max(vf_abs(x[i]), most);
        bad = vf_fma(x[i], vf_zero(), bad); /* NaN once a number is none, or infinite */
    }
    float largest = vf_most(most), scale = largest * (1.0f / WF_QUANT_MOST) + vf_sum(bad);
    /* What is so small is nothing beside any other number, and has no inverse. */
    float inverse = largest > 0x1p-100f && scale == scale ? WF_QUANT_MOST / largest : 0;
    for (int i = 0; i < WF_QUANT_VECTORS; i++)
        integer[i] = inverse > 0 ? vf_to_vi(vf_mul(x[i], vf_set(inverse))) : vi_zero();
    return scale;
}

/* Exact in f32: integers of 15 bits, 16 of them. */
static inline int32_t wf_quant_sum_half(const vi *integer)
{
    vf sum = vi_to_vf(integer[0]);
    for (int i = 1; i < WF_QUANT_VECTORS / 2; i++)
        sum = vf_add(sum, vi_to_vf(integer[i]));
    return (int32_t)vf_sum(sum);
}

#endif
