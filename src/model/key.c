/* SPDX-License-Identifier: MIT */
/*
 * key.c - the keys of config.json that all model types share, and the check of a config.json
 * against its tables; see key.h.
 *
 * A key is used, known to be harmless, or allowed with one value only. Anything else would silently
 * change what is computed, so it fails (a known key with another value) or is reported (an unknown
 * key). The rows of the type decide before the common ones.
 */
#include <string.h>

#include "model/config_json.h"

const wf_key wf_common_keys[] = {
    WF_USED("model_type"),
    WF_USED("bos_token_id"),
    WF_USED("eos_token_id"),
    WF_USED("pad_token_id"),
    WF_USED("layer_types"), /* types whose layers are alike check that it says so */

    /* Keys with only one accepted value. */
    WF_RULE_OF("quantization_config", EMPTY,
               "the weights are quantized in a format that Weft does not read; use "
               "the original checkpoint or a GGUF file"),
    WF_RULE_OF("compression_config", EMPTY,
               "the weights are compressed; use the original checkpoint or a GGUF file"),
    WF_RULE_OF("per_layer_config", EMPTY, "all layers must have the same sizes"),
    WF_RULE_OF("partial_rotary_factor", ONE, "whole heads must be rotated"),
    WF_RULE_OF("is_encoder_decoder", FALSE, "Weft loads decoders only"),
    WF_HARMLESS("is_decoder"),
    WF_RULE_OF("is_causal", TRUE, "Weft computes causal attention only"),
    /* Keys that only the config class of another type reads. */
    WF_HARMLESS("attention_bias"),
    WF_HARMLESS("mlp_bias"),
    WF_HARMLESS("sliding_window"),
    WF_HARMLESS("use_sliding_window"),
    WF_HARMLESS("max_window_layers"),
    /* Kernels, initialization and dropout (`weft train` has its own flag). */
    WF_HARMLESS("initializer_range"),
    WF_HARMLESS("attention_dropout"),
    WF_HARMLESS("hidden_dropout"),
    WF_HARMLESS("gradient_checkpointing"),
    WF_HARMLESS("pretraining_tp"),
    WF_HARMLESS("chunk_size_feed_forward"),
    WF_HARMLESS("attn_implementation"),
    WF_HARMLESS("experts_implementation"),
    WF_HARMLESS("use_cache"),
    WF_HARMLESS("dtype"), /* each tensor states its own type */
    WF_HARMLESS("torch_dtype"),
    /* Output options, and heads that Weft does not load. */
    WF_HARMLESS("output_attentions"),
    WF_HARMLESS("output_hidden_states"),
    WF_HARMLESS("tie_last_hidden_states"),
    WF_HARMLESS("return_dict"),
    WF_HARMLESS("use_return_dict"),
    WF_HARMLESS("torchscript"),
    WF_HARMLESS("id2label"),
    WF_HARMLESS("label2id"),
    WF_HARMLESS("num_labels"),
    WF_HARMLESS("problem_type"),
    WF_HARMLESS("finetuning_task"),
    WF_HARMLESS("classifier_dropout"),
    /* Origin of the file. */
    WF_HARMLESS("architectures"),
    WF_HARMLESS("auto_map"),
    WF_HARMLESS("name_or_path"),
    WF_HARMLESS("tokenizer_class"),
    WF_HARMLESS("transformers_version"),
    WF_HARMLESS("transformers.js_config"),
    WF_HARMLESS("unsloth_version"),
    WF_HARMLESS("unsloth_fixed"),
    /* Generation defaults that old versions stored here; transformers drops them. */
    WF_HARMLESS("assistant_confidence_threshold"),
    WF_HARMLESS("assistant_lookbehind"),
    WF_HARMLESS("bad_words_ids"),
    WF_HARMLESS("begin_suppress_tokens"),
    WF_HARMLESS("diversity_penalty"),
    WF_HARMLESS("do_sample"),
    WF_HARMLESS("early_stopping"),
    WF_HARMLESS("encoder_no_repeat_ngram_size"),
    WF_HARMLESS("encoder_repetition_penalty"),
    WF_HARMLESS("epsilon_cutoff"),
    WF_HARMLESS("eta_cutoff"),
    WF_HARMLESS("exponential_decay_length_penalty"),
    WF_HARMLESS("forced_bos_token_id"),
    WF_HARMLESS("forced_eos_token_id"),
    WF_HARMLESS("length_penalty"),
    WF_HARMLESS("max_length"),
    WF_HARMLESS("min_length"),
    WF_HARMLESS("no_repeat_ngram_size"),
    WF_HARMLESS("num_assistant_tokens"),
    WF_HARMLESS("num_assistant_tokens_schedule"),
    WF_HARMLESS("num_beam_groups"),
    WF_HARMLESS("num_beams"),
    WF_HARMLESS("num_return_sequences"),
    WF_HARMLESS("output_scores"),
    WF_HARMLESS("remove_invalid_values"),
    WF_HARMLESS("repetition_penalty"),
    WF_HARMLESS("return_dict_in_generate"),
    WF_HARMLESS("suppress_tokens"),
    WF_HARMLESS("target_lookbehind"),
    WF_HARMLESS("task_specific_params"),
    WF_HARMLESS("temperature"),
    WF_HARMLESS("top_k"),
    WF_HARMLESS("top_p"),
    WF_HARMLESS("typical_p"),
    {0},
};

/* text_config has the decoder's keys; the others describe the vision tower. */
static const wf_key wrapper_keys[] = {
    WF_USED("text_config"),
    WF_USED("tie_word_embeddings"),
    WF_HARMLESS("vision_config"),
    WF_HARMLESS("image_token_index"),
    WF_HARMLESS("image_token_id"),
    WF_HARMLESS("projector_hidden_act"),
    WF_HARMLESS("multimodal_projector_bias"),
    WF_HARMLESS("vision_feature_layer"),
    WF_HARMLESS("spatial_merge_size"),
    {0},
};
const wf_model_type wf_wrapper_type = {.keys = wrapper_keys};

#define OF(scaling) (1u << WF_ROPE_##scaling)
#define SCALED (OF(LINEAR) | OF(DYNAMIC) | OF(LLAMA3) | OF(YARN) | OF(LONG))
#define ANY (OF(PLAIN) | SCALED)

const wf_rope_key wf_rope_keys[] = {
    {"rope_type", ANY, WF_KEY_USED, NULL},
    {"type", ANY, WF_KEY_USED, NULL},
    {"rope_theta", ANY, WF_KEY_USED, NULL},
    {"partial_rotary_factor", ANY, WF_KEY_USED, NULL},
    {"factor", OF(LINEAR) | OF(LLAMA3) | OF(YARN) | OF(LONG), WF_KEY_USED, NULL},
    {"factor", ANY, WF_KEY_HARMLESS, NULL}, /* dynamic scaling applies only beyond the context */
    {"original_max_position_embeddings", OF(LLAMA3) | OF(YARN) | OF(LONG), WF_KEY_USED, NULL},
    {"original_max_position_embeddings", ANY, WF_KEY_HARMLESS, NULL}, /* Mistral 3 reads it */
    {"low_freq_factor", OF(LLAMA3), WF_KEY_USED, NULL},
    {"high_freq_factor", OF(LLAMA3), WF_KEY_USED, NULL},
    {"attention_factor", OF(YARN) | OF(LONG), WF_KEY_USED, NULL},
    {"beta_fast", OF(YARN), WF_KEY_USED, NULL},
    {"beta_slow", OF(YARN), WF_KEY_USED, NULL},
    {"short_factor", OF(LONG), WF_KEY_USED, NULL},
    {"long_factor", OF(LONG), WF_KEY_USED, NULL},
    {"llama_4_scaling_beta", ANY, WF_KEY_USED, NULL},        /* only Mistral 3 has it */
    {"max_position_embeddings", ANY, WF_KEY_HARMLESS, NULL}, /* not read there */
    {"mscale", OF(YARN), WF_KEY_USED, NULL},
    {"mscale_all_dim", OF(YARN), WF_KEY_USED, NULL},
    {"truncate", OF(YARN), WF_KEY_USED, NULL},
    {"full_attention", ANY, WF_KEY_EMPTY, "all layers must have the same rotary positions"},
    {"sliding_attention", ANY, WF_KEY_EMPTY, "all layers must have the same rotary positions"},
    {0},
};

/* ---- Checking ---- */

/* Returns whether the rule allows this value; null is always allowed. */
static bool admitted(const wf_json_node *value, wf_key_rule rule)
{
    if (value->kind == WF_JSON_NULL)
        return true;
    switch (rule) {
    case WF_KEY_TRUE: return value->kind == WF_JSON_BOOL && value->boolean;
    case WF_KEY_EMPTY:
        return (value->kind == WF_JSON_OBJECT || value->kind == WF_JSON_ARRAY) && value->count == 0;
    case WF_KEY_FALSE: return value->kind == WF_JSON_BOOL && !value->boolean;
    case WF_KEY_ONE: return value->kind == WF_JSON_NUMBER && value->number == 1;
    default: return true; /* whoever reads the key checks its value */
    }
}

/* Formats the value for a message: a number, a word, or "". */
static const char *describe(const wf_json_node *value, char out[WF_TEXT_SHOWN])
{
    size_t len = 0;
    out[0] = 0;
    if (value->kind == WF_JSON_BOOL)
        wf_text_append(out, WF_TEXT_SHOWN, &len, " %s", value->boolean ? "true" : "false");
    else if (value->kind == WF_JSON_NUMBER)
        wf_text_append(out, WF_TEXT_SHOWN, &len, " %g", value->number);
    else if (wf_json_get_string(value, "quant_method", NULL)) {
        const wf_json_node *method = wf_json_get(value, "quant_method");
        char shown[WF_TEXT_SHOWN];
        wf_text_append(out, WF_TEXT_SHOWN, &len, " '%.40s'",
                       wf_text_show(shown, method->string, method->bytes));
    }
    return out;
}

/* What the tables say about one key. */
typedef struct {
    bool known;
    wf_key_rule rule;
    const char *advice;
} verdict;

/* Looks a key up in the tables that `user` names. */
typedef verdict find_fn(const void *user, const char *key);

static verdict find_rope(const void *user, const char *key)
{
    uint32_t type = *(const uint32_t *)user;
    for (const wf_rope_key *row = wf_rope_keys; row->key; row++)
        if (row->types & type && strcmp(row->key, key) == 0)
            return (verdict){true, row->rule, row->advice};
    return (verdict){0};
}

static const wf_key *find_row(const wf_key *row, const char *key)
{
    for (; row->json || row->gguf; row++)
        if (row->json && strcmp(row->json, key) == 0)
            return row;
    return NULL;
}

/* Rows of the type come first. */
static verdict find_key(const void *user, const char *key)
{
    const wf_model_type *type = user;
    const wf_key *row = find_row(type->keys, key);
    if (!row)
        row = find_row(wf_common_keys, key);
    return row ? (verdict){true, row->rule, row->advice} : (verdict){0};
}

static wf_status check_keys(const wf_json_reader *r, find_fn *find, const void *user)
{
    enum { NAMED = 4 };
    char list[400], shown[WF_TEXT_SHOWN];
    size_t len = 0;
    int unknown = 0;
    list[0] = 0;
    for (size_t i = 0; i < r->json->count; i++) {
        const wf_json_node *value = &r->json->child[i];
        verdict row = find(user, value->key);
        if (row.known && !admitted(value, row.rule))
            return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED, "%s: %s%s%s is not supported: %s",
                           r->what, r->prefix, value->key, describe(value, shown), row.advice);
        /* Keys with an underscore are private to transformers. */
        if (row.known || value->key[0] == '_' || value->kind == WF_JSON_NULL)
            continue;
        if (unknown++ < NAMED)
            wf_text_append(list, sizeof list, &len, "%s%s%s", len ? ", " : "", r->prefix,
                           wf_text_show(shown, value->key, value->key_bytes));
    }
    if (unknown)
        wf_ctx_log(r->arena->ctx, WF_LOG_WARN,
                   "%s: ignored unknown keys, as transformers does: %s%s", r->what, list,
                   unknown > NAMED ? ", ..." : "");
    return WF_OK;
}

wf_status wf_json_check_keys(const wf_json_reader *r, const wf_model_type *type)
{
    return check_keys(r, find_key, type);
}

wf_status wf_json_check_rope_keys(const wf_json_reader *r, wf_rope_scaling scaling)
{
    const uint32_t type = 1u << scaling;
    return check_keys(r, find_rope, &type);
}
