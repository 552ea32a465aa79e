/* SPDX-License-Identifier: MIT */
/*
 * softmax.cu - softmax over the last axis, and its gradient: [rows, length].
 *
 * A warp, or a block of up to 1024 threads, reads a row once and keeps it in registers. Longer rows
 * are read again from the cache in each pass. Sums are in f32, in an order that depends on the
 * length only.
 *
 * Thread m of a row takes packs m, m + THREADS, ... (at most PACKS of them). Each thread sums its
 * own elements in ascending order; then the warp or block sums by a butterfly (kernels.cuh).
 */
#include "device/cuda/kernels.cuh"

#define PACKS 4 /* packs per thread, in registers */

typedef struct {
    wf_cuda_view in[2];   /* x, or dy and y */
    void *out;            /* dense */
    int64_t rows, length; /* length: elements per row */
} job;

/* Sums over the threads of a row: a warp, or a block of THREADS. */
template <int THREADS> static __device__ __forceinline__ float team_sum(float x, float *scratch)
{
    return THREADS == 32 ? wf_warp_sum(x) : wf_block_sum(x, scratch);
}
template <int THREADS> static __device__ __forceinline__ float team_max(float x, float *scratch)
{
    return THREADS == 32 ? wf_warp_max(x) : wf_block_max(x, scratch);
}

/* Loads the packs of this thread as f32; elements past the end of the row are `other`. */
template <typename T, int V, int THREADS>
static __device__ __forceinline__ void load(const T *row, int64_t length, int member, float other,
                                            float (&x)[PACKS][V])
{
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int64_t at = (int64_t)(i * THREADS + member) * V;
        if (at < length) {
            const wf_pack<T, V> pack = wf_load_pack<T, V>(row + at);
#pragma unroll
            for (int k = 0; k < V; k++)
                x[i][k] = wf_load(pack.x[k]);
        } else {
#pragma unroll
            for (int k = 0; k < V; k++)
                x[i][k] = other;
        }
    }
}

template <typename T, int V, int THREADS>
static __device__ __forceinline__ void store(T *row, int64_t length, int member,
                                             const float (&y)[PACKS][V])
{
#pragma unroll
    for (int i = 0; i < PACKS; i++) {
        const int64_t at = (int64_t)(i * THREADS + member) * V;
        wf_pack<T, V> pack;
#pragma unroll
        for (int k = 0; k < V; k++)
            pack.x[k] = wf_round<T>(y[i][k]);
        if (at < length)
            wf_store_pack<T, V>(row + at, pack);
    }
}

/* Threads per block: several rows of one warp each, or one row. */
#define BLOCK(threads) ((threads) == 32 ? 128 : (threads))

template <typename T, int V, int THREADS>
static __global__ void __launch_bounds__(BLOCK(THREADS)) softmax_kernel(job j)
{
    __shared__ float scratch[32];
    const int64_t r = (int64_t)blockIdx.x * (BLOCK(THREADS) / THREADS) + threadIdx.x / THREADS;
    const int member = threadIdx.x % THREADS;
    if (r >= j.rows) /* whole warps or whole blocks: no thread waits for this one */
        return;
    float x[PACKS][V], top = -INFINITY, sum = 0;
    load<T, V, THREADS>((const T *)j.in[0].data + wf_cuda_row(j.in[0], r), j.length, member,
                        -INFINITY, x);
#pragma unroll
    for (int i = 0; i < PACKS; i++)
#pragma unroll
        for (int k = 0; k < V; k++)
            top = fmaxf(top, x[i][k]);
    top = team_max<THREADS>(top, scratch);
#pragma unroll
    for (int i = 0; i < PACKS; i++)
#pragma unroll
        for (int k = 0; k < V; k++) {
            /* NaN in the whole row if all are -Inf; lanes past the end add 0. */
            const bool there = (int64_t)(i * THREADS + member) * V < j.length;
            x[i][k] = there ? expf(x[i][k] - top) : 0;
            sum += x[i][k];
        }
    const float share = 1 / team_sum<THREADS>(sum, scratch);
#pragma unroll
    for (int i = 0; i < PACKS; i++)
#pragma unroll
        for (int k = 0; k < V; k++)
            x[i][k] *= share;
    store<T, V, THREADS>((T *)j.out + r * j.length, j.length, member, x);
}

/* dx = y * (dy - sum(dy * y)) */
template <typename T, int V, int THREADS>
static __global__ void __launch_bounds__(BLOCK(THREADS)) softmax_grad_kernel(job j)
{
    __shared__ float scratch[32];
    const int64_t r = (int64_t)blockIdx.x * (BLOCK(THREADS) / THREADS) + threadIdx.x / THREADS;
    const int member = threadIdx.x % THREADS;
    if (r >= j.rows)
        return;
    float dy[PACKS][V], y[PACKS][V], dot = 0;
    load<T, V, THREADS>((const T *)j.in[0].data + wf_cuda_row(j.in[0], r), j.length, member, 0, dy);
    load<T, V, THREADS>((const T *)j.in[1].data + wf_cuda_row(j.in[1], r), j.length, member, 0, y);
#pragma unroll
    for (int i = 0; i < PACKS; i++)
#pragma unroll
        for (int k = 0; k < V; k++)
            dot += dy[i][k] * y[i][k];
    dot = team_sum<THREADS>(dot, scratch);
#pragma unroll
    for (int i = 0; i < PACKS; i++)
#pragma unroll
        for (int k = 0; k < V; k++)
            y[i][k] *= dy[i][k] - dot;
    store<T, V, THREADS>((T *)j.out + r * j.length, j.length, member, y);
}

/* ---- Rows of any length: a block reads each row once per pass ---- */

#define LONG 1024 /* threads per block, one block per row */

template <typename T> static __global__ void __launch_bounds__(LONG) long_softmax_kernel(job j)
{
    __shared__ float scratch[32];
    const T *x = (const T *)j.in[0].data + wf_cuda_row(j.in[0], blockIdx.x);
    T *y = (T *)j.out + blockIdx.x * j.length;
    float top = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < j.length; i += LONG)
        top = fmaxf(top, wf_load(x[i]));
    top = wf_block_max(top, scratch);
    for (int64_t i = threadIdx.x; i < j.length; i += LONG)
        sum += expf(wf_load(x[i]) - top);
    const float share = 1 / wf_block_sum(sum, scratch);
    for (int64_t i = threadIdx.x; i < j.length; i += LONG)
        y[i] = wf_round<T>(expf(wf_load(x[i]) - top) * share);
}

template <typename T> static __global__ void __launch_bounds__(LONG) long_grad_kernel(job j)
{
    __shared__ float scratch[32];
    const T *dy = (const T *)j.in[0].data + wf_cuda_row(j.in[0], blockIdx.x);
    const T *y = (const T *)j.in[1].data + wf_cuda_row(j.in[1], blockIdx.x);
    T *dx = (T *)j.out + blockIdx.x * j.length;
    float dot = 0;
    for (int64_t i = threadIdx.x; i < j.length; i += LONG)
        dot += wf_load(dy[i]) * wf_load(y[i]);
    dot = wf_block_sum(dot, scratch);
    for (int64_t i = threadIdx.x; i < j.length; i += LONG)
        dx[i] = wf_round<T>(wf_load(y[i]) * (wf_load(dy[i]) - dot));
}

/* ---- Launching ---- */

/* Returns false if a row does not fit into the registers of THREADS threads. */
template <typename T, int V, int THREADS> static bool run_rows(const wf_launch *l, const job *j)
{
    if (j->length > (int64_t)THREADS * PACKS * V)
        return false;
    const int64_t per_block = BLOCK(THREADS) / THREADS;
    const unsigned blocks = (unsigned)((j->rows + per_block - 1) / per_block);
    if (l->node->op == WF_OP_softmax) {
        WF_RUN((softmax_kernel<T, V, THREADS>), blocks, BLOCK(THREADS), 0, wf_cuda_stream(l))
        (*j);
    } else {
        WF_RUN((softmax_grad_kernel<T, V, THREADS>), blocks, BLOCK(THREADS), 0, wf_cuda_stream(l))
        (*j);
    }
    return true;
}

template <typename T> static void run_long(const wf_launch *l, const job *j)
{
    if (l->node->op == WF_OP_softmax) {
        WF_RUN(long_softmax_kernel<T>, (unsigned)j->rows, LONG, 0, wf_cuda_stream(l))
        (*j);
    } else {
        WF_RUN(long_grad_kernel<T>, (unsigned)j->rows, LONG, 0, wf_cuda_stream(l))
        (*j);
    }
}

/* Whether all rows of a view are 16-byte aligned. */
static bool aligned(const wf_view *v, int bytes)
{
    bool yes = (uintptr_t)v->data % 16 == 0 && wf_view_last(v) * bytes % 16 == 0;
    for (int i = 0; i < v->rank - 1; i++)
        yes &= v->dim[i] == 1 || v->stride[i] * bytes % 16 == 0;
    return yes;
}

static wf_status launch(const wf_launch *l)
{
    const wf_view *out = &l->out[0];
    job j = {.out = out->data, .rows = wf_view_rows(out), .length = wf_view_last(out)};
    if (!out->data || j.rows == 0)
        return WF_OK;
    wf_with_float(out->type, [&](auto zero) {
        using T = decltype(zero);
        constexpr int V = WF_WIDE(T);
        bool packs = aligned(out, sizeof(T));
        for (int i = 0; i < l->nin; i++) {
            j.in[i] = wf_cuda_view_of(&l->in[i]);
            packs &= aligned(&l->in[i], sizeof(T));
        }
        /* The fewest threads whose registers hold a row; narrower teams leave more rows per
         * multiprocessor. */
        const bool done = packs ? run_rows<T, V, 32>(l, &j) || run_rows<T, V, 256>(l, &j) ||
                                      run_rows<T, V, 1024>(l, &j)
                                : run_rows<T, 1, 32>(l, &j) || run_rows<T, 1, 256>(l, &j);
        if (!done)
            run_long<T>(l, &j);
    });
    return wf_cuda_launched(l);
}

/* clang-format off */
#define ROW(name_, in_place_)                                                                      \
    {.op = WF_OP_##name_, .name = "cuda", .types = WF_TYPES_FLOAT, .strided = true,                \
     .in_place = in_place_, .launch = launch}
extern "C" const wf_kernel wf_cuda_softmax_kernels[] = {
    ROW(softmax, 1),
    ROW(softmax_grad, 3),
    {},
};
