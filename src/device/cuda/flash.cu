/* SPDX-License-Identifier: MIT */
/*
 * flash.cu - flash attention on tensor cores, for compute capability 8.0 and later.
 *
 * A block computes o for some tokens of one head. Each warp owns some rows. The warps iterate over
 * tiles of the visible keys with an online softmax, while the next tile is copied to shared memory.
 * Probabilities are rounded to the operands' type for the second matmul. An invisible key has
 * probability 0; a NaN in its value still reaches the query as 0 * NaN if another query of the
 * block sees that key.
 *
 * q [N, H, D], k [N, Hk, D], v [N, Hk, Dv] in bf16 or f16; o [N, H, Dv], lse f32[N, H]. Grid: one
 * block per head and BM tokens. Keys are added in ascending tiles of BN, so the order depends on
 * the ranges and on D only. q is read once; k and v once per block.
 */
#include "device/cuda/flash.cuh"

/* Tile shapes: M x 16 rows per warp, BN keys per tile. KEPT: q stays in registers. */
template <int D> struct forward_shape {
    enum {
        /* Larger heads have fewer rows and smaller tiles, to fit registers and shared memory. */
        WARPS = D <= 64 ? 8 : 4,
        M = D > 64 && D <= 128 ? 2 : 1,
        BM = WARPS * M * 16,
        BN = D <= 64 ? 64 : 32,
        KEPT = D <= 64,
        BLOCKS = 2, /* fewest resident blocks per multiprocessor */
        /* q, and two stages of k and v, 2 bytes per element. */
        BYTES = (BM + 4 * BN) * wf_tile<D>::STRIDE * 2
    };
    static_assert(BYTES <= 99 * 1024, "every supported GPU has 99 KiB");
};

/* The factor from scores to exponents of 2, applied by the exponentials. With a cap or a negative
 * scale, cap_scores has already converted the scores, and the factor is 1. */
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

/* Sets the scores of invisible keys to -Inf; the tile starts at `key`. */
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

/* Online softmax of a row: the reference score (before `factor`), and this lane's share of the
 * sum. */
typedef struct {
    float base, sum;
} running;

/* Keep the old reference score while probabilities stay below 2^8: most tiles then skip the
 * rescaling of the sums. */
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
            float x = r[m][h].base; /* the largest score of the row, over its four lanes */
#pragma unroll
            for (int n = 0; n < N; n++)
                x = fmaxf(x, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
            x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
            most[m][h] = x;
            far = far || (x - r[m][h].base) * factor > FAR;
        }
    if (!__any_sync(0xffffffffu, far)) /* the warp decides together: rescaling is uniform */
        return;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            if (most[m][h] == -INFINITY)
                continue; /* no visible key so far */
            float shrink = wf_exp2((r[m][h].base - most[m][h]) * factor);
            r[m][h] = {most[m][h], r[m][h].sum * shrink};
#pragma unroll
            for (int n = 0; n < O; n++) {
                o[m][n][2 * h] *= shrink;
                o[m][n][2 * h + 1] *= shrink;
            }
        }
}

/* Turns scores into probabilities, up to a factor per row. */
template <int M, int N>
static __device__ __forceinline__ void soften(float (&s)[M][N][4], running (&r)[M][2], float factor)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            /* No visible key: all scores are -Inf, so all p are 0. */
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

/* Divides o by its row sums, spread over four lanes each, and stores the log-sum-exp. */
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
            sum += __shfl_xor_sync(0xffffffffu, sum, 1); /* lanes of one row: xor 1 and 2 */
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
    WF_SHARED(T, q_tile); /* q [BM][D], then two stages of keys and values, [BN][D] each */
    T *kv_tiles = q_tile + BM * STRIDE;
    const int tiles = (f.n + BM - 1) / BM, head = (int)blockIdx.x % f.heads;
    const int first =
        (tiles - 1 - (int)blockIdx.x / f.heads) * BM; /* late tokens first: they see most keys */
    const int kv_head = head / (f.heads / f.kv_heads);
    const T *q = (const T *)f.q.data + head * f.q.head,
            *k = (const T *)f.k.data + kv_head * f.k.head,
            *v = (const T *)f.v.data + kv_head * f.v.head;
    /* Ranges do not decrease, so the first and last token bound them. */
    const int begin = wf_keys_of(f, first).low, end = wf_keys_of(f, min(first + BM, f.n) - 1).high;
    const int warp_row = (int)threadIdx.x / 32 * M * 16, row = first + warp_row;
    const float factor = exponent_factor(f);

    auto load_keys = [&](int j, int stage) {
        T *to = kv_tiles + stage * 2 * BN * STRIDE;
        wf_load_tile<T, BN, D, THREADS>(to, k, f.k.row, j, end, f.d, wide);
        wf_load_tile<T, BN, D, THREADS>(to + BN * STRIDE, v, f.v.row, j, end, f.d_v, wide);
    };
    wf_load_tile<T, BM, D, THREADS>(q_tile, q, f.q.row, first, f.n, f.d, wide);
    load_keys(begin, 0); /* the first keys and q are one group */
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
    /* The keys that all of the warp's rows see, and those that any row sees. */
    const wf_range low_row = wf_keys_of(f, row),
                   high_row = wf_keys_of(f, min(row + M * 16, f.n) - 1);
    wf_rows<T, M, D, shape::KEPT> queries;
    queries.tile = q_tile + warp_row * STRIDE;

    for (int j = begin, stage = 0; j < end; j += BN, stage ^= 1) {
        wf_copy_wait<0>();
        __syncthreads(); /* this tile has arrived, and the previous one is free */
        if (j + BN < end)
            load_keys(j + BN, stage ^ 1);
        wf_copy_commit();
        if (j == begin)
            queries.keep();
        /* The warp has no rows, or no row sees this tile. */
        if (row >= f.n || j >= high_row.high || j + BN <= low_row.low)
            continue;
        const T *k_tile = kv_tiles + stage * 2 * BN * STRIDE;
        float s[M][BN / 8][4];
        wf_scores<T, M, BN, D>(s, queries, k_tile);
        cap_scores(f, s);
        /* Only tiles at the edge of a range need the mask. */
        if (j < high_row.low || j + BN > low_row.high)
            hide_keys(s, seen, j);
        rebase(s, r, o, factor);
        soften(s, r, factor);
        wf_add_values<T, M, BN, D, D>(o, s, k_tile + BN * STRIDE);
    }
    wf_copy_wait<0>();
    __syncthreads(); /* q's copy must be complete even when no key is visible */
    finish(f, o, r, factor, row, head);
    if (!f.o.data)
        return;
    /* q is no longer needed: its rows become a staging buffer for o. */
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
