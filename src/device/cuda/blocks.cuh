/* SPDX-License-Identifier: MIT */
/*
 * blocks.cuh - decodes quantized blocks (layouts: graph/quant/block.h), eight neighbouring elements
 * at a time: in every type they share one scale and lie in contiguous bytes.
 */
#ifndef WF_DEVICE_CUDA_BLOCKS_CUH
#define WF_DEVICE_CUDA_BLOCKS_CUH

extern "C" {
#include "graph/quant/block.h"
}
#include "device/cuda/kernels.cuh"

/* A block type for kernels: LENGTH elements in BYTES bytes. */
template <wf_type TYPE> struct wf_block_of {
    enum {
        LENGTH = TYPE == WF_Q4_K || TYPE == WF_Q6_K ? 256 : 32,
        BYTES = TYPE == WF_Q8_0   ? 34
                : TYPE == WF_Q4_0 ? 18
                : TYPE == WF_Q4_1 ? 20
                : TYPE == WF_Q4_K ? 144
                                  : 210
    };
};

/* Loads eight bytes from a 2-byte aligned address, a block's alignment. */
static __device__ __forceinline__ uint64_t wf_block_bytes8(const uint8_t *from)
{
    const uint16_t *p = reinterpret_cast<const uint16_t *>(from);
    return (uint64_t)p[0] | (uint64_t)p[1] << 16 | (uint64_t)p[2] << 32 | (uint64_t)p[3] << 48;
}

static __device__ __forceinline__ float wf_block_f16(uint16_t code)
{
    return __half2float(__ushort_as_half(code));
}

/* Decodes elements 8 part to 8 part + 7 of the block at `from`. Each is rounded at most once: the
 * multiplications are exact. */
template <wf_type TYPE>
static __device__ __forceinline__ void wf_block_decode8(const void *from, int part, float *to)
{
    if constexpr (TYPE == WF_Q8_0) {
        const wf_block_q8_0 *b = (const wf_block_q8_0 *)from;
        const float d = wf_block_f16(b->d);
        const uint64_t q = wf_block_bytes8((const uint8_t *)b->q + 8 * part);
#pragma unroll
        for (int i = 0; i < 8; i++)
            to[i] = (float)(int8_t)(q >> 8 * i) * d;
    } else if constexpr (TYPE == WF_Q4_0) {
        const wf_block_q4_0 *b = (const wf_block_q4_0 *)from;
        const float d = wf_block_f16(b->d);
        const uint64_t q = wf_block_bytes8(b->q + 8 * (part & 1)) >> 4 * (part >> 1);
#pragma unroll
        for (int i = 0; i < 8; i++)
            to[i] = (float)((int)(q >> 8 * i & 15) - 8) * d;
    } else if constexpr (TYPE == WF_Q4_1) {
        const wf_block_q4_1 *b = (const wf_block_q4_1 *)from;
        const float d = wf_block_f16(b->d), m = wf_block_f16(b->m);
        const uint64_t q = wf_block_bytes8(b->q + 8 * (part & 1)) >> 4 * (part >> 1);
#pragma unroll
        for (int i = 0; i < 8; i++)
            to[i] = (float)(int)(q >> 8 * i & 15) * d + m;
    } else if constexpr (TYPE == WF_Q4_K) {
        const wf_block_q4_k *b = (const wf_block_q4_k *)from;
        const int group = part >> 2, i = group & 3; /* see wf_q4_k_scales */
        const uint8_t *c = b->scales;
        const int s = group < 4 ? c[i] & 63 : (c[i + 8] & 15) | c[i] >> 6 << 4;
        const int m = group < 4 ? c[i + 4] & 63 : c[i + 8] >> 4 | c[i + 4] >> 6 << 4;
        const float d = wf_block_f16(b->d) * (float)s, least = wf_block_f16(b->dmin) * (float)m;
        const uint64_t q =
            wf_block_bytes8(b->q + 32 * (group >> 1) + 8 * (part & 3)) >> 4 * (group & 1);
#pragma unroll
        for (int k = 0; k < 8; k++)
            to[k] = d * (float)(int)(q >> 8 * k & 15) - least;
    } else {
        const wf_block_q6_k *b = (const wf_block_q6_k *)from;
        const int half = part >> 4, quarter = part >> 2 & 3, first = 8 * (part & 3);
        const float scale = wf_block_f16(b->d) * (float)b->scales[part >> 1];
        const uint64_t low =
            wf_block_bytes8(b->low + 64 * half + 32 * (quarter & 1) + first) >> 4 * (quarter >> 1);
        const uint64_t high = wf_block_bytes8(b->high + 32 * half + first) >> 2 * quarter;
#pragma unroll
        for (int i = 0; i < 8; i++) {
            const int q = (int)(low >> 8 * i & 15) | (int)(high >> 8 * i & 3) << 4;
            to[i] = scale * (float)(q - 32);
        }
    }
}

/* Calls f(wf_block_of<TYPE>()): wf_with_block(type, [&](auto b) {
 * wf_block_decode8<decltype(b)::TYPE>... }). */
template <wf_type TYPE_> struct wf_block_tag : wf_block_of<TYPE_> {
    static constexpr wf_type TYPE = TYPE_;
};

template <typename F> static inline void wf_with_block(wf_type type, F f)
{
    switch (type) {
    case WF_Q8_0: f(wf_block_tag<WF_Q8_0>()); break;
    case WF_Q4_0: f(wf_block_tag<WF_Q4_0>()); break;
    case WF_Q4_1: f(wf_block_tag<WF_Q4_1>()); break;
    case WF_Q4_K: f(wf_block_tag<WF_Q4_K>()); break;
    default: f(wf_block_tag<WF_Q6_K>());
    }
}

#endif
