/* SPDX-License-Identifier: MIT */
/*
 * flash_grad.cu - the gradient of flash attention on tensor cores, for compute capability 8.0 and
 * later.
 *
 * p = e^(s - lse), delta = do . o, ds = p (do . v - delta), dv = p^T do, dk = ds^T q, dq = ds k.
 * One kernel sums dq with queries as rows, another dk and dv with keys as rows. Both recompute p
 * and ds, so each sum stays in the registers of one warp, in an order that depends on the shape
 * only. The second kernel iterates over the query heads of a kv head. For large heads a block
 * computes half of the columns of dk and dv, the most that fits in registers.
 *
 * Operands are bf16 or f16, sums f32; p and ds are rounded to the operands' type for the matmuls.
 * flash_dq: one block per query head and BM tokens, over ascending tiles of keys. flash_dkv: one
 * block per kv head, BN keys and part of the columns, over the query heads of the group and, within
 * each, ascending tiles of queries. Atomic additions are not used.
 */
#include "device/cuda/flash.cuh"

/* ---- lse and delta ---- */

/* Statistics of query i in head h, stored at [h][i]. */
typedef struct __align__(8)
{
    float lse; /* in base 2; Inf where no key is visible, so that p is 0 */
    float delta;
}
stat;

size_t wf_flash_stats_bytes(const wf_node *n)
{
    const wf_dims *q = &n->in[1]->shape;
    return (size_t)(q->d[0] * q->d[1]) * sizeof(stat);
}

/* LANES lanes per row of [N, H]. */
template <typename T, int LANES>
static __global__ void flash_stats(const wf_flash f, stat *stats, bool wide)
{
    if (f.irregular && *f.irregular)
        return;
    const int64_t rows = (int64_t)f.n * f.heads, step = (int64_t)gridDim.x * blockDim.x / LANES;
    const int lane = (int)threadIdx.x % LANES;
    int64_t r = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) / LANES;
    /* Whole warps iterate together: the shuffles below need all lanes. */
    for (int64_t first = r - r % (32 / LANES); first < rows; first += step, r += step) {
        const int64_t i = r < rows ? r / f.heads : 0, h = r < rows ? r % f.heads : 0;
        const T *o = (const T *)f.o.data + i * f.o.row + h * f.o.head,
                *dout = (const T *)f.dout.data + i * f.dout.row + h * f.dout.head;
        float delta = 0;
        for (int c = lane * 8; c < f.d_v; c += LANES * 8)
            if (wide && c + 8 <= f.d_v) {
                wf_pack<T, 8> x = wf_load_pack<T, 8>(o + c), y = wf_load_pack<T, 8>(dout + c);
#pragma unroll
                for (int k = 0; k < 8; k++)
                    delta += wf_load(x.x[k]) * wf_load(y.x[k]);
            } else {
                for (int k = c; k < min(c + 8, f.d_v); k++)
                    delta += wf_load(o[k]) * wf_load(dout[k]);
            }
#pragma unroll
        for (int k = LANES / 2; k > 0; k /= 2)
            delta += __shfl_xor_sync(0xffffffffu, delta, k);
        if (lane == 0 && r < rows) {
            float lse = f.lse[i * f.lse_row + h];
            /* Statistics of a head are contiguous: tiles load them with one copy per query. */
            stats[h * f.n + i] = {lse == -INFINITY ? INFINITY : lse * WF_LOG2E, delta};
        }
    }
}

/* ---- Shared by both kernels ---- */

/* Replaces a raw score by p, and do . v by ds (without the scale). */
static __device__ __forceinline__ void differentiate(const wf_flash &f, float factor, bool capped,
                                                     bool seen, stat at, float &s, float &dp)
{
    float slope = 1;
    if (capped) { /* t = tanh(x) from e^2x */
        float t = 1 - __fdividef(2, wf_exp2(s * (2 * factor / f.cap)) + 1);
        slope = 1 - t * t;
        s = wf_exp2(f.cap * WF_LOG2E * t - at.lse);
    } else {
        s = wf_exp2(s * factor - at.lse);
    }
    if (!seen)
        s = 0;
    dp = s * (dp - at.delta) * slope;
}

/* ---- dq ---- */

/* Tile shapes: M x 16 rows per warp. KEPT: row operands stay in registers. STAGES: column tiles in
 * shared memory at once; some GPUs have 99 KiB only. */
template <int D> struct dq_shape {
    enum {
        WARPS = D <= 64 ? 8 : 4,
        M = D > 64 && D <= 128 ? 2 : 1,
        BM = WARPS * M * 16,
        BN = D <= 64    ? 32
             : D <= 128 ? 16
             : D <= 224 ? 32
                        : 16,
        STAGES = D <= 160 ? 2 : 1,
        KEPT = D <= 64,
        BLOCKS = 2, /* fewest resident blocks per multiprocessor */
        BYTES = (2 * BM + STAGES * 2 * BN) * wf_tile<D>::STRIDE * 2
    };
    static_assert(BYTES <= 99 * 1024, "every supported GPU has 99 KiB");
};

template <typename T, int D>
static __global__ void __launch_bounds__(dq_shape<D>::WARPS * 32, dq_shape<D>::BLOCKS)
    flash_dq(const wf_flash f, const stat *stats, bool wide)
{
    typedef dq_shape<D> shape;
    constexpr int M = shape::M, BM = shape::BM, BN = shape::BN, THREADS = shape::WARPS * 32;
    constexpr int STRIDE = wf_tile<D>::STRIDE;
    if (f.irregular && *f.irregular)
        return;
    WF_SHARED(T, q_tile); /* q [BM][D], do [BM][D], then keys and values */
    T *do_tile = q_tile + BM * STRIDE, *kv_tiles = do_tile + BM * STRIDE;
    const int tiles = (f.n + BM - 1) / BM, head = (int)blockIdx.x % f.heads;
    const int first =
        (tiles - 1 - (int)blockIdx.x / f.heads) * BM; /* late tokens first: they see most keys */
    const int kv_head = head / (f.heads / f.kv_heads);
    const T *k = (const T *)f.k.data + kv_head * f.k.head,
            *v = (const T *)f.v.data + kv_head * f.v.head;
    const int begin = wf_keys_of(f, first).low, end = wf_keys_of(f, min(first + BM, f.n) - 1).high;
    const int warp_row = (int)threadIdx.x / 32 * M * 16, row = first + warp_row;
    const float factor = f.scale * WF_LOG2E;
    const bool capped = f.cap != 0;
    auto load_keys = [&](int j, int stage) {
        T *to = kv_tiles + stage * 2 * BN * STRIDE;
        wf_load_tile<T, BN, D, THREADS>(to, k, f.k.row, j, end, f.d, wide);
        wf_load_tile<T, BN, D, THREADS>(to + BN * STRIDE, v, f.v.row, j, end, f.d_v, wide);
    };

    wf_load_tile<T, BM, D, THREADS>(q_tile, (const T *)f.q.data + head * f.q.head, f.q.row, first,
                                    f.n, f.d, wide);
    wf_load_tile<T, BM, D, THREADS>(do_tile, (const T *)f.dout.data + head * f.dout.head,
                                    f.dout.row, first, f.n, f.d_v, wide);
    load_keys(begin, 0);
    wf_copy_commit();

    wf_range seen[M][2];
    stat at[M][2];
    float dq[M][D / 8][4] = {};
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int i = row + m * 16 + h * 8 + (int)threadIdx.x % 32 / 4;
            seen[m][h] = wf_keys_of(f, i);
            at[m][h] = {INFINITY, 0}; /* p is 0 for missing rows */
            if (i < f.n)
                at[m][h] = stats[(int64_t)head * f.n + i];
        }
    const wf_range low_row = wf_keys_of(f, row),
                   high_row = wf_keys_of(f, min(row + M * 16, f.n) - 1);
    wf_rows<T, M, D, shape::KEPT> queries, douts;
    queries.tile = q_tile + warp_row * STRIDE;
    douts.tile = do_tile + warp_row * STRIDE;

    for (int j = begin, stage = 0; j < end; j += BN) {
        wf_copy_wait<0>();
        __syncthreads(); /* this tile has arrived, and the previous one is free */
        /* Two stages: the next tile is copied during the matmuls. */
        if (shape::STAGES == 2 && j + BN < end)
            load_keys(j + BN, stage ^ 1);
        wf_copy_commit();
        if (j == begin) {
            queries.keep();
            douts.keep();
        }
        const T *k_tile = kv_tiles + stage * 2 * BN * STRIDE;
        if (row < f.n && j < high_row.high && j + BN > low_row.low) {
            float s[M][BN / 8][4], dp[M][BN / 8][4];
            wf_scores<T, M, BN, D>(s, queries, k_tile);
            wf_scores<T, M, BN, D>(dp, douts, k_tile + BN * STRIDE);
            /* The whole tile is visible to all rows of the warp. */
            const bool all = j >= high_row.low && j + BN <= low_row.high;
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < BN / 8; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        int key = j + n * 8 + (int)threadIdx.x % 4 * 2 + i % 2;
                        wf_range r = seen[m][i / 2];
                        differentiate(f, factor, capped, all || (key >= r.low && key < r.high),
                                      at[m][i / 2], s[m][n][i], dp[m][n][i]);
                    }
            wf_add_values<T, M, BN, D, D>(dq, dp, k_tile);
        }
        if (shape::STAGES == 2) {
            stage ^= 1;
        } else if (j + BN < end) {
            __syncthreads(); /* one stage: all warps have read the tile */
            load_keys(j + BN, 0);
            wf_copy_commit();
        }
    }
    wf_copy_wait<0>();
    __syncthreads(); /* q's copy must be complete even when no key is visible */
    T *rows = q_tile + warp_row * STRIDE;
    wf_put_rows<T, M, D, D>(rows, dq, f.scale);
    wf_store_rows<T, M * 16, D, D>(rows, (T *)f.dq.data + head * f.dq.head, f.dq.row, row, f.n, f.d,
                                   wide);
}

/* ---- dk and dv ---- */

template <int D> struct dkv_shape {
    enum {
        WARPS = 4,
        M = 1,
        BN = WARPS * M * 16, /* keys per block */
        BM = D <= 64    ? 64
             : D <= 224 ? 32
                        : 16,     /* queries per tile */
        PARTS = D <= 128 ? 1 : 2, /* blocks that share the columns of dk and dv */
        DC = D / PARTS,           /* columns of dk and dv per block */
        STAGES = D <= 160 ? 2 : 1,
        KEPT = 0,
        BLOCKS = D <= 64 ? 3 : 2,
        /* k and v, stages of q and do, then statistics and ranges, 16 bytes per query. */
        BYTES = (2 * BN + STAGES * 2 * BM) * wf_tile<D>::STRIDE * 2 + STAGES * BM * 16
    };
    static_assert(BYTES <= 99 * 1024, "every supported GPU has 99 KiB");
};

/* Starts copying the statistics and key ranges of queries [i, i + BM); zeros from `end` on. */
template <int BM>
static __device__ __forceinline__ void load_columns(const wf_flash &f, const stat *stats, int i,
                                                    int end, stat *to, wf_range *seen)
{
    const int c = (int)threadIdx.x;
    if (c >= BM)
        return;
    const int there = i + c < end, at = there ? i + c : 0;
    wf_copy_async<8>(to + c, stats + at, there * 8);
    if (f.length > 0) { /* 8 bytes: both statistics */
        seen[c] = wf_keys_of(f, i + c);
    } else {
        wf_copy_async<4>(&seen[c].low, f.low + at, there * 4);
        wf_copy_async<4>(&seen[c].high, f.high + at, there * 4);
    }
}

template <typename T, int D>
static __global__ void __launch_bounds__(dkv_shape<D>::WARPS * 32, dkv_shape<D>::BLOCKS)
    flash_dkv(const wf_flash f, const stat *stats, bool wide)
{
    typedef dkv_shape<D> shape;
    constexpr int M = shape::M, BN = shape::BN, BM = shape::BM, DC = shape::DC;
    constexpr int THREADS = shape::WARPS * 32, STRIDE = wf_tile<D>::STRIDE;
    if (f.irregular && *f.irregular)
        return;
    WF_SHARED(T, k_tile); /* k [BN][D], v [BN][D], then q and do, then their statistics */
    T *v_tile = k_tile + BN * STRIDE, *q_tiles = v_tile + BN * STRIDE;
    stat *at = (stat *)(q_tiles + shape::STAGES * 2 * BM * STRIDE);
    wf_range *seen = (wf_range *)(at + shape::STAGES * BM);
    const int part = (int)blockIdx.x % shape::PARTS, column = part * DC;
    const int item = (int)blockIdx.x / shape::PARTS, kv_head = item % f.kv_heads;
    const int first = item / f.kv_heads * BN, group = f.heads / f.kv_heads;
    const int begin = wf_queries_of(f, first).low,
              end = wf_queries_of(f, min(first + BN, f.n) - 1).high;
    const int warp_row = (int)threadIdx.x / 32 * M * 16, row = first + warp_row;
    const float factor = f.scale * WF_LOG2E;
    const bool capped = f.cap != 0;
    /* Steps iterate over the tiles of one head, then of the next. */
    const int tiles = (end - begin + BM - 1) / BM, steps = tiles * group;
    auto load_queries = [&](int step, int stage) {
        const int head = kv_head * group + step / tiles, i = begin + step % tiles * BM;
        T *to = q_tiles + stage * 2 * BM * STRIDE;
        wf_load_tile<T, BM, D, THREADS>(to, (const T *)f.q.data + head * f.q.head, f.q.row, i, end,
                                        f.d, wide);
        wf_load_tile<T, BM, D, THREADS>(to + BM * STRIDE,
                                        (const T *)f.dout.data + head * f.dout.head, f.dout.row, i,
                                        end, f.d_v, wide);
        load_columns<BM>(f, stats + (int64_t)head * f.n, i, end, at + stage * BM,
                         seen + stage * BM);
    };

    wf_load_tile<T, BN, D, THREADS>(k_tile, (const T *)f.k.data + kv_head * f.k.head, f.k.row,
                                    first, f.n, f.d, wide);
    wf_load_tile<T, BN, D, THREADS>(v_tile, (const T *)f.v.data + kv_head * f.v.head, f.v.row,
                                    first, f.n, f.d_v, wide);
    if (steps > 0) /* no query sees these keys: the gradients are 0 */
        load_queries(0, 0);
    wf_copy_commit();
    float dk[M][DC / 8][4] = {}, dv[M][DC / 8][4] = {};
    wf_rows<T, M, D, shape::KEPT> keys, values;
    keys.tile = k_tile + warp_row * STRIDE;
    values.tile = v_tile + warp_row * STRIDE;

    for (int step = 0, stage = 0; step < steps; step++) {
        wf_copy_wait<0>();
        __syncthreads(); /* this tile has arrived, and the previous one is free */
        if (shape::STAGES == 2 && step + 1 < steps)
            load_queries(step + 1, stage ^ 1);
        wf_copy_commit();
        if (step == 0) {
            keys.keep();
            values.keep();
        }
        const T *q_tile = q_tiles + stage * 2 * BM * STRIDE, *do_tile = q_tile + BM * STRIDE;
        const wf_range *range = seen + stage * BM;
        const stat *known = at + stage * BM;
        /* Queries past the last have zero q and do, and see no key. */
        const int last = min(BM, end - begin - step % tiles * BM) - 1;
        /* Ranges are monotonic, so the first and last query bound them. */
        if (row < f.n && row < range[last].high && row + M * 16 > range[0].low) {
            float s[M][BM / 8][4], dp[M][BM / 8][4];
            wf_scores<T, M, BM, D>(s, keys, q_tile);
            wf_scores<T, M, BM, D>(dp, values, do_tile);
            const bool all = row >= range[last].low && row + M * 16 <= range[0].high;
#pragma unroll
            for (int n = 0; n < BM / 8; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    const int query = n * 8 + (int)threadIdx.x % 4 * 2 + c;
                    const stat one = known[query];
                    const wf_range r = all ? wf_range{0, INT32_MAX} : range[query];
#pragma unroll
                    for (int m = 0; m < M; m++)
#pragma unroll
                        for (int h = 0; h < 2; h++) {
                            int key = row + m * 16 + h * 8 + (int)threadIdx.x % 32 / 4;
                            differentiate(f, factor, capped, key >= r.low && key < r.high, one,
                                          s[m][n][2 * h + c], dp[m][n][2 * h + c]);
                        }
                }
            wf_add_values<T, M, BM, DC, D>(dv, s, do_tile + column);
            wf_add_values<T, M, BM, DC, D>(dk, dp, q_tile + column);
        }
        if (shape::STAGES == 2) {
            stage ^= 1;
        } else if (step + 1 < steps) {
            __syncthreads();
            load_queries(step + 1, 0);
            wf_copy_commit();
        }
    }
    wf_copy_wait<0>();
    __syncthreads(); /* the copies must be complete even when no query sees these keys */
    T *k_rows = k_tile + warp_row * STRIDE, *v_rows = v_tile + warp_row * STRIDE;
    /* k and v are no longer needed: their rows become staging buffers. */
    wf_put_rows<T, M, DC, D>(k_rows, dk, f.scale);
    wf_put_rows<T, M, DC, D>(v_rows, dv, 1.0f);
    if (f.dk.data)
        wf_store_rows<T, M * 16, D, DC>(k_rows, (T *)f.dk.data + kv_head * f.dk.head + column,
                                        f.dk.row, row, f.n, f.d - column, wide);
    if (f.dv.data)
        wf_store_rows<T, M * 16, D, DC>(v_rows, (T *)f.dv.data + kv_head * f.dv.head + column,
                                        f.dv.row, row, f.n, f.d_v - column, wide);
}

/* ---- Launch ---- */

template <typename T>
static void run_stats(const wf_flash *f, stat *stats, bool wide, cudaStream_t stream)
{
    const int64_t rows = (int64_t)f->n * f->heads;
    if (f->d_v <= 64)
        WF_RUN((flash_stats<T, 8>), wf_cuda_blocks(rows, 32, 1 << 16), 256, 0, stream)
    (*f, stats, wide);
    else WF_RUN((flash_stats<T, 16>), wf_cuda_blocks(rows, 16, 1 << 16), 256, 0, stream)(*f, stats,
                                                                                         wide);
}

void wf_flash_backward(const wf_launch *l, const wf_flash *f, void *workspace)
{
    stat *stats = (stat *)workspace;
    const bool wide = wf_flash_aligned(f);
    wf_with_head(f, [&](auto zero, auto size) {
        using T = decltype(zero);
        constexpr int D = decltype(size)::value;
        typedef dq_shape<D> by_query;
        typedef dkv_shape<D> by_key;
        cudaStream_t stream = wf_cuda_stream(l);
        run_stats<T>(f, stats, wide, stream);
        if (f->dq.data) {
            const auto kernel = flash_dq<T, D>;
            const int64_t tiles = (f->n + by_query::BM - 1) / by_query::BM;
            cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 by_query::BYTES);
            WF_RUN(kernel, (unsigned)(tiles * f->heads), by_query::WARPS * 32, by_query::BYTES,
                   stream)
            (*f, stats, wide);
        }
        if (f->dk.data || f->dv.data) {
            const auto kernel = flash_dkv<T, D>;
            const int64_t tiles = (f->n + by_key::BN - 1) / by_key::BN;
            cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 by_key::BYTES);
            WF_RUN(kernel, (unsigned)(tiles * f->kv_heads * by_key::PARTS), by_key::WARPS * 32,
                   by_key::BYTES, stream)
            (*f, stats, wide);
        }
    });
}
