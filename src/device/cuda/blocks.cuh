/* SPDX-License-Identifier: MIT */
/*
 * blocks.cuh - decodes quantized blocks on the device, eight neighbouring elements at a time, with the
 * functions of graph/quant/codec.h. Everything follows from the rows of weft_quant.def.
 */
#ifndef WF_DEVICE_CUDA_BLOCKS_CUH
#define WF_DEVICE_CUDA_BLOCKS_CUH

#include "device/cuda/kernels.cuh"

static __device__ __forceinline__ float wf_block_f16(uint16_t code)
{
    return __half2float(__ushort_as_half(code));
}

#define WF_CODEC static __device__ __forceinline__
#define WF_CODEC_F16(code) wf_block_f16(code)
#define WF_CODEC_UNROLL _Pragma("unroll")
#include "graph/quant/codec.h"

/* A quantized type as kernels know it: LENGTH elements in BYTES, and eight of them decoded. */
template <wf_type TYPE> struct wf_block_of;
#define WF_BLOCK_OF(A, NAME, name, word, block, bytes, ...)                                   \
    template <> struct wf_block_of<WF_##NAME> {                                               \
        enum { LENGTH = block, BYTES = bytes };                                               \
        static __device__ __forceinline__ void decode8(const void *from, int part, float *to) \
        {                                                                                     \
            wf_decode_##word(from, part, to);                                                 \
        }                                                                                     \
    };
WF_QUANT_TABLE(WF_BLOCK_OF, 0)

/* Calls f(wf_block_of<type>()): wf_with_block(type, [&](auto b) { decltype(b)::decode8(...) }). */
template <typename F> static inline void wf_with_block(wf_type type, F f)
{
#define WF_BLOCK_CASE(A, NAME, ...) \
    case WF_##NAME: f(wf_block_of<WF_##NAME>()); break;
    switch (type) {
        WF_QUANT_TABLE(WF_BLOCK_CASE, 0)
    default: break;
    }
}

#endif
