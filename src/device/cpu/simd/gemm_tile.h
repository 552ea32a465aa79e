/* SPDX-License-Identifier: MIT */
/*
 * gemm_tile.h - the innermost loops of matrix products: a tile of the result from one panel of each
 * operand, all of its sums in registers.
 *
 *     a panel: [nk][rows]     b panel: [nk][WF_TILE_COLUMNS]
 *
 * Panels of a have just the rows of the tile, up to WF_TILE_ROWS, so that rows can be dealt out evenly
 * rather than leaving a thin tile at the end; there is a kernel for each number of rows.
 */
#ifndef WF_DEVICE_CPU_SIMD_GEMM_TILE_H
#define WF_DEVICE_CPU_SIMD_GEMM_TILE_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/simd.h"

/* As many sums as the registers hold beside a row of b and one element of a. */
enum {
    WF_TILE_VECTORS = 2,
    WF_TILE_COLUMNS = WF_TILE_VECTORS * WF_VL,
    WF_TILE_ROWS = WF_VREGS == 32 ? 14 : 6,
    WF_TILE_STEPS = WF_VREGS == 32 ? 4 : 8, /* of k that are unrolled: about as much code */
    /* Every element of a product is summed up over k in the same order, blocks of this many after one
     * another. A panel of b this long stays in the first-level cache. */
    WF_TILE_K = WF_GEMM_BLOCK
};

/* Sums go to rows of c, ldc floats apart, of which n columns exist; add: to what stands there. The numbers
 * come one by one rather than in a struct: copying one that was just written waits until all stores
 * before it are done, and those are the misses of the tile before. */
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

/* rows, vectors, no more than have a column, and type, that of b, are constants where this is called. */
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

#endif
