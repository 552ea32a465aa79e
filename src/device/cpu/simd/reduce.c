/* SPDX-License-Identifier: MIT */
/* reduce.c - reductions. */
#include "device/cpu/simd/simd.h"

const wf_kernel WF_SIMD(wf_cpu_reduce)[] = {
    {0},
};
