/* SPDX-License-Identifier: MIT */
/* gemm.h - GEMM over rows of views, used by matmul, linear and head_loss. */
#ifndef WF_DEVICE_CPU_GEMM_H
#define WF_DEVICE_CPU_GEMM_H

#include "device/kernel.h"

/* Consecutive matrices in a view; a row of a matrix is a row of the view. Operand b may also be one
 * packed matrix (pack.h), as its view says; first and k_is_row are 0 then. */
typedef struct {
    const wf_view *view;
    int64_t first; /* first row of the first matrix */
    int64_t rows;  /* rows per matrix */
    bool k_is_row; /* true: a row holds one k; false: a row holds all k of one element */
} wf_gemm_operand;

typedef void wf_gemm_act(const float *x, float *y, int64_t n);
/* Multiplies y by an activation's derivative at x. */
typedef void wf_gemm_slope(const float *x, float *y, int64_t n);

/* y [m, n] = act(pre), pre [m, n] = a [m, k] b [k, n] + bias, for each matrix of the batch; or,
 * with a slope, y = a b slope(at) without bias and act. */
typedef struct {
    int64_t batch, m, n, k;
    wf_gemm_operand a, b;
    const wf_view *bias; /* [n], or NULL */
    wf_gemm_act *act;    /* applied to pre rounded to its type; NULL: no activation, and no pre */
    const wf_view *y, *pre; /* NULL: not read */
    wf_gemm_slope *slope;   /* applied to the unrounded result; or NULL */
    const wf_view *at;      /* [m, n], the argument of slope */
    int64_t y_first;        /* row of y for the first result */
    bool add;               /* y += instead of y =; y is f32 */
    int threads;
    void *scratch; /* wf_gemm_scratch bytes */
} wf_gemm;

/* Every element is summed over k in blocks of this size, in order, for any shape and number of
 * threads. A GEMM added to an earlier one that ended with a whole block therefore has the bits of
 * one GEMM over both ranges of k. */
#define WF_GEMM_BLOCK 256
/* The width of a panel of b, in columns of the result. */
#define WF_GEMM_COLUMNS 8

size_t wf_gemm_scratch(int64_t m, int64_t n, int64_t k, int threads);
/* The same for a packed b of this type: f32 is used in place, other types one panel at a time. */
size_t wf_gemm_scratch_packed(int64_t m, int64_t n, int64_t k, wf_type b, int threads);
void wf_gemm_run(const wf_gemm *g);

#endif
