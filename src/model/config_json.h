/* SPDX-License-Identifier: MIT */
/*
 * config_json.h - reads keys of config.json, and classifies all keys.
 *
 * A table lists every key that transformers' config class of a model type reads. Weft uses the key,
 * or the key cannot change the logits, or only one value is accepted and any other is an error that
 * names the key.
 */
#ifndef WF_MODEL_CONFIG_JSON_H
#define WF_MODEL_CONFIG_JSON_H

#include "model/config.h"

/* An object of config.json. `prefix` precedes its keys in errors: "" or "rope_parameters.". */
typedef struct {
    wf_arena *arena;
    const char *what; /* the file, for errors */
    const char *prefix;
    const wf_json_node *json;
} wf_json_reader;

/* Read a member. *out is unchanged if the member is missing or null. */
wf_status wf_json_read_int(const wf_json_reader *r, const char *key, int64_t *out);
wf_status wf_json_read_number(const wf_json_reader *r, const char *key, double *out);
wf_status wf_json_read_bool(const wf_json_reader *r, const char *key, bool *out);
bool wf_json_missing(const wf_json_node *node); /* true for NULL and null */

/* ---- Keys ---- */

#define WF_TYPE_LLAMA 1u
#define WF_TYPE_MISTRAL 2u
#define WF_TYPE_QWEN2 4u
#define WF_TYPE_QWEN3 8u
#define WF_TYPE_GPT2 16u
#define WF_TYPE_ROTARY (WF_TYPE_LLAMA | WF_TYPE_MISTRAL | WF_TYPE_QWEN2 | WF_TYPE_QWEN3)
#define WF_TYPE_ALL (WF_TYPE_ROTARY | WF_TYPE_GPT2)

typedef enum {
    WF_KEY_USED,
    WF_KEY_HARMLESS, /* does not change logits, or transformers does not read it */
    WF_KEY_EMPTY,    /* must be null, an empty object or an empty list */
    WF_KEY_FALSE,    /* must be null or false */
    WF_KEY_ONE       /* must be null or 1 */
} wf_key_rule;

typedef struct {
    const char *key;
    uint32_t types; /* WF_TYPE_*; in wf_rope_keys a bit set of rope scalings */
    wf_key_rule rule;
    const char *advice; /* what to do about a rejected value; NULL: no advice */
} wf_config_key;

/* Ends with a row without a key. The first row that matches key and type applies. */
extern const wf_config_key wf_config_keys[];
extern const wf_config_key wf_rope_keys[]; /* types are 1u << wf_rope_scaling */

/* Returns a WF_TYPE_* bit, or 0 for an unknown model type. */
uint32_t wf_config_type(const char *model_type);
/* Rejects values that the table does not allow. Unknown keys are logged as a warning: transformers
 * ignores them. */
wf_status wf_config_check_keys(const wf_json_reader *r, const wf_config_key *table, uint32_t type);

/* Reads rope_parameters (transformers 5) or rope_scaling (4). rope->base and rope->dims are already
 * set. `context` is max_position_embeddings. `original` is original_max_position_embeddings next to
 * the object, or 0. */
wf_status wf_rope_from_json(const wf_json_reader *r, double context, double original,
                            wf_rotary *rope);
/* Returns the name of a scaling in config.json, such as "yarn". */
const char *wf_rope_scaling_name(wf_rope_scaling scaling);

#endif
