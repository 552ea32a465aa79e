/* SPDX-License-Identifier: MIT */
/*
 * recipe.c - the table of recipes, and the type that each gives a matrix.
 *
 * Names, rules and file types are those of llama.cpp, so that a file has the size and the types
 * that its name promises. tests/fixtures/recipes.txt has llama.cpp's choices.
 */
#include "model/recipe.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "model/family.h"

const wf_recipe wf_recipes[] = {
    {"f32", WF_F32, WF_MIX_NONE, 0, "32 bits per weight, exact"},
    {"f16", WF_F16, WF_MIX_NONE, 1, "16 bits per weight, half precision"},
    {"bf16", WF_BF16, WF_MIX_NONE, 32, "16 bits per weight, the range of f32"},
    {"Q5_K_M", WF_Q5_K, WF_MIX_Q5_K_M, 17, "5.5 bits, more for sensitive matrices"},
    {"Q5_K_S", WF_Q5_K, WF_MIX_NONE, 16, "5.5 bits"},
    {"Q4_K_M", WF_Q4_K, WF_MIX_Q4_K_M, 15, "4.5 bits, more for sensitive matrices: a good default"},
    {"Q4_K_S", WF_Q4_K, WF_MIX_Q4_K_S, 14, "4.5 bits, more for a few matrices"},
    {"Q3_K_M", WF_Q3_K, WF_MIX_Q3_K_M, 12, "3.4 bits, 4.5 for sensitive matrices"},
    {"Q3_K_L", WF_Q3_K, WF_MIX_Q3_K_L, 13, "3.4 bits, 5.5 for sensitive matrices"},
    {"Q3_K_S", WF_Q3_K, WF_MIX_NONE, 11, "3.4 bits"},
    {"Q2_K_S", WF_Q2_K, WF_MIX_Q2_K_S, 21, "2.6 bits, more for a few matrices"},
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

/* ---- Rules ---- */

/* Matrices of a layer that rules name. */
typedef enum { NO_PART, ATTN_V, ATTN_OUTPUT, FFN_DOWN } matrix;

static const struct {
    const char *name;
    matrix part;
} parts[] = {
    {"attn_v.weight", ATTN_V},
    {"attn_qkv.weight", ATTN_V}, /* one matrix with the values in it */
    {"attn_output.weight", ATTN_OUTPUT},
    {"ffn_down.weight", FFN_DOWN},
};

/* The layers, or the models, that a rule is for. */
typedef enum {
    ALWAYS,
    FIRST_TWO,
    FIRST_FOUR,
    FIRST_EIGHTH,    /* layers before layers / 8 */
    FIRST_SIXTEENTH, /* layers before layers / 16 */
    ABOUT_HALF,      /* the first and the last eighth, and every third layer between */
    GROUPED,         /* at least four query heads share a value head: more bits cost little */
    WEIGHED,         /* FIRST_EIGHTH with an importance matrix */
    UNWEIGHED        /* FIRST_EIGHTH without one */
} condition;

/* The first rule that applies decides. */
static const struct {
    wf_recipe_mix mix;
    matrix part;
    condition when;
    wf_type type;
} rules[] = {
    {WF_MIX_Q2_K, ATTN_V, GROUPED, WF_Q4_K},
    {WF_MIX_Q2_K, ATTN_V, ALWAYS, WF_Q3_K},
    {WF_MIX_Q2_K, ATTN_OUTPUT, ALWAYS, WF_Q3_K},
    {WF_MIX_Q2_K, FFN_DOWN, ALWAYS, WF_Q3_K},
    {WF_MIX_Q2_K_S, ATTN_V, GROUPED, WF_Q4_K},
    {WF_MIX_Q2_K_S, FFN_DOWN, FIRST_EIGHTH, WF_Q4_K},
    {WF_MIX_Q3_K_M, ATTN_V, FIRST_TWO, WF_Q5_K},
    {WF_MIX_Q3_K_M, ATTN_V, ALWAYS, WF_Q4_K},
    {WF_MIX_Q3_K_M, ATTN_OUTPUT, ALWAYS, WF_Q4_K},
    {WF_MIX_Q3_K_M, FFN_DOWN, FIRST_SIXTEENTH, WF_Q5_K},
    {WF_MIX_Q3_K_M, FFN_DOWN, ALWAYS, WF_Q4_K},
    {WF_MIX_Q3_K_L, ATTN_V, ALWAYS, WF_Q5_K},
    {WF_MIX_Q3_K_L, ATTN_OUTPUT, ALWAYS, WF_Q5_K},
    {WF_MIX_Q3_K_L, FFN_DOWN, ALWAYS, WF_Q5_K},
    {WF_MIX_Q4_0, FFN_DOWN, WEIGHED, WF_Q4_1},
    {WF_MIX_Q4_K_S, ATTN_V, FIRST_FOUR, WF_Q5_K},
    {WF_MIX_Q4_K_S, FFN_DOWN, FIRST_EIGHTH, WF_Q5_K},
    {WF_MIX_Q4_K_M, ATTN_V, ABOUT_HALF, WF_Q6_K},
    {WF_MIX_Q4_K_M, FFN_DOWN, ABOUT_HALF, WF_Q6_K},
    {WF_MIX_Q5_0, FFN_DOWN, WEIGHED, WF_Q5_1},
    {WF_MIX_Q5_K_M, ATTN_V, ABOUT_HALF, WF_Q6_K},
    {WF_MIX_Q5_K_M, FFN_DOWN, ABOUT_HALF, WF_Q6_K},
    {WF_MIX_IQ4, ATTN_V, GROUPED, WF_Q5_K},
    {WF_MIX_IQ4, FFN_DOWN, UNWEIGHED, WF_Q5_K},
};

static bool applies(condition when, const wf_recipe_use *use, int layer)
{
    const int64_t layers = use->config->layers;
    switch (when) {
    case ALWAYS: return true;
    case FIRST_TWO: return layer < 2;
    case FIRST_FOUR: return layer < 4;
    case FIRST_EIGHTH: return layer < layers / 8;
    case FIRST_SIXTEENTH: return layer < layers / 16;
    case ABOUT_HALF:
        return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
    case GROUPED: return use->config->all.heads / use->config->all.kv_heads >= 4;
    case WEIGHED: return use->weighed && layer < layers / 8;
    case UNWEIGHED: return !use->weighed && layer < layers / 8;
    }
    return false;
}

/* Returns whether llama.cpp takes the model for one with 70 billion parameters, whose attn_v is an
 * eighth of attn_q. */
static bool is_70b(const wf_config *c)
{
    return c->layers == 80 &&
           (strcmp(c->family->name, "qwen2") == 0 ||
            (strcmp(c->family->name, "llama") == 0 && c->all.heads != c->all.kv_heads));
}

/* Returns the type that the rules give a matrix of a layer, `type` if no rule applies. */
static wf_type by_rules(wf_recipe_mix mix, const wf_recipe_use *use, const char *name, wf_type type)
{
    int layer, used = 0;
    matrix part = NO_PART;
    if (sscanf(name, "blk.%d.%n", &layer, &used) != 1 || used == 0)
        return type;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (strcmp(name + used, parts[i].name) == 0)
            part = parts[i].part;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].mix == mix && rules[i].part == part && applies(rules[i].when, use, layer)) {
            type = rules[i].type;
            break;
        }
    bool more = part == ATTN_V && is_70b(use->config);
    return more && (type == WF_Q3_K || type == WF_Q4_K) ? WF_Q5_K : type;
}

/* ---- Rows that blocks do not divide ---- */

wf_type wf_recipe_stand_in(wf_type type)
{
#define ROW(A, NAME, name, word, block, bytes, gguf, file_type, mix, stand_in, ...) \
    [WF_##NAME] = WF_##stand_in,
    static const wf_type other[WF_TYPE_COUNT] = {WF_QUANT_TABLE(ROW, 0)};
#undef ROW
    return other[type];
}

/* A stand-in has at least the bits of the type it replaces. */
static wf_type with_whole_blocks(wf_type type, int64_t columns)
{
    /* Ends: stand-ins have smaller blocks, down to a plain type with blocks of one element. */
    while (columns % wf_type_get(type)->block != 0)
        type = wf_recipe_stand_in(type);
    return type;
}

wf_type wf_recipe_type(const wf_recipe *r, const wf_recipe_use *use, const char *name,
                       int64_t columns)
{
    wf_type type = r->type;
    if (strcmp(name, "position_embd.weight") == 0)
        return WF_F32;
    if (wf_type_get(type)->kind != WF_KIND_BLOCK)
        return type;
    if (!use->pure) {
        bool output = strcmp(name, use->config->tied ? "token_embd.weight" : "output.weight") == 0;
        if (output)
            type = type == WF_Q8_0 ? WF_Q8_0 : WF_Q6_K;
        else
            type = by_rules(r->mix, use, name, type);
    }
    return with_whole_blocks(type, columns);
}
