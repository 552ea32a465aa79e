/* SPDX-License-Identifier: MIT */
/*
 * blank.c - models without a file; see blank.h.
 *
 * The model has a config and a list of f32 weights without data. Their values come from the fetch
 * function when they are needed. The tokenizer is borrowed.
 */
#include "model/blank.h"

#include "base/mem.h"
#include "model/family.h"

static wf_status add_weight(wf_model *m, wf_stored *stored, wf_source *source, const wf_node *n)
{
    const wf_value *v = &n->out[0];
    const char *name = wf_arena_strdup(&m->arena, n->name);
    if (!name)
        return WF_ERR_MEMORY;
    *stored = (wf_stored){.name = name,
                          .type = WF_F32,
                          .type_name = "F32",
                          .shape = v->shape,
                          .bytes = wf_type_bytes(WF_F32, wf_dims_count(&v->shape))};
    *source =
        (wf_source){.from = stored,
                    .rows = v->shape.n > 1 ? wf_dims_rows(&v->shape) : wf_dims_count(&v->shape),
                    .step = 1};
    m->weight[m->weights++] = (wf_model_weight_info){name, WF_F32, v->shape, source, 1};
    return WF_OK;
}

/* Lists the weights: the states of the smallest graph that contains them all. */
static wf_status list_weights(wf_model *m, wf_graph *g)
{
    const wf_build_options options = {.form = WF_FORM_TRAIN, .tokens = 1, .sequences = 1};
    wf_model_graph(g, &m->config, &options, NULL);
    WF_TRY(wf_graph_status(g));
    size_t most = (size_t)g->node_count;
    wf_stored *stored = wf_arena_alloc(&m->arena, most * sizeof *stored);
    wf_source *source = wf_arena_alloc(&m->arena, most * sizeof *source);
    m->weight = wf_mem_array(m->ctx, most, sizeof *m->weight);
    if (!stored || !source || !m->weight)
        return WF_ERR_MEMORY;
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state)
            WF_TRY(add_weight(m, stored++, source++, g->nodes[i]));
    return WF_OK;
}

static wf_status fill(wf_model *m, const wf_blank *b)
{
    wf_graph *g;
    m->config = *b->config;
    m->tokenizer_borrowed = true;
    m->tokenizer = (wf_tokenizer *)(uintptr_t)b->tokenizer; /* wf_model never changes it */
    if (b->sampling)
        m->sampling = *b->sampling;
    m->fetch = b->fetch;
    m->fetch_user = b->user;
    wf_store_init(&m->nowhere, m->ctx);
    /* An empty store, so that code for files needs no special case. */
    m->store = &m->nowhere;
    m->path = wf_arena_strdup(&m->arena, "");
    m->no_tokenizer = "the model was created without a tokenizer";
    const char *name = wf_arena_strdup(&m->arena, b->name);
    const char *template = b->chat_template ? wf_arena_strdup(&m->arena, b->chat_template) : NULL;
    if (!m->path || !name || (b->chat_template && !template))
        return WF_ERR_MEMORY;
    WF_TRY(wf_graph_new(m->ctx, &g));
    wf_status status = list_weights(m, g);
    wf_graph_free(g);
    WF_TRY(status);
    wf_model_describe(m, "in memory");
    m->info.name = name;
    m->info.chat_template = template;
    return WF_OK;
}

wf_status wf_model_new(wf_ctx *ctx, const wf_blank *blank, wf_model **out)
{
    *out = NULL;
    WF_TRY(wf_config_check(ctx, blank->name, blank->config));
    wf_model *m = wf_mem_new(ctx, sizeof *m);
    if (!m)
        return WF_ERR_MEMORY;
    m->ctx = ctx;
    wf_arena_init(&m->arena, ctx);
    wf_status status = fill(m, blank);
    if (status == WF_OK)
        *out = m;
    else
        wf_model_close(m);
    return status;
}
