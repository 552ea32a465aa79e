/* SPDX-License-Identifier: MIT */
/*
 * product_aux.cu - kernels around a GEMM: epilogues, row sums, and the fill and comparison that
 * product_tune.c needs.
 *
 * Epilogues read and write each element once: [m, n] in packs of 16 bytes where rows allow it,
 * PACKS packs per thread, 256 threads per block. Row sums [m, n] -> [n] are cut into parts by shape
 * only and added in a fixed order (sum_parts, sum_all), in f32.
 */
#include "device/cuda/activation.cuh"
#include "device/cuda/product.h"
#include "device/cuda/row.cuh"

#define THREADS 256

/* Whether the address and the row stride are multiples of 16 bytes. */
static bool is_wide(const void *p, int64_t stride_bytes)
{
    return ((uintptr_t)p | (uintptr_t)stride_bytes) % 16 == 0;
}

static __device__ __forceinline__ float number_of(wf_type type, const void *from, int64_t i)
{
    if (type == WF_F32)
        return static_cast<const float *>(from)[i];
    if (type == WF_BF16)
        return wf_load(static_cast<const wf_bf16 *>(from)[i]);
    return wf_load(static_cast<const wf_f16 *>(from)[i]);
}

/* ---- Activations and their derivatives, rows of n elements ---- */

/* Argument of finish_rows. */
typedef struct {
    const void *pre;
    void *y;                /* ACT_GRAD: the GEMM's result, updated in place */
    int64_t items, per_row; /* in packs */
    int64_t pre_row, y_row; /* elements */
} finish;

enum { PACKS = 4 }; /* per thread, loaded before any is used */

/* The activation of pre, or y times its derivative. Only gelu has a fused gradient. */
template <int ACT, bool GRAD> static __device__ __forceinline__ float finish_one(float pre, float y)
{
    if (GRAD)
        return y * wf_gelu_slope(pre);
    return wf_activate<(wf_act)ACT>(pre);
}

template <typename T, int N, int ACT, bool GRAD>
static __global__ void __launch_bounds__(THREADS) finish_rows(const finish f)
{
    const int64_t first = (int64_t)blockIdx.x * (PACKS * THREADS) + threadIdx.x;
    if (first >= f.items)
        return;
    const T *pre = static_cast<const T *>(f.pre);
    T *y = static_cast<T *>(f.y);
    wf_pack<T, N> x[PACKS], product[PACKS];
    int64_t at[PACKS];
#pragma unroll
    for (int u = 0; u < PACKS; u++) {
        /* Past the end, load the thread's first item again: loads stay unconditional, and no thread
         * reads what another writes. */
        const int64_t next = first + u * THREADS, item = next < f.items ? next : first;
        /* Dense: one row of all items, no division. */
        const int64_t row = f.per_row == f.items ? 0 : item / f.per_row;
        const int64_t column = (item - row * f.per_row) * N;
        at[u] = row * f.y_row + column;
        x[u] = wf_load_pack<T, N>(pre + row * f.pre_row + column);
        if (GRAD)
            product[u] = wf_load_pack<T, N>(y + at[u]);
    }
#pragma unroll
    for (int u = 0; u < PACKS; u++) {
#pragma unroll
        for (int i = 0; i < N; i++)
            x[u].x[i] = wf_round<T>(
                finish_one<ACT, GRAD>(wf_load(x[u].x[i]), GRAD ? wf_load(product[u].x[i]) : 0.0f));
        if (first + u * THREADS < f.items)
            wf_store_pack<T, N>(y + at[u], x[u]);
    }
}

template <typename T, int N, int ACT, bool GRAD>
static void run_finish(cudaStream_t stream, finish f, int64_t m, int64_t n)
{
    /* Rows without gaps are treated as one long row. */
    const bool dense = f.pre_row == n && f.y_row == n;
    f.per_row = (dense ? m * n : n) / N;
    f.items = dense ? f.per_row : m * f.per_row;
    const int64_t each = PACKS * THREADS;
    WF_RUN((finish_rows<T, N, ACT, GRAD>), (unsigned)((f.items + each - 1) / each), THREADS, 0,
           stream)
    (f);
}

template <typename T, int ACT, bool GRAD>
static void finish_type(cudaStream_t stream, const finish &f, int64_t m, int64_t n)
{
    const int64_t bytes = (int64_t)sizeof(T);
    const bool dense = f.pre_row == n && f.y_row == n;
    if ((dense ? m * n : n) % WF_WIDE(T) == 0 && is_wide(f.pre, dense ? 0 : f.pre_row * bytes) &&
        is_wide(f.y, dense ? 0 : f.y_row * bytes))
        run_finish<T, WF_WIDE(T), ACT, GRAD>(stream, f, m, n);
    else
        run_finish<T, 1, ACT, GRAD>(stream, f, m, n);
}

template <typename T>
static void finish_act(cudaStream_t stream, const finish &f, const wf_cuda_product *p)
{
    if (p->ending == WF_CUDA_ACT_GRAD)
        finish_type<T, WF_ACT_GELU, true>(stream, f, p->m, p->n);
    else if (p->act == WF_ACT_GELU)
        finish_type<T, WF_ACT_GELU, false>(stream, f, p->m, p->n);
    else if (p->act == WF_ACT_GELU_ERF)
        finish_type<T, WF_ACT_GELU_ERF, false>(stream, f, p->m, p->n);
    else if (p->act == WF_ACT_SILU)
        finish_type<T, WF_ACT_SILU, false>(stream, f, p->m, p->n);
    else if (p->act == WF_ACT_RELU)
        finish_type<T, WF_ACT_RELU, false>(stream, f, p->m, p->n);
    else
        finish_type<T, WF_ACT_RELU2, false>(stream, f, p->m, p->n);
}

/* ---- Bias and epilogue of an f32 result, rounded once: exact, not tuned for speed ---- */

static __device__ float activate(int act, float x)
{
    switch (act) {
    case WF_ACT_GELU: return wf_activate<WF_ACT_GELU>(x);
    case WF_ACT_GELU_ERF: return wf_activate<WF_ACT_GELU_ERF>(x);
    case WF_ACT_SILU: return wf_activate<WF_ACT_SILU>(x);
    case WF_ACT_RELU: return wf_activate<WF_ACT_RELU>(x);
    default: return wf_activate<WF_ACT_RELU2>(x);
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS) settle(const wf_cuda_product p, const float *from)
{
    const int64_t step = (int64_t)gridDim.x * THREADS, count = p.m * p.n;
    T *y = static_cast<T *>(p.y.data), *pre = static_cast<T *>(p.pre.data);
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        const int64_t row = i / p.n, column = i % p.n;
        float x = from[i];
        if (p.bias)
            x += number_of(p.bias_type, p.bias, column);
        if (p.ending == WF_CUDA_ACT) {
            /* Activates the rounded operand: the gradient reads it from memory and must see the
             * same value. */
            const T stored = wf_round<T>(x);
            if (pre)
                pre[row * p.pre.row + column] = stored;
            x = activate(p.act, wf_load(stored));
        } else if (p.ending == WF_CUDA_ACT_GRAD) {
            x *= wf_gelu_slope(wf_load(pre[row * p.pre.row + column]));
        }
        if (y)
            y[row * p.y.row + column] = wf_round<T>(x);
    }
}

extern "C" void wf_cuda_settle(cudaStream_t stream, const wf_cuda_product *p, const float *product)
{
    if (p->m * p->n > 0)
        wf_with_float(p->y.type, [&](auto zero) {
            WF_RUN(settle<decltype(zero)>, wf_cuda_blocks(p->m * p->n, THREADS, 1 << 20), THREADS,
                   0, stream)
            (*p, product);
        });
}

/* ---- Row sums of a matrix, as it is or times an activation's derivative ---- */

/* Most parts of a sum, warps per block, lanes per warp, rows in flight per lane. */
enum { SUM_PARTS = 256, SUM_ROWS = 8, SUM_LANES = 32, SUM_LOADS = 4 };

/* Room for all parts of all columns. */
size_t wf_cuda_sums_bytes(int64_t columns)
{
    return (size_t)columns * SUM_PARTS * sizeof(float);
}

typedef struct {
    const void *x;
    int64_t row; /* row stride of x, in elements */
    int64_t rows, columns;
    float *parts;    /* [parts][columns] */
    const void *pre; /* SLOPE: x becomes x gelu'(pre) before the sum */
    int64_t pre_row;
} adding;

/* N elements as raw bytes: a pack of 2-byte elements would use one register per element. */
template <typename T, int N> struct lump {
    uint4 x;
    __device__ __forceinline__ void load(const T *from)
    {
        x = wf_load16(from);
    }
    __device__ __forceinline__ void store(T *to) const
    {
        wf_store16(to, x);
    }
    __device__ __forceinline__ void unpack(float *to) const
    {
        wf_unpack16<T>(x, to);
    }
    __device__ __forceinline__ void repack(const float *from)
    {
        x = wf_repack16<T>(from);
    }
};
template <typename T> struct lump<T, 1> {
    T x;
    __device__ __forceinline__ void load(const T *from)
    {
        x = *from;
    }
    __device__ __forceinline__ void store(T *to) const
    {
        *to = x;
    }
    __device__ __forceinline__ void unpack(float *to) const
    {
        *to = wf_load(x);
    }
    __device__ __forceinline__ void repack(const float *from)
    {
        x = wf_round<T>(*from);
    }
};

/* Adds N columns of LOADS rows that are `step` rows apart, pairwise. All loads are issued first. */
template <typename T, int N, bool SLOPE, int LOADS>
static __device__ __forceinline__ void add_some(const adding &a, int64_t column, int64_t r,
                                                int64_t step, float *sum)
{
    T *x = static_cast<T *>(const_cast<void *>(a.x)) + r * a.row + column;
    const T *pre = static_cast<const T *>(a.pre) + r * a.pre_row + column;
    lump<T, N> in[LOADS], at[LOADS];
    float pair[(LOADS + 1) / 2][N]; /* neighbouring pairs first, then the pairs: fixed by LOADS */
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
        in[u].load(x + u * step * a.row);
        if (SLOPE)
            at[u].load(pre + u * step * a.pre_row);
    }
#pragma unroll
    for (int u = 0; u < LOADS; u++) {
        float value[N], slope[N];
        in[u].unpack(value);
        if (SLOPE) {
            at[u].unpack(slope);
#pragma unroll
            for (int i = 0; i < N; i++)
                value[i] = finish_one<WF_ACT_GELU, true>(slope[i], value[i]);
            in[u].repack(value);
            in[u].store(x + u * step * a.row); /* the scaled gradient replaces the GEMM's result */
        }
#pragma unroll
        for (int i = 0; i < N; i++)
            pair[u / 2][i] = u % 2 ? pair[u / 2][i] + value[i] : value[i];
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] += LOADS > 2 ? pair[0][i] + pair[(LOADS - 1) / 2][i] : pair[0][i];
}

/* Part p sums rows p * SUM_ROWS + y + i * SUM_ROWS * parts. A lane sums N columns; SUM_ROWS warps
 * work on the same columns, and their sums are added last. */
template <typename T, int N, bool SLOPE>
static __global__ void __launch_bounds__(SUM_ROWS *SUM_LANES) sum_parts(const adding a)
{
    /* + 1: keeps warps of a column in different banks. */
    __shared__ float beside[SUM_ROWS][SUM_LANES * N + 1];
    const int lane = threadIdx.x % SUM_LANES, warp = threadIdx.x / SUM_LANES;
    const int64_t column = ((int64_t)blockIdx.x * SUM_LANES + lane) * N;
    const int64_t step = (int64_t)SUM_ROWS * gridDim.y;
    float sum[N] = {};
    if (column < a.columns) {
        int64_t r = (int64_t)blockIdx.y * SUM_ROWS + warp;
        for (; r + (SUM_LOADS - 1) * step < a.rows; r += SUM_LOADS * step)
            add_some<T, N, SLOPE, SUM_LOADS>(a, column, r, step, sum);
        for (; r < a.rows; r += step)
            add_some<T, N, SLOPE, 1>(a, column, r, step, sum);
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        beside[warp][lane * N + i] = sum[i];
    __syncthreads(); /* all warps have stored their columns */
    for (int c = threadIdx.x; c < SUM_LANES * N; c += SUM_ROWS * SUM_LANES) {
        const int64_t to = (int64_t)blockIdx.x * (SUM_LANES * N) + c;
        float all = 0;
#pragma unroll
        for (int i = 0; i < SUM_ROWS; i++)
            all += beside[i][c];
        if (to < a.columns)
            a.parts[blockIdx.y * a.columns + to] = all;
    }
}

/* Adds the parts: a warp per 32 columns, with the parts spread over SUM_ROWS warps. */
static __global__ void __launch_bounds__(SUM_ROWS *SUM_LANES)
    sum_all(const float *parts, int count, int64_t m, float *sums)
{
    __shared__ float beside[SUM_ROWS][SUM_LANES + 1];
    const int lane = threadIdx.x % SUM_LANES, warp = threadIdx.x / SUM_LANES;
    const int64_t column = (int64_t)blockIdx.x * SUM_LANES + lane;
    float sum = 0;
    if (column < m)
        for (int p = warp; p < count; p += SUM_ROWS)
            sum += parts[p * m + column];
    beside[warp][lane] = sum;
    __syncthreads();
    if (warp > 0 || column >= m) /* after the barrier; warp 0 adds the others in order */
        return;
    for (int i = 1; i < SUM_ROWS; i++)
        sum += beside[i][lane];
    sums[column] = sum;
}

template <typename T, bool SLOPE>
static void run_sums(cudaStream_t stream, const adding &a, float *sums)
{
    const int64_t bytes = (int64_t)sizeof(T);
    const bool wide = a.columns % WF_WIDE(T) == 0 && is_wide(a.x, a.row * bytes) &&
                      (!SLOPE || is_wide(a.pre, a.pre_row * bytes));
    const int64_t each = (int64_t)SUM_LANES * (wide ? WF_WIDE(T) : 1);
    /* At least 64 rows per part. */
    const unsigned count = wf_cuda_blocks(a.rows, 8 * SUM_ROWS, SUM_PARTS);
    const dim3 grid((unsigned)((a.columns + each - 1) / each), count);
    if (wide)
        WF_RUN((sum_parts<T, WF_WIDE(T), SLOPE>), grid, SUM_ROWS * SUM_LANES, 0, stream)(a);
    else
        WF_RUN((sum_parts<T, 1, SLOPE>), grid, SUM_ROWS * SUM_LANES, 0, stream)(a);
    WF_RUN(sum_all, (unsigned)((a.columns + SUM_LANES - 1) / SUM_LANES), SUM_ROWS * SUM_LANES, 0,
           stream)
    (a.parts, (int)count, a.columns, sums);
}

extern "C" void wf_cuda_add_rows(cudaStream_t stream, const wf_cuda_matrix *x, int64_t rows,
                                 int64_t columns, float *sums, float *parts)
{
    const adding a = {x->data, x->row, rows, columns, parts, NULL, 0};
    if (columns > 0)
        wf_with_float(x->type,
                      [&](auto zero) { run_sums<decltype(zero), false>(stream, a, sums); });
}

/* ---- Epilogues ---- */

extern "C" void wf_cuda_finish(cudaStream_t stream, const wf_cuda_product *p, float *parts)
{
    const bool kept = p->pre.data != NULL; /* without `pre`, y holds the operand and is replaced */
    const finish f = {kept ? p->pre.data : p->y.data, p->y.data, 0, 0,
                      kept ? p->pre.row : p->y.row,   p->y.row};
    const adding a = {p->y.data, p->y.row, p->m, p->n, parts, p->pre.data, p->pre.row};
    if (p->m * p->n > 0)
        wf_with_float(p->y.type, [&](auto zero) {
            if (p->rows_sums)
                run_sums<decltype(zero), true>(stream, a, p->rows_sums);
            else
                finish_act<decltype(zero)>(stream, f, p);
        });
}

/* ---- Rows of f32 as f16 ---- */

/* A block per row: finds the largest magnitude, then rounds. */
static __global__ void __launch_bounds__(THREADS)
    divide_rows(const wf_cuda_view x, int64_t columns, wf_f16 *to, float *factors)
{
    __shared__ float scratch[32];
    const float *row = static_cast<const float *>(x.data) + wf_cuda_row(x, blockIdx.x);
    float most = 0;
    for (int64_t i = threadIdx.x; i < columns; i += THREADS)
        most = fmaxf(most, fabsf(row[i]));
    most = wf_block_max(most, scratch);
    const float factor = most >= 32768 && most < INFINITY ? ldexpf(1, ilogbf(most) - 14) : 1;
    for (int64_t i = threadIdx.x; i < columns; i += THREADS)
        to[blockIdx.x * columns + i] = wf_round<wf_f16>(row[i] / factor);
    if (threadIdx.x == 0)
        factors[blockIdx.x] = factor;
}

extern "C" void wf_cuda_divide_rows(cudaStream_t stream, const wf_view *x, void *to, float *factors)
{
    const int64_t rows = wf_view_rows(x);
    if (rows == 0)
        return;
    WF_RUN(divide_rows, (unsigned)rows, THREADS, 0, stream)
    (wf_cuda_view_of(x), wf_view_last(x), static_cast<wf_f16 *>(to), factors);
}

/* A block per row. */
template <typename B>
static __global__ void __launch_bounds__(THREADS)
    multiply_rows(float *y, int64_t row, int64_t columns, const float *factors, const B *bias)
{
    const float factor = factors[blockIdx.x];
    if (factor == 1 && !bias)
        return;
    for (int64_t i = threadIdx.x; i < columns; i += THREADS) {
        float *at = y + blockIdx.x * row + i;
        *at = __fadd_rn(*at * factor, bias ? wf_load(bias[i]) : 0);
    }
}

extern "C" void wf_cuda_multiply_rows(cudaStream_t stream, const wf_cuda_product *p,
                                      const float *factors)
{
    wf_with_float(p->bias ? p->bias_type : WF_F32, [&](auto zero) {
        using B = decltype(zero);
        if (p->m > 0)
            WF_RUN(multiply_rows<B>, (unsigned)p->m, THREADS, 0, stream)
        (static_cast<float *>(p->y.data), p->y.row, p->n, factors, static_cast<const B *>(p->bias));
    });
}

/* ---- Random operands for timing ---- */

/* Bell-shaped, standard deviation about 0.5: the values decide the power draw and thus the
 * clock. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) randomize(T *to, int64_t count, uint64_t seed)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        uint64_t h = ((uint64_t)i + seed) * 0x9e3779b97f4a7c15u;
        h = (h ^ h >> 32) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
        /* The sum of eight bytes of a hash: mean 1020, standard deviation 209. */
        int sum = 0;
#pragma unroll
        for (int k = 0; k < 8; k++)
            sum += (int)(h >> 8 * k & 255);
        to[i] = wf_round<T>((float)(sum - 1020) * (0.5f / 209.0f));
    }
}

extern "C" void wf_cuda_randomize(cudaStream_t stream, wf_type type, void *to, size_t bytes,
                                  uint64_t seed)
{
    wf_with_float(type, [&](auto zero) {
        using T = decltype(zero);
        const int64_t count = (int64_t)(bytes / sizeof(T));
        WF_RUN(randomize<T>, wf_cuda_blocks(count, THREADS, 4096), THREADS, 0, stream)
        (static_cast<T *>(to), count, seed);
    });
}

/* ---- Comparing two results ---- */

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    compare(const T *a, const T *b, int64_t count, float slack, int *wrong)
{
    const int64_t step = (int64_t)gridDim.x * THREADS;
    int found = 0;
    for (int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        const float x = wf_load(a[i]), y = wf_load(b[i]);
        /* Written so that NaN counts as wrong. */
        found += !(fabsf(x - y) <= slack + fabsf(x) * (1.0f / 64));
    }
    if (found > 0)
        atomicAdd(wrong, found);
}

extern "C" void wf_cuda_compare(cudaStream_t stream, wf_type type, const void *a, const void *b,
                                int64_t count, float slack, int *wrong)
{
    wf_with_float(type, [&](auto zero) {
        using T = decltype(zero);
        WF_RUN(compare<T>, wf_cuda_blocks(count, THREADS, 4096), THREADS, 0, stream)
        (static_cast<const T *>(a), static_cast<const T *>(b), count, slack, wrong);
    });
}
