/* SPDX-License-Identifier: MIT */
/*
 * norm_grad.cu - gradients of layer norm and rms norm of rows [C].
 *
 *     dx = rstd * (g - mean(g) - xhat * mean(g * xhat)) + dsum      g = dy * gamma
 *     dgamma = sum of dy * xhat over rows      dbeta = sum of dy
 *
 * mean(g) and dbeta are the layer norm's only; dsum is what arrives at a sum of which the norm was taken.
 *
 * A block goes through rows, each read once, with sums of its columns in registers, and leaves these in the
 * workspace; a second kernel adds up the blocks' sums in order. The number of blocks depends on the shape alone.
 */
#include "device/cuda/norm.cuh"

/* Tuned for 132 processors, but the same everywhere: sums are to have the same bits on all GPUs. */
enum {
    BLOCKS = 528,      /* that leave sums, at most */
    THREADS = 256,     /* of a block, at most */
    MOST_THREADS = 512 /* the same where rows are too long for that */
};

typedef struct {
    int64_t rows, columns;
    wf_norm_axes axes;
    bool centered;
    wf_norm_rows dy, x, dsum, dx; /* T [rows, C]; dsum and dx may be missing */
    wf_norm_rows mean, rstd;      /* f32 [rows]; no mean: 0 */
    wf_cuda_any gamma;            /* [C] */
    float *sums;                  /* [blocks][2][C]: of dgamma and dbeta. NULL: nobody reads them */
} grad_args;

/* ---- Rows in registers: N times 16 bytes of each of R rows a thread ---- */

template <typename T, int N> struct grad_row {
    uint4 dy[N], x[N], dsum[N];
    float mean, rstd;
};

/* Past the last row and column there are zeros. */
template <typename T, int N>
static __device__ __forceinline__ void load_row(const grad_args &a, int64_t r, grad_row<T, N> *to)
{
    constexpr int W = WF_WIDE(T);
    const int columns = (int)a.columns, step = (int)blockDim.x * W, first = (int)threadIdx.x * W;
    const bool live = r < a.rows;
    to->mean = to->rstd = 0;
#pragma unroll
    for (int k = 0; k < N; k++)
        to->dy[k] = to->x[k] = to->dsum[k] = make_uint4(0, 0, 0, 0);
    if (!live)
        return;
    const wf_norm_place p = wf_norm_place_of(a.axes, (uint32_t)r);
    const T *dy = wf_norm_at<const T>(a.dy, p), *x = wf_norm_at<const T>(a.x, p);
    const T *dsum = wf_norm_at<const T>(a.dsum, p);
#pragma unroll
    for (int k = 0; k < N; k++)
        if (first + k * step < columns) {
            to->dy[k] = wf_load16(dy + first + k * step);
            to->x[k] = wf_load16(x + first + k * step);
            if (a.dsum.data)
                to->dsum[k] = wf_load16(dsum + first + k * step);
        }
    to->rstd = *wf_norm_at<const float>(a.rstd, p);
    if (a.mean.data)
        to->mean = *wf_norm_at<const float>(a.mean, p);
}

/* dy and xhat of 16 bytes. */
template <typename T, int N>
static __device__ __forceinline__ void unpack_row(const grad_row<T, N> &row, int k, float *dy,
                                                  float *h)
{
    constexpr int W = WF_WIDE(T);
    wf_unpack16<T>(row.dy[k], dy);
    wf_unpack16<T>(row.x[k], h);
#pragma unroll
    for (int i = 0; i < W; i++)
        h[i] = (h[i] - row.mean) * row.rstd;
}

template <typename T, int N>
static __device__ __forceinline__ void store_row(const grad_args &a, int64_t r, grad_row<T, N> &row,
                                                 const float (*gamma)[WF_WIDE(T)], float2 means)
{
    constexpr int W = WF_WIDE(T);
    const int columns = (int)a.columns, step = (int)blockDim.x * W, first = (int)threadIdx.x * W;
    T *dx = wf_norm_at<T>(a.dx, wf_norm_place_of(a.axes, (uint32_t)r));
#pragma unroll
    for (int k = 0; k < N; k++) {
        float dy[W], h[W], more[W];
        if (first + k * step >= columns)
            continue;
        wf_forget16(row.dy[k]);
        wf_forget16(row.x[k]);
        unpack_row<T, N>(row, k, dy, h);
        wf_unpack16<T>(row.dsum[k], more);
#pragma unroll
        for (int i = 0; i < W; i++)
            dy[i] = row.rstd * (dy[i] * gamma[k][i] - means.x - h[i] * means.y) + more[i];
        wf_store16(dx + first + k * step, wf_repack16<T>(dy));
    }
}

/* Adds the columns' sums of all rows that a block worked on at once, in their order, and stores them as the
 * block's. */
template <int W, int N>
static __device__ __forceinline__ void store_sums(const grad_args &a, const float (*sum)[N][W])
{
    WF_SHARED(float, shared); /* [2][C] where threads have columns in common */
    const int columns = (int)a.columns, threads = (int)blockDim.x;
    float *to = a.sums + (int64_t)blockIdx.x * 2 * columns;
    for (int turn = 0; turn < (int)blockDim.y; turn++) {
        float *at = blockDim.y > 1 ? shared : to;
        if ((int)threadIdx.y == turn)
#pragma unroll
            for (int k = 0; k < N; k++)
#pragma unroll
                for (int i = 0; i < W; i++) {
                    const int c = ((int)threadIdx.x + k * threads) * W + i;
                    if (c >= columns)
                        continue;
                    at[c] = (turn ? at[c] : 0) + sum[0][k][i];
                    at[columns + c] = (turn ? at[columns + c] : 0) + sum[1][k][i];
                }
        __syncthreads();
    }
    if (blockDim.y > 1)
        for (int i = threadIdx.y * threads + threadIdx.x; i < 2 * columns;
             i += threads * blockDim.y)
            to[i] = shared[i];
}

/* G: the type of gamma. Rows of blockDim.x threads, which is a power of two or a multiple of 32. */
template <typename T, typename G, int N, int R, int most>
static __global__ void __launch_bounds__(most, N == 1   ? 3
                                               : N == 2 ? 2
                                                        : 1) norm_grad(grad_args a)
{
    constexpr int W = WF_WIDE(T);
    __shared__ wf_row_scratch<2 * R> scratch;
    const int columns = (int)a.columns, step = (int)blockDim.x * W, first = (int)threadIdx.x * W;
    float gamma[N][W], sum[2][N][W] = {};
#pragma unroll
    for (int k = 0; k < N; k++) {
#pragma unroll
        for (int i = 0; i < W; i++)
            gamma[k][i] = 1;
        if (a.gamma.data && first + k * step < columns)
            wf_load_floats<G, W>((const G *)a.gamma.data + first + k * step, gamma[k]);
    }
    int turn = 0;
    const int64_t at_once = (int64_t)blockDim.y * R;
    for (int64_t base = blockIdx.x * at_once; base < a.rows; base += gridDim.x * at_once) {
        const int64_t r = base + threadIdx.y * R;
        grad_row<T, N> row[R];
#pragma unroll
        for (int j = 0; j < R; j++)
            load_row<T, N>(a, r + j, &row[j]);
        float means[2 * R] = {}; /* of g and of g * xhat */
#pragma unroll
        for (int j = 0; j < R; j++)
#pragma unroll
            for (int k = 0; k < N; k++) {
                float dy[W], h[W];
                unpack_row<T, N>(row[j], k, dy, h);
#pragma unroll
                for (int i = 0; i < W; i++) {
                    const float g = dy[i] * gamma[k][i];
                    means[2 * j] += g;
                    means[2 * j + 1] += g * h[i];
                    sum[0][k][i] += dy[i] * h[i];
                    sum[1][k][i] += dy[i];
                }
            }
        wf_row_sums<2 * R>(means, &scratch, turn);
        turn ^= 1;
#pragma unroll
        for (int j = 0; j < R; j++)
            if (a.dx.data && r + j < a.rows)
                store_row<T, N>(a, r + j, row[j], gamma,
                                make_float2(a.centered ? means[2 * j] / (float)columns : 0,
                                            means[2 * j + 1] / (float)columns));
    }
    if (a.sums)
        store_sums<W, N>(a, sum);
}

/* ---- Rows of any length and alignment, gamma of any type: read again from the caches ---- */

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

/* Block (i, j) adds up columns [32 i, 32 i + 32) of the rows j, j + gridDim.y, ...: blockDim.y of them at once. */
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
    float *to = a.sums + (int64_t)blockIdx.y * 2 * a.columns;
    to[c] = sum.x;
    to[a.columns + c] = sum.y;
}

/* ---- The blocks' sums ---- */

enum { TOTAL_ROWS = 16 };

/* dgamma (blockIdx.y 0) or dbeta (1) of 32 columns from the sums of all blocks. */
static __global__ void __launch_bounds__(32 * TOTAL_ROWS)
    norm_totals(const float *sums, int blocks, int64_t columns, wf_cuda_any dgamma,
                wf_cuda_any dbeta)
{
    __shared__ float part[TOTAL_ROWS][32];
    const int64_t c = (int64_t)blockIdx.x * 32 + threadIdx.x;
    const wf_cuda_any to = blockIdx.y ? dbeta : dgamma;
    if (!to.data)
        return;
    const float *from = sums + blockIdx.y * columns + c;
    float sum = 0;
    if (c < columns)
#pragma unroll 4
        for (int b = threadIdx.y; b < blocks; b += TOTAL_ROWS)
            sum += from[b * 2 * columns];
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || c >= columns)
        return;
    for (int i = 1; i < TOTAL_ROWS; i++)
        sum += part[i][threadIdx.x];
    wf_any_store(to, c, sum);
}

/* ---- Launching ---- */

/* How rows are spread over threads: `packs` times 16 bytes each; 0: they do not fit. */
typedef struct {
    int threads, packs;
} grad_cut;

static grad_cut cut_of(int64_t columns, wf_type type)
{
    const int64_t width = type == WF_F32 ? 4 : 8, total = (columns + width - 1) / width;
    grad_cut cut = {4, 1};
    while (cut.packs < 4 && cut.packs * THREADS < total)
        cut.packs *= 2;
    if (cut.packs * MOST_THREADS < total || columns % width != 0)
        return grad_cut{0, 0};
    while (cut.threads < 32 && cut.threads * cut.packs < total)
        cut.threads *= 2;
    if (cut.threads == 32)
        cut.threads = (int)((total + cut.packs * 32 - 1) / (cut.packs * 32)) * 32;
    return cut;
}

static dim3 block_of(grad_cut cut)
{
    int rows = cut.threads > 0 && cut.threads < THREADS ? THREADS / cut.threads : 1;
    return dim3((unsigned)cut.threads, (unsigned)rows);
}

/* Blocks that leave sums: of the shape alone. */
static int blocks_of(int64_t rows, int64_t columns, wf_type type)
{
    const grad_cut cut = cut_of(columns, type);
    const int at_once = cut.threads ? (int)block_of(cut).y * (cut.packs == 1 ? 2 : 1) : 8;
    return (int)wf_cuda_blocks(rows, at_once, BLOCKS);
}

extern "C" size_t wf_cuda_norm_grad_workspace(const wf_node *n, int threads)
{
    (void)threads;
    const wf_dims *x = &n->in[1]->shape;
    const int64_t rows = wf_dims_rows(x), columns = wf_dims_last(x);
    return (size_t)blocks_of(rows, columns, n->in[1]->type) * 2 * (size_t)columns * sizeof(float);
}

template <typename T, typename G>
static void run_cut(const grad_args *a, grad_cut cut, int blocks, cudaStream_t stream)
{
    const dim3 block = block_of(cut);
    const size_t shared = block.y > 1 ? 2 * (size_t)a->columns * sizeof(float) : 0;
    if (cut.packs == 1)
        WF_RUN((norm_grad<T, G, 1, 2, THREADS>), blocks, block, shared, stream)(*a);
    else if (cut.packs == 2)
        WF_RUN((norm_grad<T, G, 2, 1, THREADS>), blocks, block, shared, stream)(*a);
    else if (cut.threads <= THREADS)
        WF_RUN((norm_grad<T, G, 4, 1, THREADS>), blocks, block, shared, stream)(*a);
    else
        WF_RUN((norm_grad<T, G, 4, 1, MOST_THREADS>), blocks, block, shared, stream)(*a);
}

/* dx comes last: it may replace dy or x. */
template <typename T> static void run_any(const grad_args *a, int blocks, cudaStream_t stream)
{
    if (a->sums)
        WF_RUN(norm_columns_any<T>, dim3(wf_cuda_blocks(a->columns, 32, INT32_MAX), blocks),
               dim3(32, 8), 0, stream)
    (*a);
    const dim3 block = wf_norm_block(wf_norm_threads(a->columns));
    if (a->dx.data)
        WF_RUN(norm_dx_any<T>, wf_cuda_blocks(a->rows, block.y, INT32_MAX), block, 0, stream)(*a);
}

/* (dy, x, mean if centered, rstd, dsum if residual, gamma?) -> dx, dgamma, dbeta if centered */
static wf_status backward(const wf_launch *l, bool centered, bool residual)
{
    const int rstd = centered ? 3 : 2;
    const wf_view *x = &l->in[1], *gamma = wf_norm_input(l, rstd + 1 + residual);
    const wf_view *dgamma = wf_norm_output(l, 1), *dbeta = centered ? wf_norm_output(l, 2) : NULL;
    grad_args a = {};
    a.rows = wf_view_rows(x);
    a.columns = wf_view_last(x);
    a.centered = centered;
    a.gamma = wf_cuda_any_of(gamma);
    a.sums = dgamma || dbeta ? (float *)l->workspace : NULL;
    const wf_view *views[] = {&l->in[0],
                              x,
                              residual ? &l->in[rstd + 1] : NULL,
                              wf_norm_output(l, 0),
                              centered ? &l->in[2] : NULL,
                              &l->in[rstd]};
    wf_norm_rows *rows[] = {&a.dy, &a.x, &a.dsum, &a.dx, &a.mean, &a.rstd};
    a.axes = wf_norm_fold(x, views, rows, 6);
    const int blocks = blocks_of(a.rows, a.columns, x->type);
    const bool wide =
        wf_norm_places_fit(&a.axes, a.rows) && wf_norm_rows_wide(&a.dy, &a.axes, x->type) &&
        wf_norm_rows_wide(&a.x, &a.axes, x->type) && wf_norm_rows_wide(&a.dsum, &a.axes, x->type) &&
        wf_norm_rows_wide(&a.dx, &a.axes, x->type) && wf_norm_params_fit(gamma, NULL, x->type);
    const grad_cut cut = wide ? cut_of(a.columns, x->type) : grad_cut{0, 0};
    cudaStream_t stream = wf_cuda_stream(l);
    if (a.rows > 0)
        wf_with_float(x->type, [&](auto zero) {
            using T = decltype(zero);
            if (!cut.threads)
                run_any<T>(&a, blocks, stream);
            else if (gamma && gamma->type == WF_F32)
                run_cut<T, float>(&a, cut, blocks, stream);
            else
                run_cut<T, T>(&a, cut, blocks, stream);
        });
    if (a.sums)
        WF_RUN(norm_totals, dim3(wf_cuda_blocks(a.columns, 32, INT32_MAX), centered ? 2 : 1),
               dim3(32, TOTAL_ROWS), 0, stream)
    (a.sums, a.rows > 0 ? blocks : 0, a.columns, wf_cuda_any_of(dgamma), wf_cuda_any_of(dbeta));
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
