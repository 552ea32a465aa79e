/* SPDX-License-Identifier: MIT */
/*
 * config_json.h - config.json: reading single keys, and the list of all keys.
 *
 * Every key that transformers' config class of a model type reads is in a table: Weft uses it, or it cannot
 * change the logits, or one value is accepted and every other one is refused by name.
 */
#ifndef WF_MODEL_CONFIG_JSON_H
#define WF_MODEL_CONFIG_JSON_H

#include "model/config.h"

/* An object of config.json. `prefix` precedes its keys in messages: "" or "rope_parameters.". */
typedef struct {
    wf_arena *arena;
    const char *what; /* the file, for messages */
    const char *prefix;
    const wf_json_node *json;
} wf_json_reader;

/* Reads a member. *out stays as it is when the member is missing or null. */
wf_status wf_json_read_int(const wf_json_reader *r, const char *key, int64_t *out);
wf_status wf_json_read_number(const wf_json_reader *r, const char *key, double *out);
wf_status wf_json_read_bool(const wf_json_reader *r, const char *key, bool *out);
bool wf_json_missing(const wf_json_node *node); /* or null */

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
    WF_KEY_HARMLESS, /* changes no logits, or transformers does not read it */
    WF_KEY_EMPTY,    /* must be null, an empty object or an empty list */
    WF_KEY_FALSE,    /* must be null or false */
    WF_KEY_ONE       /* must be null or 1 */
} wf_key_rule;

typedef struct {
    const char *key;
    uint32_t types; /* WF_TYPE_*, or rope scalings as bits in wf_rope_keys */
    wf_key_rule rule;
    const char *advice; /* of a refusal: what to do; NULL: there is nothing to do */
} wf_config_key;

/* Ends with a row without a key. The first row with the key and the type counts. */
extern const wf_config_key wf_config_keys[];
extern const wf_config_key wf_rope_keys[]; /* types are 1u << wf_rope_scaling */

/* 0 when the type is not in the tables. */
uint32_t wf_config_type(const char *model_type);
/* Refuses values that the table does not admit. Keys outside the table are logged as a warning, since
 * transformers ignores them. */
wf_status wf_config_check_keys(const wf_json_reader *r, const wf_config_key *table, uint32_t type);

/* rope_parameters (transformers 5) or rope_scaling (4); rope->base and ->dims are set. `context` is
 * max_position_embeddings, `original` the value of original_max_position_embeddings beside the object, 0
 * where there is none. */
wf_status wf_rope_from_json(const wf_json_reader *r, double context, double original,
                            wf_rotary *rope);
/* The name of a scaling in config.json: "yarn". */
const char *wf_rope_scaling_name(wf_rope_scaling scaling);

#endif
