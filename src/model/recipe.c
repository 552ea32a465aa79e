/* SPDX-License-Identifier: MIT */
/*
 * recipe.c - the table of recipes, and the type that each gives a matrix.
 *
 * The mixtures have the names known from GGUF files. Where llama.cpp uses q5_K, Weft uses q6_K,
 * which is slightly larger and at least as accurate.
 */
#include "model/recipe.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

const wf_recipe wf_recipes[] = {
    {"f32", WF_F32, WF_MIX_NONE, 0, "32 bits per weight, exact"},
    {"f16", WF_F16, WF_MIX_NONE, 1, "16 bits per weight, half precision"},
    {"bf16", WF_BF16, WF_MIX_NONE, 32, "16 bits per weight, the range of f32"},
    {"Q4_K_M", WF_Q4_K, WF_MIX_MEDIUM, 15, "4.5 bits, more for sensitive layers: a good default"},
    {"Q4_K_S", WF_Q4_K, WF_MIX_SMALL, 14, "4.5 bits, more for a few layers"},
#define ROW(A, NAME, name, word, block, bytes, gguf, file_type, mix, stand_in, kernels, doc) \
    {#name, WF_##NAME, WF_MIX_##mix, file_type, doc},
    WF_QUANT_TABLE(ROW, 0)
#undef ROW
        {0},
};

wf_status wf_recipe_find(wf_ctx *ctx, const char *name, const wf_recipe **out)
{
    char known[512], shown[WF_TEXT_SHOWN];
    size_t len = 0;
    for (const wf_recipe *r = wf_recipes; r->name; r++) {
        wf_text_append(known, sizeof known, &len, "%s%s", len ? ", " : "", r->name);
        if (strcasecmp(r->name, name) == 0) {
            *out = r;
            return WF_OK;
        }
    }
    *out = NULL;
    return wf_fail(ctx, WF_ERR_USAGE, "unknown type '%s'; use one of: %s",
                   wf_text_show(shown, name, strlen(name)), known);
}

/* True for the first and the last eighth of the layers, and for every third between. */
static bool gets_more_bits(int layer, int64_t layers)
{
    return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/* The type of matrices that a mixture gives more bits. */
#define MORE_BITS WF_Q6_K

/* Returns whether the mixture gives this matrix more bits. */
static bool is_sensitive(wf_recipe_mix mix, const wf_config *c, const char *name)
{
    int layer, used = 0;
    if (strcmp(name, c->tied ? "token_embd.weight" : "output.weight") == 0)
        return mix != WF_MIX_NONE;
    if (mix < WF_MIX_SMALL || sscanf(name, "blk.%d.%n", &layer, &used) != 1 || used == 0)
        return false;
    const char *part = name + used;
    bool small = mix == WF_MIX_SMALL;
    if (strcmp(part, "ffn_down.weight") == 0)
        return small ? layer < c->layers / 8 : gets_more_bits(layer, c->layers);
    if (strcmp(part, "attn_qkv.weight") == 0)
        return !small;
    if (strcmp(part, "attn_v.weight") != 0)
        return false;
    /* In models with 80 layers eight query heads share a value head, so more bits cost little. */
    return c->layers == 80 || (small ? layer < 4 : gets_more_bits(layer, c->layers));
}

wf_type wf_recipe_stand_in(wf_type type)
{
#define ROW(A, NAME, name, word, block, bytes, gguf, file_type, mix, stand_in, ...) \
    [WF_##NAME] = WF_##stand_in,
    static const wf_type other[WF_TYPE_COUNT] = {WF_QUANT_TABLE(ROW, 0)};
#undef ROW
    return other[type];
}

/* A stand-in has at least the bits of the type it replaces. q4_1 has q4_K's 16 levels between the
 * least and the largest of every 32 elements, but keeps these as f16 where q4_K rounds them to 6
 * bits: half a bit more, and no larger error. */
static wf_type with_whole_blocks(wf_type type, int64_t columns)
{
    /* Ends: stand-ins have smaller blocks, down to a plain type with blocks of one element. */
    while (columns % wf_type_get(type)->block != 0)
        type = wf_recipe_stand_in(type);
    return type;
}

wf_type wf_recipe_type(const wf_recipe *r, bool pure, const wf_config *config, const char *name,
                       int64_t columns)
{
    if (strcmp(name, "position_embd.weight") == 0)
        return WF_F32;
    bool more = !pure && is_sensitive(r->mix, config, name);
    return with_whole_blocks(more ? MORE_BITS : r->type, columns);
}
