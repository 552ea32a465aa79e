/* SPDX-License-Identifier: MIT */
/* gemm.c - matrix products of f32, f16 and bf16. */
#include "device/cpu/simd/simd.h"

const wf_kernel WF_SIMD(wf_cpu_gemm)[] = {
    {0},
};
