/* SPDX-License-Identifier: MIT */
/*
 * rope.cu - rotary position embedding of x [N, H, D].
 *
 * Rotates pair i of a head by the angle positions[n] * inv_freq[i], or back for the inverse. The
 * first R = 2 * len(inv_freq) dimensions form pairs; the rest are copied.
 *
 * A block handles some tokens and some pairs: it computes cosines and sines once for all heads.
 */
#include "device/cuda/row.cuh"

enum {
    THREADS = 256,
    AHEAD = 2,   /* items that a thread loads before it stores one */
    TURNS = 1024 /* cosine-sine pairs per block: tokens x pairs */
};

typedef struct {
    const void *x;
    void *y;
    const int32_t *positions;
    const float *inv_freq;
    int64_t tokens;
    int heads, width, pairs;
    int64_t x_token, x_head;     /* strides; y is dense */
    int tokens_each, pairs_each; /* per block; pairs_each is a multiple of a vector */
    bool interleaved;
    float magnitude, direction; /* direction -1: inverse */
} rope_args;

/* Positions reach 10^9, where an f32 angle would be off by more than 2 pi. The angle is therefore
 * computed and reduced to [-pi, pi] in f64; the cosine and sine of the rest are f32. */
static __device__ __forceinline__ float2 turn_of(const rope_args &a, int32_t position,
                                                 float inv_freq)
{
    const double angle = (double)position * inv_freq;
    const double turns = rint(angle * 0.15915494309189535);
    const double rest = fma(turns, -2.4492935982947064e-16, fma(turns, -6.283185307179586, angle));
    float sine, cosine;
    sincosf((float)rest, &sine, &cosine);
    return make_float2(cosine * a.magnitude, sine * a.magnitude * a.direction);
}

/* Some pairs of one head of one token: addresses and rotations. */
template <typename T> struct rope_item {
    const T *x;
    T *y;
    const float2 *turn;
};

/* Item i of a block, with `vectors` items of N pairs per head. Rotations are turn[token][pair]. */
template <typename T, int N>
static __device__ __forceinline__ rope_item<T> item_of(const rope_args &a, const float2 *turn,
                                                       int64_t first, int pair, int pairs, int i)
{
    const int vectors = pairs / N, v = i % vectors, th = i / vectors;
    const int h = th % a.heads, t = th / a.heads;
    const int at = (pair + v * N) * (a.interleaved ? 2 : 1);
    return rope_item<T>{(const T *)a.x + (first + t) * a.x_token + h * a.x_head + at,
                        (T *)a.y + ((first + t) * a.heads + h) * a.width + at,
                        turn + t * pairs + v * N};
}

/* As many pairs as 16 bytes hold elements: halves at x and x + apart, or interleaved in 32
 * bytes. */
template <typename T>
static __device__ __forceinline__ void turn_wide(const rope_args &a, const rope_item<T> &item,
                                                 const uint4 *in, int apart)
{
    constexpr int N = WF_WIDE(T);
    float v[2 * N];
    wf_unpack16<T>(in[0], v);
    wf_unpack16<T>(in[1], v + N);
    auto turn = [&](float &x, float &y, float2 t) {
        const float first = x * t.x - y * t.y;
        y = x * t.y + y * t.x;
        x = first;
    };
    if (a.interleaved) {
#pragma unroll
        for (int i = 0; i < N; i++)
            turn(v[2 * i], v[2 * i + 1], item.turn[i]);
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            turn(v[i], v[N + i], item.turn[i]);
    }
    wf_store16(item.y, wf_repack16<T>(v));
    wf_store16(item.y + apart, wf_repack16<T>(v + N));
}

/* N: pairs per item, 1 or as many as 16 bytes hold elements. */
template <typename T, int N> static __global__ void __launch_bounds__(THREADS) rope(rope_args a)
{
    __shared__ float2 turn[TURNS];
    wf_grid_begin();
    const int64_t first = (int64_t)blockIdx.x * a.tokens_each;
    const int tokens = (int)(a.tokens - first < a.tokens_each ? a.tokens - first : a.tokens_each);
    const int pair = (int)blockIdx.y * a.pairs_each;
    const int pairs = a.pairs - pair < a.pairs_each ? a.pairs - pair : a.pairs_each;
    for (int i = threadIdx.x; i < tokens * pairs; i += THREADS)
        turn[i] = turn_of(a, a.positions[first + i / pairs], a.inv_freq[pair + i % pairs]);
    __syncthreads();

    const int items = tokens * a.heads * (pairs / N);
    if constexpr (N == 1) {
        const int apart = a.interleaved ? 1 : a.pairs;
        for (int i = threadIdx.x; i < items; i += THREADS) {
            const rope_item<T> item = item_of<T, 1>(a, turn, first, pair, pairs, i);
            const float x = wf_load(item.x[0]), y = wf_load(item.x[apart]);
            const float2 t = *item.turn;
            item.y[0] = wf_round<T>(x * t.x - y * t.y);
            item.y[apart] = wf_round<T>(x * t.y + y * t.x);
        }
    } else {
        const int apart = a.interleaved ? N : a.pairs;
        for (int begin = threadIdx.x; begin < items; begin += AHEAD * THREADS) {
            rope_item<T> item[AHEAD];
            uint4 in[AHEAD][2];
#pragma unroll
            for (int k = 0; k < AHEAD; k++) {
                const int i = begin + k * THREADS;
                item[k] = item_of<T, N>(a, turn, first, pair, pairs, i < items ? i : begin);
                in[k][0] = wf_load16(item[k].x);
                in[k][1] = wf_load16(item[k].x + apart);
            }
#pragma unroll
            for (int k = 0; k < AHEAD; k++)
                if (begin + k * THREADS < items)
                    turn_wide<T>(a, item[k], in[k], apart);
        }
    }
    const int rest = a.width - 2 * a.pairs;
    if (rest == 0 || blockIdx.y > 0)
        return;
    for (int i = threadIdx.x; i < tokens * a.heads * rest; i += THREADS) {
        const int th = i / rest, h = th % a.heads, t = th / a.heads, at = 2 * a.pairs + i % rest;
        ((T *)a.y)[((first + t) * a.heads + h) * a.width + at] =
            ((const T *)a.x)[(first + t) * a.x_token + h * a.x_head + at];
    }
}

static int clamp(int64_t x, int64_t low, int64_t high)
{
    return (int)(x < low ? low : x > high ? high : x);
}

/* (x [N, H, D], positions i32[N], inv_freq f32[R/2]) -> [N, H, D] */
static wf_status launch_rope(const wf_launch *l)
{
    const wf_view *x = &l->in[0];
    const wf_attr_rope *attr = (const wf_attr_rope *)l->attr;
    rope_args a = {};
    a.x = x->data;
    a.y = l->out[0].data;
    a.positions = (const int32_t *)l->in[1].data;
    a.inv_freq = (const float *)l->in[2].data;
    a.tokens = x->dim[0];
    a.heads = (int)x->dim[1];
    a.width = (int)x->dim[2];
    a.pairs = (int)l->in[2].dim[0];
    a.x_token = x->stride[0];
    a.x_head = x->stride[1];
    a.interleaved = attr->interleaved != 0;
    a.magnitude = (float)attr->magnitude;
    a.direction = attr->inverse ? -1 : 1;
    if (!a.y || wf_view_count(x) == 0)
        return WF_OK;

    const int wide = x->type == WF_F32 ? 4 : 8;
    const int64_t work = (int64_t)a.heads * a.width; /* elements per token */
    a.pairs_each = clamp(a.pairs, 1, TURNS);
    a.tokens_each = clamp(THREADS * 4 * wide / work, 1, TURNS / a.pairs_each);
    const uint64_t bits = (uint64_t)(uintptr_t)a.x | (uint64_t)(uintptr_t)a.y |
                          (uint64_t)(a.x_token | a.x_head | a.width | a.pairs) * (16 / wide);
    const bool vectors = bits % 16 == 0 && a.pairs > 0;
    const dim3 grid(wf_cuda_blocks(a.tokens, a.tokens_each, INT32_MAX),
                    wf_cuda_blocks(a.pairs, a.pairs_each, 65535));
    wf_with_float(x->type, [&](auto zero) {
        using T = decltype(zero);
        if (vectors)
            WF_RUN_EARLY((rope<T, WF_WIDE(T)>), grid, THREADS, 0, l)(a);
        else
            WF_RUN_EARLY((rope<T, 1>), grid, THREADS, 0, l)(a);
    });
    return wf_cuda_launched(l);
}

/* clang-format off */
extern "C" const wf_kernel wf_cuda_rope_kernels[] = {
    {.op = WF_OP_rope, .name = "tokens", .types = WF_TYPES_FLOAT, .strided = true, .in_place = 1,
     .launch = launch_rope},
    {},
};
