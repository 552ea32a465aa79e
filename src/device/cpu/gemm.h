/* SPDX-License-Identifier: MIT */
/* gemm.h - matrix products over rows of views: what matmul, linear and head_loss are made of. */
#ifndef WF_DEVICE_CPU_GEMM_H
#define WF_DEVICE_CPU_GEMM_H

#include "device/kernel.h"

/* Matrices that lie one after the other in a view, a row of a matrix in a row of the view. Operand b
 * may also be one matrix in panels (pack.h), which its view says; first and k_is_row are 0 then. */
typedef struct {
    const wf_view *view;
    int64_t first; /* row of the view where the first matrix begins */
    int64_t rows;  /* of each matrix */
    bool k_is_row; /* a row holds all elements of one k; else all k of one element */
} wf_gemm_operand;

typedef void wf_gemm_act(const float *x, float *y, int64_t n);
/* y is multiplied by the slope of an activation at x. */
typedef void wf_gemm_slope(const float *x, float *y, int64_t n);

/* y [m, n] = act(pre), pre [m, n] = a [m, k] b [k, n] + bias, for each matrix of the batch; or, where there
 * is a slope, y = a b slope(at), without bias and act. */
typedef struct {
    int64_t batch, m, n, k;
    wf_gemm_operand a, b;
    const wf_view *bias;    /* [n], or NULL */
    wf_gemm_act *act;       /* of the product as its type has it, or NULL: then there is no pre */
    const wf_view *y, *pre; /* NULL: nobody reads it */
    wf_gemm_slope *slope;   /* the product is not rounded before; or NULL */
    const wf_view *at;      /* [m, n] that slope is taken of */
    int64_t y_first;        /* row of y where the first product goes */
    bool add;               /* to what stands in y, which is f32 then, rather than replacing it */
    int threads;
    void *scratch; /* wf_gemm_scratch bytes */
} wf_gemm;

/* Every element is summed up over k in the same order, blocks of this many after one another,
 * whatever the shape and the number of threads. A product that is added to another one, which ended
 * with a whole block, therefore has the bits of the product over both. */
#define WF_GEMM_BLOCK 256
/* Columns of the result that are computed at a time: the width of a panel of b. */
#define WF_GEMM_COLUMNS 8

size_t wf_gemm_scratch(int64_t m, int64_t n, int64_t k, int threads);
/* The same when b, of this type, is in panels: f32 is used where it lies, the rest a panel at a time. */
size_t wf_gemm_scratch_packed(int64_t m, int64_t n, int64_t k, wf_type b, int threads);
void wf_gemm_run(const wf_gemm *g);

#endif
