/* SPDX-License-Identifier: MIT */
/*
 * recipe.h - the type of each weight in a converted model: the names that `weft quantize` accepts.
 *
 * A recipe is one type for most matrices and rules that give some matrices another. Recipes, rules
 * and file types are those of llama.cpp. Vectors and the position table are always f32.
 */
#ifndef WF_MODEL_RECIPE_H
#define WF_MODEL_RECIPE_H

#include "graph/type.h"
#include "model/config.h"

/* Which rules of recipe.c apply. The output matrix, or a tied embedding, has q6_K in all recipes of
 * quantized types but q8_0. */
typedef enum {
    WF_MIX_NONE,
    WF_MIX_Q2_K,
    WF_MIX_Q2_K_S,
    WF_MIX_Q3_K_M,
    WF_MIX_Q3_K_L,
    WF_MIX_Q4_0,
    WF_MIX_Q4_K_S,
    WF_MIX_Q4_K_M,
    WF_MIX_Q5_0,
    WF_MIX_Q5_K_M,
    WF_MIX_IQ4
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

/* The model that a recipe is for. */
typedef struct {
    const wf_config *config;
    bool pure;    /* no rules: one type for all matrices */
    bool weighed; /* an importance matrix weighs the errors */
} wf_recipe_use;

/* Returns the type of the matrix `name`, with rows of so many columns, in a GGUF file. */
wf_type wf_recipe_type(const wf_recipe *r, const wf_recipe_use *use, const char *name,
                       int64_t columns);

#endif
