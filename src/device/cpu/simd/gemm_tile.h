/* SPDX-License-Identifier: MIT */
/*
 * gemm_tile.h - the GEMM micro-kernels: a tile of the result from one panel of each operand, with
 * all sums in registers.
 *
 *     a panel: [nk][rows]     b panel: [nk][WF_TILE_COLUMNS]
 *
 * A panel of a has exactly the tile's rows, at most WF_TILE_ROWS. Rows are distributed evenly
 * instead of leaving a thin last tile; there is one kernel per number of rows.
 */
#ifndef WF_DEVICE_CPU_SIMD_GEMM_TILE_H
#define WF_DEVICE_CPU_SIMD_GEMM_TILE_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/simd.h"

/* As many sums as registers hold beside a row of b and one element of a. */
enum {
    WF_TILE_VECTORS = 2,
    WF_TILE_COLUMNS = WF_TILE_VECTORS * WF_VL,
    WF_TILE_ROWS = WF_VREGS == 32 ? 14 : 6,
    WF_TILE_STEPS =
        WF_VREGS == 32 ? 4 : 8, /* unrolled steps of k: similar code size in both cases */
    /* Every element is summed over k in blocks of this size, in order. A panel of b this long stays
     * in L1. */
    WF_TILE_K = WF_GEMM_BLOCK
};

/* Stores or adds sums to rows of c, ldc floats apart, n columns wide. Arguments are scalars, not a
 * struct: copying a struct that was just written would wait for all earlier stores, the cache
 * misses of the previous tile. */
/* whole: all columns exist. */
WF_INLINE void wf_tile_store(int rows, int vectors, vf sum[WF_TILE_ROWS][WF_TILE_VECTORS], float *c,
                             int64_t ldc, int n, bool add, bool whole)
{
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *at = c + i * ldc + v * WF_VL;
            int lanes = n - v * WF_VL < WF_VL ? n - v * WF_VL : WF_VL;
            if (whole)
                vf_store(at, add ? vf_add(vf_load(at), sum[i][v]) : sum[i][v]);
            else
                vf_store_n(at, add ? vf_add(vf_load_n(at, lanes), sum[i][v]) : sum[i][v], lanes);
        }
}

/* rows, vectors (those with a column) and type (of b) are compile-time constants at every call. */
WF_INLINE void wf_tile_multiply(int rows, int vectors, wf_type type, int64_t nk, const float *a,
                                const void *b, float *c, int64_t ldc, int n, bool add)
{
    const char *bk = b;
    const size_t vector = WF_VL * (type == WF_F32 ? sizeof(float) : sizeof(uint16_t));
    vf sum[WF_TILE_ROWS][WF_TILE_VECTORS];
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
        v_prefetch(c + i * ldc);
        v_prefetch(c + i * ldc + n - 1);
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            sum[i][v] = vf_zero();
    }
#pragma GCC unroll WF_TILE_STEPS
    for (int64_t k = 0; k < nk; k++, a += rows, bk += WF_TILE_VECTORS * vector) {
        vf x[WF_TILE_VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++)
            x[v] = vf_load_as(type, bk + (size_t)v * vector);
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            vf y = vf_set(a[i]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++)
                sum[i][v] = vf_fma(y, x[v], sum[i][v]);
        }
    }
    if (n == vectors * WF_VL && add)
        wf_tile_store(rows, vectors, sum, c, ldc, n, true, true);
    else if (n == vectors * WF_VL)
        wf_tile_store(rows, vectors, sum, c, ldc, n, false, true);
    else
        wf_tile_store(rows, vectors, sum, c, ldc, n, add, false);
}

#define WF_TILE_NUMBERS_6(X) X(1) X(2) X(3) X(4) X(5) X(6)
#define WF_TILE_NUMBERS_14(X) WF_TILE_NUMBERS_6(X) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#if WF_VREGS == 32
#define WF_TILE_NUMBERS WF_TILE_NUMBERS_14
#else
#define WF_TILE_NUMBERS WF_TILE_NUMBERS_6
#endif

typedef void wf_tile_fn(int64_t nk, const float *a, const void *b, float *c, int64_t ldc, int n,
                        bool add);

/* By whether the tile has a single vector of columns, and by rows - 1. */
extern wf_tile_fn *const WF_SIMD(wf_tiles)[2][WF_TILE_ROWS];

#endif
