/* SPDX-License-Identifier: MIT */
/*
 * config_json.h - reads config.json, and checks all of its keys by the tables of key.h.
 */
#ifndef WF_MODEL_CONFIG_JSON_H
#define WF_MODEL_CONFIG_JSON_H

#include "model/key.h"

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

/* Fails unless every key of config.json is allowed by the type's rows or by wf_common_keys. Unknown
 * keys are logged as a warning: transformers ignores them. */
wf_status wf_json_check_keys(const wf_json_reader *r, const wf_model_type *type);
/* The same for the members of rope_parameters, by wf_rope_keys. */
wf_status wf_json_check_rope_keys(const wf_json_reader *r, wf_rope_scaling scaling);

/* Reads rope_parameters (transformers 5) or rope_scaling (4). rope->base and rope->dims are already
 * set. `context` is max_position_embeddings. `original` is original_max_position_embeddings next to
 * the object, or 0. `type`: NULL for the type of the model that wrote weft.rope_parameters. */
wf_status wf_rope_from_json(const wf_json_reader *r, const wf_model_type *type, double context,
                            double original, wf_rotary *rope);
/* Reads all rotary positions of a config.json into c->rope. c->rope[0].base and the sizes of heads
 * are already set. */
wf_status wf_ropes_from_json(const wf_json_reader *r, wf_config *c);
/* Returns the name of a scaling in config.json, such as "yarn". */
const char *wf_rope_scaling_name(wf_rope_scaling scaling);

#endif
