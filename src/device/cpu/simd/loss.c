/* SPDX-License-Identifier: MIT */
/* loss.c - softmax and cross-entropy. */
#include "device/cpu/simd/simd.h"

const wf_kernel WF_SIMD(wf_cpu_loss)[] = {
    {0},
};
