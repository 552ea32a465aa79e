/* SPDX-License-Identifier: MIT */
/* random.cuh - the random numbers of a graph (cpu/random.h): Philox4x32-10, each value a function
 * of its position. */
#ifndef WF_DEVICE_CUDA_RANDOM_CUH
#define WF_DEVICE_CUDA_RANDOM_CUH

#include "device/cuda/kernels.cuh"

typedef struct {
    uint32_t word[4];
} wf_random_block;

/* Words 4 block to 4 block + 3 of a stream. key: low word of the seed, high word, step. */
static __device__ __forceinline__ wf_random_block wf_random(const int32_t *key, uint32_t stream,
                                                            uint64_t block)
{
    uint32_t c0 = (uint32_t)block, c1 = (uint32_t)(block >> 32), c2 = (uint32_t)key[2], c3 = stream;
    uint32_t k0 = (uint32_t)key[0], k1 = (uint32_t)key[1];
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

/* In [0, 1), from the upper 24 bits. */
static __device__ __forceinline__ float wf_random_unit(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

#endif
