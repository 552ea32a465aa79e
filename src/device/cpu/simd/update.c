/* SPDX-License-Identifier: MIT */
/* update.c - optimizers, accumulation, appending to caches. */
#include "device/cpu/simd/simd.h"

const wf_kernel WF_SIMD(wf_cpu_update)[] = {
    {0},
};
