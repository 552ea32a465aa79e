/* SPDX-License-Identifier: MIT */
/*
 * recipe.h - which type each weight of a model gets: the words of `weft quantize`.
 *
 * A recipe is a type for all matrices, or a mixture that spends more bits where errors hurt most. Vectors
 * and the table of positions are f32 in all of them.
 */
#ifndef WF_MODEL_RECIPE_H
#define WF_MODEL_RECIPE_H

#include "graph/type.h"
#include "model/config.h"

typedef enum {
    WF_MIX_NONE,  /* all alike */
    WF_MIX_HEAD,  /* the output matrix, or the embedding where it is that, in q6_K */
    WF_MIX_SMALL, /* the same, and a few of the first layers' values and MLP outputs in q6_K */
    WF_MIX_MEDIUM /* the same, of about half of the layers */
} wf_recipe_mix;

typedef struct {
    const char *name;
    wf_type type; /* of most matrices */
    wf_recipe_mix mix;
    int file_type; /* general.file_type of GGUF files */
    const char *doc;
} wf_recipe;

/* All of them; the last has no name. */
extern const wf_recipe wf_recipes[];
/* Letters may be large or small. WF_ERR_USAGE, with the list, when there is none of this name. */
wf_status wf_recipe_find(wf_ctx *ctx, const char *name, const wf_recipe **out);

/* The type of a matrix whose rows are no multiple of this type's block (weft_quant.def). Quantized types
 * only. */
wf_type wf_recipe_stand_in(wf_type type);

/* The type of the matrix `name` with rows of so many columns in a GGUF file. pure: no mixture. */
wf_type wf_recipe_type(const wf_recipe *r, bool pure, const wf_config *config, const char *name,
                       int64_t columns);

#endif
