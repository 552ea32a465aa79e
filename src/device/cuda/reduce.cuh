/* SPDX-License-Identifier: MIT */
/* reduce.cuh - what reductions share: the axes that stay and those that go, and keys by which elements are chosen. */
#ifndef WF_DEVICE_CUDA_REDUCE_CUH
#define WF_DEVICE_CUDA_REDUCE_CUH

#include "device/cuda/each.cuh"

/* The kept axes of a view, and the others, as two folded walks with the view as their operand. */
static inline void wf_split_axes(const wf_view *v, int64_t axes, wf_walk *kept, wf_walk *gone)
{
    wf_walk *const side[2] = {kept, gone};
    *kept = {};
    *gone = {};
    kept->operands = gone->operands = 1;
    for (int i = 0; i < v->rank; i++) {
        wf_walk *w = side[axes >> i & 1];
        w->dim[w->rank] = v->dim[i];
        w->stride[0][w->rank++] = v->stride[i];
    }
    wf_walk_fold(kept);
    wf_walk_fold(gone);
}

/* Whether the steps of a walk are multiples of `wide`, so that packs that begin at such places are aligned. */
static inline bool wf_walk_steps_by(const wf_walk *w, int wide)
{
    for (int a = 0; a < w->rank; a++)
        if (w->dim[a] != 1 && w->stride[0][a] % wide != 0)
            return false;
    return true;
}

/* Threads, a power of two and at most `most`, that share so many items. */
static inline int wf_team_of(int64_t items, int most)
{
    int team = 1;
    while (team < most && team < items)
        team *= 2;
    return team;
}

/* Larger keys stand for larger numbers, NaN above all others, and among equals for the lower index. No key is 0. */
static __device__ __forceinline__ uint64_t wf_choice_key(uint32_t order, int64_t index)
{
    return (uint64_t)order << 32 | (uint32_t) ~(uint32_t)index;
}
static __device__ __forceinline__ int32_t wf_choice_index(uint64_t key)
{
    return (int32_t) ~(uint32_t)key;
}
static __device__ __forceinline__ uint32_t wf_order(int32_t x)
{
    return (uint32_t)x ^ 0x80000000u;
}
static __device__ __forceinline__ uint32_t wf_order(float x)
{
    if (x != x)
        return 0xFFFFFFFFu;
    const uint32_t bits = __float_as_uint(x == 0 ? 0.0f : x); /* -0 is no less than 0 */
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
size_t wf_cuda_top_k_workspace(const wf_node *n, int threads);

#endif
