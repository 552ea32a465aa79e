/* SPDX-License-Identifier: MIT */
/*
 * convert_gguf.c - writes a model as a GGUF file: keys and tensors. config_gguf.c reads them.
 *
 * From a GGUF input all keys are copied, known or not. From a folder they are made; properties that
 * GGUF's keys cannot hold exactly go into weft.rope_parameters, and a warning names what llama.cpp
 * would compute differently.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "model/config_json.h"
#include "model/convert.h"

#define QUANTIZATION_VERSION 2 /* GGUF's version of the block layouts */

/* ---- Keys ---- */

typedef struct {
    wf_gguf_writer *w;
    const char *family;
    /* Buffer of key(). */
    char key[128];
} keys;

/* Returns "ARCHITECTURE.name". Valid until the next call. */
static const char *key(keys *k, const char *name)
{
    snprintf(k->key, sizeof k->key, "%s.%s", k->family, name);
    return k->key;
}

static wf_status put_int(keys *k, const char *name, int64_t value)
{
    return wf_gguf_write_int(k->w, key(k, name), WF_GGUF_U32, value);
}

static wf_status put_float(keys *k, const char *name, double value)
{
    return wf_gguf_write_float(k->w, key(k, name), value);
}

static wf_status put_text(keys *k, const char *key, const char *text)
{
    return wf_gguf_write_text(k->w, key, text, strlen(text));
}

/* Writes an array with the row's value of each layer. */
static wf_status put_array(const wf_convert *c, keys *k, const wf_key *row)
{
    const wf_config *config = &c->m->config;
    int32_t *values = wf_mem_array(c->ctx, (size_t)config->layers, sizeof *values);
    if (!values)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < config->layers; i++)
        values[i] =
            (int32_t) * (const int64_t *)wf_key_value(row, config, wf_config_layer(config, i));
    wf_status status =
        wf_gguf_write_array(k->w, key(k, row->gguf), WF_GGUF_I32, values, (size_t)config->layers);
    wf_mem_free(c->ctx, values);
    return status;
}

/* Returns whether all layers have the same value of a row. */
static bool is_uniform(const wf_key *row, const wf_config *c)
{
    const int64_t first = *(const int64_t *)wf_key_value(row, c, wf_config_layer(c, 0));
    for (int64_t i = 1; row->per_layer && i < c->layers; i++)
        if (*(const int64_t *)wf_key_value(row, c, wf_config_layer(c, i)) != first)
            return false;
    return true;
}

static wf_status put_key(const wf_convert *c, keys *k, const wf_key *row)
{
    const wf_config *config = &c->m->config;
    const void *value = wf_key_value(row, config, wf_config_layer(config, 0));
    if (row->derived && is_uniform(row, config) &&
        *(const int64_t *)value == config->width / config->all.heads)
        return WF_OK;
    if (row->rule == WF_KEY_REAL) /* 0: the feature is missing */
        return *(const double *)value != 0 ? put_float(k, row->gguf, *(const double *)value)
                                           : WF_OK;
    return is_uniform(row, config) ? put_int(k, row->gguf, *(const int64_t *)value)
                                   : put_array(c, k, row);
}

/* Writes the rows of the family's first type, which have the names of llama.cpp. */
static wf_status put_table(const wf_convert *c, keys *k)
{
    for (const wf_key *row = c->m->config.family->types->keys; row->json || row->gguf; row++)
        if (row->gguf)
            WF_TRY(put_key(c, k, row));
    return WF_OK;
}

static wf_status put_yarn(keys *k, const wf_config *c, const wf_rotary *r)
{
    WF_TRY(put_int(k, "rope.scaling.original_context_length", (int64_t)r->original));
    WF_TRY(put_float(k, "rope.scaling.yarn_beta_fast", r->beta_fast));
    WF_TRY(put_float(k, "rope.scaling.yarn_beta_slow", r->beta_slow));
    if (c->type->q_scale && r->log_multiplier != 0)
        return put_float(k, "rope.scaling.yarn_log_multiplier", r->log_multiplier);
    /* GGUF stores a factor of the default magnitude. */
    double more = wf_rope_magnitude(r) / wf_rope_yarn_magnitude(r->factor, 1);
    return (float)more != 1 ? put_float(k, "rope.scaling.attn_factor", more) : WF_OK;
}

/* longrope: two tensors hold the divisors (add_divisors). */
static wf_status put_long(keys *k, const wf_rotary *r, int64_t context)
{
    double original = r->original != 0 ? r->original : (double)context;
    WF_TRY(put_int(k, "rope.scaling.original_context_length", (int64_t)original));
    return r->scaling == WF_ROPE_LONG
               ? put_float(k, "rope.scaling.attn_factor", wf_rope_magnitude(r))
               : WF_OK;
}

/* Returns whether f32 holds the value exactly. */
static bool is_single(double value)
{
    return (double)(float)value == value;
}

/* Returns whether GGUF's keys, which are f32, hold all parameters without loss. */
static bool held_by_keys(const wf_rotary *r)
{
    double usual = wf_rope_yarn_magnitude(r->factor, 1);
    if (r->scaling == WF_ROPE_PLAIN)
        return is_single(r->base);
    if (r->scaling == WF_ROPE_LINEAR)
        return is_single(r->base) && is_single(r->factor);
    if (r->scaling == WF_ROPE_LONG) /* f32 divisors; the magnitude is a key */
        return is_single(r->base) && is_single(wf_rope_magnitude(r));
    return r->scaling == WF_ROPE_YARN && !r->unrounded && is_single(r->base) &&
           is_single(r->factor) && is_single(r->beta_fast) && is_single(r->beta_slow) &&
           r->original == (double)(int64_t)r->original &&
           (r->magnitude == 0 || (double)(float)(r->magnitude / usual) * usual == r->magnitude);
}

/* Writes the parameters of config.json if GGUF's keys cannot hold them. */
static wf_status put_exact(const wf_convert *c, keys *k, const wf_rotary *r)
{
    char *text;
    size_t bytes;
    if (!r->exact || held_by_keys(r))
        return WF_OK;
    if (r->unrounded)
        wf_ctx_log(c->ctx, WF_LOG_WARN,
                   "GGUF has no key for rope_parameters.truncate = false: Weft reads it from "
                   "weft.rope_parameters, other programs compute as if it were true");
    WF_TRY(wf_convert_rope_json(c->ctx, r, &text, &bytes));
    wf_status status = WF_OK;
    if (bytes <= WF_ROPE_TEXT) /* longrope of huge heads: the keys are within the rounding of f32 */
        status = wf_gguf_write_text(k->w, "weft.rope_parameters", text, bytes);
    wf_mem_free(c->ctx, text);
    return status;
}

/* Mistral 3: the length of its query factor is the original context, whatever the scaling. */
static wf_status put_q_length(const wf_convert *c, keys *k)
{
    const wf_config *config = &c->m->config;
    if (config->q_scale == 0 || config->rope[0].scaling == WF_ROPE_YARN)
        return WF_OK;
    if (config->q_length != (double)(int64_t)config->q_length)
        return wf_fail(c->ctx, WF_ERR_UNSUPPORTED,
                       "GGUF cannot hold an original_max_position_embeddings of %g, which is not a "
                       "whole number",
                       config->q_length);
    return put_int(k, "rope.scaling.original_context_length", (int64_t)config->q_length);
}

/* Writes the rope keys. llama3's scaling has no keys; it is the tensor rope_freqs.weight. */
static wf_status put_rope(const wf_convert *c, keys *k, const wf_rotary *r)
{
    if (r->scaling == WF_ROPE_LINEAR || r->scaling == WF_ROPE_YARN) {
        WF_TRY(put_text(k, key(k, "rope.scaling.type"), wf_rope_scaling_name(r->scaling)));
        WF_TRY(put_float(k, "rope.scaling.factor", r->factor));
    }
    if (r->scaling == WF_ROPE_YARN)
        WF_TRY(put_yarn(k, &c->m->config, r));
    if (c->m->config.type->long_rope)
        WF_TRY(put_long(k, r, c->m->config.context));
    WF_TRY(put_q_length(c, k));
    return put_exact(c, k, r);
}

/* Writes unusual attention scales. Weft reads these keys; llama.cpp does not for these
 * architectures. */
static wf_status put_scale(const wf_convert *c, keys *k)
{
    const wf_config *config = &c->m->config;
    if (config->family->scales) /* the table has the key */
        return WF_OK;
    if (config->scale != 0)
        WF_TRY(put_float(k, "attention.scale", config->scale));
    if (config->scale_by_layer)
        WF_TRY(wf_gguf_write_bool(k->w, "weft.attention.scale_by_inverse_layer", true));
    if (config->scale != 0 || config->scale_by_layer)
        wf_ctx_log(c->ctx, WF_LOG_WARN,
                   "the model scales attention in an unusual way (scale_attn_weights or "
                   "scale_attn_by_inverse_layer_idx), which llama.cpp does not compute");
    return WF_OK;
}

/* A pattern is written if some layers have no window, or if the family has a default. */
static wf_status put_window(const wf_convert *c, keys *k)
{
    const wf_config *config = &c->m->config;
    size_t layers = (size_t)config->layers;
    int64_t with = 0;
    uint8_t *windowed = wf_mem_new(c->ctx, layers);
    if (!windowed)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < config->layers; i++)
        with += windowed[i] = wf_config_layer(config, i)->window > 0;
    wf_status status = WF_OK;
    if (with > 0 || config->type->long_rope) /* llama.cpp writes 0 for Phi-3 */
        status = put_int(k, "attention.sliding_window", wf_config_window(config));
    if (status == WF_OK && with > 0 && config->ropes == 2)
        status = put_float(k, "rope.freq_base_swa", config->rope[1].base);
    bool stated = config->family->window_period != 0 || with < config->layers;
    if (status == WF_OK && with > 0 && stated)
        status = wf_gguf_write_array(k->w, key(k, "attention.sliding_window_pattern"), WF_GGUF_BOOL,
                                     windowed, layers);
    wf_mem_free(c->ctx, windowed);
    return status;
}

/* Layers without rotary positions, where the family's rule does not give them. */
static wf_status put_no_rope(const wf_convert *c, keys *k)
{
    const wf_config *config = &c->m->config;
    const wf_family *f = config->family;
    size_t layers = (size_t)config->layers;
    bool usual = true;
    uint8_t *rotates = wf_mem_new(c->ctx, layers);
    if (!rotates)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < config->layers; i++) {
        const wf_layer *l = wf_config_layer(config, i);
        bool without = (f->nope_interval && (i + 1) % f->nope_interval == 0) ||
                       (f->nope_unlimited && l->window == 0);
        rotates[i] = l->rope != WF_NO_ROPE;
        usual &= rotates[i] == !without;
    }
    wf_status status = WF_OK;
    if (!usual)
        status = wf_gguf_write_array(k->w, "weft.rope_layers", WF_GGUF_BOOL, rotates, layers);
    wf_mem_free(c->ctx, rotates);
    return status;
}

static wf_status put_tokenizer(const wf_convert *c, keys *k)
{
    const wf_model *m = c->m;
    if (m->tokenizer)
        WF_TRY(wf_tokenizer_to_gguf(m->tokenizer, c->ctx, k->w, m->config.vocab));
    else
        wf_ctx_log(c->ctx, WF_LOG_WARN, "the file has no tokenizer: %s", m->no_tokenizer);
    if (m->tool_template)
        WF_TRY(put_text(k, WF_KEY_TOOL_TEMPLATE, m->tool_template));
    return m->info.chat_template ? put_text(k, WF_KEY_CHAT_TEMPLATE, m->info.chat_template) : WF_OK;
}

static wf_status put_sampling(keys *k, const wf_sampling_defaults *d)
{
    char key[64];
    for (int i = 0; i < WF_SETTINGS; i++) {
        if (!d->given[i])
            continue;
        snprintf(key, sizeof key, "general.sampling.%s", wf_settings[i].gguf);
        WF_TRY(wf_settings[i].whole
                   ? wf_gguf_write_int(k->w, key, WF_GGUF_I32, (int64_t)d->value[i])
                   : wf_gguf_write_float(k->w, key, d->value[i]));
    }
    return d->samplers ? put_text(k, "general.sampling.sequence", d->samplers) : WF_OK;
}

/* ---- Types ---- */

/* Returns general.file_type of a file whose types were kept: that of the type with the most
 * elements. */
static int common_file_type(const wf_convert *c)
{
    int64_t count[WF_TYPE_COUNT] = {0}, most = 0;
    wf_type common = WF_F32;
    for (int i = 0; i < c->items; i++) {
        const wf_convert_item *item = &c->item[i];
        if (item->shape.n < 2)
            continue;
        count[item->type] += wf_dims_count(&item->shape);
        if (count[item->type] > most) {
            most = count[item->type];
            common = item->type;
        }
    }
    const wf_recipe *r = wf_recipes;
    while (r->name && r->type != common)
        r++;
    return r->name ? r->file_type : 0;
}

#define IMATRIX_KEYS "quantize.imatrix."

/* Keys that describe the types of weights; they are written anew after a conversion. */
static bool says_types(const char *key)
{
    return strcmp(key, "general.file_type") == 0 ||
           strcmp(key, "general.quantization_version") == 0 ||
           strncmp(key, IMATRIX_KEYS, strlen(IMATRIX_KEYS)) == 0;
}

/* Names the importance matrix, in the keys of llama.cpp. */
static wf_status put_importance(const wf_convert *c, keys *k)
{
    const wf_importance *m = &c->importance;
    if (!m->file)
        return WF_OK;
    WF_TRY(put_text(k, IMATRIX_KEYS "file", wf_store_base_name(m->path)));
    if (m->dataset.bytes)
        WF_TRY(wf_gguf_write_text(k->w, IMATRIX_KEYS "dataset", m->dataset.bytes, m->dataset.len));
    WF_TRY(wf_gguf_write_int(k->w, IMATRIX_KEYS "entries_count", WF_GGUF_U32,
                             m->file->store.count / 2));
    return wf_gguf_write_int(k->w, IMATRIX_KEYS "chunks_count", WF_GGUF_U32, m->chunks);
}

static wf_status put_types(const wf_convert *c, keys *k)
{
    int type = c->recipe ? c->recipe->file_type : common_file_type(c);
    WF_TRY(wf_gguf_write_int(k->w, "general.file_type", WF_GGUF_U32, type));
    WF_TRY(put_importance(c, k));
    return wf_gguf_write_int(k->w, "general.quantization_version", WF_GGUF_U32,
                             QUANTIZATION_VERSION);
}

/* Copies the keys of an input that is GGUF: it may have keys that Weft does not know. */
static wf_status copy_keys(const wf_convert *c, keys *k)
{
    const wf_gguf *f = c->m->gguf;
    const bool retyped = c->recipe || c->overrides.count > 0;
    for (int i = 0; i < f->pairs; i++)
        if (!retyped || !says_types(f->pair[i].key))
            WF_TRY(wf_gguf_write_pair(k->w, &f->pair[i]));
    return retyped ? put_types(c, k) : WF_OK;
}

static wf_status put_keys(const wf_convert *c, keys *k)
{
    const wf_config *config = &c->m->config;
    if (c->m->gguf)
        return copy_keys(c, k);
    WF_TRY(put_text(k, "general.architecture", k->family));
    WF_TRY(put_text(k, "general.type", "model"));
    WF_TRY(put_text(k, "general.name", c->m->info.name));
    WF_TRY(put_sampling(k, &c->m->sampling));
    WF_TRY(put_types(c, k));
    WF_TRY(put_table(c, k));
    if (config->family->rotary)
        WF_TRY(put_rope(c, k, &config->rope[0]));
    WF_TRY(put_scale(c, k));
    WF_TRY(put_window(c, k));
    if (config->family->rotary)
        WF_TRY(put_no_rope(c, k));
    return put_tokenizer(c, k);
}

/* ---- Tensors ---- */

/* Vectors are f32 in GGUF files, and so is the position table. */
static wf_status choose_type(wf_convert *c, const wf_model_weight_info *w, wf_type *out)
{
    const wf_recipe_use use = {
        .config = &c->m->config, .pure = c->options->pure, .weighed = c->importance.file != NULL};
    const int64_t columns = wf_dims_last(&w->shape);
    *out = WF_F32;
    if (w->shape.n < 2)
        return WF_OK;
    *out = c->recipe ? wf_recipe_type(c->recipe, &use, w->name, columns) : w->type;
    if (strcmp(w->name, "position_embd.weight") == 0)
        return WF_OK;
    return wf_overrides_apply(&c->overrides, w->name, columns, out);
}

/* Sets item->importance if the matrix is quantized and was measured. */
static wf_status take_importance(wf_convert *c, wf_convert_item *item)
{
    if (!c->importance.file || wf_type_get(item->type)->kind != WF_KIND_BLOCK)
        return WF_OK;
    const size_t stack = item->shape.n == 3 ? (size_t)item->shape.d[0] : 1;
    float *sums =
        wf_arena_alloc(&c->arena, stack * (size_t)wf_dims_last(&item->shape) * sizeof *sums);
    if (!sums)
        return WF_ERR_MEMORY;
    if (wf_importance_copy(&c->importance, item->weight, sums))
        item->importance = sums;
    return WF_OK;
}

static void add_factors(wf_convert *c, const char *name, const float *factors)
{
    c->item[c->items++] = (wf_convert_item){.name = name,
                                            .type = WF_F32,
                                            .shape = {1, {c->m->config.rope[0].dims / 2}},
                                            .data = factors};
}

/* Adds rope_freqs.weight, which divides the frequencies, and longrope's divisors. */
static wf_status add_divisors(wf_convert *c)
{
    const wf_rotary *r = &c->m->config.rope[0];
    const float *divisors = r->divisors;
    if (r->scaling == WF_ROPE_LLAMA3) {
        float *made = wf_arena_alloc(&c->arena, (size_t)r->dims / 2 * sizeof *made);
        if (!made)
            return WF_ERR_MEMORY;
        wf_rope_llama3_divisors(r, made);
        divisors = made;
    }
    if (r->scaling == WF_ROPE_LONG) {
        add_factors(c, WF_TENSOR_LONG, r->long_divisors);
        add_factors(c, WF_TENSOR_SHORT, r->short_divisors);
    }
    if (divisors)
        c->item[c->items++] = (wf_convert_item){.name = "rope_freqs.weight",
                                                .type = WF_F32,
                                                .shape = {1, {r->dims / 2}},
                                                .data = divisors};
    return WF_OK;
}

/* Lists all tensors to write. Names are GGUF's; rotated rows are put into llama.cpp's order. */
static wf_status list_items(wf_convert *c)
{
    WF_TRY(wf_convert_items(c, (size_t)c->m->weights + 3)); /* and divisors of rotary positions */
    for (int i = 0; i < c->m->weights; i++) {
        const wf_model_weight_info *w = &c->m->weight[i];
        char other[WF_NAME_BYTES];
        const wf_weight_name *row =
            wf_family_hugging_face(c->m->config.family, w->name, true, other);
        wf_type type;
        WF_TRY(choose_type(c, w, &type));
        wf_convert_item *item = &c->item[c->items++];
        *item = (wf_convert_item){
            .name = w->name,
            .type = type,
            .shape = w->shape,
            .weight = w->name,
            .order = wf_rows_order(&c->m->config, row, c->m->config.rope[0].interleaved, true)};
        WF_TRY(wf_convert_take(c, w, item));
        WF_TRY(take_importance(c, item));
    }
    WF_TRY(wf_overrides_check(&c->overrides));
    WF_TRY(add_divisors(c));
    return wf_convert_check(c);
}

/* ---- The file ---- */

static wf_status write_piece(void *to, const void *data, size_t bytes)
{
    return wf_gguf_write_data(to, data, bytes);
}

static wf_status write_file(wf_convert *c, wf_gguf_writer *w)
{
    keys k = {.w = w, .family = c->m->config.family->name};
    WF_TRY(put_keys(c, &k));
    for (int i = 0; i < c->items; i++)
        WF_TRY(wf_gguf_write_tensor(w, c->item[i].name, c->item[i].type, &c->item[i].shape));
    WF_TRY(wf_gguf_write_begin(w));
    WF_TRY(wf_convert_data(c, write_piece, w));
    return wf_gguf_write_end(w);
}

wf_status wf_convert_to_gguf(wf_convert *c)
{
    const wf_gguf_write_options options = {.split_bytes = c->options->split_bytes};
    wf_gguf_writer *w;
    WF_TRY(list_items(c));
    WF_TRY(wf_gguf_write_new(c->ctx, c->path, &options, &w));
    wf_status status = write_file(c, w);
    wf_gguf_write_free(w);
    return status;
}
