/* SPDX-License-Identifier: MIT */
/*
 * gemm_few.h - small-batch GEMM with an unpacked weight [N, K]: bound by reading the weight once.
 *
 * Packing would only add traffic. Instead squares of the weight are transposed in registers: lanes
 * are columns of the result, and each sums over k in order, as in tiles. Shuffles have a single
 * port, so 16-bit elements are transposed before they are widened, which halves the shuffles.
 */
#ifndef WF_DEVICE_CPU_SIMD_GEMM_FEW_H
#define WF_DEVICE_CPU_SIMD_GEMM_FEW_H

#include "device/cpu/simd/gemm_pack.h"
#include "device/cpu/simd/gemm_tile.h"

enum {
    WF_FEW_ROWS = 8,
    WF_FEW_STREAMS = 16, /* rows of the weight read in parallel for one row of a */
    WF_FEW_AHEAD = 512   /* prefetch distance in bytes along a row */
};

/* Vectors of columns summed in parallel. Each element is one dependent chain of multiply-adds, so
 * with few rows of a several columns must fill the pipeline. */
WF_INLINE int wf_few_vectors(int rows)
{
    int vectors = WF_FEW_STREAMS / WF_VL / rows;
    return vectors > 1 ? vectors : 1;
}

/* wf_few_vectors(m) * VL columns of the result, each a row of the weight; a is [rows][lda]. Sums
 * are stored in or added to total[vector][row]. */
typedef struct {
    const char *from; /* first row of the weight */
    ptrdiff_t stride; /* row stride in bytes */
    int64_t k;
    const float *a;
    int64_t lda;
    bool add;
} wf_few;

/* sum[i] += a[i][k] * x. */
WF_INLINE void wf_few_add(int rows, const wf_few *f, int64_t k, vf x, vf sum[WF_FEW_ROWS])
{
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
        sum[i] = vf_fma(vf_set(f->a[i * f->lda + k]), x, sum[i]);
}

/* Prefetches VL rows WF_FEW_AHEAD bytes after offset. Past their ends, it prefetches the start of
 * the next call's rows, `next` bytes further. */
WF_INLINE void wf_few_prefetch(const char *from, ptrdiff_t stride, size_t offset, size_t bytes,
                               ptrdiff_t next)
{
    size_t ahead = offset + WF_FEW_AHEAD;
    from += ahead < bytes ? (ptrdiff_t)ahead : (ptrdiff_t)(ahead - bytes) + next;
    for (int j = 0; j < WF_VL; j++)
        v_prefetch(from + j * stride);
}

/* Adds wf_few_step(type) steps of k, at most one cache line. */
WF_INLINE void wf_few_square(int rows, wf_type type, const wf_few *f, const char *from, int64_t k,
                             vf sum[WF_FEW_ROWS])
{
    from += (size_t)k * wf_gemm_size(type);
    if (type == WF_F16) {
        _Alignas(64) uint16_t half[2 * WF_VL][WF_VL];
        v_transpose_halves(from, f->stride, half);
#pragma GCC unroll 32
        for (int j = 0; j < 2 * WF_VL; j++)
            wf_few_add(rows, f, k + j, vf_load_f16(half[v_half_slot(j)]), sum);
        return;
    }
    vf r[WF_VL];
    for (int j = 0; j < WF_VL; j++)
        r[j] = vf_load((const float *)(const void *)(from + j * f->stride));
    vf_transpose(r);
#pragma GCC unroll 16
    for (int j = 0; j < WF_VL; j++) {
        if (type == WF_F32) {
            wf_few_add(rows, f, k + j, r[j], sum);
            continue;
        }
        /* Pairs of bf16; each is the upper half of an f32. */
        vi pair = vf_as_vi(r[j]);
        wf_few_add(rows, f, k + 2 * j, vi_as_vf(vi_shl(pair, 16)), sum);
        wf_few_add(rows, f, k + 2 * j + 1, vi_as_vf(vi_and(pair, vi_set(~0xffff))), sum);
    }
}

/* rows and type are compile-time constants at every call. */
WF_INLINE void wf_few_multiply(int rows, wf_type type, const wf_few *f, vf (*total)[WF_FEW_ROWS])
{
    const int vectors = wf_few_vectors(rows), step = type == WF_F32 ? WF_VL : 2 * WF_VL;
    const size_t size = wf_gemm_size(type);
    for (int64_t k0 = 0; k0 == 0 || k0 < f->k; k0 += WF_TILE_K) {
        int64_t end = f->k < k0 + WF_TILE_K ? f->k : k0 + WF_TILE_K, k = k0;
        vf sum[WF_FEW_STREAMS / WF_VL][WF_FEW_ROWS], r[WF_VL];
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++)
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                sum[v][i] = vf_zero();
        for (; k + step <= end; k += step)
#pragma GCC unroll 8
            for (int v = 0; v < vectors; v++) {
                const char *from = f->from + v * WF_VL * f->stride;
                wf_few_prefetch(from, f->stride, (size_t)k * size, (size_t)f->k * size,
                                vectors * WF_VL * f->stride);
                wf_few_square(rows, type, f, from, k, sum[v]);
            }
        for (int nk; k < end; k += nk) {
            nk = end - k < WF_VL ? (int)(end - k) : WF_VL;
            for (int v = 0; v < vectors; v++) {
                const char *from[WF_VL];
                for (int j = 0; j < WF_VL; j++)
                    from[j] = f->from + (v * WF_VL + j) * f->stride;
                wf_pack_square(type, from, k, nk, r);
                for (int j = 0; j < nk; j++)
                    wf_few_add(rows, f, k + j, r[j], sum[v]);
            }
        }
#pragma GCC unroll 8
        for (int v = 0; v < vectors; v++)
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                total[v][i] = k0 > 0 || f->add ? vf_add(total[v][i], sum[v][i]) : sum[v][i];
    }
}

#define WF_FEW_NUMBERS(X) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8)

typedef void wf_few_fn(const wf_few *f, vf (*total)[WF_FEW_ROWS]);

#endif
