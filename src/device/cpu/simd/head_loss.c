/* SPDX-License-Identifier: MIT */
/* head_loss.c - the head of a model and its loss. */
#include "device/cpu/simd/simd.h"

const wf_kernel WF_SIMD(wf_cpu_head_loss)[] = {
    {0},
};
