/* SPDX-License-Identifier: MIT */
/*
 * source.h - the tensors of a file that a weight is made of.
 *
 * Most weights are one whole tensor. Others are a range of a tensor's rows (one tensor for q, k and
 * v), several tensors after one another (one per expert), transposed, or the tensor plus 1. Here a
 * weight is a matrix [rows, columns]: a stack [E, F, C] has E * F rows, a vector has one column.
 */
#ifndef WF_MODEL_SOURCE_H
#define WF_MODEL_SOURCE_H

#include "format/store.h"

/* Some rows of a weight. Row i of them is row first + i * step of the tensor. If transposed, it is
 * that column, from row `skip` of the tensor on. */
typedef struct {
    const wf_stored *from; /* in the store; borrowed */
    int64_t rows;
    int64_t first, step;
    int64_t skip; /* 0 unless transposed */
    bool transposed;
    float add; /* to every value */
} wf_source;

typedef struct {
    const char *name;        /* of the state */
    wf_type type;            /* of the state: matrices keep the file's type, vectors are f32 */
    wf_dims shape;           /* of the state */
    const wf_source *source; /* [sources]; their rows follow one another */
    int sources;
} wf_model_weight_info;

/* Returns the columns of the weight as a matrix. */
int64_t wf_weight_columns(const wf_model_weight_info *w);
/* Returns the tensor that is the weight, with all its rows in order; NULL if there is none. It may
 * still be transposed and of another type. */
const wf_stored *wf_weight_whole(const wf_model_weight_info *w);
/* Return the bytes that one source and the whole weight take in their files. */
size_t wf_source_bytes(const wf_model_weight_info *w, int source);
size_t wf_weight_stored_bytes(const wf_model_weight_info *w);

/* Returns the source if the state can use the file's bytes in place: they lie together, and type,
 * layout and alignment match. Otherwise NULL. */
const wf_source *wf_weight_in_place(const wf_model_weight_info *w);
/* Returns where the bytes of a weight that lies in place begin in its file. */
uint64_t wf_weight_offset(const wf_model_weight_info *w);

/* Reads a weight in the type and layout of its state: wf_type_bytes(type, count) bytes. */
wf_status wf_weight_read(wf_ctx *ctx, const wf_model_weight_info *w, void *to);

#endif
