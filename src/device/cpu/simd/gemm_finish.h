/* SPDX-License-Identifier: MIT */
/*
 * gemm_finish.h - the GEMM epilogue: bias, rounding, activation or its derivative.
 *
 * Runs on sums [n] of one row in f32 while they are cached, in chunks of at most WF_GEMM_CHUNK
 * columns. Rounds once; an activation reads the rounded operand, as the gradient does.
 */
#ifndef WF_DEVICE_CPU_SIMD_GEMM_FINISH_H
#define WF_DEVICE_CPU_SIMD_GEMM_FINISH_H

#include "device/cpu/simd/gemm_pack.h"

/* The view that receives x w^T + bias: the activation's operand if it is kept. */
static inline const wf_view *wf_gemm_product(const wf_gemm *g)
{
    return g->pre ? g->pre : g->y;
}

/* Element (i, j) of matrix `index`. Results are dense, so rows have g->n elements. */
static inline char *wf_gemm_result_at(const wf_gemm *g, const wf_view *v, int64_t index, int64_t i,
                                      int64_t j)
{
    return wf_view_at(v, (g->y_first + index * g->m + i) * g->n + j);
}

/* Adds the bias to n lanes from column j on, stores them, and returns the stored values. */
static inline vf wf_gemm_store(const wf_gemm *g, const wf_view *to, char *at, int64_t j, vf x,
                               int n)
{
    if (g->bias) {
        const void *bias = wf_view_at(g->bias, j);
        x = vf_add(x, n == WF_VL ? vf_load_as(g->bias->type, bias)
                                 : vf_load_as_n(g->bias->type, bias, n));
    }
    if (n == WF_VL)
        vf_store_as(to->type, at, x);
    else
        vf_store_as_n(to->type, at, x, n);
    return n == WF_VL ? vf_load_as(to->type, at) : vf_load_as_n(to->type, at, n);
}

enum { WF_GEMM_CHUNK = 256 }; /* columns; two rows of floats on the stack */

/* Loads n lanes of a row from lane c on. */
static inline vf wf_gemm_load_row(wf_type type, const char *row, int64_t c, int64_t n)
{
    const char *at = row + (size_t)c * wf_gemm_size(type);
    return n - c >= WF_VL ? vf_load_as(type, at) : vf_load_as_n(type, at, (int)(n - c));
}

static inline void wf_gemm_store_row(wf_type type, char *row, int64_t c, int64_t n, vf x)
{
    char *at = row + (size_t)c * wf_gemm_size(type);
    if (n - c >= WF_VL)
        vf_store_as(type, at, x);
    else
        vf_store_as_n(type, at, x, (int)(n - c));
}

/* wf_gemm_finish for a GEMM with a slope. */
static inline void wf_gemm_finish_slope(const wf_gemm *g, int64_t index, int64_t i, int64_t j,
                                        int64_t n, const float *sum)
{
    float row[WF_GEMM_CHUNK], at[WF_GEMM_CHUNK];
    const char *x = wf_view_at(g->at, wf_view_row(g->at, g->y_first + index * g->m + i) + j);
    char *y = wf_gemm_result_at(g, g->y, index, i, j);
    for (int64_t c = 0; c < n; c += WF_VL) {
        vf_store(row + c, wf_gemm_load_row(WF_F32, (const char *)sum, c, n));
        vf_store(at + c, wf_gemm_load_row(g->at->type, x, c, n));
    }
    g->slope(at, row, n); /* processes whole vectors */
    for (int64_t c = 0; c < n; c += WF_VL)
        wf_gemm_store_row(g->y->type, y, c, n, vf_load(row + c));
}

/* Stores n <= WF_GEMM_CHUNK sums of row i from column j on. The activation applies to pre rounded
 * to its type; if pre is not kept, y's memory serves to round it. */
static inline void wf_gemm_finish(const wf_gemm *g, int64_t index, int64_t i, int64_t j, int64_t n,
                                  const float *sum)
{
    if (g->slope) {
        wf_gemm_finish_slope(g, index, i, j, n, sum);
        return;
    }
    const wf_view *to = wf_gemm_product(g);
    size_t size = wf_gemm_size(to->type);
    char *at = wf_gemm_result_at(g, to, index, i, j);
    float row[WF_GEMM_CHUNK];
    for (int64_t c = 0; c < n; c += WF_VL) {
        int lanes = (int)(n - c < WF_VL ? n - c : WF_VL);
        vf x = lanes == WF_VL ? vf_load(sum + c) : vf_load_n(sum + c, lanes);
        vf_store(row + c, wf_gemm_store(g, to, at + (size_t)c * size, j + c, x, lanes));
    }
    if (!g->act || !g->y || !g->y->data)
        return;
    char *y = wf_gemm_result_at(g, g->y, index, i, j);
    g->act(row, row, n); /* processes whole vectors */
    for (int64_t c = 0; c < n; c += WF_VL)
        wf_gemm_store_row(g->y->type, y, c, n, vf_load(row + c));
}

#endif
