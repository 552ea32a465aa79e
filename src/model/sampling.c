/* SPDX-License-Identifier: MIT */
/*
 * sampling.c - reads the sampling settings that a model recommends.
 *
 * Settings of a file are advice: an invalid one is ignored with a remark instead of failing. Keys
 * that are neither settings nor known to be without effect also get a remark, so that the user
 * learns which part of the recommendation Weft does not follow.
 */
#include "model/sampling.h"

#include <float.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"
#include "model/sampler_order.h"

/* Most tokens that the penalty may look back. */
#define LAST_MOST (1 << 20)

/* JSON key, GGUF key, range, its description, whole, our default, transformers' default when
 * sampling (-1: none). */
const wf_setting_info wf_settings[WF_SETTINGS] = {
    [WF_SET_TEMPERATURE] = {"temperature", "temp", 0, FLT_MAX, "0 or more", false, 0.6, 1},
    [WF_SET_TOP_K] = {"top_k", "top_k", INT_MIN, INT_MAX, "a whole number", true, 40, 50},
    [WF_SET_TOP_P] = {"top_p", "top_p", 0, 1, "from 0 to 1", false, 0.95, 1},
    [WF_SET_MIN_P] = {"min_p", "min_p", 0, 1, "from 0 to 1", false, 0.05, 0},
    [WF_SET_REPEAT] = {"repetition_penalty", "penalty_repeat", FLT_MIN, FLT_MAX, "above 0", false,
                       1, -1},
    [WF_SET_LAST] = {"penalty_last_n", "penalty_last_n", -1, LAST_MOST,
                     "a whole number from -1 to 1048576", true, 64, -1},
};

#define JSON_FILE "generation_config.json"
#define GGUF_PREFIX "general.sampling."

/* Keys that are not settings. A key has no effect if it is null, false, empty or `neutral`. ANY: no
 * value changes the text of a single sequence, except its length, which the caller limits. */
#define ANY DBL_MAX
#define NONE (-DBL_MAX) /* no number is neutral */
typedef struct {
    const char *key;
    double neutral;
} other_key;

static const other_key json_keys[] = {
    {"_commit_hash", ANY},
    {"_from_model_config", ANY},
    {"_original_object_hash", ANY},
    {"assistant_confidence_threshold", ANY},
    {"assistant_early_exit", ANY},
    {"assistant_ensemble_weight", ANY},
    {"assistant_lookbehind", ANY},
    {"bad_words_ids", NONE},
    {"begin_suppress_tokens", NONE},
    {"bos_token_id", ANY},
    {"cache_config", ANY},
    {"cache_implementation", ANY},
    {"chat_format", ANY},
    {"compile_config", ANY},
    {"constraints", NONE},
    {"continuous_batching_config", ANY},
    {"decoder_start_token_id", ANY},
    {"disable_compile", ANY},
    {"diversity_penalty", ANY}, /* beam search */
    {"do_sample", ANY},         /* read separately */
    {"dola_layers", NONE},
    {"early_stopping", ANY}, /* beam search */
    {"encoder_no_repeat_ngram_size", 0},
    {"encoder_repetition_penalty", 1},
    {"eos_token_id", ANY}, /* read with the tokenizer */
    {"epsilon_cutoff", 0},
    {"eta_cutoff", 0},
    {"exponential_decay_length_penalty", NONE},
    {"force_words_ids", NONE},
    {"forced_bos_token_id", NONE},
    {"forced_eos_token_id", NONE},
    {"guidance_scale", 1},
    {"is_assistant", ANY},
    {"length_penalty", ANY}, /* beam search */
    {"low_memory", ANY},
    {"max_cache_len", ANY},
    {"max_length", ANY},
    {"max_matching_ngram_size", ANY},
    {"max_new_tokens", ANY},
    {"max_time", ANY},
    {"max_window_size", ANY},
    {"min_length", 0},
    {"min_new_tokens", 0},
    {"mirostat", 0},
    {"mirostat_eta", ANY},
    {"mirostat_tau", ANY},
    {"no_repeat_ngram_size", 0},
    {"num_assistant_tokens", ANY},
    {"num_assistant_tokens_schedule", ANY},
    {"num_beam_groups", 1},
    {"num_beams", 1},
    {"num_return_sequences", ANY},
    {"output_attentions", ANY},
    {"output_hidden_states", ANY},
    {"output_logits", ANY},
    {"output_scores", ANY},
    {"pad_token_id", ANY},
    {"penalty_alpha", 0},
    {"prefill_chunk_size", ANY},
    {"prompt_lookup_num_tokens", ANY},
    {"remove_invalid_values", ANY},
    {"renormalize_logits", ANY},
    {"return_dict_in_generate", ANY},
    {"return_legacy_cache", ANY},
    {"sequence", ANY}, /* read separately */
    {"sequence_bias", NONE},
    {"speculation_type", ANY},
    {"stop_strings", NONE},
    {"suppress_tokens", NONE},
    {"target_lookbehind", ANY},
    {"token_healing", NONE},
    {"top_h", NONE},
    {"transformers_version", ANY},
    {"trust_remote_code", ANY},
    {"typical_p", 1},
    {"use_cache", ANY},
    {"use_mtp", ANY},
    {"watermarking_config", NONE},
    {"xtc_probability", 0},
    {"xtc_threshold", ANY},
    {NULL, 0},
};

static const other_key gguf_keys[] = {
    {"mirostat", 0},   {"mirostat_eta", ANY},  {"mirostat_tau", ANY},
    {"sequence", ANY}, {"xtc_probability", 0}, {"xtc_threshold", ANY},
    {NULL, 0},
};

static const other_key *find_other(const other_key *keys, const char *name)
{
    while (keys->key && strcmp(keys->key, name) != 0)
        keys++;
    return keys->key ? keys : NULL;
}

/* ---- Remarks ---- */

wf_status wf_sampling_remark(wf_arena *arena, wf_sampling_defaults *d, const char *fmt, ...)
{
    char text[256];
    va_list args;
    if (d->remarks++ >= WF_MAX_REMARKS)
        return WF_OK;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return (d->remark[d->remarks - 1] = wf_arena_strdup(arena, text)) ? WF_OK : WF_ERR_MEMORY;
}

/* Where a setting was read, for remarks. */
typedef struct {
    wf_arena *arena;
    const char *what; /* before the name of a key */
    wf_sampling_defaults *d;
} reader;

static wf_status refuse(reader *r, const char *name, const char *value, const char *rule)
{
    return wf_sampling_remark(r->arena, r->d, "%s%s is %s but must be %s; it is ignored", r->what,
                              name, value, rule);
}

static void give(wf_sampling_defaults *d, wf_setting which, double value)
{
    d->given[which] = true;
    d->value[which] = value;
}

/* Checks the range of a setting; a negative top_k means all tokens. */
static wf_status set(reader *r, wf_setting which, const char *name, double value)
{
    const wf_setting_info *s = &wf_settings[which];
    char shown[32];
    if (!(value >= s->low && value <= s->high) || (s->whole && value != (double)(int64_t)value)) {
        snprintf(shown, sizeof shown, "%g", value);
        return refuse(r, name, shown, s->rule);
    }
    give(r->d, which, which == WF_SET_TOP_K && value < 0 ? 0 : value);
    return WF_OK;
}

static wf_status note_other(reader *r, const other_key *keys, const char *name)
{
    char shown[WF_TEXT_SHOWN];
    wf_text_show(shown, name, strlen(name));
    return wf_sampling_remark(r->arena, r->d,
                              find_other(keys, name)
                                  ? "%s%s is set, which Weft does not support; it is ignored"
                                  : "%s%s is unknown to Weft; it is ignored",
                              r->what, shown);
}

/* Copies the list after checking that it parses. */
static wf_status set_order(reader *r, const char *name, const char *text, size_t bytes)
{
    wf_ctx *ctx = r->arena->ctx;
    wf_sampler_order order;
    char shown[WF_TEXT_SHOWN];
    wf_status status = wf_sampler_order_parse(ctx, text, bytes, &order);
    if (status == WF_ERR_MEMORY)
        return status;
    if (status != WF_OK || bytes == 0) {
        wf_ctx_clear(ctx);
        return refuse(r, name, wf_text_show(shown, text, bytes),
                      "a list such as " WF_SAMPLER_ORDER);
    }
    char *copy = wf_arena_alloc(r->arena, bytes + 1);
    if (!copy)
        return WF_ERR_MEMORY;
    r->d->samplers = memcpy(copy, text, bytes);
    return WF_OK;
}

/* ---- generation_config.json ---- */

/* Returns whether the value has no effect: null, false, empty, or the neutral number. */
static bool is_neutral(const wf_json_node *node, double neutral)
{
    switch (node->kind) {
    case WF_JSON_NULL: return true;
    case WF_JSON_BOOL: return !node->boolean;
    case WF_JSON_NUMBER: return node->number == neutral;
    case WF_JSON_STRING: return node->bytes == 0;
    default: return node->count == 0;
    }
}

static wf_status read_member(reader *r, const wf_json_node *node)
{
    wf_setting which = WF_SET_TEMPERATURE;
    /* which == WF_SETTINGS: not a setting. */
    while (which < WF_SETTINGS && strcmp(wf_settings[which].json, node->key) != 0)
        which++;
    if (which < WF_SETTINGS && node->kind == WF_JSON_NULL)
        return WF_OK;
    if (which < WF_SETTINGS)
        return node->kind == WF_JSON_NUMBER
                   ? set(r, which, node->key, node->number)
                   : refuse(r, node->key, "not a number", wf_settings[which].rule);
    const other_key *other = find_other(json_keys, node->key);
    if (other && (other->neutral == ANY || is_neutral(node, other->neutral)))
        return WF_OK;
    return note_other(r, json_keys, node->key);
}

/* Follows transformers. Greedy search uses only the penalty. With do_sample = true, missing
 * settings have transformers' defaults. Without do_sample, each setting in the file counts. */
static wf_status read_mode(reader *r, const wf_json_node *sample)
{
    wf_sampling_defaults *d = r->d;
    if (!sample || sample->kind == WF_JSON_NULL)
        return WF_OK;
    if (sample->kind != WF_JSON_BOOL)
        return refuse(r, "do_sample", "something else", "true or false");
    for (wf_setting i = 0; i < WF_SETTINGS; i++)
        if (sample->boolean && !d->given[i] && wf_settings[i].sampled >= 0)
            give(d, i, wf_settings[i].sampled);
    if (!sample->boolean)
        give(d, WF_SET_TEMPERATURE, 0);
    return WF_OK;
}

wf_status wf_sampling_from_json(wf_arena *arena, const wf_json_node *generation,
                                wf_sampling_defaults *out)
{
    reader r = {arena, JSON_FILE ": ", out};
    *out = (wf_sampling_defaults){.remarks = 0};
    for (size_t i = 0; generation && i < generation->count; i++)
        WF_TRY(read_member(&r, &generation->child[i]));
    WF_TRY(read_mode(&r, wf_json_get(generation, "do_sample")));
    const wf_json_node *order = wf_json_get(generation, "sequence");
    if (order && order->kind == WF_JSON_STRING)
        WF_TRY(set_order(&r, "sequence", order->string, order->bytes));
    else if (order && order->kind != WF_JSON_NULL)
        WF_TRY(refuse(&r, "sequence", "not a string", "a list such as " WF_SAMPLER_ORDER));
    if (out->given[WF_SET_REPEAT] &&
        !out->given[WF_SET_LAST]) /* transformers' penalty covers all tokens */
        give(out, WF_SET_LAST, -1);
    return WF_OK;
}

/* ---- GGUF ---- */

static wf_status read_pair(reader *r, const wf_gguf *f, const wf_gguf_pair *pair, const char *name)
{
    wf_ctx *ctx = r->arena->ctx;
    const other_key *other = find_other(gguf_keys, name);
    wf_setting which = WF_SET_TEMPERATURE;
    while (which < WF_SETTINGS && strcmp(wf_settings[which].gguf, name) != 0)
        which++;
    if (which == WF_SETTINGS && !other)
        return note_other(r, gguf_keys, name);
    if (strcmp(name, "sequence") == 0)
        return pair->kind == WF_GGUF_STRING
                   ? set_order(r, name, pair->text->bytes, pair->text->len)
                   : refuse(r, name, "not a string", "a list such as " WF_SAMPLER_ORDER);
    double value = 0;
    wf_status status = wf_gguf_get_float(f, pair->key, &value);
    if (status != WF_OK)
        wf_ctx_clear(ctx);
    if (which < WF_SETTINGS)
        return status == WF_OK ? set(r, which, name, value)
                               : refuse(r, name, "not a number", wf_settings[which].rule);
    return other->neutral == ANY || (status == WF_OK && value == other->neutral)
               ? WF_OK
               : note_other(r, gguf_keys, name);
}

wf_status wf_sampling_from_gguf(wf_arena *arena, const wf_gguf *f, wf_sampling_defaults *out)
{
    reader r = {arena, GGUF_PREFIX, out};
    size_t prefix = strlen(GGUF_PREFIX);
    *out = (wf_sampling_defaults){.remarks = 0};
    for (int i = 0; i < f->pairs; i++)
        if (strncmp(f->pair[i].key, GGUF_PREFIX, prefix) == 0)
            WF_TRY(read_pair(&r, f, &f->pair[i], f->pair[i].key + prefix));
    return WF_OK;
}

/* ---- Resolving ---- */

bool wf_sampling_any(const wf_sampling_defaults *d)
{
    bool any = d->samplers != NULL;
    for (int i = 0; i < WF_SETTINGS; i++)
        any = any || d->given[i];
    return any;
}

double wf_sampling_value(const wf_sampling_defaults *d, wf_setting which)
{
    return d->given[which] ? d->value[which] : wf_settings[which].otherwise;
}

void wf_sampling_resolve(const wf_sampling_defaults *d, wf_sampling *out)
{
    double top_p = wf_sampling_value(d, WF_SET_TOP_P), last = wf_sampling_value(d, WF_SET_LAST);
    *out = (wf_sampling){
        .temperature = wf_sampling_value(d, WF_SET_TEMPERATURE),
        .top_k = (int64_t)wf_sampling_value(d, WF_SET_TOP_K),
        .top_p = top_p > 0 ? top_p : DBL_MIN, /* keep only the first token; 0 would keep all */
        .min_p = wf_sampling_value(d, WF_SET_MIN_P),
        .repeat_penalty = last != 0 ? wf_sampling_value(d, WF_SET_REPEAT) : 1,
        .penalty_last = (int64_t)last,
        .samplers = d->samplers,
    };
}

/* Logs the remarks about ignored settings. Returns whether the model recommends anything. */
bool wf_model_sampling(const wf_model *m, wf_sampling *out)
{
    const wf_sampling_defaults *d = &m->sampling;
    for (int i = 0; i < d->remarks && i < WF_MAX_REMARKS; i++)
        wf_ctx_log(m->ctx, WF_LOG_WARN, "%s", d->remark[i]);
    if (d->remarks > WF_MAX_REMARKS)
        wf_ctx_log(m->ctx, WF_LOG_WARN, "%d more sampling settings of the model are ignored",
                   d->remarks - WF_MAX_REMARKS);
    wf_sampling_resolve(d, out);
    return wf_sampling_any(d);
}
