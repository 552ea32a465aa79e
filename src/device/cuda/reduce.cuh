/* SPDX-License-Identifier: MIT */
/* reduce.cuh - helpers of the reductions: alignment of walks, team sizes, and the keys that order
 * elements. */
#ifndef WF_DEVICE_CUDA_REDUCE_CUH
#define WF_DEVICE_CUDA_REDUCE_CUH

#include "device/cuda/each.cuh"

/* Whether every stride of operand 0 is a multiple of `wide` elements, so that packs of that width
 * stay aligned. */
static inline bool wf_walk_steps_by(const wf_walk *w, int wide)
{
    for (int a = 0; a < w->rank; a++)
        if (w->dim[a] != 1 && w->stride[0][a] % wide != 0)
            return false;
    return true;
}

/* Returns the number of threads that share `items`: a power of two, at most `most`. */
static inline int wf_team_of(int64_t items, int most)
{
    int team = 1;
    while (team < most && team < items)
        team *= 2;
    return team;
}

/* Returns a key that is larger for larger elements, with NaN above all, and for the lower index
 * among equal ones. No key is 0. */
static __device__ __forceinline__ uint64_t wf_choice_key(uint32_t order, int64_t index)
{
    /* The index is inverted, so that the lower one has the larger key. */
    return (uint64_t)order << 32 | (uint32_t) ~(uint32_t)index;
}
static __device__ __forceinline__ int32_t wf_choice_index(uint64_t key)
{
    return (int32_t) ~(uint32_t)key;
}
static __device__ __forceinline__ uint32_t wf_order(int32_t x)
{
    /* Flips the sign bit: negative numbers sort below positive ones. */
    return (uint32_t)x ^ 0x80000000u;
}
static __device__ __forceinline__ uint32_t wf_order(float x)
{
    if (x != x)
        return 0xFFFFFFFFu;
    const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x); /* -0 equals 0 */
    /* Negative floats sort in reverse, so all their bits are inverted. */
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}
static __device__ __forceinline__ uint32_t wf_order(wf_bf16 x)
{
    return wf_order(wf_load(x));
}
static __device__ __forceinline__ uint32_t wf_order(wf_f16 x)
{
    return wf_order(wf_load(x));
}

/* top_k (top_k.cu). */
wf_status wf_cuda_launch_top_k(const wf_launch *l);
size_t wf_cuda_top_k_workspace(const wf_device *device, const wf_node *n);

#endif
