/* SPDX-License-Identifier: MIT */
/* gemm_tile.c - the kernels of gemm_tile.h, one for each number of rows. Their caller checks the ranges
 * that they access: sanitized builds compile this file without instrumentation. */
#include "device/cpu/simd/gemm_tile.h"

#define TILE(rows)                                                                              \
    static void tile_##rows(int64_t nk, const float *a, const void *b, float *c, int64_t ldc,   \
                            int n, bool add)                                                    \
    {                                                                                           \
        wf_tile_multiply(rows, WF_TILE_VECTORS, WF_F32, nk, a, b, c, ldc, n, add);              \
    }                                                                                           \
    static void narrow_##rows(int64_t nk, const float *a, const void *b, float *c, int64_t ldc, \
                              int n, bool add)                                                  \
    {                                                                                           \
        wf_tile_multiply(rows, 1, WF_F32, nk, a, b, c, ldc, n, add);                            \
    }
WF_TILE_NUMBERS(TILE)

#define TILE_ROW(rows) tile_##rows,
#define NARROW_ROW(rows) narrow_##rows,
wf_tile_fn *const WF_SIMD(wf_tiles)[2][WF_TILE_ROWS] = {{WF_TILE_NUMBERS(TILE_ROW)},
                                                        {WF_TILE_NUMBERS(NARROW_ROW)}};
