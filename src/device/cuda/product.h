/* SPDX-License-Identifier: MIT */
/*
 * product.h - matrix products on the GPU: what matmul, linear, their fused forms and head_loss are made of.
 *
 * They are cuBLASLt's where it takes them (product.c), with the fastest of its algorithms for each shape
 * (product_tune.c), and those of a plain kernel of ours otherwise (product_plain.cu). Matrices are row-major here.
 */
#ifndef WF_DEVICE_CUDA_PRODUCT_H
#define WF_DEVICE_CUDA_PRODUCT_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A matrix whose rows are consecutive elements, or one in each product of a batch. */
typedef struct {
    void *data;
    wf_type type;  /* f32, f16 or bf16 */
    int64_t row;   /* elements from row to row */
    int64_t batch; /* elements from matrix to matrix; 0: they are one */
} wf_cuda_matrix;

typedef enum {
    WF_CUDA_PLAIN,   /* y = a b + bias */
    WF_CUDA_ACT,     /* y = act(pre), pre = a b + bias as its type has it */
    WF_CUDA_ACT_GRAD /* y = a b act'(pre) */
} wf_cuda_ending;

/* y [m, n] = a [m, k] b [k, n] and what follows. */
typedef struct {
    int64_t batch, m, n, k;
    wf_cuda_matrix a, b, y;
    bool transpose_a, transpose_b; /* lies as [k, m], as [n, k] */
    bool add;                      /* to what stands in y, f32; plain ending without bias alone */
    wf_cuda_ending ending;
    int act;            /* of graph/op.h */
    wf_cuda_matrix pre; /* like y. ACT writes it unless its data is NULL, ACT_GRAD reads it */
    const void *bias;   /* [n] or NULL */
    wf_type bias_type;
    float *sums;      /* [m] or NULL: sums of a over k, too */
    float *rows_sums; /* [n] or NULL: rows of y added up, too; ACT_GRAD alone */
} wf_cuda_product;

/* How products are asked for: to be run, or, before that, to be made ready (and timed where it is not known yet
 * how they are run best), when nothing but that happens. */
typedef struct {
    const wf_launch *l;
    bool prepare;
    void *scratch; /* of wf_cuda_product_scratch bytes */
} wf_cuda_work;

/* Bytes of scratch for a product of these sizes and types, with or without a bias, and with so many sums. */
size_t wf_cuda_product_scratch(const wf_cuda_product *p, bool bias, int64_t sums);

/* Runs a product, or makes it ready. Empty ones are fine. */
wf_status wf_cuda_multiply(const wf_cuda_work *w, const wf_cuda_product *p);

/* Whether cuBLASLt is there at all. Without it d->products is all the same, and all products are plain. */
bool wf_cuda_products_library(void);
/* Keeps what was timed since the last time: called at the end of preparing a step. */
void wf_cuda_products_keep(const wf_launch *l);

/* ---- Kernels (product_plain.cu, product_aux.cu) ---- */

/* All of the product, but for sums. */
void wf_cuda_plain_product(cudaStream_t stream, const wf_cuda_product *p);
/* The ending of a product that stands in y, or in pre if that has data: y = act(pre), y = y act'(pre). For rows_sums
 * it takes `parts`, of wf_cuda_sums_bytes. */
void wf_cuda_finish(cudaStream_t stream, const wf_cuda_product *p, float *parts);
/* The same, and the bias, of a dense product in f32: batch is 1. */
void wf_cuda_settle(cudaStream_t stream, const wf_cuda_product *p, const float *product);
/* sums[columns] of all rows of x, in two steps through `parts`, of wf_cuda_sums_bytes. */
void wf_cuda_add_rows(cudaStream_t stream, const wf_cuda_matrix *x, int64_t rows, int64_t columns,
                      float *sums, float *parts);
size_t wf_cuda_sums_bytes(int64_t columns);
/* Adds to *wrong how many of the numbers are further apart than 1/64 of them and `slack`. */
void wf_cuda_compare(cudaStream_t stream, wf_type type, const void *a, const void *b, int64_t count,
                     float slack, int *wrong);
/* Random numbers of about the size that activations have. */
void wf_cuda_randomize(cudaStream_t stream, wf_type type, void *to, size_t bytes, uint64_t seed);

#ifdef __cplusplus
}
#endif
#endif
