/* SPDX-License-Identifier: MIT */
/*
 * model.c - opens a GGUF file or a Hugging Face folder as a model, and validates all of it.
 *
 * Order: map the files, read the config, bind every weight to a tensor, then name, template,
 * sampling settings and tokenizer. Nothing is copied but strings; weights stay in the mapped files,
 * which live until wf_model_close.
 */
#include "model/model.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/family.h"

/* ---- Tokenizers ---- */

/* Adds the ids of eos_token_id, a number or a list, to the tokens that end a text. */
static wf_status add_ends(wf_model *m, const char *what, const wf_json_node *config)
{
    const wf_json_node *eos = wf_json_get(config, "eos_token_id");
    if (!eos || eos->kind == WF_JSON_NULL)
        return WF_OK;
    const wf_json_node *id = eos->kind == WF_JSON_ARRAY ? eos->child : eos;
    size_t count = eos->kind == WF_JSON_ARRAY ? eos->count : 1;
    for (size_t i = 0; i < count; i++)
        if (id[i].kind == WF_JSON_NUMBER && id[i].whole && id[i].integer >= 0 &&
            id[i].integer < wf_tokenizer_count(m->tokenizer))
            wf_tokenizer_add_end(m->tokenizer, (int32_t)id[i].integer);
        else
            WF_TRY(wf_sampling_remark(
                &m->arena, &m->sampling,
                "%s: eos_token_id must list tokens from 0 to %d; a value out of range is ignored",
                what, wf_tokenizer_count(m->tokenizer) - 1));
    return WF_OK;
}

/* A model with an unreadable tokenizer still opens; m->no_tokenizer keeps the reason. */
static wf_status open_tokenizer(wf_model *m)
{
    wf_status status = m->gguf ? wf_tokenizer_from_gguf(m->gguf, &m->tokenizer)
                               : wf_tokenizer_from_folder(m->ctx, m->path, &m->tokenizer);
    if (status == WF_ERR_MEMORY)
        return status;
    if (status != WF_OK) {
        m->tokenizer = NULL;
        m->no_tokenizer = wf_arena_strdup(&m->arena, wf_ctx_message(m->ctx));
        wf_ctx_clear(m->ctx);
        return m->no_tokenizer ? WF_OK : WF_ERR_MEMORY;
    }
    if (m->folder) {
        WF_TRY(add_ends(m, "config.json", m->folder->config));
        WF_TRY(add_ends(m, "generation_config.json", m->folder->generation));
    }
    /* A token without a row of the embedding would read out of bounds. */
    if (wf_tokenizer_count(m->tokenizer) > m->config.vocab)
        return wf_fail(m->ctx, WF_ERR_FORMAT,
                       "%s: the tokenizer has %d tokens, more than the %lld row%s of the embedding",
                       wf_store_base_name(m->path), wf_tokenizer_count(m->tokenizer),
                       (long long)m->config.vocab, WF_PLURAL(m->config.vocab));
    return WF_OK;
}

/* ---- Files ---- */

static wf_status open_gguf(wf_model *m)
{
    WF_TRY(wf_gguf_open(m->ctx, m->path, &m->gguf));
    m->store = &m->gguf->store;
    WF_TRY(wf_config_from_gguf(&m->arena, wf_store_base_name(m->path), m->gguf, &m->config));
    const wf_stored *table = wf_store_find(m->store, "token_embd.weight");
    /* Files without the key: the embedding has one row per token. */
    if (m->config.vocab == 0 && table && table->shape.n == 2)
        m->config.vocab = table->shape.d[0];
    return WF_OK;
}

static wf_status open_folder(wf_model *m)
{
    WF_TRY(wf_folder_open(m->ctx, m->path, &m->folder));
    m->store = &m->folder->store;
    return wf_config_from_json(&m->arena, "config.json", m->folder->config, &m->config);
}

static wf_status open_file(wf_model *m)
{
    wf_format_kind kind;
    WF_TRY(wf_format_detect(m->ctx, m->path, &kind));
    WF_TRY(kind == WF_FORMAT_GGUF ? open_gguf(m) : open_folder(m));
    if (m->config.vocab < 1 || m->config.vocab > INT32_MAX)
        return wf_fail(m->ctx, WF_ERR_FORMAT, "%s: a vocabulary of %lld tokens is not possible",
                       wf_store_base_name(m->path), (long long)m->config.vocab);
    return wf_model_bind(m);
}

/* ---- Info ---- */

/* Copies bytes to the arena as a string. */
static const char *keep(wf_model *m, const char *bytes, size_t len)
{
    char *text = bytes ? wf_arena_alloc(&m->arena, len + 1) : NULL;
    return text ? memcpy(text, bytes, len) : NULL;
}

/* Returns the last component of the path, for models without a name. */
static const char *own_name(wf_model *m)
{
    const char *base = wf_store_base_name(m->path);
    size_t len = strlen(base);
    while (len > 1 && base[len - 1] == '/')
        len--;
    return keep(m, base, len);
}

void wf_model_describe(wf_model *m, const char *format)
{
    const wf_config *c = &m->config;
    wf_model_info *i = &m->info;
    int skipped = i->skipped; /* wf_model_bind counted them */
    *i = (wf_model_info){
        .skipped = skipped,
        .family = c->family->name,
        .format = format,
        .layers = c->layers,
        .width = c->width,
        .heads = c->all.heads,
        .kv_heads = c->all.kv_heads,
        .head_dim = c->all.key_dim,
        .hidden = c->all.hidden,
        .vocab = c->vocab,
        .context = c->context,
        .window = wf_config_window(c),
        .rope_base = c->rope[0].base,
        .tied = c->tied,
        .files = m->store->files,
    };
    for (int w = 0; w < m->weights; w++) {
        i->parameters += wf_dims_count(&m->weight[w].shape);
        i->bytes += wf_weight_stored_bytes(&m->weight[w]);
    }
}

/* Sets name, format and templates. */
static wf_status fill_info(wf_model *m)
{
    wf_model_info *i = &m->info;
    wf_model_describe(m, "safetensors");
    if (m->folder) {
        i->chat_template = m->folder->chat_template;
        m->tool_template = m->folder->tool_template;
        i->name = own_name(m);
    } else {
        wf_gguf_text name, template, tool;
        i->format = m->gguf->version == 2 ? "GGUF v2" : "GGUF v3";
        WF_TRY(wf_gguf_get_text(m->gguf, "general.name", &name));
        WF_TRY(wf_gguf_get_text(m->gguf, WF_KEY_CHAT_TEMPLATE, &template));
        WF_TRY(wf_gguf_get_text(m->gguf, WF_KEY_TOOL_TEMPLATE, &tool));
        i->name = name.len ? keep(m, name.bytes, name.len) : own_name(m);
        i->chat_template = keep(m, template.bytes, template.len);
        m->tool_template = keep(m, tool.bytes, tool.len);
    }
    return i->name ? WF_OK : WF_ERR_MEMORY;
}

/* On failure everything opened so far is closed; the context keeps the message. */
wf_status wf_model_open(wf_ctx *ctx, const char *path, wf_model **out)
{
    *out = NULL;
    wf_model *m = wf_mem_new(ctx, sizeof *m);
    if (!m)
        return WF_ERR_MEMORY;
    m->ctx = ctx;
    wf_arena_init(&m->arena, ctx);
    m->path = wf_arena_strdup(&m->arena, path);
    wf_status status = m->path ? open_file(m) : WF_ERR_MEMORY;
    if (status == WF_OK)
        status = fill_info(m);
    if (status == WF_OK)
        status = m->gguf ? wf_sampling_from_gguf(&m->arena, m->gguf, &m->sampling)
                         : wf_sampling_from_json(&m->arena, m->folder->generation, &m->sampling);
    if (status == WF_OK)
        status = open_tokenizer(m);
    if (status == WF_OK)
        *out = m;
    else
        wf_model_close(m);
    return status;
}

void wf_model_close(wf_model *m)
{
    if (!m)
        return;
    if (!m->tokenizer_borrowed)
        wf_tokenizer_free(m->tokenizer);
    wf_gguf_close(m->gguf);
    wf_folder_close(m->folder);
    wf_mem_free(m->ctx, m->weight);
    wf_arena_free(&m->arena);
    wf_mem_free(m->ctx, m);
}

void wf_model_get_info(const wf_model *m, wf_model_info *out)
{
    *out = m->info;
}

bool wf_model_weight(const wf_model *m, int index, wf_info *out)
{
    if (index < 0 || index >= m->weights)
        return false;
    const wf_model_weight_info *w = &m->weight[index];
    *out = (wf_info){.name = w->name, .type = w->type, .rank = (int)w->shape.n};
    memcpy(out->dim, w->shape.d, sizeof out->dim);
    out->bytes = wf_type_bytes(w->type, wf_dims_count(&w->shape));
    return true;
}

const wf_tokenizer *wf_model_tokenizer(const wf_model *m)
{
    return m->tokenizer;
}
