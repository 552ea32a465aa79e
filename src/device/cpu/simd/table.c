/* SPDX-License-Identifier: MIT */
/* table.c - an instruction set: its kernels first, then the reference kernels. */
#include "device/cpu/row.h"
#include "device/cpu/simd/quant_block.h"

static const wf_kernel *const kernels[] = {WF_SIMD_KERNELS, WF_CPU_REFERENCE_KERNELS, NULL};

_Static_assert(WF_CPU_PACK_ROWS % WF_VL == 0, "separately packed rows must fill whole panels");

/* Quantized types have their own packed layout; other types use the reference layout. */
size_t wf_simd_packed_bytes(const wf_device *device, wf_type type, const wf_dims *shape)
{
    return wf_quant_layout_of(type) ? wf_quant_packed_bytes(type, shape)
                                    : wf_cpu_packed_bytes(device, type, shape);
}

wf_status wf_simd_pack(wf_queue *queue, wf_buffer *to, const void *from, wf_type type,
                       const wf_dims *shape)
{
    if (!wf_quant_layout_of(type))
        return wf_cpu_pack(queue, to, from, type, shape);
    wf_quant_pack(to->base, from, type, shape, queue->device->threads);
    return WF_OK;
}

wf_status wf_simd_unpack(wf_queue *queue, void *to, const wf_buffer *from, wf_type type,
                         const wf_dims *shape)
{
    if (!wf_quant_layout_of(type))
        return wf_cpu_unpack(queue, to, from, type, shape);
    wf_quant_unpack(from->base, to, type, shape, queue->device->threads);
    return WF_OK;
}

const wf_cpu_isa WF_SIMD(wf_cpu_isa) = {
    .kernels = kernels,
    .packed_bytes = wf_simd_packed_bytes,
    .pack = wf_simd_pack,
    .unpack = wf_simd_unpack,
    .packs = WF_QUANT_PANEL_TYPES & ~WF_QUANT_DIRECT_TYPES,
    .functions = WF_SIMD(wf_cpu_functions),
    .loops = &WF_SIMD(wf_cpu_loops),
};
