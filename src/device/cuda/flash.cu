/* SPDX-License-Identifier: MIT */
/*
 * flash.cu - attention on tensor cores, for GPUs from compute capability 8.0 on.
 *
 * A block computes o for some tokens of one head. Its warps, each with rows of its own, go through the keys that
 * these tokens see, a tile at a time, with a running maximum and sum for each row, while the next tile is copied to
 * shared memory. Probabilities are rounded to the operands' type for the second product. Keys that a query
 * does not see have probability 0, but a NaN among values that another query of the block sees reaches it, as 0 * NaN.
 */
#include "device/cuda/flash.cuh"

/* Shapes: M times 16 rows a warp, BN keys at a time; KEPT: q stays in registers. */
template <int D> struct forward_shape {
    enum {
        WARPS = D <= 64 ? 8 : 4,
        M = D > 64 && D <= 128 ? 2 : 1,
        BM = WARPS * M * 16,
        BN = D <= 64 ? 64 : 32,
        KEPT = D <= 64,
        BLOCKS = 2, /* at once on a processor, at least */
        BYTES = (BM + 4 * BN) * wf_tile<D>::STRIDE * 2
    };
    static_assert(BYTES <= 99 * 1024, "what every GPU has");
};

/* What turns scores into exponents of 2: they are capped and scaled here when that is more than a positive
 * factor, which is left to the exponentials. */
static __device__ __forceinline__ float exponent_factor(const wf_flash &f)
{
    return f.cap != 0 || f.scale < 0 ? 1.0f : f.scale * WF_LOG2E;
}

template <int M, int N>
static __device__ __forceinline__ void cap_scores(const wf_flash &f, float (&s)[M][N][4])
{
    if (f.cap == 0 && f.scale >= 0)
        return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                float x = s[m][n][i] * f.scale;
                s[m][n][i] = (f.cap != 0 ? f.cap * tanhf(x / f.cap) : x) * WF_LOG2E;
            }
}

/* -Inf for keys from `key` on that rows do not see. */
template <int M, int N>
static __device__ __forceinline__ void hide_keys(float (&s)[M][N][4], const wf_range (&seen)[M][2],
                                                 int key)
{
    key += threadIdx.x % 4 * 2;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) {
                int j = key + n * 8 + i % 2;
                if (j < seen[m][i / 2].low || j >= seen[m][i / 2].high)
                    s[m][n][i] = -INFINITY;
            }
}

/* Running softmax of a row: a score, before `factor`, to which probabilities are relative, and this lane's share
 * of their sum. */
typedef struct {
    float base, sum;
} running;

/* Probabilities are relative to the largest score of the row so far, or to an earlier one that it exceeds by so
 * little that they stay below 2^8: then sums need not be scaled again, which is so for most tiles. */
#define FAR 8.0f

template <int M, int N, int O>
static __device__ __forceinline__ void rebase(const float (&s)[M][N][4], running (&r)[M][2],
                                              float (&o)[M][O][4], float factor)
{
    float most[M][2];
    bool far = false;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float x = r[m][h].base;
#pragma unroll
            for (int n = 0; n < N; n++)
                x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
            most[m][h] = x;
            far = far || (x - r[m][h].base) * factor > FAR;
        }
    if (!__any_sync(0xffffffffu, far))
        return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (most[m][h] == -INFINITY)
                continue; /* nothing was seen so far */
            float shrink = wf_exp2((r[m][h].base - most[m][h]) * factor);
            r[m][h] = {most[m][h], r[m][h].sum * shrink};
#pragma unroll
            for (int n = 0; n < O; n++) {
                o[m][n][2 * h] *= shrink;
                o[m][n][2 * h + 1] *= shrink;
            }
        }
}

/* Scores become probabilities, but for a factor that the row has in common. */
template <int M, int N>
static __device__ __forceinline__ void soften(float (&s)[M][N][4], running (&r)[M][2], float factor)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            const float base = r[m][h].base == -INFINITY ? 0.0f : r[m][h].base * factor;
#pragma unroll
            for (int n = 0; n < N; n++)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    float &x = s[m][n][2 * h + i];
                    x = wf_exp2(x * factor - base);
                    r[m][h].sum += x;
                }
        }
}

/* Divides o by the sums of its rows, which lie in the four lanes of each, and stores their logarithms. */
template <int M, int O>
static __device__ __forceinline__ void finish(const wf_flash &f, float (&o)[M][O][4],
                                              const running (&r)[M][2], float factor, int row,
                                              int head)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float sum = r[m][h].sum;
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            float inverse = sum == 0 ? 0.0f : 1 / sum;
#pragma unroll
            for (int n = 0; n < O; n++) {
                o[m][n][2 * h] *= inverse;
                o[m][n][2 * h + 1] *= inverse;
            }
            int i = row + m * 16 + h * 8 + (int)threadIdx.x % 32 / 4;
            if (f.lse && i < f.n && threadIdx.x % 4 == 0)
                f.lse[i * f.lse_row + head] =
                    sum == 0 ? -INFINITY : r[m][h].base * factor * WF_LN2 + logf(sum);
        }
}

template <typename T, int D>
static __global__ void __launch_bounds__(forward_shape<D>::WARPS * 32, forward_shape<D>::BLOCKS)
    flash_forward(const wf_flash f, bool wide)
{
    typedef forward_shape<D> shape;
    constexpr int M = shape::M, BM = shape::BM, BN = shape::BN, THREADS = shape::WARPS * 32;
    if (f.irregular && *f.irregular)
        return;
    constexpr int STRIDE = wf_tile<D>::STRIDE;
    WF_SHARED(T, q_tile); /* [BM][D], then twice keys and values, [BN][D] each */
    T *kv_tiles = q_tile + BM * STRIDE;
    const int tiles = (f.n + BM - 1) / BM, head = (int)blockIdx.x % f.heads;
    const int first = (tiles - 1 - (int)blockIdx.x / f.heads) * BM; /* late tokens see most */
    const int kv_head = head / (f.heads / f.kv_heads);
    const T *q = (const T *)f.q.data + head * f.q.head,
            *k = (const T *)f.k.data + kv_head * f.k.head,
            *v = (const T *)f.v.data + kv_head * f.v.head;
    const int begin = wf_keys_of(f, first).low, end = wf_keys_of(f, min(first + BM, f.n) - 1).high;
    const int warp_row = (int)threadIdx.x / 32 * M * 16, row = first + warp_row;
    const float factor = exponent_factor(f);

    auto load_keys = [&](int j, int stage) {
        T *to = kv_tiles + stage * 2 * BN * STRIDE;
        wf_load_tile<T, BN, D, THREADS>(to, k, f.k.row, j, end, f.d, wide);
        wf_load_tile<T, BN, D, THREADS>(to + BN * STRIDE, v, f.v.row, j, end, f.d_v, wide);
    };
    wf_load_tile<T, BM, D, THREADS>(q_tile, q, f.q.row, first, f.n, f.d, wide);
    load_keys(begin, 0);
    wf_copy_commit();

    wf_range seen[M][2];
    running r[M][2];
    float o[M][D / 8][4] = {};
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            seen[m][h] = wf_keys_of(f, row + m * 16 + h * 8 + (int)threadIdx.x % 32 / 4);
            r[m][h] = {-INFINITY, 0};
        }
    /* Of the warp's rows: the keys that all of them see, and that some do. */
    const wf_range low_row = wf_keys_of(f, row),
                   high_row = wf_keys_of(f, min(row + M * 16, f.n) - 1);
    wf_rows<T, M, D, shape::KEPT> queries;
    queries.tile = q_tile + warp_row * STRIDE;

    for (int j = begin, stage = 0; j < end; j += BN, stage ^= 1) {
        wf_copy_wait<0>();
        __syncthreads(); /* the tile is here, and nobody reads the last one any more */
        if (j + BN < end)
            load_keys(j + BN, stage ^ 1);
        wf_copy_commit();
        if (j == begin)
            queries.keep();
        if (row >= f.n || j >= high_row.high || j + BN <= low_row.low)
            continue;
        const T *k_tile = kv_tiles + stage * 2 * BN * STRIDE;
        float s[M][BN / 8][4];
        wf_scores<T, M, BN, D>(s, queries, k_tile);
        cap_scores(f, s);
        if (j < high_row.low || j + BN > low_row.high)
            hide_keys(s, seen, j);
        rebase(s, r, o, factor);
        soften(s, r, factor);
        wf_add_values<T, M, BN, D, D>(o, s, k_tile + BN * STRIDE);
    }
    wf_copy_wait<0>();
    __syncthreads(); /* q is in shared memory also when no key was seen */
    finish(f, o, r, factor, row, head);
    if (!f.o.data)
        return;
    T *rows = q_tile + warp_row * STRIDE;
    wf_put_rows<T, M, D, D>(rows, o, 1.0f);
    wf_store_rows<T, M * 16, D, D>(rows, (T *)f.o.data + head * f.o.head, f.o.row, row, f.n, f.d_v,
                                   wide);
}

/* ---- Launch ---- */

void wf_flash_forward(const wf_launch *l, const wf_flash *f)
{
    wf_with_head(f, [&](auto zero, auto size) {
        using T = decltype(zero);
        constexpr int D = decltype(size)::value;
        typedef forward_shape<D> shape;
        const auto kernel = flash_forward<T, D>;
        cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             shape::BYTES);
        const unsigned blocks = (unsigned)((f->n + shape::BM - 1) / shape::BM * (int64_t)f->heads);
        WF_RUN(kernel, blocks, shape::WARPS * 32, shape::BYTES, wf_cuda_stream(l))
        (*f, wf_flash_aligned(f));
    });
}
