/* SPDX-License-Identifier: MIT */
/* attention.c - attention and its gradient. */
#include "device/cpu/simd/simd.h"

const wf_kernel WF_SIMD(wf_cpu_attention)[] = {
    {0},
};
