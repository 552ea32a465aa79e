/* SPDX-License-Identifier: MIT */
/*
 * gemm_few.h - few rows times a weight [N, K] as it lies in memory: bound by reading the weight once.
 *
 * Packing would only add traffic. Instead squares of the weight are transposed in registers, so that
 * lanes are columns of the result and each has its sum over k in order, as in tiles.
 */
#ifndef WF_DEVICE_CPU_SIMD_GEMM_FEW_H
#define WF_DEVICE_CPU_SIMD_GEMM_FEW_H

#include "device/cpu/simd/gemm_pack.h"
#include "device/cpu/simd/gemm_tile.h"

enum {
    WF_FEW_ROWS = 8,
    WF_FEW_AHEAD = 1024 /* bytes of a row that are fetched before their use */
};

/* VL columns of the result: from[j] is the row of the weight that is column j, a [rows][lda]; sums go to
 * total, or are added to it. */
typedef struct {
    const char *from[WF_VL];
    int64_t k;
    const float *a;
    int64_t lda;
    bool add;
} wf_few;

/* rows and type are constants where this is called. */
WF_INLINE void wf_few_multiply(int rows, wf_type type, const wf_few *f, vf total[WF_FEW_ROWS])
{
    size_t size = wf_gemm_size(type);
    for (int64_t k0 = 0; k0 == 0 || k0 < f->k; k0 += WF_TILE_K) {
        int64_t end = f->k < k0 + WF_TILE_K ? f->k : k0 + WF_TILE_K, k = k0;
        vf sum[WF_FEW_ROWS], r[WF_VL];
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            sum[i] = vf_zero();
        for (; k + WF_VL <= end; k += WF_VL) {
            for (int j = 0; j < WF_VL; j++)
                v_prefetch(f->from[j] + (size_t)k * size + WF_FEW_AHEAD);
            wf_pack_square(type, f->from, k, WF_VL, r);
#pragma GCC unroll 16
            for (int j = 0; j < WF_VL; j++)
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++)
                    sum[i] = vf_fma(vf_set(f->a[i * f->lda + k + j]), r[j], sum[i]);
        }
        if (k < end) {
            int nk = (int)(end - k);
            wf_pack_square(type, f->from, k, nk, r);
            for (int j = 0; j < nk; j++)
#pragma GCC unroll 8
                for (int i = 0; i < rows; i++)
                    sum[i] = vf_fma(vf_set(f->a[i * f->lda + k + j]), r[j], sum[i]);
        }
#pragma GCC unroll 8
        for (int i = 0; i < rows; i++)
            total[i] = k0 > 0 || f->add ? vf_add(total[i], sum[i]) : sum[i];
    }
}

#define WF_FEW_NUMBERS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

typedef void wf_few_fn(const wf_few *f, vf *total);

#endif
