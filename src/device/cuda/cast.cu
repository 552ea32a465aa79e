/* SPDX-License-Identifier: MIT */
/*
 * cast.cu - type conversion, rounded as on the cpu.
 *
 * Integers convert through i32 and floats through f32, so integer to integer is exact. Out-of-range
 * values saturate; float to integer truncates, and NaN becomes 0. There is one kernel per source
 * type; it selects the target type once per pack. Matmuls use wf_cuda_convert for operands of other
 * types.
 *
 * Grid as in elementwise.cu: one thread per UNROLL packs, 256 threads per block. Reads the source
 * once and writes the dense target once.
 */
#include "device/cuda/blocks.cuh"
#include "device/cuda/each.cuh"
#include "device/cuda/narrow.cuh"

#define THREADS 256
/* Packs of `bytes` bytes that a thread loads before it stores one. */
#define UNROLL(bytes) ((bytes) >= 16 ? 4 : 8)

/* ---- Elements through i32 or f32 ---- */

static __device__ __forceinline__ int32_t number(int32_t x)
{
    return x;
}
static __device__ __forceinline__ int32_t number(int8_t x)
{
    return x;
}
static __device__ __forceinline__ int32_t number(uint8_t x)
{
    return x;
}
template <typename T> static __device__ __forceinline__ float number(T x)
{
    return wf_widen(x);
}

static __device__ __forceinline__ int32_t whole(int32_t x)
{
    return x;
}
static __device__ __forceinline__ int32_t whole(float x)
{
    if (x != x) /* NaN */
        return 0;
    /* 2^31 is exact in f32, INT32_MAX is not. */
    return x >= 0x1p31f ? INT32_MAX : x <= -0x1p31f ? INT32_MIN : (int32_t)x;
}

static __device__ __forceinline__ int32_t clamp(int32_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : x;
}

/* Converts from i32 or f32. */
template <typename T> struct stored {
    template <typename N> static __device__ __forceinline__ T of(N x)
    {
        return wf_narrow<T>((float)x);
    }
};
template <> struct stored<int32_t> {
    template <typename N> static __device__ __forceinline__ int32_t of(N x)
    {
        return whole(x);
    }
};
template <> struct stored<int8_t> {
    template <typename N> static __device__ __forceinline__ int8_t of(N x)
    {
        return (int8_t)clamp(whole(x), INT8_MIN, INT8_MAX);
    }
};
template <> struct stored<uint8_t> {
    template <typename N> static __device__ __forceinline__ uint8_t of(N x)
    {
        return (uint8_t)clamp(whole(x), 0, UINT8_MAX);
    }
};

template <typename To, typename N, int V>
static __device__ __forceinline__ void store(void *to, int64_t at, const N (&x)[V])
{
    wf_pack<To, V> y;
#pragma unroll
    for (int k = 0; k < V; k++)
        y.x[k] = stored<To>::of(x[k]);
    wf_store_pack<To, V>((To *)to + at, y);
}

/* V == 8 occurs with types of at most 2 bytes only. */
template <typename N, int V>
static __device__ __forceinline__ void store_as(wf_type type, void *to, int64_t at, const N (&x)[V])
{
    switch (type) {
    case WF_F16: store<wf_f16>(to, at, x); break;
    case WF_BF16: store<wf_bf16>(to, at, x); break;
    case WF_E4M3: store<wf_e4m3>(to, at, x); break;
    case WF_E5M2: store<wf_e5m2>(to, at, x); break;
    case WF_I8: store<int8_t>(to, at, x); break;
    case WF_U8: store<uint8_t>(to, at, x); break;
    case WF_I32:
        if constexpr (V < 8)
            store<int32_t>(to, at, x);
        break;
    default:
        if constexpr (V < 8)
            store<float>(to, at, x);
    }
}

/* ---- Plain types ---- */

template <typename From, int V>
static __global__ void __launch_bounds__(THREADS)
    cast_kernel(wf_each<1> w, const From *from, wf_type type, void *to)
{
    constexpr int U = UNROLL(V * sizeof(From));
    const int64_t first = (int64_t)blockIdx.x * (THREADS * U) + threadIdx.x;
    if (first >= w.count)
        return;
    wf_pack<From, V> x[U];
#pragma unroll
    for (int u = 0; u < U; u++)
        x[u] = wf_each_load<From, V>(
            w, 0, from, wf_each_at(w, wf_each_within(first + u * THREADS, w.count, first)).at[0]);
#pragma unroll
    for (int u = 0; u < U; u++) {
        const int64_t item = first + u * THREADS;
        decltype(number(x[u].x[0])) n[V];
#pragma unroll
        for (int k = 0; k < V; k++)
            n[k] = number(x[u].x[k]);
        if (item < w.count)
            store_as(type, to, item * V, n);
    }
}

/* The target: dense, with the source's shape. */
typedef struct {
    cudaStream_t stream;
    wf_type type;
    void *data;
} target;

template <int V, typename From>
static void run_packs(const target &t, const wf_walk *w, const From *from, void *to)
{
    const int64_t items = wf_walk_count(w) / V, per_block = THREADS * UNROLL(V * sizeof(From));
    WF_RUN((cast_kernel<From, V>), (unsigned)((items + per_block - 1) / per_block), THREADS, 0,
           t.stream)
    (wf_each_of<1>(w, V), from, t.type, to);
}

template <typename From> static void run(const target &t, const wf_view *in)
{
    const int bytes = wf_type_get(t.type)->block_bytes;
    const From *from = (const From *)in->data;
    wf_walk w = wf_walk_over(in->rank, in->dim);
    wf_walk_add(&w, in);
    wf_walk_fold(&w);
    const int last = w.rank - 1;
    for (int V = 8; V >= 4; V /= 2) {
        const int64_t rest = w.dim[last] % V, whole = w.dim[last] - rest;
        if (V * (bytes > (int)sizeof(From) ? bytes : (int)sizeof(From)) > 16 ||
            !wf_walk_packs(&w, 0, from, sizeof(From), V) ||
            (uintptr_t)t.data % (uintptr_t)(V * bytes) != 0 || (rest > 0 && w.rank > 1))
            continue;
        w.dim[last] = whole;
        if (V == 4 && whole > 0)
            run_packs<4>(t, &w, from, t.data);
        if constexpr (sizeof(From) <= 2)
            if (V == 8 && whole > 0)
                run_packs<8>(t, &w, from, t.data);
        w.dim[last] = rest;
        if (rest > 0)
            run_packs<1>(t, &w, from + whole * wf_walk_step(&w, 0), (char *)t.data + whole * bytes);
        return;
    }
    run_packs<1>(t, &w, from, t.data);
}

/* ---- Quantized blocks ---- */

/* An item is 8 elements. */
template <typename B, typename T>
static __global__ void __launch_bounds__(THREADS)
    decode_kernel(wf_each<1> w, const char *from, T *to)
{
    const int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (item >= w.count)
        return;
    const int64_t at = wf_each_at(w, item).at[0];
    float x[8];
    B::decode8(from + at / B::LENGTH * B::BYTES, (int)(at % B::LENGTH / 8), x);
    constexpr int V = WF_WIDE(T);
#pragma unroll
    for (int i = 0; i < 8; i += V) {
        wf_pack<T, V> y;
#pragma unroll
        for (int k = 0; k < V; k++)
            y.x[k] = wf_round<T>(x[i + k]);
        wf_store_pack<T, V>(to + item * 8 + i, y);
    }
}

static void decode(const target &t, const wf_view *in)
{
    wf_walk w = wf_walk_over(in->rank, in->dim);
    wf_walk_add(&w, in);
    wf_walk_fold(&w);
    const int64_t items = wf_walk_count(&w) / 8;
    wf_with_block(in->type, [&](auto b) {
        wf_with_float(t.type, [&](auto zero) {
            using T = decltype(zero);
            WF_RUN((decode_kernel<decltype(b), T>), (unsigned)((items + THREADS - 1) / THREADS),
                   THREADS, 0, t.stream)
            (wf_each_of<1>(&w, 8), (const char *)in->data, (T *)t.data);
        });
    });
}

/* ---- Launching ---- */

extern "C" void wf_cuda_convert(cudaStream_t stream, const wf_view *from, wf_type type, void *to)
{
    const target t = {stream, type, to};
    if (wf_view_count(from) == 0)
        return;
    switch (from->type) {
    case WF_F32: run<float>(t, from); break;
    case WF_F16: run<wf_f16>(t, from); break;
    case WF_BF16: run<wf_bf16>(t, from); break;
    case WF_E4M3: run<wf_e4m3>(t, from); break;
    case WF_E5M2: run<wf_e5m2>(t, from); break;
    case WF_I32: run<int32_t>(t, from); break;
    case WF_I8: run<int8_t>(t, from); break;
    case WF_U8: run<uint8_t>(t, from); break;
    default: decode(t, from);
    }
}

static wf_status launch_cast(const wf_launch *l)
{
    const wf_view *in = &l->in[0], *out = &l->out[0];
    if (!out->data || wf_view_count(out) == 0)
        return WF_OK;
    if (in->type == out->type)
        wf_cuda_copy_dense(l, in, out->data);
    else
        wf_cuda_convert(wf_cuda_stream(l), in, out->type, out->data);
    return wf_cuda_launched(l);
}

extern "C" const wf_kernel wf_cuda_cast_kernels[] = {
    {.op = WF_OP_cast,
     .name = "cuda",
     .types = WF_TYPES_ALL,
     .strided = true,
     .launch = launch_cast},
    {},
};
