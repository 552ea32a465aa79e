/* SPDX-License-Identifier: MIT */
/* config.c - config.json of Hugging Face folders. Every accepted config gives valid graphs. */
#include "fuzz.h"

#include "model/build.h"
#include "model/family.h"

#define MOST 4 /* layers in a graph; any prefix of the layers is a model */

static void build(wf_ctx *ctx, const wf_config *c, wf_build_form form)
{
    wf_build_options o = {.form = form,
                          .tokens = 3,
                          .sequences = 2,
                          .rows = form == WF_FORM_TRAIN ? 0 : 2,
                          .kv = WF_F16,
                          .given_frequencies = c->family->rotary};
    wf_model_values values;
    wf_graph *g;
    for (int i = 0; i < WF_MOST_CACHES; i++)
        o.cache[i] = (wf_cache_size){.page = 16, .pages = 2, .pool = 4};
    if (!fuzz_ok(ctx, wf_graph_new(ctx, &g)))
        return;
    wf_value *logits = wf_model_graph(g, c, &o, &values);
    if (fuzz_ok(ctx, wf_graph_status(g))) {
        fuzz_check(logits->shape.n == 2 && logits->shape.d[1] == c->vocab);
        fuzz_check(logits->shape.d[0] == (o.rows ? o.rows : o.tokens));
        fuzz_check(values.hidden->shape.d[1] == c->width);
    }
    wf_graph_free(g);
}

static void check_layers(const wf_config *c)
{
    for (int64_t i = 0; i < c->layers; i++) {
        const wf_layer *l = wf_config_layer(c, i);
        fuzz_check(l->heads > 0 && l->kv_heads > 0 && l->heads % l->kv_heads == 0);
        fuzz_check(l->key_dim > 0 && l->value_dim > 0 && l->hidden > 0 && l->window >= 0);
        fuzz_check(l->rope < WF_MOST_ROPES && l->shares >= 0 && l->shares <= i);
    }
}

static void run(wf_ctx *ctx, const uint8_t *data, size_t size)
{
    wf_arena arena;
    wf_json_node *root;
    wf_config c;
    wf_arena_init(&arena, ctx);
    if (wf_json_parse(&arena, "input", (const char *)data, size, &root) == WF_OK &&
        wf_config_from_json(&arena, "input", root, &c) == WF_OK) {
        fuzz_check(c.family && c.type && c.layers > 0 && c.width > 0 && c.eps >= 0);
        check_layers(&c);
        c.layers = c.layers < MOST ? c.layers : MOST;
        /* wf_model_open refuses other vocabularies. */
        if (c.vocab > 0 && c.vocab <= INT32_MAX)
            for (int form = WF_FORM_TRAIN; form <= WF_FORM_STEP; form++)
                build(ctx, &c, (wf_build_form)form);
    }
    wf_arena_free(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_run(run, (fuzz_room){1 << 19, 256}, data, size);
}
