/* SPDX-License-Identifier: MIT */
/*
 * example.c - the table of example shapes, and their graphs.
 *
 * Examples have shapes but no weights: benchmarks, plans and tests build their graphs without a
 * file.
 */
#include "model/example.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/text.h"
#include "model/family.h"

/* ---- The family of examples/tiny_trainer.c, which has no file format ---- */

static wf_value *tiny_attention(wf_builder *b, wf_value *x)
{
    const wf_config *c = b->config;
    const wf_layer *l = wf_builder_layer(b);
    const int64_t C = l->heads * l->key_dim;
    wf_value *qkv = wf_part_linear(b, x, "attn_qkv", 3 * C, false), *part[3];
    for (int i = 0; i < 3; i++)
        part[i] = wf_part_heads(b, wf_slice(b->g, qkv, 1, i * C, (i + 1) * C), l->heads);
    wf_value *q = wf_part_rope(b, part[0]), *k = wf_part_rope(b, part[1]);
    return wf_part_linear(b, wf_part_attend(b, q, k, part[2]), "attn_output", c->width, false);
}

static wf_value *tiny_block(wf_builder *b, wf_value *x)
{
    x = wf_part_add(b, x, tiny_attention(b, wf_part_norm(b, x, "attn_norm")));
    wf_value *h = wf_part_norm(b, x, "ffn_norm");
    h = wf_unary(b->g, "gelu", wf_part_linear(b, h, "ffn_up", wf_builder_layer(b)->hidden, false));
    return wf_part_add(b, x, wf_part_linear(b, h, "ffn_down", b->config->width, false));
}

static const wf_family tiny = {
    .name = "tiny", .rotary = true, .fused_qkv = true, .block = tiny_block};

/* ---- Shapes ---- */

/* clang-format off */
const wf_example wf_examples[] = {
    /* layers vocab  context width heads kv  D   hidden tied batch */
    {"gpt2-124M",  "GPT-2, the smallest", &wf_family_gpt2,  12,   50257, 1024,   768,  12,   12, 64, 3072, true,  4},
    {"gpt2-350M",  "GPT-2 medium",        &wf_family_gpt2,  24,   50257, 1024,   1024, 16,   16, 64, 4096, true,  4},
    {"gpt2-1558M", "GPT-2 XL",            &wf_family_gpt2,  48,   50257, 1024,   1600, 25,   25, 64, 6400, true,  1},
    {"llama-30M",  "Llama, small and tied", &wf_family_llama, 10, 32000, 2048,  384,  6,    2,  64, 1024, true,  8},
    {"llama-120M", "Llama, tied head",    &wf_family_llama, 12,   32000, 2048,   768,  12,   4,  64, 2816, true,  4},
    {"llama-350M", "Llama, medium and tied", &wf_family_llama, 24, 32000, 2048, 1024, 16,   4,  64, 3584, true,  2},
    {"llama-1B",   "TinyLlama 1.1B",      &wf_family_llama, 22,   32000, 2048,   2048, 32,   4,  64, 5632, false, 1},
    {"tiny",       "tiny_trainer's model", &tiny,  3,    128,   64,     96,   4,    4,  24, 384,  false, 16},
    {0},
};
/* clang-format on */
#define EXAMPLES ((int)(sizeof wf_examples / sizeof *wf_examples) - 1)

wf_status wf_example_find(wf_ctx *ctx, const char *name, const wf_example **out)
{
    const char *names[EXAMPLES];
    char known[256];
    size_t len = 0;
    for (int i = 0; i < EXAMPLES; i++) {
        *out = &wf_examples[i];
        names[i] = wf_examples[i].name;
        if (strcmp(name, names[i]) == 0)
            return WF_OK;
        wf_text_append(known, sizeof known, &len, "%s%s", i ? ", " : "", names[i]);
    }
    *out = NULL;
    const char *near = wf_text_nearest(name, names, EXAMPLES);
    if (near)
        return wf_fail(ctx, WF_ERR_USAGE, "unknown example '%s'; did you mean '%s'?", name, near);
    return wf_fail(ctx, WF_ERR_USAGE, "unknown example '%s'; use one of: %s", name, known);
}

/* ---- Training ---- */

/* Adds an AdamW step for every parameter p, with moments m.p and v.p. */
static void update(wf_graph *g, wf_value *const *params, wf_value *const *grads, int n)
{
    const wf_adamw_options options = {.beta2 = 0.95, .weight_decay = 0.1};
    wf_value *lr = wf_input(g, "lr", WF_F32, 0, NULL), *step = wf_input(g, "step", WF_I32, 0, NULL);
    wf_value *one = wf_fill(g, WF_F32, 0, NULL, 1), *length = wf_global_norm(g, grads, n);
    /* 1 / max(norm, 1): clips the global norm to 1. */
    wf_value *scale = wf_binary(g, "div", one, wf_binary(g, "maximum", length, one));
    for (int i = 0; i < n; i++) {
        wf_value *moment[2];
        for (int k = 0; k < 2; k++) {
            char name[128];
            const char *of = params[i]->node->name;
            snprintf(name, sizeof name, "%s.%s", k == 0 ? "m" : "v", of);
            moment[k] = wf_state_like(g, name, params[i]);
        }
        wf_adamw(g, params[i], moment[0], moment[1], grads[i], lr, step, scale, NULL, &options);
    }
}

/* Adds the gradient, clipping and updates. */
static wf_status train(wf_graph *g, wf_value *loss)
{
    wf_status status = WF_ERR_MEMORY;
    /* More than enough: the parameters are nodes. */
    size_t most = (size_t)g->node_count;
    wf_value **params = wf_mem_array(g->ctx, most, sizeof *params);
    wf_value **grads = wf_mem_array(g->ctx, most, sizeof *grads);
    int n = 0;
    if (!params || !grads)
        goto done;
    for (int i = 0; i < g->node_count; i++) {
        wf_value *v = &g->nodes[i]->out[0];
        if (g->nodes[i]->op == WF_OP_state && v->shape.n > 0 &&
            wf_type_bit(v->type) & WF_TYPES_FLOAT)
            params[n++] = v;
    }
    status = wf_grad(g, loss, params, n, grads);
    if (status == WF_OK)
        update(g, params, grads, n);
done:
    wf_mem_free(g->ctx, params);
    wf_mem_free(g->ctx, grads);
    return status;
}

/* Adds the mean loss over all tokens, its gradient and the updates. before_grad may replace the
 * graph, for example by one of another precision. */
static wf_status finish_training(wf_graph **g, wf_value *logits, wf_value *targets,
                                 const wf_example_options *o)
{
    wf_value *losses = wf_cross_entropy(*g, logits, targets, NULL);
    wf_value *loss = wf_reduce(*g, "mean", losses, WF_AXIS(0), false);
    WF_TRY(wf_output(*g, "loss", loss));
    if (o->before_grad)
        WF_TRY(o->before_grad(o->user, g, &loss));
    return train(*g, loss);
}

/* ---- Building ---- */

wf_config wf_example_config(const wf_example *e)
{
    return (wf_config){
        .family = e->family,
        .type = e->family->types,
        .layers = e->layers,
        .vocab = e->vocab,
        .context = e->context,
        .width = e->width,
        .all = {.heads = e->heads,
                .kv_heads = e->kv_heads,
                .key_dim = e->head_dim,
                .value_dim = e->head_dim,
                .hidden = e->hidden},
        .eps = 1e-5,
        .tied = e->tied,
        .rope = {{.base = 10000, .dims = e->head_dim}},
        .ropes = e->family->rotary ? 1 : 0,
    };
}

/* The product of batch and length is checked, because graphs index tokens with 32 bits. */
static wf_status choose_sizes(wf_ctx *ctx, const wf_example *e, const wf_example_options *o,
                              wf_build_options *build)
{
    static const wf_build_form forms[] = {
        [WF_EXAMPLE_TRAIN] = WF_FORM_TRAIN,
        [WF_EXAMPLE_PREFILL] = WF_FORM_PREFILL,
        [WF_EXAMPLE_DECODE] = WF_FORM_STEP,
    };
    int64_t batch = o->batch ? o->batch : e->batch, length = o->length ? o->length : e->context;
    int64_t page = o->page ? o->page : 16;
    if (batch < 1 || length < 1 || page < 1)
        return wf_fail(ctx, WF_ERR_USAGE, "batch, length and page must be positive");
    if (length > e->context)
        return wf_fail(ctx, WF_ERR_USAGE, "length %lld exceeds the context of %s, %lld",
                       (long long)length, e->name, (long long)e->context);
    if (batch > INT32_MAX / length)
        return wf_fail(ctx, WF_ERR_USAGE, "a batch of %lld is too large", (long long)batch);
    *build = (wf_build_options){
        .form = forms[o->form],
        .tokens = o->form == WF_EXAMPLE_DECODE ? batch : batch * length,
        .sequences = batch,
        .length = length,
        .rows = o->form == WF_EXAMPLE_PREFILL ? batch : 0,
        .kv = WF_F32,
    };
    /* Whole sequences fill every page, also those that a window has passed. */
    int64_t pages = (length - 1) / page + 1;
    for (int i = 0; i < WF_MOST_CACHES; i++)
        build->cache[i] = (wf_cache_size){.page = page, .pages = pages, .pool = batch * pages};
    return WF_OK;
}

static wf_status build(wf_graph **g, const wf_config *config, const wf_build_options *b,
                       const wf_example_options *o)
{
    wf_value *logits = wf_model_graph(*g, config, b, NULL);
    if (o->form != WF_EXAMPLE_TRAIN)
        WF_TRY(wf_output(*g, "logits", logits));
    else
        WF_TRY(finish_training(g, logits, wf_input(*g, "targets", WF_I32, 1, &b->tokens), o));
    return wf_graph_status(*g);
}

wf_status wf_example_build(wf_ctx *ctx, const char *name, const wf_example_options *options,
                           wf_graph **out)
{
    const wf_example_options defaults = {0}, *o = options ? options : &defaults;
    const wf_example *example;
    wf_build_options b;
    wf_graph *g;
    *out = NULL;
    WF_TRY(wf_example_find(ctx, name, &example));
    WF_TRY(choose_sizes(ctx, example, o, &b));
    const wf_config config = wf_example_config(example);
    WF_TRY(wf_graph_new(ctx, &g));
    wf_status status = build(&g, &config, &b, o);
    if (status == WF_OK)
        *out = g;
    else
        wf_graph_free(g);
    return status;
}
