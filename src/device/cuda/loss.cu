/* SPDX-License-Identifier: MIT */
/*
 * loss.cu - cross entropy of rows of logits [V] and its gradient, as loss.cuh defines them.
 *
 * One pass over a row computes its maximum and sum of exponentials together. For the gradient, the
 * row stays in shared memory as far as it fits. Rows of 50257 2-byte logits are unaligned: the
 * elements before and after the aligned 16-byte parts (the edges) are handled one by one.
 *
 * Block [threads, rows]: 32 to 512 threads share a row. Thread t takes packs t, t + threads, ... in
 * ascending order, then its edges; the threads' sums are added by wf_row_sums. The cut depends on
 * the number of classes and on alignment only.
 */
#include "device/cuda/loss.cuh"

enum { AHEAD = 4 /* 16-byte loads that a thread issues at once */ };

#define LOG2E 1.4426950408889634f

/* 2^x; subnormal results become 0. */
static __device__ __forceinline__ float exp2_fast(float x)
{
#if WF_CUDA_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* 2^x over the whole range of f32. */
static __device__ __forceinline__ float exp2_full(float x)
{
#if WF_CUDA_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* The aligned 16-byte parts of a row. */
typedef struct {
    int lead;  /* elements before the first part */
    int packs; /* number of parts */
    int edges; /* elements before and after the parts */
} row_parts;

template <typename T>
static __device__ __forceinline__ row_parts parts_of(const T *x, const T *dx, int length)
{
    row_parts p = {0, 0, length};
    const uint64_t at = (uint64_t)(uintptr_t)x;
    /* x and dx must be aligned alike: the same parts serve both. */
    if (dx && ((uint64_t)(uintptr_t)dx - at) % 16 != 0)
        return p;
    p.lead = (int)((16 - at % 16) % 16 / sizeof(T));
    if (p.lead >= length) { /* the row ends before the first aligned part */
        p.lead = 0;
        return p;
    }
    p.packs = (length - p.lead) / WF_WIDE(T);
    p.edges = length - p.packs * WF_WIDE(T);
    return p;
}

/* The index in the row of edge i. */
template <typename T> static __device__ __forceinline__ int edge_at(const row_parts &p, int i)
{
    return i < p.lead ? i : i + p.packs * WF_WIDE(T);
}

/* ---- The sum of exponentials ---- */

typedef struct {
    float most; /* starts far below any logit, but finite: logits of -Inf then give 0, not NaN */
    float sum;  /* sum of e^(z - most) */
    float z;    /* sum of z */
} running;

/* FULL: compiled with soft cap and smoothing; otherwise both are absent. */
template <bool FULL> static __device__ __forceinline__ float capped(const wf_cuda_loss &o, float x)
{
    return FULL && o.softcap != 0 ? o.softcap * tanhf(x / o.softcap) : x;
}

/* Adds N logits to the running sum; z is capped in place. Rescales the sum only when the maximum
 * grows. */
template <int N, bool FULL>
static __device__ __forceinline__ void include(const wf_cuda_loss &o, float *z, running *s)
{
    float most = -INFINITY;
#pragma unroll
    for (int i = 0; i < N; i++) {
        z[i] = capped<FULL>(o, z[i]);
        most = fmaxf(most, z[i]);
        if (FULL)
            s->z += z[i];
    }
    if (most > s->most) {
        /* The initial sum is 0, so the first factor does not matter. */
        s->sum *= exp2_fast((s->most - most) * LOG2E);
        s->most = most;
    }
    const float shift = -s->most * LOG2E;
#pragma unroll
    for (int i = 0; i < N; i++)
        s->sum += exp2_fast(fmaf(z[i], LOG2E, shift));
}

/* Reduces this thread's part of a row, and stores the first `keep` packs in shared memory. */
template <typename T, bool FULL>
static __device__ __forceinline__ running read_row(const wf_cuda_loss &o, const T *x,
                                                   const row_parts &p, int keep, uint4 *kept)
{
    constexpr int W = WF_WIDE(T);
    const int threads = (int)blockDim.x;
    running s = {-1e38f, 0, 0};
    for (int first = (int)threadIdx.x; first < p.packs; first += AHEAD * threads) {
        uint4 in[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++)
            if (first + k * threads < p.packs)
                in[k] = wf_load16(x + p.lead + (first + k * threads) * W);
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int at = first + k * threads;
            if (at >= p.packs)
                continue;
            if (at < keep)
                kept[at] = in[k];
            float z[W];
            wf_unpack16<T>(in[k], z);
            include<W, FULL>(o, z, &s);
        }
    }
    for (int i = (int)threadIdx.x; i < p.edges; i += (int)blockDim.x) {
        float z = wf_load(x[edge_at<T>(p, i)]);
        include<1, FULL>(o, &z, &s);
    }
    return s;
}

/* ---- The gradient ---- */

typedef struct {
    float lse, dloss;
    float factor; /* multiplies p */
    float share;  /* subtracted for every class */
    float hit;    /* subtracted for the target in addition */
} slopes;

/* The gradient of one logit; `hit`: it is the target's. */
template <bool FULL>
static __device__ __forceinline__ float slope_of(const wf_cuda_loss &o, const slopes &g, float x,
                                                 bool hit)
{
    const float z = capped<FULL>(o, x);
    /* Full range: small probabilities must not become 0. */
    const float p = exp2_full((z - g.lse) * LOG2E);
    float d = p * g.factor;
    if (FULL)
        d -= g.share;
    if (hit)
        d -= g.hit;
    if (FULL && o.softcap != 0)
        d *= 1 - z / o.softcap * (z / o.softcap);
    return g.dloss * d;
}

/* Reads the kept packs from shared memory and the rest from global memory again. dx may be x: every
 * element is read before it is written, by the same thread. */
template <typename T, bool FULL>
static __device__ __forceinline__ void write_row(const wf_cuda_loss &o, const slopes &g, const T *x,
                                                 T *dx, const row_parts &p, int target, int keep,
                                                 const uint4 *kept)
{
    constexpr int W = WF_WIDE(T);
    const int threads = (int)blockDim.x;
    for (int first = (int)threadIdx.x; first < p.packs; first += AHEAD * threads) {
        uint4 in[AHEAD];
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int at = first + k * threads;
            if (at < p.packs)
                in[k] = at < keep ? kept[at] : wf_load16(x + p.lead + at * W);
        }
#pragma unroll
        for (int k = 0; k < AHEAD; k++) {
            const int at = first + k * threads, begin = p.lead + at * W;
            if (at >= p.packs)
                continue;
            float z[W];
            wf_unpack16<T>(in[k], z);
            if (target >= begin && target < begin + W) {
#pragma unroll
                for (int i = 0; i < W; i++)
                    z[i] = slope_of<FULL>(o, g, z[i], begin + i == target);
            } else {
#pragma unroll
                for (int i = 0; i < W; i++)
                    z[i] = slope_of<FULL>(o, g, z[i], false);
            }
            wf_store16(dx + begin, wf_repack16<T>(z));
        }
    }
    for (int i = (int)threadIdx.x; i < p.edges; i += (int)blockDim.x) {
        const int at = edge_at<T>(p, i);
        dx[at] = wf_round<T>(slope_of<FULL>(o, g, wf_load(x[at]), at == target));
    }
}

/* The gradient of a row with an ignored target. */
template <typename T> static __device__ __forceinline__ void clear_row(T *dx, const row_parts &p)
{
    for (int i = (int)threadIdx.x; i < p.packs; i += (int)blockDim.x)
        wf_store16(dx + p.lead + i * WF_WIDE(T), make_uint4(0, 0, 0, 0));
    for (int i = (int)threadIdx.x; i < p.edges; i += (int)blockDim.x)
        dx[edge_at<T>(p, i)] = wf_round<T>(0.0f);
}

/* ---- One row ---- */

typedef struct {
    wf_row_scratch<1> most;
    wf_row_scratch<2> sums;
} loss_scratch;

/* FULL: with softcap or smoothing. */
template <typename T, bool FULL>
static __global__ void __launch_bounds__(512, 2) loss_rows(wf_cuda_loss o, int keep)
{
    WF_SHARED(uint4, kept); /* [keep] */
    __shared__ loss_scratch scratch;
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const bool live = row < o.rows;
    const int64_t r = live ? row : o.rows - 1;
    const int target = o.target[wf_cuda_offset(o.target_at, r)];
    const bool ignored = target == o.ignore_index;
    const bool wrong = !ignored && (target < 0 || target >= o.classes);
    if (wrong && live && threadIdx.x == 0)
        wf_fault(o.fault, WF_CUDA_FAULT_INDEX, o.before + r, target);
    const T *x = (const T *)o.logits + wf_cuda_offset(o.logits_at, r);
    T *dx = o.dlogits ? (T *)o.dlogits + wf_cuda_offset(o.dlogits_at, r) : NULL;
    /* A block's spare rows are empty but take part in the sums. */
    const row_parts parts = parts_of(x, dx, live ? (int)o.classes : 0);
    slopes g = {};

    if (o.given) {
        g.lse = o.given[wf_cuda_offset(o.given_at, r)];
    } else if (blockDim.y > 1 || !ignored || o.lse) { /* uniform over the block */
        /* Read the target's logit before gradients may overwrite it. */
        const bool picks = live && threadIdx.x == 0 && !ignored && !wrong;
        const float z = picks ? capped<FULL>(o, wf_load(x[target])) : 0;
        const running s = read_row<T, FULL>(o, x, parts, keep, kept);
        const float most = wf_row_max(s.most, &scratch.most, 0);
        /* To the row's maximum. */
        float sums[2] = {s.sum * exp2_fast((s.most - most) * LOG2E), s.z};
        wf_row_sums<2>(sums, &scratch.sums, 0);
        g.lse = most + logf(sums[0]);
        if (live && threadIdx.x == 0 && o.lse)
            o.lse[r] = g.lse;
        if (live && threadIdx.x == 0 && o.loss) {
            float loss = (1 - o.smoothing) * (g.lse - z) + o.z_loss * g.lse * g.lse;
            if (FULL && o.smoothing != 0)
                loss += o.smoothing * (g.lse - sums[1] / (float)o.classes);
            o.loss[r] = ignored ? 0 : wrong ? NAN : loss;
        }
    } else if (threadIdx.x == 0 && o.loss) {
        o.loss[r] = 0;
    }
    if (!dx || !live)
        return;

    if (ignored) {
        clear_row(dx, parts);
    } else {
        g.dloss = wrong ? NAN : o.dloss[wf_cuda_offset(o.dloss_at, r)];
        g.factor = 1 + 2 * o.z_loss * g.lse;
        g.share = o.smoothing / (float)o.classes;
        g.hit = 1 - o.smoothing;
        write_row<T, FULL>(o, g, x, dx, parts, target, o.given ? 0 : keep, kept);
    }
    /* Columns of the GEMM's padding. */
    for (int64_t i = o.classes + threadIdx.x; i < o.padded; i += blockDim.x)
        dx[i] = wf_round<T>(0.0f);
}

/* Threads per row. */
static int threads_of(int64_t classes)
{
    int threads = 32;
    while (threads < 512 && threads * 64 < classes) /* about 64 logits per thread */
        threads *= 2;
    return threads;
}

template <typename T, bool FULL>
static cudaError_t run(const wf_cuda_loss *o, size_t shared, cudaStream_t stream)
{
    const int threads = threads_of(o->classes);
    const dim3 block((unsigned)threads, threads < 256 ? 256 / threads : 1);
    size_t bytes = 0;
    /* Keeps the row only where it is read twice, and only for one row per block. */
    if (o->dlogits && !o->given && block.y == 1) {
        size_t room = shared > sizeof(loss_scratch) ? shared - sizeof(loss_scratch) : 0;
        size_t row = (size_t)(o->classes / WF_WIDE(T)) * 16;
        bytes = row < room ? row : room / 16 * 16;
        cudaError_t error = cudaFuncSetAttribute(
            loss_rows<T, FULL>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)room);
        if (error != cudaSuccess)
            return error;
    }
    WF_RUN((loss_rows<T, FULL>), wf_cuda_blocks(o->rows, block.y, INT32_MAX), block, bytes, stream)
    (*o, (int)(bytes / 16));
    return cudaGetLastError();
}

extern "C" cudaError_t wf_cuda_loss_run(const wf_cuda_loss *o, size_t shared, cudaStream_t stream)
{
    cudaError_t error = cudaSuccess;
    if (o->rows > 0)
        wf_with_float(o->type, [&](auto zero) {
            using T = decltype(zero);
            error = o->softcap != 0 || o->smoothing != 0 ? run<T, true>(o, shared, stream)
                                                         : run<T, false>(o, shared, stream);
        });
    return error;
}

/* ---- The ops ---- */

static wf_cuda_loss describe(const wf_launch *l, const wf_view *logits)
{
    const wf_view *targets = logits + 1;
    wf_cuda_loss o = {};
    o.type = logits->type;
    o.rows = wf_view_rows(logits);
    o.classes = wf_view_last(logits);
    o.logits = logits->data;
    o.logits_at = wf_cuda_row_steps(logits);
    o.target = (const int32_t *)targets->data;
    o.target_at = wf_cuda_item_steps(targets);
    o.fault = l->fault;
    wf_cuda_loss_attr(&o, (const wf_attr_cross_entropy *)l->attr);
    return o;
}

/* cross_entropy: (logits [..., V], targets i32[...]) -> loss f32[...], lse f32[...] */
static wf_status launch_cross_entropy(const wf_launch *l)
{
    wf_cuda_loss o = describe(l, &l->in[0]);
    o.loss = (float *)l->out[0].data;
    o.lse = (float *)l->out[1].data;
    return wf_cuda_check(l, wf_cuda_loss_run(&o, 0, wf_cuda_stream(l)));
}

/* cross_entropy_grad: (dloss f32[...], logits, targets, lse f32[...]) -> dlogits */
static wf_status launch_cross_entropy_grad(const wf_launch *l)
{
    if (!l->out[0].data)
        return WF_OK;
    wf_cuda_loss o = describe(l, &l->in[1]);
    o.dlogits = l->out[0].data;
    o.dlogits_at = wf_cuda_row_steps(&l->out[0]);
    o.dloss = (const float *)l->in[0].data;
    o.dloss_at = wf_cuda_item_steps(&l->in[0]);
    o.given = (const float *)l->in[3].data;
    o.given_at = wf_cuda_item_steps(&l->in[3]);
    return wf_cuda_check(l, wf_cuda_loss_run(&o, 0, wf_cuda_stream(l)));
}

/* clang-format off */
#define ROW(name_, ...)                                                                            \
    {.op = WF_OP_##name_, .name = "rows", .types = WF_TYPES_FLOAT, .strided = true, __VA_ARGS__}
extern "C" const wf_kernel wf_cuda_loss_kernels[] = {
    ROW(cross_entropy, .launch = launch_cross_entropy),
    /* dlogits may overwrite logits */
    ROW(cross_entropy_grad, .in_place = 2, .launch = launch_cross_entropy_grad),
    {},
};
