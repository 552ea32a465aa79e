/* SPDX-License-Identifier: MIT */
/*
 * norm_grad.cu - gradients of layer norm and rms norm of rows [C].
 *
 *     dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dsum      g = dy * gamma
 *     dgamma = sum of dy * xhat over rows      dbeta = sum of dy
 *
 * Only layer norm has mean(g) and dbeta. dsum is the gradient that reaches x + residual directly.
 * With dsum, the column sums of dx are computed on request: they are the gradient of a preceding
 * bias.
 *
 * A block iterates over rows, reads each once, and keeps column sums in registers, which it stores
 * in the workspace. A second kernel adds the blocks' sums in order. The number of blocks depends on
 * the shape only. Asynchronous copies fetch the next rows to shared memory meanwhile.
 *
 * Memory traffic: dy, x and dsum are read once, dx is written once; the workspace holds
 * [blocks][kinds][C] floats. Order of a column sum: row y of block b takes rows b * blockDim.y + y,
 * then steps of the grid; the rows of a block are added in ascending y, the blocks in norm_totals.
 */
#include "device/cuda/mma.cuh"
#include "device/cuda/norm.cuh"

enum {
    /* Of an H100 or H200; constant, so that all GPUs with enough shared memory produce equal
     * bits. */
    PROCESSORS = 132
};

typedef struct {
    int64_t rows, columns;
    wf_norm_axes axes;
    bool centered;
    float inverse;                /* 1 / C */
    wf_norm_rows dy, x, dsum, dx; /* T [rows, C]; dsum and dx may be missing */
    wf_norm_rows mean, rstd;      /* f32 [rows]; a missing mean is 0 */
    wf_cuda_any gamma;            /* [C] */
    float *sums; /* [blocks][kinds][C]: sums for dgamma, dbeta and dx. NULL: none is read */
    int kinds;   /* 2, or 3 with column sums of dx (dx is present then) */
} grad_args;

/* ---- Rows through shared memory: each thread copies and reads its own N x 16 bytes ---- */

enum { DY, X, DSUM };

/* Threads per row: WIDTH, unless it is 0. */
template <int WIDTH> static __device__ __forceinline__ int row_threads(void)
{
    return WIDTH ? WIDTH : (int)blockDim.x;
}

/* First column of this thread's pack k. */
template <typename T, int WIDTH> static __device__ __forceinline__ int column_of(int k)
{
    return ((int)threadIdx.x + k * row_threads<WIDTH>()) * WF_WIDE(T);
}

/* A ring of S stages in shared memory. Threads read only what they copied themselves, so no barrier
 * is needed between a copy and its use. */
template <typename T, int N, int WIDTH> struct ring {
    uint4 *at; /* [stages][tensors][N][threads of the block], offset to this thread */
    int threads, tensors, columns;

    /* Consecutive threads have consecutive 16 bytes: no bank conflicts. */
    __device__ __forceinline__ uint4 *slot(int stage, int tensor, int k) const
    {
        return at + ((stage * tensors + tensor) * N + k) * threads;
    }

    /* Starts copying this thread's packs of a row; zeros past its end and for NULL. */
    __device__ __forceinline__ void fetch(int stage, int tensor, const T *row) const
    {
#pragma unroll
        for (int k = 0; k < N; k++) {
            const int c = column_of<T, WIDTH>(k), bytes = row && c < columns ? 16 : 0;
            wf_copy_async<16>(slot(stage, tensor, k), row + c, bytes);
        }
    }
};

/* Starts copying row r; zeros past the last row. */
template <typename T, int N, int WIDTH>
static __device__ __forceinline__ void fetch_row(const grad_args &a, const ring<T, N, WIDTH> &to,
                                                 int stage, uint32_t r)
{
    const bool live = r < (uint32_t)a.rows;
    const wf_norm_place p = wf_norm_place_of(a.axes, r);
    to.fetch(stage, DY, live ? wf_norm_at<const T>(a.dy, p) : NULL);
    to.fetch(stage, X, live ? wf_norm_at<const T>(a.x, p) : NULL);
    if (a.dsum.data)
        to.fetch(stage, DSUM, live ? wf_norm_at<const T>(a.dsum, p) : NULL);
    wf_copy_commit();
}

/* mean and rstd of row r. */
static __device__ __forceinline__ float2 statistics(const grad_args &a, uint32_t r)
{
    const wf_norm_place p = wf_norm_place_of(a.axes, r);
    float2 s = {0, 0};
    if (r >= (uint32_t)a.rows) /* rows past the end contribute 0 */
        return s;
    if (a.mean.data)
        s.x = *wf_norm_at<const float>(a.mean, p);
    s.y = *wf_norm_at<const float>(a.rstd, p);
    return s;
}

/* Adds the K kinds of column sums of the block's parallel rows, in order, and stores them. */
template <typename T, int N, int WIDTH, int K>
static __device__ __forceinline__ void store_sums(const grad_args &a,
                                                  const float (*sum)[N][WF_WIDE(T)])
{
    constexpr int W = WF_WIDE(T);
    WF_SHARED(float, shared); /* [K][C], if several threads share columns */
    const int columns = (int)a.columns, threads = (int)blockDim.x;
    float *to = a.sums + (int64_t)blockIdx.x * K * columns;
    /* One parallel row at a time, in ascending order. */
    for (int turn = 0; turn < (int)blockDim.y; turn++) {
        float *at = blockDim.y > 1 ? shared : to;
#pragma unroll
        for (int k = 0; k < K * N; k++) {
            const int c = column_of<T, WIDTH>(k / K);
            float *place = at + k % K * columns + c, total[W] = {};
            if ((int)threadIdx.y != turn || c >= columns)
                continue;
            if (turn)
                wf_load_floats<float, W>(place, total);
#pragma unroll
            for (int i = 0; i < W; i++)
                total[i] += sum[k % K][k / K][i];
            wf_store_floats<float, W>(place, total);
        }
        __syncthreads(); /* the next row adds to these sums */
    }
    if (blockDim.y > 1)
        for (int i = threadIdx.y * threads + threadIdx.x; i < K * columns;
             i += threads * blockDim.y)
            to[i] = shared[i];
}

/* G: type of gamma. S: stages of the ring. K: kinds of sums; with 3 registers run out, so the row
 * is read again from the ring. Blocks of at most `most` threads, at least `least` blocks per
 * multiprocessor. */
template <typename T, typename G, int N, int WIDTH, int S, int most, int least, int K>
static __global__ void __launch_bounds__(most, least) norm_grad(grad_args a)
{
    /* K == 3: one pack at a time instead of the whole row. */
    constexpr int W = WF_WIDE(T), KEPT = K == 3 ? 1 : N;
    WF_SHARED(uint4, shared);
    __shared__ wf_row_scratch<2> scratch;
    const int columns = (int)a.columns;
    const ring<T, N, WIDTH> rows = {shared + threadIdx.y * row_threads<WIDTH>() + threadIdx.x,
                                    row_threads<WIDTH>() * (int)blockDim.y, a.dsum.data ? 3 : 2,
                                    columns};
    const uint32_t stride = gridDim.x * blockDim.y;
    uint32_t r = blockIdx.x * blockDim.y + threadIdx.y;
/* S - 1 rows are in flight before the first one is needed. */
#pragma unroll
    for (int s = 0; s < S - 1; s++)
        fetch_row(a, rows, s, r + s * stride);
    float gamma[N][W], sum[K][N][W] = {};
#pragma unroll
    for (int k = 0; k < N; k++) {
#pragma unroll
        for (int i = 0; i < W; i++)
            gamma[k][i] = 1;
        if (a.gamma.data && column_of<T, WIDTH>(k) < columns)
            wf_load_floats<G, W>((const G *)a.gamma.data + column_of<T, WIDTH>(k), gamma[k]);
    }
    float2 next = statistics(a, r);
    int stage = 0, turn = 0;
    /* All threads iterate equally often: wf_row_sums has a barrier. */
    for (uint32_t base = blockIdx.x * blockDim.y; base < (uint32_t)a.rows; base += stride) {
        const float rstd = next.y, mean = next.x;
        next = statistics(a, r + stride); /* loaded one row ahead */
        wf_copy_wait<S - 2>();            /* the oldest stage has arrived */
        /* Refills the stage that the previous iteration used. */
        fetch_row(a, rows, stage == 0 ? S - 1 : stage - 1, r + (S - 1) * stride);
        float kept_g[KEPT][W], kept_h[KEPT][W], means[2] = {0, 0}; /* means of g and of g * xhat */
#pragma unroll
        for (int k = 0; k < N; k++) {
            float *g = kept_g[k % KEPT], *h = kept_h[k % KEPT];
            wf_unpack16<T>(*rows.slot(stage, DY, k), g);
            wf_unpack16<T>(*rows.slot(stage, X, k), h);
#pragma unroll
            for (int i = 0; i < W; i++) {
                /* Not x * rstd - mean * rstd, which cancels in rows of nearly equal elements. g is
                 * 0 past the last column. */
                h[i] = (h[i] - mean) * rstd;
                sum[0][k][i] += g[i] * h[i];
                sum[1][k][i] += g[i];
                g[i] *= gamma[k][i];
                means[0] += g[i];
                means[1] += g[i] * h[i];
            }
        }
        wf_row_sums<2>(means, &scratch, turn);
        const float off = a.centered ? -rstd * means[0] * a.inverse : 0;
        const float along = -rstd * means[1] * a.inverse;
        T *dx = wf_norm_at<T>(a.dx, wf_norm_place_of(a.axes, r));
        if (K == 3) /* the sums above must not keep the row in registers */
            wf_forget_loads();
#pragma unroll
        for (int k = 0; k < N; k++) {
            if (!a.dx.data || r >= (uint32_t)a.rows || column_of<T, WIDTH>(k) >= columns)
                continue;
            float *g = kept_g[k % KEPT], *h = kept_h[k % KEPT], more[W] = {};
            if (a.dsum.data)
                wf_unpack16<T>(*rows.slot(stage, DSUM, k), more);
            if (K == 3) {
                wf_unpack16<T>(*rows.slot(stage, DY, k), g);
                wf_unpack16<T>(*rows.slot(stage, X, k), h);
            }
#pragma unroll
            for (int i = 0; i < W; i++) {
                if (K == 3) {
                    g[i] *= gamma[k][i];
                    h[i] = (h[i] - mean) * rstd;
                }
                /* rstd (g - mean(g) - xhat mean(g xhat)) + dsum. */
                g[i] = fmaf(g[i], rstd, fmaf(h[i], along, off)) + more[i];
                if (K == 3)
                    sum[K - 1][k][i] += g[i]; /* of the unrounded dx */
            }
            wf_store16(dx + column_of<T, WIDTH>(k), wf_repack16<T>(g));
        }
        r += stride;
        stage = stage + 1 == S ? 0 : stage + 1;
        turn ^= 1;
    }
    if (!a.sums)
        return;
    wf_copy_wait<0>(); /* rows past the end are still being copied */
    __syncthreads();   /* before shared memory is reused */
    store_sums<T, N, WIDTH, K>(a, sum);
}

/* ---- Any row length, alignment and type of gamma: later passes read from the cache ---- */

template <typename T> static __global__ void __launch_bounds__(512) norm_dx_any(grad_args a)
{
    __shared__ wf_row_scratch<2> scratch;
    const int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const bool live = row < a.rows;
    const int64_t r = live ? row : a.rows - 1, end = live ? a.columns : 0;
    const T *dy = wf_norm_row<const T>(a.axes, a.dy, r), *x = wf_norm_row<const T>(a.axes, a.x, r);
    const T *dsum = wf_norm_row<const T>(a.axes, a.dsum, r);
    T *dx = wf_norm_row<T>(a.axes, a.dx, r);
    const float rstd = *wf_norm_row<const float>(a.axes, a.rstd, r);
    const float mean = a.mean.data ? *wf_norm_row<const float>(a.axes, a.mean, r) : 0;
    auto g = [&](int64_t i) {
        return wf_load(dy[i]) * (a.gamma.data ? wf_any_load(a.gamma, i) : 1);
    };

    float sums[2] = {0, 0};
    for (int64_t i = threadIdx.x; i < end; i += blockDim.x) {
        sums[0] += g(i);
        sums[1] += g(i) * ((wf_load(x[i]) - mean) * rstd);
    }
    wf_row_sums<2>(sums, &scratch, 0);
    const float g_mean = a.centered ? sums[0] / (float)a.columns : 0;
    const float along = sums[1] / (float)a.columns;
    for (int64_t i = threadIdx.x; i < end; i += blockDim.x) {
        const float h = (wf_load(x[i]) - mean) * rstd;
        const float d = rstd * (g(i) - g_mean - h * along);
        dx[i] = wf_round<T>(a.dsum.data ? d + wf_load(dsum[i]) : d);
    }
}

/* Block (i, j) sums columns [32 i, 32 i + 32) of rows j, j + gridDim.y, ..., blockDim.y rows at
 * once. */
template <typename T> static __global__ void __launch_bounds__(256) norm_columns_any(grad_args a)
{
    __shared__ float2 part[8][32];
    const int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
    float2 sum = {0, 0};
    if (c < a.columns)
        for (int64_t r = (int64_t)blockIdx.y * 8 + threadIdx.y; r < a.rows; r += gridDim.y * 8) {
            const float dy = wf_load(wf_norm_row<const T>(a.axes, a.dy, r)[c]);
            const float mean = a.mean.data ? *wf_norm_row<const float>(a.axes, a.mean, r) : 0;
            const float d = wf_load(wf_norm_row<const T>(a.axes, a.x, r)[c]) - mean;
            sum.x += dy * (d * *wf_norm_row<const float>(a.axes, a.rstd, r));
            sum.y += dy;
        }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= a.columns)
        return;
    for (int i = 1; i < 8; i++) {
        sum.x += part[i][threadIdx.x].x;
        sum.y += part[i][threadIdx.x].y;
    }
    float *to = a.sums + (int64_t)blockIdx.y * a.kinds * a.columns;
    to[c] = sum.x;
    to[a.columns + c] = sum.y;
}

/* The same for dx, which must be complete and is read as it was rounded. */
template <typename T> static __global__ void __launch_bounds__(256) dx_columns_any(grad_args a)
{
    __shared__ float part[8][32];
    const int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
    float sum = 0;
    if (c < a.columns)
        for (int64_t r = (int64_t)blockIdx.y * 8 + threadIdx.y; r < a.rows; r += gridDim.y * 8)
            sum += wf_load(wf_norm_row<const T>(a.axes, a.dx, r)[c]);
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= a.columns)
        return;
    for (int i = 1; i < 8; i++)
        sum += part[i][threadIdx.x];
    a.sums[(blockIdx.y * (int64_t)a.kinds + 2) * a.columns + c] = sum;
}

/* ---- The blocks' sums ---- */

enum { TOTAL_ROWS = 32 }; /* rows of threads, each of which adds every TOTAL_ROWS-th block */

/* Adds all blocks' sums of 32 columns: dgamma (blockIdx.y == 0), dbeta (1), or dx's (2). */
static __global__ void __launch_bounds__(32 * TOTAL_ROWS)
    norm_totals(const float *sums, int blocks, int kinds, int64_t columns, wf_cuda_any dgamma,
                wf_cuda_any dbeta, wf_cuda_any dx)
{
    __shared__ float part[TOTAL_ROWS][32];
    const int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
    const wf_cuda_any to = blockIdx.y == 0 ? dgamma : blockIdx.y == 1 ? dbeta : dx;
    if (!to.data)
        return;
    /* dgamma, dbeta and dx lie behind each other. */
    const float *from = sums + blockIdx.y * columns + c;
    float sum = 0;
    if (c < columns)
#pragma unroll 8
        for (int b = threadIdx.y; b < blocks; b += TOTAL_ROWS)
            sum += from[(int64_t)b * kinds * columns];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= columns)
        return;
    for (int i = 1; i < TOTAL_ROWS; i++)
        sum += part[i][threadIdx.x];
    wf_any_store(to, c, sum);
}

/* ---- Launching ---- */

/* Threads per row, each with `packs` x 16 bytes. */
typedef struct {
    int threads, packs; /* 0: rows must be read more than once */
} grad_cut;

/* As few threads as possible: the overhead per row and thread would dominate. 2048 packs are 512
 * threads of 4. */
static grad_cut cut_of(int64_t columns, wf_type type)
{
    const int64_t width = type == WF_F32 ? 4 : 8, total = (columns + width - 1) / width;
    grad_cut cut = {4, 1};
    if (columns % width != 0 || total > 2048)
        return grad_cut{0, 0};
    if (total > 128)
        return grad_cut{(int)((total + 127) / 128) * 32, 4};
    while (cut.threads < 32 && cut.threads < total)
        cut.threads *= 2;
    cut.packs = (int)((total + 31) / 32);
    return cut;
}

static dim3 block_of(grad_cut cut)
{
    return wf_norm_block(cut.threads, cut.packs < 3 ? 256 : 128);
}

/* Blocks that store sums: all that run at once. Depends on the shape only. */
static int blocks_of(int64_t rows, int64_t columns, wf_type type)
{
    const grad_cut cut = cut_of(columns, type);
    if (!cut.threads)
        return (int)wf_cuda_blocks(rows, 8, 4 * PROCESSORS);
    const dim3 block = block_of(cut);
    /* Threads per multiprocessor. */
    const int threads = cut.packs == 1 ? 1024 : cut.packs == 2 ? 512 : 384;
    const int each = threads / (int)(block.x * block.y);
    return (int)wf_cuda_blocks(rows, block.y, (each > 0 ? each : 1) * PROCESSORS);
}

extern "C" size_t wf_cuda_norm_grad_workspace(const wf_device *device, const wf_node *n)
{
    (void)device;
    const wf_dims *x = &n->in[1]->shape;
    const int64_t rows = wf_dims_rows(x), columns = wf_dims_last(x);
    const bool residual =
        n->op == WF_OP_residual_layer_norm_grad || n->op == WF_OP_residual_rms_norm_grad;
    return (size_t)blocks_of(rows, columns, n->in[1]->type) * (residual ? 3 : 2) * (size_t)columns *
           sizeof(float);
}

typedef struct {
    void (*run)(grad_args);
    int stages;
} grad_kernel;

template <typename T, typename G, int K> static grad_kernel kernel_of(grad_cut cut)
{
    if (cut.packs == 1)
        return grad_kernel{norm_grad<T, G, 1, 0, 4, 256, 4, K>, 4};
    if (cut.packs == 2)
        return grad_kernel{norm_grad<T, G, 2, 32, 4, 256, 2, K>, 4};
    if (cut.packs == 3)
        return grad_kernel{norm_grad<T, G, 3, 32, 3, 128, 3, K>, 3};
    if (cut.threads == 32)
        return grad_kernel{norm_grad<T, G, 4, 32, 3, 128, 3, K>, 3};
    if (cut.threads <= 128)
        return grad_kernel{norm_grad<T, G, 4, 0, 3, 128, 3, K>, 3};
    /* Stages and blocks shrink as rows grow, to fit shared memory and registers. */
    return grad_kernel{norm_grad<T, G, 4, 0, 2, 512, 1, K>, 2};
}

template <typename T> static grad_kernel kernel_for(grad_cut cut, const wf_view *gamma, int kinds)
{
    const bool wide = gamma && gamma->type == WF_F32;
    if (kinds == 3)
        return wide ? kernel_of<T, float, 3>(cut) : kernel_of<T, T, 3>(cut);
    return wide ? kernel_of<T, float, 2>(cut) : kernel_of<T, T, 2>(cut);
}

/* Returns false if shared memory is too small. */
static bool run_cut(const grad_args *a, grad_cut cut, grad_kernel kernel, int blocks,
                    const wf_launch *l)
{
    /* Spare: static shared memory of the kernel. */
    const size_t shared = wf_cuda_device_of(l)->shared, spare = 1 << 10;
    const dim3 block = block_of(cut);
    const size_t tensors = a->dsum.data ? 3 : 2;
    const size_t ring = kernel.stages * tensors * cut.packs * 16 * block.x * block.y;
    const size_t sums = block.y > 1 ? a->kinds * (size_t)a->columns * sizeof(float) : 0;
    const size_t bytes = ring > sums ? ring : sums;
    if (bytes + spare > shared)
        return false;
    /* Allow all of it; `bytes` is what this launch uses. */
    cudaFuncSetAttribute(kernel.run, cudaFuncAttributeMaxDynamicSharedMemorySize,
                         (int)(shared - spare));
    WF_RUN(kernel.run, blocks, block, bytes, wf_cuda_stream(l))(*a);
    return true;
}

/* Computes dx after the sums: it may alias dy or x. */
template <typename T> static void run_any(const grad_args *a, int blocks, cudaStream_t stream)
{
    const dim3 grid(wf_cuda_blocks(a->columns, 32, INT32_MAX), blocks);
    if (a->sums)
        WF_RUN(norm_columns_any<T>, grid, dim3(32, 8), 0, stream)(*a);
    const dim3 block = wf_norm_block(wf_norm_threads(a->columns), 256);
    if (a->dx.data)
        WF_RUN(norm_dx_any<T>, wf_cuda_blocks(a->rows, block.y, INT32_MAX), block, 0, stream)(*a);
    if (a->kinds == 3)
        WF_RUN(dx_columns_any<T>, grid, dim3(32, 8), 0, stream)(*a);
}

/* (dy, x, mean if centered, rstd, dsum if residual, gamma?) -> dx, dgamma, dbeta if centered, sum
 * of dx if residual */
static wf_status backward(const wf_launch *l, bool centered, bool residual)
{
    const int rstd = centered ? 3 : 2;
    const wf_view *x = &l->in[1], *gamma = wf_norm_input(l, rstd + 1 + residual);
    const wf_view *dgamma = wf_norm_output(l, 1), *dbeta = centered ? wf_norm_output(l, 2) : NULL;
    const wf_view *dx_sum = residual ? wf_norm_output(l, l->nout - 1) : NULL;
    grad_args a = {};
    a.rows = wf_view_rows(x);
    a.columns = wf_view_last(x);
    a.centered = centered;
    a.inverse = (float)(1.0 / (double)a.columns);
    a.gamma = wf_cuda_any_of(gamma);
    a.sums = dgamma || dbeta || dx_sum ? (float *)l->workspace : NULL;
    a.kinds = dx_sum ? 3 : 2;
    const wf_view *views[] = {&l->in[0],
                              x,
                              residual ? &l->in[rstd + 1] : NULL,
                              wf_norm_output(l, 0),
                              centered ? &l->in[2] : NULL,
                              &l->in[rstd]};
    wf_norm_rows *rows[] = {&a.dy, &a.x, &a.dsum, &a.dx, &a.mean, &a.rstd};
    a.axes = wf_norm_fold(x, views, rows, 6);
    const int blocks = blocks_of(a.rows, a.columns, x->type);
    bool wide = wf_norm_places_fit(&a.axes, a.rows, rows, 6);
    for (int i = 0; i < 4; i++)
        wide = wide && wf_norm_rows_wide(rows[i], &a.axes, x->type);
    wide = wide && wf_norm_params_fit(gamma, NULL, x->type);
    const grad_cut cut = wide ? cut_of(a.columns, x->type) : grad_cut{0, 0};
    cudaStream_t stream = wf_cuda_stream(l);
    if (a.rows > 0)
        wf_with_float(x->type, [&](auto zero) {
            using T = decltype(zero);
            const grad_kernel kernel = kernel_for<T>(cut, gamma, a.kinds);
            if (!cut.threads || !run_cut(&a, cut, kernel, blocks, l))
                run_any<T>(&a, blocks, stream);
        });
    if (a.sums)
        WF_RUN(norm_totals,
               dim3(wf_cuda_blocks(a.columns, 32, INT32_MAX), dx_sum     ? 3
                                                              : centered ? 2
                                                                         : 1),
               dim3(32, TOTAL_ROWS), 0, stream)
    (a.sums, a.rows > 0 ? blocks : 0, a.kinds, a.columns, wf_cuda_any_of(dgamma),
     wf_cuda_any_of(dbeta), wf_cuda_any_of(dx_sum));
    return wf_cuda_launched(l);
}

extern "C" wf_status wf_cuda_layer_norm_grad(const wf_launch *l)
{
    return backward(l, true, false);
}

extern "C" wf_status wf_cuda_rms_norm_grad(const wf_launch *l)
{
    return backward(l, false, false);
}

extern "C" wf_status wf_cuda_residual_layer_norm_grad(const wf_launch *l)
{
    return backward(l, true, true);
}

extern "C" wf_status wf_cuda_residual_rms_norm_grad(const wf_launch *l)
{
    return backward(l, false, true);
}
