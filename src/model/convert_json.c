/* SPDX-License-Identifier: MIT */
/*
 * convert_json.c - writes config.json and generation_config.json of a Hugging Face folder.
 * config_json.c reads the first.
 *
 * It uses keys that transformers 4 and 5 both read: rope_theta and rope_scaling instead of
 * rope_parameters, torch_dtype instead of dtype.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/writer.h"
#include "model/config_json.h"
#include "model/convert.h"

/* ---- Writing JSON ---- */

typedef struct {
    wf_writer w;
    int depth;
    bool filled; /* a comma is needed before the next item */
} json;

/* Starts a member (or, with NULL, an item): comma, newline, indentation, key. */
static void next(json *j, const char *key)
{
    wf_writer_print(&j->w, "%s\n%*s", j->filled ? "," : "", 2 * j->depth, "");
    j->filled = true;
    if (key)
        wf_writer_print(&j->w, "\"%s\": ", key);
}

static void open_level(json *j, char bracket)
{
    wf_writer_char(&j->w, bracket);
    j->depth++;
    j->filled = false;
}

static void close_level(json *j, char bracket)
{
    j->depth--;
    if (j->filled)
        wf_writer_print(&j->w, "\n%*s", 2 * j->depth, "");
    wf_writer_char(&j->w, bracket);
    j->filled = true;
}

/* Returns the shortest decimal that rounds to this float: 1e-05, not 9.99999974737875e-06. */
static double as_it_was_said(double value)
{
    float single = (float)value;
    if ((double)single != value)
        return value;
    /* 9 significant digits identify every f32. */
    for (int digits = 0; digits < 9; digits++) {
        char text[WF_TEXT_DOUBLE];
        const char *at = text;
        double said;
        snprintf(text, sizeof text, "%.*e", digits, value);
        for (char *s = text; *s; s++) /* the locale determines the decimal point */
            if (!strchr("0123456789+-e", *s))
                *s = '.';
        if (wf_text_to_double(&at, &said) && (float)said == single)
            return said;
    }
    return value;
}

/* Always writes a fraction or exponent: transformers distinguishes int and float. */
static void float_value(json *j, double value)
{
    char text[WF_TEXT_DOUBLE];
    wf_text_from_double(text, value);
    wf_writer_print(&j->w, "%s%s", text, strpbrk(text, ".e") ? "" : ".0");
}

static void put_text(json *j, const char *key, const char *value)
{
    next(j, key);
    wf_writer_quoted(&j->w, value, strlen(value));
}

static void put_int(json *j, const char *key, int64_t value)
{
    next(j, key);
    wf_writer_print(&j->w, "%" PRId64, value);
}

static void put_float(json *j, const char *key, double value)
{
    next(j, key);
    float_value(j, as_it_was_said(value));
}

static void put_bool(json *j, const char *key, bool value)
{
    next(j, key);
    wf_writer_print(&j->w, "%s", value ? "true" : "false");
}

static void put_null(json *j, const char *key)
{
    next(j, key);
    wf_writer_print(&j->w, "null");
}

/* Writes a parsed value. The parser limits its depth. */
static void put_value(json *j, const wf_json_node *node)
{
    switch (node->kind) {
    case WF_JSON_NULL: wf_writer_print(&j->w, "null"); break;
    case WF_JSON_BOOL: wf_writer_print(&j->w, "%s", node->boolean ? "true" : "false"); break;
    case WF_JSON_NUMBER:
        if (node->whole)
            wf_writer_print(&j->w, "%" PRId64, node->integer);
        else
            float_value(j, node->number);
        break;
    case WF_JSON_STRING: wf_writer_quoted(&j->w, node->string, node->bytes); break;
    case WF_JSON_ARRAY:
    case WF_JSON_OBJECT: {
        bool object = node->kind == WF_JSON_OBJECT;
        open_level(j, object ? '{' : '[');
        for (size_t i = 0; i < node->count; i++) {
            next(j, NULL);
            if (object) {
                wf_writer_quoted(&j->w, node->child[i].key, node->child[i].key_bytes);
                wf_writer_print(&j->w, ": ");
            }
            put_value(j, &node->child[i]);
        }
        close_level(j, object ? '}' : ']');
    }
    }
}

static wf_status take(json *j, char **text, size_t *bytes)
{
    wf_writer_char(&j->w, '\n');
    return wf_writer_take(&j->w, text, bytes);
}

/* ---- Properties that config.json has no key for ---- */

static wf_status refuse(wf_convert *c, const char *why)
{
    return wf_fail(
        c->ctx, WF_ERR_UNSUPPORTED,
        "%s cannot be written as a Hugging Face folder: %s; choose a path that ends in .gguf",
        wf_store_base_name(c->m->path), why);
}

/* transformers has a class of its own for Llama with a window. */
static bool is_mistral(const wf_config *c)
{
    return c->family == &wf_family_llama && c->window > 0;
}

/* transformers has one key for biases, and only some classes read it. */
static bool biases_can_be_said(const wf_config *c)
{
    if (!c->family->rotary)
        return true;
    if (c->family->qkv_bias)
        return !c->out_bias && !c->mlp_bias;
    if (is_mistral(c))
        return !c->qkv_bias && !c->out_bias && !c->mlp_bias;
    return c->qkv_bias == c->out_bias && (!c->mlp_bias || c->family == &wf_family_llama);
}

/* Refuses properties that config.json cannot express; *rope gets llama3 parameters in place of
 * divisors. */
static wf_status check(wf_convert *c, wf_rotary *rope)
{
    const wf_config *config = &c->m->config;
    *rope = config->rope;
    if (!biases_can_be_said(config))
        return refuse(c, "config.json has no key for which layers have biases");
    if (config->family->rotary ? config->scale != 0 || config->scale_by_layer
                               : config->scale != 0 && config->scale != 1)
        return refuse(c, "config.json has no key for its attention scale");
    if (is_mistral(config))
        for (int64_t i = 0; i < config->layers; i++)
            if (wf_config_window(config, i) == 0)
                return refuse(c, "config.json has no key for which layers have a window");
    if (config->family->rotary && rope->dims != config->head_dim)
        return refuse(c, "config.json has no key for rotating only a part of each head");
    if (rope->divisors &&
        (rope->scaling != WF_ROPE_PLAIN || !wf_rope_find_llama3(rope, rope->divisors)))
        return refuse(c, "its rope_freqs.weight is not Llama 3's scaling");
    return WF_OK;
}

/* ---- config.json ---- */

static const char *dtype(wf_type type)
{
    return type == WF_F16 ? "float16" : type == WF_BF16 ? "bfloat16" : "float32";
}

static void put_gpt2(json *j, const wf_config *c)
{
    put_int(j, "n_layer", c->layers);
    put_int(j, "n_embd", c->width);
    put_int(j, "n_head", c->heads);
    put_int(j, "n_positions", c->context);
    put_int(j, "n_ctx", c->context);
    put_int(j, "n_inner", c->hidden);
    put_float(j, "layer_norm_epsilon", c->eps);
    put_text(j, "activation_function", "gelu_new");
    put_bool(j, "scale_attn_weights", c->scale == 0);
    put_bool(j, "scale_attn_by_inverse_layer_idx", c->scale_by_layer);
}

/* Writes a rope parameter. A value that passed through f32 is written in its shortest form. */
static void put_parameter(json *j, const wf_rotary *r, const char *key, double value)
{
    next(j, key);
    float_value(j, r->exact ? value : as_it_was_said(value));
}

static void put_original(json *j, const wf_rotary *r)
{
    if (r->original == (double)(int64_t)r->original)
        put_int(j, "original_max_position_embeddings", (int64_t)r->original);
    else
        put_parameter(j, r, "original_max_position_embeddings", r->original);
}

static void put_parameters(json *j, const wf_rotary *r)
{
    put_text(j, "rope_type", wf_rope_scaling_name(r->scaling));
    if (r->scaling != WF_ROPE_PLAIN)
        put_parameter(j, r, "factor", r->factor);
    if (r->scaling == WF_ROPE_LLAMA3) {
        put_original(j, r);
        put_parameter(j, r, "low_freq_factor", r->low);
        put_parameter(j, r, "high_freq_factor", r->high);
    }
    if (r->scaling == WF_ROPE_YARN) {
        put_original(j, r);
        put_parameter(j, r, "beta_fast", r->beta_fast);
        put_parameter(j, r, "beta_slow", r->beta_slow);
        if (r->magnitude != 0)
            put_parameter(j, r, "attention_factor", r->magnitude);
        if (r->unrounded)
            put_bool(j, "truncate", false);
    }
}

static void put_scaling(json *j, const wf_rotary *r)
{
    if (r->scaling == WF_ROPE_PLAIN) {
        put_null(j, "rope_scaling");
        return;
    }
    next(j, "rope_scaling");
    open_level(j, '{');
    put_parameters(j, r);
    close_level(j, '}');
}

/* Writes Qwen's window keys: max_window_layers for old and layer_types for new versions of
 * transformers. `first`: where the layers with a window begin that reach to the end. */
static void put_layer_windows(json *j, const wf_config *c)
{
    int64_t first = c->layers;
    while (first > 0 && wf_config_window(c, first - 1) > 0)
        first--;
    put_bool(j, "use_sliding_window", c->window > 0);
    if (c->window == 0)
        return;
    put_int(j, "sliding_window", c->window);
    put_int(j, "max_window_layers", first);
    next(j, "layer_types");
    open_level(j, '[');
    for (int64_t i = 0; i < c->layers; i++)
        put_text(j, NULL, wf_config_window(c, i) ? "sliding_attention" : "full_attention");
    close_level(j, ']');
}

static void put_llama(json *j, const wf_config *c, const wf_rotary *rope)
{
    put_int(j, "num_hidden_layers", c->layers);
    put_int(j, "hidden_size", c->width);
    put_int(j, "intermediate_size", c->hidden);
    put_int(j, "num_attention_heads", c->heads);
    put_int(j, "num_key_value_heads", c->kv_heads);
    put_int(j, "head_dim", c->head_dim);
    put_int(j, "max_position_embeddings", c->context);
    put_float(j, "rms_norm_eps", c->eps);
    put_text(j, "hidden_act", "silu");
    put_parameter(j, rope, "rope_theta", rope->base);
    put_scaling(j, rope);
    if (is_mistral(c))
        put_int(j, "sliding_window", c->window);
    else if (c->family != &wf_family_llama)
        put_layer_windows(j, c);
    if (!c->family->qkv_bias && !is_mistral(c))
        put_bool(j, "attention_bias", c->qkv_bias);
    if (c->family == &wf_family_llama && !is_mistral(c))
        put_bool(j, "mlp_bias", c->mlp_bias);
}

static void put_id(json *j, const wf_tokenizer *t, const char *key, wf_special which)
{
    int32_t id = t ? wf_tokenizer_special(t, which) : -1;
    if (id < 0)
        put_null(j, key);
    else
        put_int(j, key, id);
}

static void put_config(json *j, const wf_model *m, const wf_rotary *rope, wf_type type)
{
    const wf_config *c = &m->config;
    next(j, "architectures");
    open_level(j, '[');
    put_text(j, NULL, is_mistral(c) ? "MistralForCausalLM" : c->family->class);
    close_level(j, ']');
    put_text(j, "model_type", is_mistral(c) ? "mistral" : c->family->types[0]);
    put_text(j, "torch_dtype", dtype(type));
    put_int(j, "vocab_size", c->vocab);
    if (c->family->rotary)
        put_llama(j, c, rope);
    else
        put_gpt2(j, c);
    put_bool(j, "tie_word_embeddings", c->tied);
    put_id(j, m->tokenizer, "bos_token_id", WF_SPECIAL_BOS);
    put_id(j, m->tokenizer, "eos_token_id", WF_SPECIAL_EOS);
    put_id(j, m->tokenizer, "pad_token_id", WF_SPECIAL_PAD);
    put_bool(j, "use_cache", true);
}

/* Copies an existing config.json, which may have keys that Weft does not know. Changes only the
 * type of the weights, and tie_word_embeddings if the checkpoint contradicted it. */
static void copy_config(json *j, const wf_json_node *config, const wf_config *c, wf_type type)
{
    bool typed = false, tied = false;
    for (size_t i = 0; i < config->count; i++) {
        const wf_json_node *node = &config->child[i];
        bool is_type = strcmp(node->key, "torch_dtype") == 0 || strcmp(node->key, "dtype") == 0;
        bool is_tied = strcmp(node->key, "tie_word_embeddings") == 0;
        next(j, NULL);
        wf_writer_quoted(&j->w, node->key, node->key_bytes);
        wf_writer_print(&j->w, ": ");
        if (is_type)
            wf_writer_quoted(&j->w, dtype(type), strlen(dtype(type)));
        else if (is_tied)
            wf_writer_print(&j->w, "%s", c->tied ? "true" : "false");
        else
            put_value(j, node);
        typed |= is_type;
        tied |= is_tied;
    }
    if (!typed)
        put_text(j, "torch_dtype", dtype(type));
    if (!tied && c->tied != c->family->tied)
        put_bool(j, "tie_word_embeddings", c->tied);
}

/* From a folder the old file is copied; from GGUF it is made anew, after checking that it can
 * express the model. */
wf_status wf_convert_config_json(wf_convert *c, wf_type type, char **text, size_t *bytes)
{
    json j = {.w = {.ctx = c->ctx}};
    wf_rotary rope = {0};
    *text = NULL;
    if (!c->m->folder)
        WF_TRY(check(c, &rope));
    open_level(&j, '{');
    if (c->m->folder)
        copy_config(&j, c->m->folder->config, &c->m->config, type);
    else
        put_config(&j, c->m, &rope, type);
    close_level(&j, '}');
    return take(&j, text, bytes);
}

wf_status wf_convert_rope_json(wf_ctx *ctx, const wf_rotary *rope, char **text, size_t *bytes)
{
    json j = {.w = {.ctx = ctx}};
    open_level(&j, '{');
    put_parameter(&j, rope, "rope_theta", rope->base);
    put_parameters(&j, rope);
    close_level(&j, '}');
    return take(&j, text, bytes);
}

/* ---- generation_config.json ---- */

/* Writes every setting, because transformers has other defaults. Its penalties cover all tokens; it
 * ignores the window and the sampler order, which are llama.cpp's keys. */
static void put_sampling(json *j, const wf_sampling_defaults *d)
{
    bool sample = wf_sampling_value(d, WF_SET_TEMPERATURE) > 0;
    if (!wf_sampling_any(d))
        return;
    put_bool(j, "do_sample", sample);
    for (wf_setting i = 0; i < WF_SETTINGS; i++) {
        double value = wf_sampling_value(d, i);
        bool wanted = i == WF_SET_REPEAT ? d->given[i]
                      : i == WF_SET_LAST ? value >= 0 && d->given[WF_SET_REPEAT]
                                         : sample;
        if (!wanted)
            continue;
        if (wf_settings[i].whole)
            put_int(j, wf_settings[i].json, (int64_t)value);
        else
            put_float(j, wf_settings[i].json, value);
    }
    if (d->samplers)
        put_text(j, "sequence", d->samplers);
}

wf_status wf_convert_generation_json(wf_convert *c, char **text, size_t *bytes)
{
    const wf_tokenizer *t = c->m->tokenizer;
    json j = {.w = {.ctx = c->ctx}};
    open_level(&j, '{');
    put_id(&j, t, "bos_token_id", WF_SPECIAL_BOS);
    next(&j, "eos_token_id"); /* all tokens that end a text */
    open_level(&j, '[');
    for (int32_t i = 0; t && i < wf_tokenizer_count(t); i++)
        if (wf_tokenizer_ends(t, i))
            put_int(&j, NULL, i);
    close_level(&j, ']');
    put_id(&j, t, "pad_token_id", WF_SPECIAL_PAD);
    put_sampling(&j, &c->m->sampling);
    close_level(&j, '}');
    return take(&j, text, bytes);
}
