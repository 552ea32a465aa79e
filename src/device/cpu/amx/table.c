/* SPDX-License-Identifier: MIT */
/* table.c - the AMX set: its kernels first, then those of AVX-512, whose packed layout it
 * shares. */
#include "device/cpu/amx/amx.h"
#include "device/cpu/row.h"
#include "device/cpu/simd/quant_block.h"

static const wf_kernel *const kernels[] = {
    WF_AMX(wf_amx_gemm), WF_AMX(wf_amx_quant), WF_SIMD_KERNELS, WF_CPU_REFERENCE_KERNELS, NULL,
};

extern const wf_cpu_isa WF_AMX(wf_cpu_isa);
const wf_cpu_isa WF_AMX(wf_cpu_isa) = {
    .kernels = kernels,
    .packed_bytes = wf_simd_packed_bytes,
    .pack = wf_simd_pack,
    .unpack = wf_simd_unpack,
    .packs = WF_QUANT_PANEL_TYPES & ~WF_QUANT_DIRECT_TYPES,
    .functions = WF_SIMD(wf_cpu_functions),
    .loops = &WF_SIMD(wf_cpu_loops),
};
