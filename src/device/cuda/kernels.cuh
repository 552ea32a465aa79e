/* SPDX-License-Identifier: MIT */
/*
 * kernels.cuh - what kernels in CUDA C share: launching, element types, wide loads and stores, views, and sums
 * over a warp or a block in an order that depends on nothing but the shape.
 *
 * Kernels are launched by WF_RUN and take dynamic shared memory by WF_SHARED, and only inline assembly stands
 * behind #if !WF_CUDA_EMULATED: so that the same files can be compiled for the host and tested without a
 * GPU (tests/emulator).
 */
#ifndef WF_DEVICE_CUDA_KERNELS_CUH
#define WF_DEVICE_CUDA_KERNELS_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

#include "device/cuda/cuda.h"

#ifndef WF_CUDA_EMULATED
#define WF_CUDA_EMULATED 0
/* WF_RUN(kernel, grid, block, shared bytes, stream)(arguments); a name with commas goes in parentheses. */
#define WF_RUN(kernel, grid, block, shared, stream) kernel<<<grid, block, shared, stream>>>
/* Dynamic shared memory of the block, aligned to 128 bytes: WF_SHARED(float, tile); */
#define WF_SHARED(type, name)                                   \
    extern __shared__ __align__(128) unsigned char wf_shared[]; \
    type *name = reinterpret_cast<type *>(wf_shared)
#endif

/* ---- Elements ---- */

typedef __nv_bfloat16 wf_bf16;
typedef __half wf_f16;

/* As f32, in which everything is computed. */
static __device__ __forceinline__ float wf_load(float x)
{
    return x;
}
static __device__ __forceinline__ float wf_load(wf_bf16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ float wf_load(wf_f16 x)
{
    return __half2float(x);
}

/* Rounded to nearest, ties to even. */
template <typename T> static __device__ __forceinline__ T wf_round(float x);
template <> __device__ __forceinline__ float wf_round<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ wf_bf16 wf_round<wf_bf16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ wf_f16 wf_round<wf_f16>(float x)
{
    return __float2half_rn(x);
}

/* N elements that are moved at once: 16 bytes and less. Addresses are multiples of the size. */
template <typename T, int N> struct __align__(sizeof(T) * N) wf_pack
{
    T x[N];
};
#define WF_WIDE(T) (16 / (int)sizeof(T))

template <typename T, int N>
static __device__ __forceinline__ wf_pack<T, N> wf_load_pack(const T *from)
{
    return *reinterpret_cast<const wf_pack<T, N> *>(from);
}
template <typename T, int N>
static __device__ __forceinline__ void wf_store_pack(T *to, const wf_pack<T, N> &x)
{
    *reinterpret_cast<wf_pack<T, N> *>(to) = x;
}

/* Calls f(T()) with the C++ type of a float type: wf_with_float(v->type, [&](auto zero) {
 * using T = decltype(zero); ... }). Other types do not get here: rows say which there are. */
template <typename F> static inline void wf_with_float(wf_type type, F f)
{
    if (type == WF_F32)
        f(float());
    else if (type == WF_BF16)
        f(wf_bf16());
    else
        f(wf_f16());
}

/* ---- Views on the device ---- */

/* A view as kernels take it, by value. */
typedef struct {
    void *data;
    int rank;
    int64_t dim[WF_MAX_RANK], stride[WF_MAX_RANK];
} wf_cuda_view;

static inline wf_cuda_view wf_cuda_view_of(const wf_view *v)
{
    wf_cuda_view out = {v->data, v->rank, {0}, {0}};
    for (int i = 0; i < v->rank; i++) {
        out.dim[i] = v->dim[i];
        out.stride[i] = v->stride[i];
    }
    return out;
}

/* Offset in elements of row r, which counts over all axes but the last. */
static __device__ __forceinline__ int64_t wf_cuda_row(const wf_cuda_view &v, int64_t r)
{
    int64_t offset = 0;
    for (int i = v.rank - 2; i >= 0; i--) {
        offset += r % v.dim[i] * v.stride[i];
        r /= v.dim[i];
    }
    return offset;
}

/* ---- Data that is not right ---- */

/* Once for each element: words are memory of the host. See wf_launch's `fault`, and cuda.h for kinds. */
static __device__ __forceinline__ void wf_fault(uint64_t *word, int kind, int64_t place,
                                                int32_t value)
{
    const int64_t last = WF_CUDA_FAULT_PLACES - 1;
    const uint64_t told = (uint64_t)kind << WF_CUDA_FAULT_KIND_AT |
                          (uint64_t)(place < last ? place : last) << WF_CUDA_FAULT_PLACE_AT |
                          (uint32_t)value;
    if (word)
        atomicMin((unsigned long long *)word, (unsigned long long)told);
}

/* starts [count] of packed sequences, which must not fall or go beyond `rows`. All threads of a grid call it, each
 * with its number among `threads`. */
static __device__ __forceinline__ void wf_check_starts(uint64_t *word, const int32_t *starts,
                                                       int64_t count, int64_t rows, int64_t thread,
                                                       int64_t threads)
{
    for (int64_t s = thread; s < count; s += threads) {
        const int32_t start = starts[s];
        if (start < (s > 0 ? starts[s - 1] : 0) || start > rows)
            wf_fault(word, WF_CUDA_FAULT_START, s, start);
    }
}

/* ---- Grids ---- */

static inline unsigned wf_cuda_blocks(int64_t items, int64_t per_block, int64_t most)
{
    int64_t blocks = (items + per_block - 1) / per_block;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

/* ---- Sums: the same order for the same shape, always ---- */

static __device__ __forceinline__ float wf_warp_sum(float x)
{
    for (int k = 16; k > 0; k /= 2)
        x += __shfl_xor_sync(0xffffffffu, x, k);
    return x;
}

static __device__ __forceinline__ float wf_warp_max(float x)
{
    for (int k = 16; k > 0; k /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
    return x;
}

/* Over all threads of a block, whose number is a multiple of 32 and at most 1024; every thread gets it. `scratch`
 * is shared memory of 32 floats, free again when it returns. All threads must call it. */
static __device__ __forceinline__ float wf_block_sum(float x, float *scratch)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
    x = wf_warp_sum(x);
    if (lane == 0)
        scratch[warp] = x;
    __syncthreads();
    x = wf_warp_sum(lane < warps ? scratch[lane] : 0.0f);
    __syncthreads();
    return x;
}

static __device__ __forceinline__ float wf_block_max(float x, float *scratch)
{
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = (blockDim.x + 31) / 32;
    x = wf_warp_max(x);
    if (lane == 0)
        scratch[warp] = x;
    __syncthreads();
    x = wf_warp_max(lane < warps ? scratch[lane] : -INFINITY);
    __syncthreads();
    return x;
}

#endif
