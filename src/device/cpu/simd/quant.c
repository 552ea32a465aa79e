/* SPDX-License-Identifier: MIT */
/* quant.c - products with quantized weights. */
#include "device/cpu/simd/simd.h"

const wf_kernel WF_SIMD(wf_cpu_quant)[] = {
    {0},
};
