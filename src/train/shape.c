/* SPDX-License-Identifier: MIT */
/*
 * shape.c - chooses the sizes of a new model: from a preset, a depth or a config.json.
 *
 * The vocabulary comes from the tokenizer, rounded up; the context from the training length. The
 * result passes wf_config_check like any config from a file.
 */
#include "train/shape.h"

#include "base/file.h"
#include "base/mem.h"
#include "model/example.h"
#include "model/family.h"

#define LONGEST 1024                   /* default limit of the context */
#define CONFIG_BYTES ((size_t)1 << 20) /* limit of a config.json */

/* Rounds up to whole vectors and tiles of the classifier on every device. */
static int64_t round_vocab(int64_t tokens)
{
    return (tokens + 63) / 64 * 64;
}

bool wf_shape_preset(int index, const char **name, const char **doc)
{
    for (const wf_example *e = wf_examples; e->name; e++)
        if (e->family->weights && index-- == 0) {
            *name = e->name;
            *doc = e->doc;
            return true;
        }
    return false;
}

static wf_status from_preset(wf_ctx *ctx, const char *preset, wf_config *out)
{
    const wf_example *e;
    WF_TRY(wf_example_find(ctx, preset, &e));
    if (!e->family->weights)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the example '%s' is for planning only: no file format can hold its weights",
                       preset);
    *out = wf_example_config(e);
    return WF_OK;
}

/* A Llama with heads of 64 dimensions and as many heads as layers, at least four: width, depth and
 * MLP grow together, as in published models. */
static wf_status from_depth(wf_ctx *ctx, int64_t depth, wf_config *out)
{
    if (depth < 1 || depth > 256)
        return wf_fail(ctx, WF_ERR_USAGE, "a depth of %lld layers is not possible; use 1 to 256",
                       (long long)depth);
    int64_t heads = depth < 4 ? 4 : depth, width = 64 * heads;
    *out = (wf_config){
        .family = &wf_family_llama,
        .type = wf_family_llama.types,
        .layers = depth,
        .context = LONGEST / 2,
        .width = width,
        .all =
            {.heads = heads,
             /* Grouped-query attention with 4 query heads per KV head, once there are enough heads. */
             .kv_heads = heads % 4 == 0 && heads >= 12 ? heads / 4 : heads,
             .key_dim = 64,
             .value_dim = 64,
             /* A gated MLP has three matrices; 8/3 of the width gives it as many parameters as two of 4
         * times the width. */
             .hidden = (width * 8 / 3 + 63) / 64 * 64},
        .eps = 1e-5,
        .tied = depth <= 24,
        .rope = {{.base = 10000, .dims = 64}},
        .ropes = 1,
    };
    return WF_OK;
}

static wf_status from_file(wf_arena *arena, const char *path, wf_config *out)
{
    char *text;
    size_t bytes;
    wf_json_node *json;
    WF_TRY(wf_file_read(arena->ctx, path, CONFIG_BYTES, &text, &bytes));
    wf_status status = wf_json_parse(arena, path, text, bytes, &json);
    wf_mem_free(arena->ctx, text);
    WF_TRY(status);
    return wf_config_from_json(arena, path, json, out);
}

wf_status wf_shape_choose(wf_arena *arena, const char *preset, int64_t depth, const char *config,
                          int64_t tokens, int64_t length, wf_config *out)
{
    wf_ctx *ctx = arena->ctx;
    int given = (preset != NULL) + (depth != 0) + (config != NULL);
    if (given != 1)
        return wf_fail(
            ctx, WF_ERR_USAGE, "%s; give one of --preset NAME, --depth N and --config FILE",
            given ? "the model's shape is given more than once" : "the model's shape is missing");
    WF_TRY(preset  ? from_preset(ctx, preset, out)
           : depth ? from_depth(ctx, depth, out)
                   : from_file(arena, config, out));
    out->vocab = round_vocab(tokens);
    out->context = length ? length : out->context < LONGEST ? out->context : LONGEST;
    return wf_config_check(ctx, preset ? preset : config ? config : "the model", out);
}

/* Builds the smallest graph and counts its states, so that no second formula can disagree. */
wf_status wf_shape_parameters(wf_ctx *ctx, const wf_config *c, int64_t *out)
{
    const wf_build_options options = {.form = WF_FORM_TRAIN, .tokens = 1, .sequences = 1};
    wf_graph *g;
    *out = 0;
    WF_TRY(wf_graph_new(ctx, &g));
    wf_model_graph(g, c, &options, NULL);
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state)
            *out += wf_dims_count(&g->nodes[i]->out[0].shape);
    wf_status status = wf_graph_status(g);
    wf_graph_free(g);
    return status;
}
