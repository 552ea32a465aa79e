/* SPDX-License-Identifier: MIT */
/* gemm.h - vectorized GEMM with the interface of device/cpu/gemm.h. Operands are f32, f16 or bf16;
 * b may also be quantized, or packed as in device/cpu/pack.h. */
#ifndef WF_DEVICE_CPU_SIMD_GEMM_H
#define WF_DEVICE_CPU_SIMD_GEMM_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/simd.h"

/* Bytes of scratch for these sizes and any operands. `product` is the type of y, or of pre if there
 * is one. */
size_t WF_SIMD(wf_simd_gemm_scratch)(int64_t batch, int64_t m, int64_t n, int64_t k,
                                     wf_type product, int threads);
/* y and pre are dense. act and slope process whole vectors: lanes past the last column must be
 * readable and writable. */
void WF_SIMD(wf_simd_gemm_run)(const wf_gemm *g);

/* An activation over rows. It computes whole vectors, so rows need room for the last one. */
wf_gemm_act *WF_SIMD(wf_simd_activation)(wf_act act);
/* The same for its derivative; only gelu has one. */
wf_gemm_slope *WF_SIMD(wf_simd_slope)(wf_act act);

#endif
