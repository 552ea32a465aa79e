/* SPDX-License-Identifier: MIT */
/*
 * key.h - the keys of a model's configuration: one row per key, for config.json and for GGUF files.
 *
 * A model type (a config class of transformers) has a table of rows. A row names a key in both
 * formats and the member of wf_config or wf_layer that it fills. Reading, writing and the check of
 * unknown keys use the same row. Rows of wf_common_keys apply to every type.
 */
#ifndef WF_MODEL_KEY_H
#define WF_MODEL_KEY_H

#include <math.h>
#include <stddef.h>

#include "model/config.h"

typedef enum {
    WF_KEY_INT,      /* fills an int64_t */
    WF_KEY_REAL,     /* fills a double */
    WF_KEY_BOOL,     /* fills a bool */
    WF_KEY_SILU,     /* an activation function that must be SiLU */
    WF_KEY_GELU,     /* an activation function that must be the tanh approximation of GELU */
    WF_KEY_USED,     /* read by other code */
    WF_KEY_HARMLESS, /* does not change logits, or transformers does not read it */
    WF_KEY_EMPTY,    /* must be null, an empty object or an empty list */
    WF_KEY_FALSE,    /* must be null or false */
    WF_KEY_TRUE,     /* must be null or true */
    WF_KEY_ONE       /* must be null or 1 */
} wf_key_rule;

#define WF_KEY_REQUIRED ((double)NAN)  /* no default: config.json must have the key */
#define WF_KEY_KEEP ((double)INFINITY) /* another row has the default of this member */

typedef struct {
    const char *json; /* name in config.json; NULL: none */
    const char *gguf; /* name in GGUF files, after "ARCHITECTURE."; NULL: none */
    wf_key_rule rule;
    bool per_layer;     /* the member is in wf_layer: GGUF files may have an array of it */
    size_t member;      /* offset in wf_config or wf_layer */
    double fallback;    /* if config.json lacks the key */
    const char *advice; /* what to do about a rejected value; NULL: no advice */
    bool derived;       /* GGUF files have the key only if it is not width / heads */
} wf_key;

/* Rows of a table. F is WF_KEY_REQUIRED, WF_KEY_KEEP or the default of transformers. */
#define WF_ROW(json, gguf, rule, each, at, F, advice) \
    {                                                 \
        json, gguf, rule, each, at, F, advice, false  \
    }
#define WF_INT(json, gguf, m, F) \
    WF_ROW(json, gguf, WF_KEY_INT, false, offsetof(wf_config, m), F, NULL)
#define WF_REAL(json, gguf, m, F) \
    WF_ROW(json, gguf, WF_KEY_REAL, false, offsetof(wf_config, m), F, NULL)
#define WF_BOOL(json, m, F) WF_ROW(json, NULL, WF_KEY_BOOL, false, offsetof(wf_config, m), F, NULL)
#define WF_EACH(json, gguf, m, F) \
    WF_ROW(json, gguf, WF_KEY_INT, true, offsetof(wf_layer, m), F, NULL)
#define WF_RULE_OF(json, rule, advice) WF_ROW(json, NULL, WF_KEY_##rule, false, 0, 0, advice)
#define WF_USED(json) WF_RULE_OF(json, USED, NULL)
#define WF_HARMLESS(json) WF_RULE_OF(json, HARMLESS, NULL)

/* Keys that config classes of decoders share. `positions`: default of max_position_embeddings;
 * `kv`: default of num_key_value_heads, 0 for as many as heads. */
#define WF_DECODER_KEYS(positions, kv)                                                  \
    WF_INT("num_hidden_layers", "block_count", layers, WF_KEY_REQUIRED),                \
        WF_INT("max_position_embeddings", "context_length", context, positions),        \
        WF_INT("hidden_size", "embedding_length", width, WF_KEY_REQUIRED),              \
        WF_EACH("intermediate_size", "feed_forward_length", hidden, WF_KEY_REQUIRED),   \
        WF_EACH("num_attention_heads", "attention.head_count", heads, WF_KEY_REQUIRED), \
        WF_EACH("num_key_value_heads", "attention.head_count_kv", kv_heads, kv),        \
        WF_RULE_OF("hidden_act", SILU, NULL)
/* `head`: default of head_dim, 0 for width / heads. */
#define WF_HEAD_KEYS(head)                                      \
    WF_EACH("head_dim", "attention.key_length", key_dim, head), \
        WF_EACH(NULL, "attention.value_length", value_dim, WF_KEY_KEEP)
/* The same for families whose GGUF files have no sizes of heads, unless they are unusual. */
#define WF_ODD_HEAD_KEYS(head)                                                           \
    {                                                                                    \
        "head_dim",                                                                      \
        "attention.key_length",                                                          \
        WF_KEY_INT,                                                                      \
        true,                                                                            \
        offsetof(wf_layer, key_dim),                                                     \
        head,                                                                            \
        NULL,                                                                            \
        true},                                                                           \
    {                                                                                    \
        NULL, "attention.value_length", WF_KEY_INT, true, offsetof(wf_layer, value_dim), \
            WF_KEY_KEEP, NULL, true                                                      \
    }
/* vocab_size is absent when a model is trained from a config: the data determines it. */
#define WF_VOCAB_KEYS(tied_default) \
    WF_INT("vocab_size", "vocab_size", vocab, 0), WF_BOOL("tie_word_embeddings", tied, tied_default)
/* The same for families whose GGUF files have no vocab_size. */
#define WF_JSON_VOCAB_KEYS(tied_default) \
    WF_INT("vocab_size", NULL, vocab, 0), WF_BOOL("tie_word_embeddings", tied, tied_default)
#define WF_RMS_KEY(eps_default) \
    WF_REAL("rms_norm_eps", "attention.layer_norm_rms_epsilon", eps, eps_default)
#define WF_ROPE_DIMS_KEY WF_INT(NULL, "rope.dimension_count", rope[0].dims, WF_KEY_KEEP)
#define WF_ROPE_KEYS(theta)                                                                   \
    WF_REAL("rope_theta", "rope.freq_base", rope[0].base, theta), WF_USED("rope_parameters"), \
        WF_USED("rope_scaling"), WF_USED("original_max_position_embeddings")
/* attention_bias: biases of q, k, v and o. */
#define WF_ATTENTION_BIAS_KEYS \
    WF_BOOL("attention_bias", qkv_bias, false), WF_BOOL("attention_bias", out_bias, false)

/* How config.json states which layers have an attention window. */
typedef enum {
    WF_WINDOWS_NONE,   /* layer_types, if present, lists full_attention only */
    WF_WINDOWS_ALL,    /* sliding_window, for all layers; null: none */
    WF_WINDOWS_LATE,   /* use_sliding_window, and max_window_layers or layer_types (Qwen) */
    WF_WINDOWS_LISTED, /* layer_types; without it every period-th layer has none */
    WF_WINDOWS_NOPE    /* use_sliding_window: the layers without rotary positions (SmolLM3) */
} wf_windows;

struct wf_model_type {
    const char *name;   /* model_type in config.json */
    const char *class;  /* architectures[0] of a config.json that Weft writes */
    const wf_key *keys; /* the last has no names */
    wf_windows windows;
    int64_t window;  /* default of sliding_window; 0: null */
    double partial;  /* default of partial_rotary_factor; 0: the key must be 1 */
    bool long_rope;  /* "longrope" is accepted; "su" and "yarn" are other names of it */
    bool rope_parts; /* rope_parameters has one object per type of layer (OLMo 3) */
    bool q_scale;    /* llama_4_scaling_beta scales queries by position (Mistral 3) */
};

extern const wf_key wf_common_keys[]; /* the last has no names */
/* A multimodal config.json around text_config: its keys only. */
extern const wf_model_type wf_wrapper_type;

/* A table of rope_parameters; the rows' `rule` applies to the scalings in `types`. */
typedef struct {
    const char *key;
    uint32_t types; /* bits 1u << wf_rope_scaling */
    wf_key_rule rule;
    const char *advice;
} wf_rope_key;
extern const wf_rope_key wf_rope_keys[]; /* the last has no key */

/* Returns the member of a row. */
static inline void *wf_key_member(const wf_key *k, wf_config *c, wf_layer *l)
{
    return (char *)(k->per_layer ? (void *)l : (void *)c) + k->member;
}

static inline const void *wf_key_value(const wf_key *k, const wf_config *c, const wf_layer *l)
{
    return (const char *)(k->per_layer ? (const void *)l : (const void *)c) + k->member;
}

#endif
