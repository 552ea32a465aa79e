/* SPDX-License-Identifier: MIT */
/* norm.c - norms and their gradients. */
#include "device/cpu/simd/simd.h"

const wf_kernel WF_SIMD(wf_cpu_norm)[] = {
    {0},
};
