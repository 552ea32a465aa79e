/* SPDX-License-Identifier: MIT */
/*
 * flash.cuh - attention tiles on tensor cores: loading to shared memory, matrix multiplication,
 * storing.
 *
 * A tile is ROWS x D elements in shared memory with a row stride of STRIDE, which keeps the eight
 * rows of an ldmatrix in different banks. A warp owns M x 16 rows; its sums are float c[M][N /
 * 8][4].
 *
 * Element c[m][n][i] of a lane is row m * 16 + g + 8 (i / 2), column n * 8 + 2 t + i % 2, with g =
 * lane / 4 and t = lane % 4 (mma.cuh). Operands are bf16 or f16, sums f32.
 */
#ifndef WF_DEVICE_CUDA_FLASH_CUH
#define WF_DEVICE_CUDA_FLASH_CUH

#include "device/cuda/flash_launch.h"
#include "device/cuda/mma.cuh"

#define WF_LN2 0.6931471805599453f

template <int D> struct wf_tile {
    static_assert(D % 16 == 0, "a padded row must be an odd number of 16-byte chunks");
    /* D + 8 elements: an odd number of 16-byte chunks, so consecutive rows shift by one. */
    enum { STRIDE = D + 8 };
};

/* The keys [low, high) that query i sees, or the queries that see key i. Missing rows have an empty
 * range. */
typedef struct {
    int low, high;
} wf_range;

static __device__ __forceinline__ wf_range wf_keys_of(const wf_flash &f, int i)
{
    if (i >= f.n)
        return {f.n, f.n};
    if (f.length == 0) /* flash_ranges has computed them */
        return {f.low[i], f.high[i]};
    int begin = i / f.length * f.length;
    return {f.window > 0 ? max(begin, i - f.window + 1) : begin,
            f.causal ? i + 1 : begin + f.length};
}

static __device__ __forceinline__ wf_range wf_queries_of(const wf_flash &f, int j)
{
    if (f.length == 0)
        return {f.seen_low[j], f.seen_high[j]};
    int begin = j / f.length * f.length, end = begin + f.length;
    /* Not j + window directly: it may overflow. */
    return {f.causal ? j : begin, f.window > 0 && f.window < end - j ? j + f.window : end};
}

/* Starts copying rows [begin, begin + ROWS) of an operand, whose head starts at `from`. Rows from
 * `end` on and columns from `columns` on become 0. wide: use 16-byte copies. */
template <typename T, int ROWS, int D, int THREADS>
static __device__ __forceinline__ void wf_load_tile(T *to, const T *from, int64_t row, int begin,
                                                    int end, int columns, bool wide)
{
    constexpr int CHUNKS = D / 8; /* 8 elements are 16 bytes */
#pragma unroll
    for (int i = 0; i < (ROWS * CHUNKS + THREADS - 1) / THREADS; i++) {
        int item = i * THREADS + (int)threadIdx.x, r = item / CHUNKS, c = item % CHUNKS * 8;
        if (ROWS * CHUNKS % THREADS != 0 && item >= ROWS * CHUNKS)
            break;
        int left = begin + r < end ? max(min(columns - c, 8), 0) : 0;
        /* A valid address: copies of 0 bytes read nothing. */
        const T *at = left > 0 ? from + (begin + r) * row + c : from;
        T *slot = to + r * wf_tile<D>::STRIDE + c;
        if (wide)
            wf_copy_async<16>(slot, at, left * (int)sizeof(T));
        else
            for (int k = 0; k < 8; k++)
                slot[k] = k < left ? at[k] : wf_round<T>(0.0f);
    }
}

/* Copies N columns of a warp's ROWS rows of a tile to rows `begin` and up of an operand. The same
 * warp wrote the tile. */
template <typename T, int ROWS, int D, int N>
static __device__ __forceinline__ void wf_store_rows(const T *from, T *to, int64_t row, int begin,
                                                     int end, int columns, bool wide)
{
    constexpr int CHUNKS = N / 8;
    __syncwarp(); /* all lanes have written their elements */
    for (int item = threadIdx.x % 32; item < ROWS * CHUNKS; item += 32) {
        int r = item / CHUNKS, c = item % CHUNKS * 8, left = min(columns - c, 8);
        if (begin + r >= end || left <= 0)
            continue;
        const T *slot = from + r * wf_tile<D>::STRIDE + c;
        T *at = to + (begin + r) * row + c;
        if (wide && left == 8)
            wf_store_pack<T, 8>(at, wf_load_pack<T, 8>(slot));
        else
            for (int k = 0; k < left; k++)
                at[k] = slot[k];
    }
}

/* Rounds a warp's sums and stores them in its rows of a tile with D columns. */
template <typename T, int M, int N, int D>
static __device__ __forceinline__ void wf_put_rows(T *to, const float (&c)[M][N / 8][4],
                                                   float factor)
{
    const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int h = 0; h < 2; h++) {
                uint32_t pair = wf_pair<T>(c[m][n][2 * h] * factor, c[m][n][2 * h + 1] * factor);
                wf_pack<T, 2> both;
                memcpy((void *)&both, &pair, sizeof both);
                wf_store_pack<T, 2>(to + (m * 16 + g + h * 8) * wf_tile<D>::STRIDE + n * 8 + t * 2,
                                    both);
            }
}

/* Loads the 16 x 16 elements of a tile at (row, column) as fragment a. */
template <typename T, int D>
static __device__ __forceinline__ void wf_load_a(uint32_t (&a)[4], const T *tile, int row,
                                                 int column)
{
    const int lane = threadIdx.x % 32;
    wf_ldmatrix(a, tile + (row + lane % 16) * wf_tile<D>::STRIDE + column + lane / 16 * 8);
}

/* A warp's rows of a tile with D columns: read from shared memory each time, or kept in
 * registers. */
template <typename T, int M, int D, bool KEPT> struct wf_rows {
    const T *tile;
    uint32_t kept[KEPT ? M : 1][KEPT ? D / 16 : 1][4];

    __device__ __forceinline__ void keep(void)
    {
        if constexpr (KEPT) {
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int k = 0; k < D / 16; k++)
                    wf_load_a<T, D>(kept[m][k], tile, m * 16, k * 16);
        }
    }
    __device__ __forceinline__ void get(uint32_t (&a)[4], int m, int k) const
    {
        if constexpr (KEPT) {
#pragma unroll
            for (int i = 0; i < 4; i++)
                a[i] = kept[m][k][i];
        } else {
            wf_load_a<T, D>(a, tile, m * 16, k * 16);
        }
    }
};

/* c = a b^T, where b is a tile of N rows: scores. */
template <typename T, int M, int N, int D, bool KEPT>
static __device__ __forceinline__ void wf_scores(float (&c)[M][N / 8][4],
                                                 const wf_rows<T, M, D, KEPT> &a, const T *b)
{
    const int lane = threadIdx.x % 32;
    /* Lanes 0-7 pass the rows of the first 8 x 8 matrix, 8-15 those of the next 8 columns, 16-31
     * the next 8 rows: four matrices are two fragments b. */
    const T *at = b + (lane / 16 * 8 + lane % 8) * wf_tile<D>::STRIDE + lane / 8 % 2 * 8;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N / 8; n++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                c[m][n][i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; k++) {
        uint32_t rows[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
            a.get(rows[m], m, k);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t columns[4];
            wf_ldmatrix(columns, at + n * 16 * wf_tile<D>::STRIDE + k * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                wf_mma<T>(c[m][2 * n], rows[m], columns[0], columns[1]);
                wf_mma<T>(c[m][2 * n + 1], rows[m], columns[2], columns[3]);
            }
        }
    }
}

/* c += p b, where p are rounded sums of K columns and b is columns [0, N) of a tile of K rows of
 * D. */
template <typename T, int M, int K, int N, int D>
static __device__ __forceinline__ void wf_add_values(float (&c)[M][N / 8][4],
                                                     const float (&p)[M][K / 8][4], const T *b)
{
    const int lane = threadIdx.x % 32;
    const T *at = b + lane % 16 * wf_tile<D>::STRIDE + lane / 16 * 8;
#pragma unroll
    for (int k = 0; k < K / 16; k++) {
        uint32_t rows[M][4];
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int i = 0; i < 4; i++)
                rows[m][i] = /* the sums of two neighbouring column groups form a fragment a */
                    wf_pair<T>(p[m][2 * k + i / 2][i % 2 * 2], p[m][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
        for (int n = 0; n < N / 16; n++) {
            uint32_t columns[4];
            wf_ldmatrix_transposed(columns, at + k * 16 * wf_tile<D>::STRIDE + n * 16);
#pragma unroll
            for (int m = 0; m < M; m++) {
                wf_mma<T>(c[m][2 * n], rows[m], columns[0], columns[1]);
                wf_mma<T>(c[m][2 * n + 1], rows[m], columns[2], columns[3]);
            }
        }
    }
}

/* Calls f(T(), size<D>()) with the operand type and the head size, max(d, d_v) rounded up. */
template <int D> struct wf_size {
    enum { value = D };
};

/* Head sizes are rounded up to 32: eight kernels per type. */
template <typename T, typename F> static inline void wf_with_size(int d, F f)
{
    switch ((d + 31) / 32) {
    case 1: f(T(), wf_size<32>()); break;
    case 2: f(T(), wf_size<64>()); break;
    case 3: f(T(), wf_size<96>()); break;
    case 4: f(T(), wf_size<128>()); break;
    case 5: f(T(), wf_size<160>()); break;
    case 6: f(T(), wf_size<192>()); break;
    case 7: f(T(), wf_size<224>()); break;
    default: f(T(), wf_size<256>()); break;
    }
}

template <typename F> static inline void wf_with_head(const wf_flash *a, F f)
{
    int d = a->d > a->d_v ? a->d : a->d_v;
    if (a->type == WF_BF16)
        wf_with_size<wf_bf16>(d, f);
    else
        wf_with_size<wf_f16>(d, f);
}

#endif
