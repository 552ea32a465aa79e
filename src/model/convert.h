/* SPDX-License-Identifier: MIT */
/*
 * convert.h - conversion: the list of tensors to write, and how their values are produced.
 *
 * All decisions (names, types, row orders) come first, so that an impossible conversion fails
 * before anything is written. Then the weights are streamed, one slab of rows at a time.
 */
#ifndef WF_MODEL_CONVERT_H
#define WF_MODEL_CONVERT_H

#include "model/adapter.h"
#include "model/imatrix.h"
#include "model/model.h"
#include "model/override.h"
#include "model/recipe.h"
#include "model/rows.h"

/* Values of an output tensor that are not one tensor of the input: some rows of one weight, or the
 * rows of several weights. Those of stacks follow one another within each matrix. */
typedef struct {
    const wf_model_weight_info *const *weight; /* [weights] */
    int weights;
    bool alternate; /* rows of the weights alternate */
    int64_t first;  /* row of the only weight; 0 for several */
    float add;      /* to every value */
} wf_gather;

/* A tensor of the output file. */
typedef struct {
    const char *name;
    wf_type type;
    wf_dims shape;
    /* Where its values are: one whole tensor, weights of the model that are read first (gather), or
     * data that already has the output's type and shape. */
    const wf_stored *from;
    const wf_gather *gather;
    const void *data;
    bool transpose; /* the output's rows are the columns of `from` */
    wf_row_order order;
    const char *weight;      /* name of the model's weight; NULL: not one whole weight */
    bool transposed;         /* the output is [in, out] instead of [out, in] */
    const float *importance; /* of each column of each matrix of a stack; NULL: all equal */
} wf_convert_item;

typedef struct {
    const wf_model *m;
    wf_ctx *ctx;
    const char *path;
    const wf_convert_options *options; /* never NULL */
    const wf_recipe *recipe;           /* NULL: keep the types */
    wf_overrides overrides;            /* of the recipe's types, or of the kept ones */
    wf_importance importance;          /* weighs errors; file is NULL: none */
    int threads;
    wf_adapters adapters;  /* to merge into the weights */
    wf_arena arena;        /* owns names and lists */
    wf_convert_item *item; /* [items], in the order of the file */
    int items;
    int64_t done, total; /* bytes of weights read so far, and in total */
    struct {             /* the last weight that was gathered in several items; owned */
        const wf_model_weight_info *weight;
        void *data;
    } kept;
} wf_convert;

/* Creates an empty list with room for `most` tensors. */
wf_status wf_convert_items(wf_convert *c, size_t most);
/* Gives an item the values of one whole weight: its tensor if it is one, else gathered. */
wf_status wf_convert_take(wf_convert *c, const wf_model_weight_info *w, wf_convert_item *item);
/* Gives an item gathered values; copies the description. */
wf_status wf_convert_take_gathered(wf_convert *c, const wf_gather *values, wf_convert_item *item);
/* Returns the bytes that an item's values take in the input. */
int64_t wf_convert_input_bytes(const wf_convert_item *item);
/* Fails for conversions between different block types, unless the options allow them. */
wf_status wf_convert_check(const wf_convert *c);

/* Produces all items in order and passes them to `write` in pieces. The bytes do not depend on the
 * number of threads. */
typedef wf_status wf_convert_write(void *to, const void *data, size_t bytes);
wf_status wf_convert_data(wf_convert *c, wf_convert_write *write, void *to);

/* ---- Merging adapters: adds sum over k of left[k][row] * scale[k] * right[k][column] ---- */

typedef struct {
    int64_t rank; /* total rank of all adapters; 0: nothing to add */
    int64_t rows, columns;
    double *scale;   /* [rank] */
    float *in, *out; /* [rank, in], [rank, out] */
    /* The same two by the orientation of the output: [rank, rows], [rank, columns]. */
    float *left, *right;
} wf_merge;

bool wf_merge_changes(const wf_convert *c, const char *weight);
/* The caller frees *m with wf_merge_free, also after a failure. */
wf_status wf_merge_make(const wf_convert *c, const wf_convert_item *item, wf_merge *m);
void wf_merge_free(const wf_convert *c, wf_merge *m);
/* Adds the adapters' contribution to a row of values. `row` is the row's index in the weight,
 * before any reordering. */
void wf_merge_row(const wf_merge *m, int64_t row, float *numbers);

/* Reads the values of a gathered item, in its layout: *out describes them. Adds the contribution of
 * adapters, unless the item is one whole weight. The caller frees *data, also after a failure. */
wf_status wf_convert_gather(wf_convert *c, const wf_convert_item *item, wf_stored *out,
                            void **data);

wf_status wf_convert_to_gguf(wf_convert *c);
wf_status wf_convert_to_folder(wf_convert *c);

/* Write config.json and generation_config.json; the caller frees *json with wf_mem_free. `type` is
 * that of most matrices. Fails with WF_ERR_UNSUPPORTED if transformers has no key for a property of
 * the model. */
wf_status wf_convert_config_json(wf_convert *c, wf_type type, char **json, size_t *bytes);
/* Returns why, if transformers has no key for a property of the model; else NULL. */
const char *wf_config_json_fault(const wf_config *config);
/* Writes the rope_parameters of a config.json, exactly. The caller frees *json with wf_mem_free. */
wf_status wf_convert_rope_json(wf_ctx *ctx, const wf_rotary *rope, char **json, size_t *bytes);
wf_status wf_convert_generation_json(wf_convert *c, char **json, size_t *bytes);

#endif
