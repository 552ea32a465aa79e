/* SPDX-License-Identifier: MIT */
/*
 * row.cuh - kernels over rows of strided values: row offsets, elements as f32, and sums over the
 * threads of a row.
 *
 * blockDim.x threads share a row: 4, 8, 16 or a multiple of 32. A block works on blockDim.y rows
 * and has a multiple of 32 threads, so a warp never spans two rows of 32 threads or more, and rows
 * of fewer threads share a warp.
 */
#ifndef WF_DEVICE_CUDA_ROW_CUH
#define WF_DEVICE_CUDA_ROW_CUH

#include "device/cuda/kernels.cuh"

/* ---- Offsets ---- */

/* Offsets of items counted in row-major order over some axes of a value. Adjacent axes are merged
 * where strides allow it, so one axis usually remains. */
typedef struct {
    int axes;
    int64_t dim[WF_MAX_RANK], stride[WF_MAX_RANK]; /* in elements */
} wf_cuda_steps;

/* Over the first `axes` axes. */
static inline wf_cuda_steps wf_cuda_steps_of(const wf_view *v, int axes)
{
    wf_cuda_steps s = {0, {0}, {0}};
    for (int i = 0; i < axes; i++) {
        if (v->dim[i] == 1)
            continue;
        /* One step along the last merged axis equals a whole axis i: merge. */
        if (s.axes > 0 && s.stride[s.axes - 1] == v->dim[i] * v->stride[i])
            s.dim[s.axes - 1] *= v->dim[i];
        else
            s.dim[s.axes++] = v->dim[i];
        s.stride[s.axes - 1] = v->stride[i];
    }
    return s;
}

/* Offsets of rows [C], and of single elements. */
static inline wf_cuda_steps wf_cuda_row_steps(const wf_view *v)
{
    return wf_cuda_steps_of(v, v->rank - 1);
}
static inline wf_cuda_steps wf_cuda_item_steps(const wf_view *v)
{
    return wf_cuda_steps_of(v, v->rank);
}

static __device__ __forceinline__ int64_t wf_cuda_offset(const wf_cuda_steps &s, int64_t r)
{
    int64_t offset = 0;
    for (int i = s.axes - 1; i > 0; i--) {
        int64_t d = s.dim[i];
        /* Divide in 32 bits where both fit: 64-bit division is several times slower. */
        int64_t q = (r | d) >> 32 ? r / d : (int64_t)((uint32_t)r / (uint32_t)d);
        offset += (r - q * d) * s.stride[i];
        r = q;
    }
    return offset + r * s.stride[0];
}

/* ---- Elements ---- */

/* 16 raw bytes: a pack of 2-byte elements would use one register per element. */
template <typename T> static __device__ __forceinline__ uint4 wf_load16(const T *from)
{
    return *reinterpret_cast<const uint4 *>(from);
}
template <typename T> static __device__ __forceinline__ void wf_store16(T *to, uint4 x)
{
    *reinterpret_cast<uint4 *>(to) = x;
}

/* Makes the compiler recompute values derived from x instead of keeping them in registers. */
static __device__ __forceinline__ void wf_forget16(uint4 &x)
{
#if WF_CUDA_EMULATED
    (void)x;
#else
    asm volatile("" : "+r"(x.x), "+r"(x.y), "+r"(x.z), "+r"(x.w));
#endif
}

/* Makes the compiler load again instead of keeping loaded values in registers. */
static __device__ __forceinline__ void wf_forget_loads(void)
{
#if !WF_CUDA_EMULATED
    asm volatile("" ::: "memory");
#endif
}

/* Unpack 4 bytes: one f32, or two narrow elements, the lower address in the lower half. */
static __device__ __forceinline__ void wf_unpack4(uint32_t x, float *to, float)
{
    to[0] = __uint_as_float(x);
}
static __device__ __forceinline__ void wf_unpack4(uint32_t x, float *to, wf_bf16)
{
    to[0] = __uint_as_float(x << 16); /* bf16 is the upper half of an f32 */
    to[1] = __uint_as_float(x & 0xffff0000u);
}
static __device__ __forceinline__ void wf_unpack4(uint32_t x, float *to, wf_f16)
{
    const float2 two = __half22float2(*reinterpret_cast<const __half2 *>(&x));
    to[0] = two.x;
    to[1] = two.y;
}

/* Widens the WF_WIDE(T) elements of 16 bytes. */
template <typename T> static __device__ __forceinline__ void wf_unpack16(uint4 x, float *to)
{
    constexpr int n = WF_WIDE(T) / 4;
    wf_unpack4(x.x, to, T());
    wf_unpack4(x.y, to + n, T());
    wf_unpack4(x.z, to + 2 * n, T());
    wf_unpack4(x.w, to + 3 * n, T());
}

static __device__ __forceinline__ uint32_t wf_repack4(const float *from, float)
{
    return __float_as_uint(from[0]);
}
static __device__ __forceinline__ uint32_t wf_repack4(const float *from, wf_bf16)
{
    const __nv_bfloat162 two = __floats2bfloat162_rn(from[0], from[1]);
    return *reinterpret_cast<const uint32_t *>(&two);
}
static __device__ __forceinline__ uint32_t wf_repack4(const float *from, wf_f16)
{
    const __half2 two = __floats2half2_rn(from[0], from[1]);
    return *reinterpret_cast<const uint32_t *>(&two);
}

template <typename T> static __device__ __forceinline__ uint4 wf_repack16(const float *from)
{
    constexpr int n = WF_WIDE(T) / 4;
    return make_uint4(wf_repack4(from, T()), wf_repack4(from + n, T()),
                      wf_repack4(from + 2 * n, T()), wf_repack4(from + 3 * n, T()));
}

/* Loads N elements (4 or 8) as f32. Addresses are multiples of 16 bytes, or of their size if
 * smaller. */
template <typename T, int N>
static __device__ __forceinline__ void wf_load_floats(const T *from, float *to)
{
    constexpr int W = WF_WIDE(T);
    if constexpr (N < W) {
        const uint2 x = *reinterpret_cast<const uint2 *>(from);
        wf_unpack4(x.x, to, T());
        wf_unpack4(x.y, to + 2, T());
    } else {
#pragma unroll
        for (int i = 0; i < N; i += W)
            wf_unpack16<T>(wf_load16(from + i), to + i);
    }
}

/* Rounds and stores N elements. */
template <typename T, int N>
static __device__ __forceinline__ void wf_store_floats(T *to, const float *from)
{
    constexpr int W = WF_WIDE(T);
    if constexpr (N < W) {
        *reinterpret_cast<uint2 *>(to) =
            make_uint2(wf_repack4(from, T()), wf_repack4(from + 2, T()));
    } else {
#pragma unroll
        for (int i = 0; i < N; i += W)
            wf_store16(to + i, wf_repack16<T>(from + i));
    }
}

/* Elements of a float type that is known at run time only. */
typedef struct {
    void *data; /* NULL: missing */
    wf_type type;
} wf_cuda_any;

static __device__ __forceinline__ float wf_any_load(const wf_cuda_any &a, int64_t i)
{
    if (a.type == WF_F32)
        return ((const float *)a.data)[i];
    if (a.type == WF_BF16)
        return wf_load(((const wf_bf16 *)a.data)[i]);
    return wf_load(((const wf_f16 *)a.data)[i]);
}

static __device__ __forceinline__ void wf_any_store(const wf_cuda_any &a, int64_t i, float x)
{
    if (a.type == WF_F32)
        ((float *)a.data)[i] = x;
    else if (a.type == WF_BF16)
        ((wf_bf16 *)a.data)[i] = wf_round<wf_bf16>(x);
    else
        ((wf_f16 *)a.data)[i] = wf_round<wf_f16>(x);
}

static inline wf_cuda_any wf_cuda_any_of(const wf_view *v)
{
    return v ? wf_cuda_any{v->data, v->type} : wf_cuda_any{NULL, WF_F32};
}

/* ---- Sums over the threads of a row; all threads get the same bits ---- */

/* Shared memory for N sums, double-buffered: with alternating turns one barrier suffices. */
template <int N> struct wf_row_scratch {
    float part[2][32][N]; /* [turn][warp][sum] */
};

/* Barrier over the warps of one row. Named barrier threadIdx.y + 1: rows of a block do not wait for
 * each other, and barrier 0 stays __syncthreads. */
static __device__ __forceinline__ void wf_row_barrier(void)
{
#if WF_CUDA_EMULATED
    __syncthreads();
#else
    if (blockDim.y == 1)
        __syncthreads();
    else
        asm volatile("bar.sync %0, %1;" ::"r"(threadIdx.y + 1), "r"(blockDim.x) : "memory");
#endif
}

/* Sums N values at once. All threads of the block call it with turn = 0, 1, 0, ... The order is
 * fixed: a butterfly inside each warp, then the warps in ascending order. */
template <int N>
static __device__ __forceinline__ void wf_row_sums(float *x, wf_row_scratch<N> *scratch, int turn)
{
    const int threads = (int)blockDim.x;
    if (threads >= 32) { /* a constant bound, so that the loop unrolls */
#pragma unroll
        for (int k = 16; k > 0; k /= 2)
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] += __shfl_xor_sync(0xffffffffu, x[i], k);
    } else {
        for (int k = threads / 2; k > 0; k /= 2)
#pragma unroll
            for (int i = 0; i < N; i++)
                x[i] += __shfl_xor_sync(0xffffffffu, x[i], k);
    }
    if (threads <= 32) /* one warp or less per row: the butterfly is complete */
        return;
    const int warps = threads / 32, first = (int)threadIdx.y * warps;
    if (threadIdx.x % 32 == 0)
#pragma unroll
        for (int i = 0; i < N; i++)
            scratch->part[turn][first + (int)threadIdx.x / 32][i] = x[i];
    wf_row_barrier();
#pragma unroll
    for (int i = 0; i < N; i++)
        /* Every thread adds the partial sums of all warps itself: no second barrier, and all get
         * the same bits. */
        x[i] = scratch->part[turn][first][i];
#pragma unroll 1
    for (int w = 1; w < warps; w++)
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] += scratch->part[turn][first + w][i];
}

static __device__ __forceinline__ float wf_row_sum(float x, wf_row_scratch<1> *scratch, int turn)
{
    wf_row_sums<1>(&x, scratch, turn);
    return x;
}

/* Like wf_row_sum; fmaxf ignores NaN. */
static __device__ __forceinline__ float wf_row_max(float x, wf_row_scratch<1> *scratch, int turn)
{
    const int threads = (int)blockDim.x;
    for (int k = threads < 32 ? threads / 2 : 16; k > 0; k /= 2)
        x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, k));
    if (threads <= 32)
        return x;
    const int warps = threads / 32, first = (int)threadIdx.y * warps;
    if (threadIdx.x % 32 == 0)
        scratch->part[turn][first + (int)threadIdx.x / 32][0] = x;
    wf_row_barrier();
    x = scratch->part[turn][first][0];
#pragma unroll 1
    for (int w = 1; w < warps; w++)
        x = fmaxf(x, scratch->part[turn][first + w][0]);
    return x;
}

#endif
