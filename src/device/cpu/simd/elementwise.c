/* SPDX-License-Identifier: MIT */
/* elementwise.c - elementwise ops. */
#include "device/cpu/simd/simd.h"

const wf_kernel WF_SIMD(wf_cpu_elementwise)[] = {
    {0},
};
