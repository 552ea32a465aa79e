/* SPDX-License-Identifier: MIT */
/*
 * config_keys.c - the keys of config.json that transformers reads, by model type; see
 * config_json.h.
 *
 * A key is used, known to be harmless, or allowed with one value only. Anything else would silently
 * change what is computed, so it fails (a known key with another value) or is reported (an unknown
 * key). The first row for a key and a type decides.
 */
#include <string.h>

#include "model/config_json.h"

#define LLAMA WF_TYPE_LLAMA
#define MISTRAL WF_TYPE_MISTRAL
#define QWEN (WF_TYPE_QWEN2 | WF_TYPE_QWEN3)
#define GPT2 WF_TYPE_GPT2
#define ROTARY WF_TYPE_ROTARY
#define ALL WF_TYPE_ALL

const wf_config_key wf_config_keys[] = {
    /* Keys that Weft uses. GPT-2's config class has its own names for some. */
    {"model_type", ALL, WF_KEY_USED, NULL},
    {"vocab_size", ALL, WF_KEY_USED, NULL},
    {"tie_word_embeddings", ALL, WF_KEY_USED, NULL},
    {"bos_token_id", ALL, WF_KEY_USED, NULL},
    {"eos_token_id", ALL, WF_KEY_USED, NULL},
    {"pad_token_id", ALL, WF_KEY_USED, NULL},
    {"hidden_size", ALL, WF_KEY_USED, NULL},
    {"num_hidden_layers", ALL, WF_KEY_USED, NULL},
    {"num_attention_heads", ALL, WF_KEY_USED, NULL},
    {"max_position_embeddings", ALL, WF_KEY_USED, NULL},
    {"intermediate_size", ROTARY, WF_KEY_USED, NULL},
    {"num_key_value_heads", ROTARY, WF_KEY_USED, NULL},
    {"head_dim", ROTARY, WF_KEY_USED, NULL},
    {"hidden_act", ROTARY, WF_KEY_USED, NULL},
    {"rms_norm_eps", ROTARY, WF_KEY_USED, NULL},
    {"rope_parameters", ROTARY, WF_KEY_USED, NULL},
    {"rope_scaling", ROTARY, WF_KEY_USED, NULL},
    {"rope_theta", ROTARY, WF_KEY_USED, NULL},
    {"original_max_position_embeddings", ROTARY, WF_KEY_USED, NULL},
    {"attention_bias", LLAMA | WF_TYPE_QWEN3, WF_KEY_USED, NULL},
    {"mlp_bias", LLAMA, WF_KEY_USED, NULL},
    {"sliding_window", MISTRAL | QWEN, WF_KEY_USED, NULL},
    {"use_sliding_window", QWEN, WF_KEY_USED, NULL},
    {"max_window_layers", QWEN, WF_KEY_USED, NULL},
    {"layer_types", ALL, WF_KEY_USED, NULL}, /* except for Qwen it must match what is computed */
    {"n_embd", GPT2, WF_KEY_USED, NULL},
    {"n_layer", GPT2, WF_KEY_USED, NULL},
    {"n_head", GPT2, WF_KEY_USED, NULL},
    {"n_positions", GPT2, WF_KEY_USED, NULL},
    {"n_inner", GPT2, WF_KEY_USED, NULL},
    {"activation_function", GPT2, WF_KEY_USED, NULL},
    {"layer_norm_epsilon", GPT2, WF_KEY_USED, NULL},
    {"scale_attn_weights", GPT2, WF_KEY_USED, NULL},
    {"scale_attn_by_inverse_layer_idx", GPT2, WF_KEY_USED, NULL},

    /* Keys with only one accepted value. */
    {"quantization_config", ALL, WF_KEY_EMPTY,
     "the weights are quantized in a format that Weft does not read; use "
     "the original checkpoint or a GGUF file"},
    {"compression_config", ALL, WF_KEY_EMPTY,
     "the weights are compressed; use the original checkpoint or a GGUF file"},
    {"per_layer_config", ALL, WF_KEY_EMPTY, "all layers must have the same sizes"},
    {"partial_rotary_factor", ROTARY, WF_KEY_ONE, "whole heads must be rotated"},
    {"add_cross_attention", GPT2, WF_KEY_FALSE, "Weft has no encoder to attend to"},
    {"is_encoder_decoder", ALL, WF_KEY_FALSE, "Weft loads decoders only"},
    {"is_decoder", ALL, WF_KEY_HARMLESS, NULL},

    /* Keys that only the config class of another type reads. */
    {"attention_bias", ALL, WF_KEY_HARMLESS, NULL},
    {"mlp_bias", ALL, WF_KEY_HARMLESS, NULL},
    {"sliding_window", ALL, WF_KEY_HARMLESS, NULL},
    {"use_sliding_window", ALL, WF_KEY_HARMLESS, NULL},
    {"max_window_layers", ALL, WF_KEY_HARMLESS, NULL},
    {"n_ctx", GPT2, WF_KEY_HARMLESS, NULL},

    /* Kernels, initialization and dropout (`weft train` has its own flag). */
    {"reorder_and_upcast_attn", GPT2, WF_KEY_HARMLESS, NULL}, /* Weft's attention is f32 anyway */
    {"initializer_range", ALL, WF_KEY_HARMLESS, NULL},
    {"attention_dropout", ALL, WF_KEY_HARMLESS, NULL},
    {"hidden_dropout", ALL, WF_KEY_HARMLESS, NULL},
    {"attn_pdrop", GPT2, WF_KEY_HARMLESS, NULL},
    {"embd_pdrop", GPT2, WF_KEY_HARMLESS, NULL},
    {"resid_pdrop", GPT2, WF_KEY_HARMLESS, NULL},
    {"gradient_checkpointing", ALL, WF_KEY_HARMLESS, NULL},
    {"pretraining_tp", ALL, WF_KEY_HARMLESS, NULL},
    {"chunk_size_feed_forward", ALL, WF_KEY_HARMLESS, NULL},
    {"attn_implementation", ALL, WF_KEY_HARMLESS, NULL},
    {"experts_implementation", ALL, WF_KEY_HARMLESS, NULL},
    {"use_cache", ALL, WF_KEY_HARMLESS, NULL},
    {"dtype", ALL, WF_KEY_HARMLESS, NULL}, /* each tensor states its own type */
    {"torch_dtype", ALL, WF_KEY_HARMLESS, NULL},

    /* Output options, and heads that Weft does not load. */
    {"output_attentions", ALL, WF_KEY_HARMLESS, NULL},
    {"output_hidden_states", ALL, WF_KEY_HARMLESS, NULL},
    {"tie_last_hidden_states", ALL, WF_KEY_HARMLESS, NULL},
    {"return_dict", ALL, WF_KEY_HARMLESS, NULL},
    {"use_return_dict", ALL, WF_KEY_HARMLESS, NULL},
    {"torchscript", ALL, WF_KEY_HARMLESS, NULL},
    {"id2label", ALL, WF_KEY_HARMLESS, NULL},
    {"label2id", ALL, WF_KEY_HARMLESS, NULL},
    {"num_labels", ALL, WF_KEY_HARMLESS, NULL},
    {"problem_type", ALL, WF_KEY_HARMLESS, NULL},
    {"finetuning_task", ALL, WF_KEY_HARMLESS, NULL},
    {"classifier_dropout", ALL, WF_KEY_HARMLESS, NULL},
    {"summary_type", GPT2, WF_KEY_HARMLESS, NULL},
    {"summary_use_proj", GPT2, WF_KEY_HARMLESS, NULL},
    {"summary_activation", GPT2, WF_KEY_HARMLESS, NULL},
    {"summary_proj_to_labels", GPT2, WF_KEY_HARMLESS, NULL},
    {"summary_first_dropout", GPT2, WF_KEY_HARMLESS, NULL},
    {"summary_last_dropout", GPT2, WF_KEY_HARMLESS, NULL},

    /* Origin of the file. */
    {"architectures", ALL, WF_KEY_HARMLESS, NULL},
    {"auto_map", ALL, WF_KEY_HARMLESS, NULL},
    {"name_or_path", ALL, WF_KEY_HARMLESS, NULL},
    {"tokenizer_class", ALL, WF_KEY_HARMLESS, NULL},
    {"transformers_version", ALL, WF_KEY_HARMLESS, NULL},
    {"transformers.js_config", ALL, WF_KEY_HARMLESS, NULL},
    {"unsloth_version", ALL, WF_KEY_HARMLESS, NULL},
    {"unsloth_fixed", ALL, WF_KEY_HARMLESS, NULL},

    /* Generation defaults that old versions stored here; transformers drops them. */
    {"assistant_confidence_threshold", ALL, WF_KEY_HARMLESS, NULL},
    {"assistant_lookbehind", ALL, WF_KEY_HARMLESS, NULL},
    {"bad_words_ids", ALL, WF_KEY_HARMLESS, NULL},
    {"begin_suppress_tokens", ALL, WF_KEY_HARMLESS, NULL},
    {"diversity_penalty", ALL, WF_KEY_HARMLESS, NULL},
    {"do_sample", ALL, WF_KEY_HARMLESS, NULL},
    {"early_stopping", ALL, WF_KEY_HARMLESS, NULL},
    {"encoder_no_repeat_ngram_size", ALL, WF_KEY_HARMLESS, NULL},
    {"encoder_repetition_penalty", ALL, WF_KEY_HARMLESS, NULL},
    {"epsilon_cutoff", ALL, WF_KEY_HARMLESS, NULL},
    {"eta_cutoff", ALL, WF_KEY_HARMLESS, NULL},
    {"exponential_decay_length_penalty", ALL, WF_KEY_HARMLESS, NULL},
    {"forced_bos_token_id", ALL, WF_KEY_HARMLESS, NULL},
    {"forced_eos_token_id", ALL, WF_KEY_HARMLESS, NULL},
    {"length_penalty", ALL, WF_KEY_HARMLESS, NULL},
    {"max_length", ALL, WF_KEY_HARMLESS, NULL},
    {"min_length", ALL, WF_KEY_HARMLESS, NULL},
    {"no_repeat_ngram_size", ALL, WF_KEY_HARMLESS, NULL},
    {"num_assistant_tokens", ALL, WF_KEY_HARMLESS, NULL},
    {"num_assistant_tokens_schedule", ALL, WF_KEY_HARMLESS, NULL},
    {"num_beam_groups", ALL, WF_KEY_HARMLESS, NULL},
    {"num_beams", ALL, WF_KEY_HARMLESS, NULL},
    {"num_return_sequences", ALL, WF_KEY_HARMLESS, NULL},
    {"output_scores", ALL, WF_KEY_HARMLESS, NULL},
    {"remove_invalid_values", ALL, WF_KEY_HARMLESS, NULL},
    {"repetition_penalty", ALL, WF_KEY_HARMLESS, NULL},
    {"return_dict_in_generate", ALL, WF_KEY_HARMLESS, NULL},
    {"suppress_tokens", ALL, WF_KEY_HARMLESS, NULL},
    {"target_lookbehind", ALL, WF_KEY_HARMLESS, NULL},
    {"task_specific_params", ALL, WF_KEY_HARMLESS, NULL},
    {"temperature", ALL, WF_KEY_HARMLESS, NULL},
    {"top_k", ALL, WF_KEY_HARMLESS, NULL},
    {"top_p", ALL, WF_KEY_HARMLESS, NULL},
    {"typical_p", ALL, WF_KEY_HARMLESS, NULL},
    {0},
};

#define OF(scaling) (1u << WF_ROPE_##scaling)
#define SCALED (OF(LINEAR) | OF(DYNAMIC) | OF(LLAMA3) | OF(YARN))
#define ANY (OF(PLAIN) | SCALED)

const wf_config_key wf_rope_keys[] = {
    {"rope_type", ANY, WF_KEY_USED, NULL},
    {"type", ANY, WF_KEY_USED, NULL},
    {"rope_theta", ANY, WF_KEY_USED, NULL},
    {"partial_rotary_factor", ANY, WF_KEY_ONE, "whole heads must be rotated"},
    {"factor", OF(LINEAR) | OF(LLAMA3) | OF(YARN), WF_KEY_USED, NULL},
    {"factor", ANY, WF_KEY_HARMLESS, NULL}, /* dynamic scaling applies only beyond the context */
    {"original_max_position_embeddings", OF(LLAMA3) | OF(YARN), WF_KEY_USED, NULL},
    {"low_freq_factor", OF(LLAMA3), WF_KEY_USED, NULL},
    {"high_freq_factor", OF(LLAMA3), WF_KEY_USED, NULL},
    {"attention_factor", OF(YARN), WF_KEY_USED, NULL},
    {"beta_fast", OF(YARN), WF_KEY_USED, NULL},
    {"beta_slow", OF(YARN), WF_KEY_USED, NULL},
    {"mscale", OF(YARN), WF_KEY_USED, NULL},
    {"mscale_all_dim", OF(YARN), WF_KEY_USED, NULL},
    {"truncate", OF(YARN), WF_KEY_USED, NULL},
    {"full_attention", ANY, WF_KEY_EMPTY, "all layers must have the same rotary positions"},
    {"sliding_attention", ANY, WF_KEY_EMPTY, "all layers must have the same rotary positions"},
    {0},
};

uint32_t wf_config_type(const char *model_type)
{
    static const struct {
        const char *name;
        uint32_t type;
    } types[] = {{"llama", WF_TYPE_LLAMA},
                 {"mistral", WF_TYPE_MISTRAL},
                 {"qwen2", WF_TYPE_QWEN2},
                 {"qwen3", WF_TYPE_QWEN3},
                 {"gpt2", WF_TYPE_GPT2}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, model_type) == 0)
            return types[i].type;
    return 0;
}

/* ---- Checking ---- */

/* Returns whether the rule allows this value; null is always allowed. */
static bool admitted(const wf_json_node *value, wf_key_rule rule)
{
    if (value->kind == WF_JSON_NULL)
        return true;
    switch (rule) {
    case WF_KEY_USED:
    case WF_KEY_HARMLESS: return true;
    case WF_KEY_EMPTY:
        return (value->kind == WF_JSON_OBJECT || value->kind == WF_JSON_ARRAY) && value->count == 0;
    case WF_KEY_FALSE: return value->kind == WF_JSON_BOOL && !value->boolean;
    case WF_KEY_ONE: return value->kind == WF_JSON_NUMBER && value->number == 1;
    }
    return false;
}

/* Returns the first row for this key and type, or NULL. */
static const wf_config_key *find(const wf_config_key *table, uint32_t type, const char *key)
{
    for (; table->key; table++)
        if (table->types & type && strcmp(table->key, key) == 0)
            return table;
    return NULL;
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

wf_status wf_config_check_keys(const wf_json_reader *r, const wf_config_key *table, uint32_t type)
{
    enum { NAMED = 4 };
    char list[400], shown[WF_TEXT_SHOWN];
    size_t len = 0;
    int unknown = 0;
    list[0] = 0;
    for (size_t i = 0; i < r->json->count; i++) {
        const wf_json_node *value = &r->json->child[i];
        const wf_config_key *row = find(table, type, value->key);
        if (row && !admitted(value, row->rule))
            return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED, "%s: %s%s%s is not supported: %s",
                           r->what, r->prefix, row->key, describe(value, shown), row->advice);
        /* Keys with an underscore are private to transformers. */
        if (row || value->key[0] == '_' || value->kind == WF_JSON_NULL)
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
