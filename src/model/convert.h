/* SPDX-License-Identifier: MIT */
/*
 * convert.h - writing a model anew: the list of what is written, and how its numbers get there.
 *
 * First everything is decided (names, types, which rows go where), so that what cannot be done is refused
 * before anything is written; then the weights stream through, a slab of rows at a time.
 */
#ifndef WF_MODEL_CONVERT_H
#define WF_MODEL_CONVERT_H

#include "model/adapter.h"
#include "model/model.h"
#include "model/recipe.h"
#include "model/rows.h"

/* A tensor of the file that is written. */
typedef struct {
    const char *name;
    wf_type type;
    wf_dims shape;
    const wf_stored *from; /* NULL: `data`, which has the type and shape already */
    const void *data;
    bool crossed; /* its rows are the columns of `from` */
    wf_row_order order;
    const char *weight; /* of the model, that it is; NULL: none */
    bool transposed;    /* it is [in, out], not [out, in] */
} wf_convert_item;

typedef struct {
    const wf_model *m;
    wf_ctx *ctx;
    const char *path;
    const wf_convert_options *options; /* never NULL */
    const wf_recipe *recipe;           /* NULL: types stay as they are */
    int threads;
    wf_adapters adapters; /* which are merged into the weights */
    wf_arena arena;       /* of names and lists */
    wf_convert_item *item;
    int items;
    int64_t done, total; /* bytes of the weights that were read */
} wf_convert;

/* Makes the list, empty, with room for all weights and one more tensor. */
wf_status wf_convert_items(wf_convert *c);
/* Refuses to make blocks from blocks of another type, unless the options admit it. */
wf_status wf_convert_check(const wf_convert *c);

/* All items in order, in pieces, to `write`. What is written does not depend on the threads. */
typedef wf_status wf_convert_write(void *to, const void *data, size_t bytes);
wf_status wf_convert_data(wf_convert *c, wf_convert_write *write, void *to);

/* ---- Adapters that are merged: what they add to a weight, left [row] * scale * right [column] for each k ---- */

typedef struct {
    int64_t rank; /* of all adapters together; 0: they add nothing */
    int64_t rows, columns;
    double *scale;   /* [rank] */
    float *in, *out; /* [rank, in], [rank, out] */
    float *left,
        *right; /* these two, as the rows and columns of what is written: [rank, rows], [rank, columns] */
} wf_merge;

bool wf_merge_changes(const wf_convert *c, const char *weight);
/* Freed by wf_merge_free, after a failure as well. */
wf_status wf_merge_make(const wf_convert *c, const wf_convert_item *item, wf_merge *m);
void wf_merge_free(const wf_convert *c, wf_merge *m);
/* Adds to the numbers of a row. The row is that of the weight as it lies, before its rows were put in another
 * order. */
void wf_merge_row(const wf_merge *m, int64_t row, float *numbers);

wf_status wf_convert_to_gguf(wf_convert *c);
wf_status wf_convert_to_folder(wf_convert *c);

/* config.json, and generation_config.json, for wf_mem_free. type: of most matrices. What transformers has
 * no words for is WF_ERR_UNSUPPORTED. */
wf_status wf_convert_config_json(wf_convert *c, wf_type type, char **json, size_t *bytes);
/* rope_parameters of a config.json in one line, exact, for wf_mem_free. */
wf_status wf_convert_rope_json(wf_ctx *ctx, const wf_rotary *rope, char **json, size_t *bytes);
wf_status wf_convert_generation_json(wf_convert *c, char **json, size_t *bytes);

#endif
