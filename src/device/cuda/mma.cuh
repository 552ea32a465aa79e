/* SPDX-License-Identifier: MIT */
/*
 * mma.cuh - warp-wide tensor core operations: m16n8k16 multiply-add of bf16 and f16 with f32 sums,
 * fragment loads from shared memory, and asynchronous copies to shared memory.
 *
 * Fragments, with g = lane / 4 and t = lane % 4; each register of a and b has two elements:
 *   a (16 x 16): rows g, g + 8, g, g + 8; columns 2t, 2t, 2t + 8, 2t + 8 and the ones after them
 *   b (16 x 8):  column g; rows 2t, 2t + 8 and the ones after them
 *   c (16 x 8):  rows g, g, g + 8, g + 8; columns 2t, 2t + 1, 2t, 2t + 1
 * So the rounded c of two neighbouring multiply-adds is the a of another.
 */
#ifndef WF_DEVICE_CUDA_MMA_CUH
#define WF_DEVICE_CUDA_MMA_CUH

#include <string.h>

#include "device/cuda/kernels.cuh"

/* Packs two elements into a register, the first in the low half. */
template <typename T> static __device__ __forceinline__ uint32_t wf_pair(float low, float high);
template <> __device__ __forceinline__ uint32_t wf_pair<wf_bf16>(float low, float high)
{
    __nv_bfloat162 x = __floats2bfloat162_rn(low, high);
    uint32_t pair;
    memcpy(&pair, &x, sizeof pair);
    return pair;
}
template <> __device__ __forceinline__ uint32_t wf_pair<wf_f16>(float low, float high)
{
    __half2 x = __floats2half2_rn(low, high);
    uint32_t pair;
    memcpy(&pair, &x, sizeof pair);
    return pair;
}

#if !WF_CUDA_EMULATED

/* c += a b */
template <typename T>
static __device__ __forceinline__ void wf_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                              uint32_t b1)
{
    if constexpr (sizeof(T) == 2 && __is_same(T, wf_bf16))
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/* Loads four 8 x 8 matrices: lane i passes the shared address of row i % 8 of matrix i / 8 (16
 * bytes) and receives elements 2t and 2t + 1 of row g of each. */
static __device__ __forceinline__ void wf_ldmatrix(uint32_t (&r)[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* The same, but a lane receives rows 2t and 2t + 1 of column g. */
static __device__ __forceinline__ void wf_ldmatrix_transposed(uint32_t (&r)[4], const void *row)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(at)
                 : "memory");
}

/* Starts a copy of `bytes` of SIZE bytes to shared memory and zeroes the rest. Both addresses are
 * multiples of SIZE (4, 8 or 16). With bytes == 0 nothing is read. */
template <int SIZE>
static __device__ __forceinline__ void wf_copy_async(void *to, const void *from, int bytes)
{
    uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    if constexpr (SIZE == 16)
        asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                     "r"(bytes)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from),
                     "n"(SIZE), "r"(bytes)
                     : "memory");
}

/* Closes a group of the copies since the last call. */
static __device__ __forceinline__ void wf_copy_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/* Waits for all of this thread's groups but the last N. */
template <int N> static __device__ __forceinline__ void wf_copy_wait(void)
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* 2^x with a relative error of 2^-22. */
static __device__ __forceinline__ float wf_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#else /* emulated by an exchange among the lanes */

/* The elements of one lane. */
typedef struct {
    float a[4][2], b[2][2];
} wf_mma_part;

template <typename T> static void wf_mma_unpack(float (&to)[2], uint32_t pair)
{
    wf_pack<T, 2> both;
    memcpy((void *)&both, &pair, sizeof both);
    to[0] = wf_load(both.x[0]);
    to[1] = wf_load(both.x[1]);
}

template <typename T>
static void wf_mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    wf_mma_part mine;
    for (int i = 0; i < 4; i++)
        wf_mma_unpack<T>(mine.a[i], a[i]);
    wf_mma_unpack<T>(mine.b[0], b0);
    wf_mma_unpack<T>(mine.b[1], b1);
    const char *all = (const char *)wf_emulated_gather(&mine, sizeof mine);
    auto part = [=](int of) { return (const wf_mma_part *)(all + of * WF_EMULATED_GATHERED); };
    for (int k = 0; k < 16; k++) {
        const int owner = k % 8 / 2, high = k / 8, half = k % 2;
        for (int i = 0; i < 4; i++)
            c[i] += part(g * 4 + owner)->a[i / 2 + high * 2][half] *
                    part((2 * t + i % 2) * 4 + owner)->b[high][half];
    }
}

/* The address that lane `lane` passed. */
static const char *wf_row_of(const void *all, int lane)
{
    const void *row;
    memcpy(&row, (const char *)all + lane * WF_EMULATED_GATHERED, sizeof row);
    return (const char *)row;
}

static void wf_ldmatrix(uint32_t (&r)[4], const void *row)
{
    const int lane = threadIdx.x % 32;
    const void *all = wf_emulated_gather(&row, sizeof row);
    for (int i = 0; i < 4; i++)
        memcpy(&r[i], wf_row_of(all, i * 8 + lane / 4) + lane % 4 * 4, 4);
    __syncwarp();
}

static void wf_ldmatrix_transposed(uint32_t (&r)[4], const void *row)
{
    const int lane = threadIdx.x % 32;
    const void *all = wf_emulated_gather(&row, sizeof row);
    for (int i = 0; i < 4; i++)
        for (int half = 0; half < 2; half++)
            memcpy((char *)&r[i] + half * 2,
                   wf_row_of(all, i * 8 + lane % 4 * 2 + half) + lane / 4 * 2, 2);
    __syncwarp();
}

template <int SIZE> static void wf_copy_async(void *to, const void *from, int bytes)
{
    memset(to, 0, SIZE);
    if (bytes > 0)
        memcpy(to, from, (size_t)bytes);
}

static void wf_copy_commit(void) {}
template <int N> static void wf_copy_wait(void) {}
static float wf_exp2(float x)
{
    return exp2f(x);
}

#endif
#endif
