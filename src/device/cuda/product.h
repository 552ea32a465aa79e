/* SPDX-License-Identifier: MIT */
/*
 * product.h - GEMM on the GPU, used by matmul, linear, their fused forms and head_loss.
 *
 * cuBLASLt computes them where it can (product.c), with the fastest algorithm of each shape
 * (product_tune.c). Our own kernel computes the rest (product_plain.cu). Matrices are row-major
 * here.
 */
#ifndef WF_DEVICE_CUDA_PRODUCT_H
#define WF_DEVICE_CUDA_PRODUCT_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix with contiguous rows, or a batch of them. */
typedef struct {
    void *data;
    wf_type type;  /* f32, f16 or bf16 */
    int64_t row;   /* stride between rows, in elements */
    int64_t batch; /* stride between matrices, in elements; 0: all share one */
} wf_cuda_matrix;

typedef enum {
    WF_CUDA_PLAIN,   /* y = a b + bias */
    WF_CUDA_ACT,     /* y = act(pre), pre = a b + bias rounded to its type */
    WF_CUDA_ACT_GRAD /* y = a b act'(pre) */
} wf_cuda_ending;

/* y [m, n] = a [m, k] b [k, n], then the epilogue. */
typedef struct {
    int64_t batch, m, n, k;
    wf_cuda_matrix a, b, y;
    bool transpose_a, transpose_b; /* stored as [k, m], as [n, k] */
    bool add;                      /* y += instead of y =; f32, plain epilogue without bias only */
    wf_cuda_ending ending;
    int act;            /* wf_act of graph/op.h */
    wf_cuda_matrix pre; /* shaped like y. ACT writes it unless data is NULL, ACT_GRAD reads it */
    const void *bias;   /* [n] or NULL */
    wf_type bias_type;
    float *sums;      /* [m] or NULL: also sum a over k */
    float *rows_sums; /* [n] or NULL: also sum y over m; ACT_GRAD only */
} wf_cuda_product;

/* The context of a GEMM. `prepare` selects (and times, if the shape is new) an algorithm without
 * running the GEMM; a later call runs it. */
typedef struct {
    const wf_launch *l;
    bool prepare;
    void *scratch; /* wf_cuda_product_scratch bytes */
} wf_cuda_work;

/* Bytes of scratch that a GEMM of these sizes and types needs, with `sums` elements of row sums. */
size_t wf_cuda_product_scratch(const wf_cuda_product *p, bool bias, int64_t sums);

/* Runs or prepares a GEMM. Sizes may be 0. */
wf_status wf_cuda_multiply(const wf_cuda_work *w, const wf_cuda_product *p);

/* Whether the device uses cuBLASLt. Without it every GEMM uses our kernels. */
bool wf_cuda_products_library(const wf_device *device);
/* Writes new timings to the cache file. Called at the end of preparing a step. */
void wf_cuda_products_keep(const wf_launch *l);

/* ---- Kernels (product_plain.cu, product_aux.cu) ---- */

/* The whole GEMM with its epilogue, without sums. */
void wf_cuda_plain_product(cudaStream_t stream, const wf_cuda_product *p);
/* Applies the epilogue to a result in y, or in pre if that has data: y = act(pre) or y = y
 * act'(pre). rows_sums needs `parts`, wf_cuda_sums_bytes bytes. */
void wf_cuda_finish(cudaStream_t stream, const wf_cuda_product *p, float *parts);
/* Applies bias and epilogue to a dense f32 result, without a batch, and rounds once. */
void wf_cuda_settle(cudaStream_t stream, const wf_cuda_product *p, const float *product);
/* Rounds rows of f32 to f16, dense. A row with values from 32768 on is divided by a power of two,
 * factors[row]; it is 1 for other rows. wf_cuda_multiply_rows multiplies rows of the f32 result y
 * by their factors and adds the bias. */
void wf_cuda_divide_rows(cudaStream_t stream, const wf_view *x, void *to, float *factors);
void wf_cuda_multiply_rows(cudaStream_t stream, const wf_cuda_product *p, const float *factors);
/* sums[columns] = sum of the rows of x, in two steps through `parts` (wf_cuda_sums_bytes bytes). */
void wf_cuda_add_rows(cudaStream_t stream, const wf_cuda_matrix *x, int64_t rows, int64_t columns,
                      float *sums, float *parts);
size_t wf_cuda_sums_bytes(int64_t columns);
/* Adds to *wrong the count of pairs that differ by more than |a| / 64 + slack. */
void wf_cuda_compare(cudaStream_t stream, wf_type type, const void *a, const void *b, int64_t count,
                     float slack, int *wrong);
/* Fills `to` with random values of the magnitude of activations. */
void wf_cuda_randomize(cudaStream_t stream, wf_type type, void *to, size_t bytes, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
