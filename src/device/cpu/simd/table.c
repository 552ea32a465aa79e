/* SPDX-License-Identifier: MIT */
/* table.c - an instruction set: its kernels, before the reference ones, which do the rest. */
#include "device/cpu/row.h"
#include "device/cpu/simd/simd.h"

static const wf_kernel *const kernels[] = {
    WF_SIMD(wf_cpu_gemm),
    WF_SIMD(wf_cpu_quant),
    WF_SIMD(wf_cpu_head_loss),
    WF_SIMD(wf_cpu_attention),
    WF_SIMD(wf_cpu_elementwise),
    WF_SIMD(wf_cpu_norm),
    WF_SIMD(wf_cpu_rope),
    WF_SIMD(wf_cpu_loss),
    WF_SIMD(wf_cpu_reduce),
    WF_SIMD(wf_cpu_rows),
    WF_SIMD(wf_cpu_update),
    WF_CPU_REFERENCE_KERNELS,
    NULL,
};

const wf_cpu_isa WF_SIMD(wf_cpu_isa) = {
    .kernels = kernels,
    .packed_bytes = wf_cpu_packed_bytes,
    .pack = wf_cpu_pack,
    .unpack = wf_cpu_unpack,
};
