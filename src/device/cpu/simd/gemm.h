/* SPDX-License-Identifier: MIT */
/* gemm.h - the products of device/cpu/gemm.h, with vectors. Operands are f32, f16 or bf16, and b may be of
 * quantized blocks; a b in panels has those of device/cpu/pack.h. */
#ifndef WF_DEVICE_CPU_SIMD_GEMM_H
#define WF_DEVICE_CPU_SIMD_GEMM_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/simd.h"

/* Scratch for products of these sizes, whatever the operands are. `product` is the type of y, or of
 * pre where there is one. */
size_t WF_SIMD(wf_simd_gemm_scratch)(int64_t batch, int64_t m, int64_t n, int64_t k,
                                     wf_type product, int threads);
/* y and pre are dense. act and slope are called with whole vectors: the lanes after the last column are there
 * to be read and written. */
void WF_SIMD(wf_simd_gemm_run)(const wf_gemm *g);

/* An activation over rows; all lanes of the last vector are computed, so there must be room for them. */
wf_gemm_act *WF_SIMD(wf_simd_activation)(wf_act act);
/* Likewise its slope; only gelu has one. */
wf_gemm_slope *WF_SIMD(wf_simd_slope)(wf_act act);

#endif
