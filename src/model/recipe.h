/* SPDX-License-Identifier: MIT */
/*
 * recipe.h - the type of each weight in a converted model: the names that `weft quantize` accepts.
 *
 * A recipe is one type for all matrices, or a mixture with more bits for sensitive matrices.
 * Vectors and the position table are always f32.
 */
#ifndef WF_MODEL_RECIPE_H
#define WF_MODEL_RECIPE_H

#include "graph/type.h"
#include "model/config.h"

typedef enum {
    WF_MIX_NONE,  /* one type for all */
    WF_MIX_HEAD,  /* the output matrix, or a tied embedding, in q6_K */
    WF_MIX_SMALL, /* also attn_v and ffn_down of the first layers in q6_K */
    WF_MIX_MEDIUM /* also attn_v and ffn_down of about half of the layers */
} wf_recipe_mix;

typedef struct {
    const char *name;
    wf_type type; /* of most matrices */
    wf_recipe_mix mix;
    int file_type; /* general.file_type in GGUF files */
    const char *doc;
} wf_recipe;

/* Ends with a row without a name. */
extern const wf_recipe wf_recipes[];
/* Ignores case. Fails with WF_ERR_USAGE and the list of names. */
wf_status wf_recipe_find(wf_ctx *ctx, const char *name, const wf_recipe **out);

/* Returns the type for a matrix whose rows are not a multiple of this type's block
 * (weft_quant.def). Quantized types only. */
wf_type wf_recipe_stand_in(wf_type type);

/* Returns the type of the matrix `name`, with rows of so many columns, in a GGUF file. pure: no
 * mixture. */
wf_type wf_recipe_type(const wf_recipe *r, bool pure, const wf_config *config, const char *name,
                       int64_t columns);

#endif
