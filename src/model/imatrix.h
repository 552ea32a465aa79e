/* SPDX-License-Identifier: MIT */
/*
 * imatrix.h - importance matrices: for each matrix of a model, the sum of the squares of its inputs
 * per column. infer/imatrix.c measures them; the quantizers weigh errors by them.
 *
 * The file is llama.cpp's: a GGUF file with general.type "imatrix", and for each matrix NAME the
 * tensors NAME.in_sum2 f32[columns] and NAME.counts f32[1], the number of inputs. A stack of E
 * experts has f32[E, columns] and f32[E, 1]. A file with attn_q, attn_k and attn_v fits a model
 * with attn_qkv, and the reverse.
 */
#ifndef WF_MODEL_IMATRIX_H
#define WF_MODEL_IMATRIX_H

#include "format/gguf.h"

#define WF_IMATRIX_DATASETS "imatrix.datasets"
#define WF_IMATRIX_CHUNKS "imatrix.chunk_count"
#define WF_IMATRIX_CHUNK "imatrix.chunk_size"
#define WF_IMATRIX_SUMS ".in_sum2"
#define WF_IMATRIX_COUNTS ".counts"

typedef struct {
    wf_gguf *file;
    const char *path;     /* for messages; borrowed */
    int64_t chunks;       /* pieces of text that were measured; 0: unknown */
    wf_gguf_text dataset; /* name of the first text; bytes is NULL if unknown */
} wf_importance;

/* A matrix of a model, or a stack of matrices. */
typedef struct {
    const char *name; /* "blk.0.attn_q.weight" */
    int64_t columns;
    int64_t stack; /* matrices in the stack; 0: a single matrix */
} wf_matrix_columns;

/* Opens a file, which must be an importance matrix. The caller closes *out in any case. */
wf_status wf_importance_open(wf_ctx *ctx, const char *path, wf_importance *out);
/* Reads one from memory, which must outlive the result. Messages call it `what`. */
wf_status wf_importance_read(wf_ctx *ctx, const char *what, const uint8_t *data, size_t bytes,
                             wf_importance *out);
void wf_importance_close(wf_importance *m);

/* Fails with WF_ERR_USAGE unless the file fits a model with these matrices: it has all matrices of
 * layers, no others, with the right columns and finite sums. attn_qkv stands for attn_q, attn_k and
 * attn_v, which have one input, and they stand for it. */
wf_status wf_importance_check(const wf_importance *m, const wf_matrix_columns *matrices, int count);
/* Copies the sums of a matrix to to[columns], or of a stack to to[stack][columns]. Returns false if
 * the file has none. Call it after wf_importance_check. */
bool wf_importance_copy(const wf_importance *m, const char *name, float *to);

#endif
