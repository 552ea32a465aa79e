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

/* Returns the last row of the type that fills a member, or NULL. */
static const wf_key *row_of(const wf_model_type *type, wf_key_rule rule, size_t member)
{
    const wf_key *found = NULL;
    for (const wf_key *k = type->keys; k->json || k->gguf; k++)
        if (k->json && k->rule == rule && !k->per_layer && k->member == member)
            found = k;
    return found;
}

static bool flag_of(const wf_key *k, const wf_config *c)
{
    return *(const bool *)wf_key_value(k, c, &c->all);
}

/* A type has one key for several kinds of biases, or none. */
static bool biases_can_be_said(const wf_config *c)
{
    const struct {
        size_t member;
        bool value, usual;
    } biases[] = {
        {offsetof(wf_config, qkv_bias), c->qkv_bias, c->family->qkv_bias},
        {offsetof(wf_config, out_bias), c->out_bias, c->family->biases},
        {offsetof(wf_config, mlp_bias), c->mlp_bias, c->family->biases},
    };
    for (size_t i = 0; i < sizeof biases / sizeof *biases; i++) {
        const wf_key *k = row_of(c->type, WF_KEY_BOOL, biases[i].member);
        if (!k && biases[i].value != biases[i].usual)
            return false;
        for (const wf_key *other = c->type->keys; k && (other->json || other->gguf); other++)
            if (other->json && strcmp(other->json, k->json) == 0 &&
                flag_of(other, c) != biases[i].value)
                return false;
    }
    return true;
}

/* Returns whether all layers have heads and MLPs of the same size. */
static bool sizes_can_be_said(const wf_config *c)
{
    for (int64_t i = 1; i < c->layers; i++)
        if (!wf_layer_same_sizes(wf_config_layer(c, 0), wf_config_layer(c, i)))
            return false;
    return true;
}

static bool windows_can_be_said(const wf_config *c)
{
    int64_t with = 0, most = wf_config_window(c);
    for (int64_t i = 0; i < c->layers; i++) {
        int64_t window = wf_config_layer(c, i)->window;
        with += window > 0;
        if (window != 0 && window != most)
            return false;
    }
    return c->type->windows == WF_WINDOWS_NONE  ? with == 0
           : c->type->windows == WF_WINDOWS_ALL ? with == 0 || with == c->layers
                                                : true;
}

/* Returns the property that config.json has no key for, or NULL; *rope gets llama3 parameters in
 * place of divisors. */
static const char *fault(const wf_config *c, wf_rotary *rope)
{
    *rope = c->rope[0];
    if (!sizes_can_be_said(c))
        return "config.json has no key for layers of different sizes";
    if (!biases_can_be_said(c))
        return "config.json has no key for which layers have biases";
    if (c->family->rotary ? (c->scale != 0 && !c->family->scales) || c->scale_by_layer
                          : c->scale != 0 && c->scale != 1)
        return "config.json has no key for its attention scale";
    if (!windows_can_be_said(c))
        return "config.json has no key for which layers have a window";
    if (c->family->rotary && rope->dims != c->all.key_dim && c->type->partial == 0)
        return "config.json has no key for rotating only a part of each head";
    if (rope->divisors &&
        (rope->scaling != WF_ROPE_PLAIN || !wf_rope_find_llama3(rope, rope->divisors)))
        return "its rope_freqs.weight is not Llama 3's scaling";
    return NULL;
}

const char *wf_config_json_fault(const wf_config *c)
{
    wf_rotary rope;
    return fault(c, &rope);
}

/* ---- config.json ---- */

static const char *dtype(wf_type type)
{
    return type == WF_F16 ? "float16" : type == WF_BF16 ? "bfloat16" : "float32";
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

static void put_factors(json *j, const char *key, const float *factors, int64_t count)
{
    next(j, key);
    open_level(j, '[');
    for (int64_t i = 0; i < count; i++)
        put_float(j, NULL, factors[i]);
    close_level(j, ']');
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
    if (r->scaling == WF_ROPE_LONG) {
        put_original(j, r);
        put_factors(j, "short_factor", r->short_divisors, r->dims / 2);
        put_factors(j, "long_factor", r->long_divisors, r->dims / 2);
        if (r->magnitude != 0)
            put_parameter(j, r, "attention_factor", r->magnitude);
    }
    if (r->scaling == WF_ROPE_YARN) {
        put_original(j, r);
        put_parameter(j, r, "beta_fast", r->beta_fast);
        put_parameter(j, r, "beta_slow", r->beta_slow);
        if (r->magnitude != 0)
            put_parameter(j, r, "attention_factor", r->magnitude);
    }
}

/* transformers reads it next to the objects of OLMo 3, not inside. */
static void put_truncate(json *j, const wf_rotary *r)
{
    if (r->unrounded)
        put_bool(j, "truncate", false);
}

/* Writes rope_theta and rope_scaling, and what the type keeps beside them. */
static void put_rope(json *j, const wf_config *c, const wf_rotary *r)
{
    put_parameter(j, r, "rope_theta", r->base);
    if (c->type->partial != 0)
        put_float(j, "partial_rotary_factor", (double)r->dims / (double)c->all.key_dim);
    if (r->scaling == WF_ROPE_LONG)
        put_original(j, r);
    if (r->scaling == WF_ROPE_PLAIN && !c->type->q_scale) {
        put_null(j, "rope_scaling");
        return;
    }
    next(j, "rope_scaling");
    open_level(j, '{');
    put_parameters(j, r);
    put_truncate(j, r);
    if (c->type->q_scale)
        put_float(j, "llama_4_scaling_beta", c->q_scale);
    if (c->type->q_scale && r->scaling != WF_ROPE_YARN && r->scaling != WF_ROPE_LLAMA3)
        put_int(j, "original_max_position_embeddings", (int64_t)c->q_length);
    close_level(j, '}');
}

/* OLMo 3: one object per type of layer. */
static void put_rope_parts(json *j, const wf_config *c, const wf_rotary *full)
{
    static const char *const names[] = {"full_attention", "sliding_attention"};
    next(j, "rope_parameters");
    open_level(j, '{');
    for (int i = 0; i < 2; i++) {
        const wf_rotary *r = i == 0 || c->ropes < 2 ? full : &c->rope[i];
        next(j, names[i]);
        open_level(j, '{');
        put_parameter(j, r, "rope_theta", r->base);
        put_parameters(j, r);
        close_level(j, '}');
    }
    put_truncate(j, full);
    close_level(j, '}');
}

static void put_layer_types(json *j, const wf_config *c)
{
    next(j, "layer_types");
    open_level(j, '[');
    for (int64_t i = 0; i < c->layers; i++)
        put_text(j, NULL, wf_config_layer(c, i)->window ? "sliding_attention" : "full_attention");
    close_level(j, ']');
}

/* Qwen: max_window_layers for old and layer_types for new versions of transformers. `first`: where
 * the layers with a window begin that reach to the end. */
static void put_late_windows(json *j, const wf_config *c)
{
    int64_t first = c->layers;
    while (first > 0 && wf_config_layer(c, first - 1)->window > 0)
        first--;
    put_bool(j, "use_sliding_window", wf_config_window(c) > 0);
    if (wf_config_window(c) == 0)
        return;
    put_int(j, "sliding_window", wf_config_window(c));
    put_int(j, "max_window_layers", first);
    put_layer_types(j, c);
}

/* SmolLM3: no_rope_layers has a 1 for each layer with rotary positions. */
static void put_nope_windows(json *j, const wf_config *c)
{
    next(j, "no_rope_layers");
    open_level(j, '[');
    for (int64_t i = 0; i < c->layers; i++)
        put_int(j, NULL, wf_config_layer(c, i)->rope != WF_NO_ROPE);
    close_level(j, ']');
    put_bool(j, "use_sliding_window", wf_config_window(c) > 0);
    if (wf_config_window(c) == 0)
        return;
    put_int(j, "sliding_window", wf_config_window(c));
    put_layer_types(j, c);
}

static void put_windows(json *j, const wf_config *c)
{
    const int64_t window = wf_config_window(c);
    switch (c->type->windows) {
    case WF_WINDOWS_NONE: break;
    case WF_WINDOWS_ALL:
        if (window > 0)
            put_int(j, "sliding_window", window);
        else
            put_null(j, "sliding_window");
        break;
    case WF_WINDOWS_LATE: put_late_windows(j, c); break;
    case WF_WINDOWS_LISTED:
        put_int(j, "sliding_window", window > 0 ? window : c->context);
        put_layer_types(j, c);
        break;
    case WF_WINDOWS_NOPE: put_nope_windows(j, c); break;
    }
}

/* Returns whether a later row has another name of the same member. */
static bool has_other_name(const wf_key *k)
{
    for (const wf_key *later = k + 1; later->json || later->gguf; later++)
        if (later->json && later->rule == k->rule && later->per_layer == k->per_layer &&
            later->member == k->member)
            return true;
    return false;
}

/* Writes the keys of the type's table. */
static void put_table(json *j, const wf_config *c)
{
    const char *last = ""; /* one key may fill two members */
    for (const wf_key *k = c->type->keys; k->json || k->gguf; k++) {
        const void *value = wf_key_value(k, c, &c->all);
        bool rope = !k->per_layer && k->member >= offsetof(wf_config, rope) &&
                    k->member < offsetof(wf_config, ropes);
        if (!k->json || rope || strcmp(k->json, last) == 0 || has_other_name(k))
            continue;
        last = k->json;
        switch (k->rule) {
        case WF_KEY_INT: put_int(j, k->json, *(const int64_t *)value); break;
        case WF_KEY_REAL: put_float(j, k->json, *(const double *)value); break;
        case WF_KEY_BOOL: put_bool(j, k->json, *(const bool *)value); break;
        case WF_KEY_SILU: put_text(j, k->json, "silu"); break;
        case WF_KEY_GELU: put_text(j, k->json, "gelu_new"); break;
        default: break;
        }
    }
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
    put_text(j, NULL, c->type->class);
    close_level(j, ']');
    put_text(j, "model_type", c->type->name);
    put_text(j, "torch_dtype", dtype(type));
    put_table(j, c);
    if (!c->family->rotary)
        put_bool(j, "scale_attn_weights", c->scale == 0);
    else if (c->type->rope_parts)
        put_rope_parts(j, c, rope);
    else
        put_rope(j, c, rope);
    put_windows(j, c);
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
    const wf_key *row = row_of(c->type, WF_KEY_BOOL, offsetof(wf_config, tied));
    if (!tied && row && c->tied != (row->fallback != 0))
        put_bool(j, "tie_word_embeddings", c->tied);
}

/* From a folder the old file is copied; from GGUF it is made anew, after checking that it can
 * express the model. */
wf_status wf_convert_config_json(wf_convert *c, wf_type type, char **text, size_t *bytes)
{
    json j = {.w = {.ctx = c->ctx}};
    wf_rotary rope = {0};
    *text = NULL;
    const char *why = c->m->folder ? NULL : fault(&c->m->config, &rope);
    if (why)
        return wf_fail(
            c->ctx, WF_ERR_UNSUPPORTED,
            "%s cannot be written as a Hugging Face folder: %s; choose a path that ends in .gguf",
            wf_store_base_name(c->m->path), why);
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
    put_truncate(&j, rope);
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
