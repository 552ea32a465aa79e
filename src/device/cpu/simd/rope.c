/* SPDX-License-Identifier: MIT */
/* rope.c - rotary embeddings. */
#include "device/cpu/simd/simd.h"

const wf_kernel WF_SIMD(wf_cpu_rope)[] = {
    {0},
};
