/* SPDX-License-Identifier: MIT */
/*
 * sampling.h - the sampling settings that a model's authors recommend.
 *
 * A folder has them in generation_config.json, a GGUF file in general.sampling.* keys. Values out
 * of range, unsupported settings and unknown keys become remarks, which wf_model_sampling logs.
 */
#ifndef WF_MODEL_SAMPLING_H
#define WF_MODEL_SAMPLING_H

#include "base/arena.h"
#include "base/json_tree.h"
#include "format/gguf.h"

typedef enum {
    WF_SET_TEMPERATURE, /* 0: greedy */
    WF_SET_TOP_K,       /* 0: all */
    WF_SET_TOP_P,
    WF_SET_MIN_P,
    WF_SET_REPEAT,
    WF_SET_LAST, /* tokens that the penalties cover; -1: all; 0: none */
    WF_SETTINGS
} wf_setting;

/* One row per setting; no other table lists them. */
typedef struct {
    const char *json, *gguf; /* keys; `gguf` without "general.sampling." */
    double low, high;
    const char *rule; /* the range in words, for remarks */
    bool whole;
    double otherwise; /* Weft's default */
    double sampled;   /* transformers' default if do_sample is true; negative: Weft's */
} wf_setting_info;
extern const wf_setting_info wf_settings[WF_SETTINGS];

#define WF_MAX_REMARKS 8

typedef struct {
    bool given[WF_SETTINGS];
    double value[WF_SETTINGS]; /* valid where given */
    const char *samplers;      /* sampler order, already validated; NULL: not given */
    const char *remark[WF_MAX_REMARKS];
    int remarks; /* counts all remarks; may exceed those kept */
} wf_sampling_defaults;

/* The arena owns the strings. They fail only with WF_ERR_MEMORY. */
wf_status wf_sampling_from_json(wf_arena *arena, const wf_json_node *generation,
                                wf_sampling_defaults *out);
wf_status wf_sampling_from_gguf(wf_arena *arena, const wf_gguf *f, wf_sampling_defaults *out);
wf_status wf_sampling_remark(wf_arena *arena, wf_sampling_defaults *d, const char *fmt, ...)
    WF_PRINTF(3, 4);

/* Returns true if the model sets anything. */
bool wf_sampling_any(const wf_sampling_defaults *d);
/* Returns the model's value, or Weft's default. */
double wf_sampling_value(const wf_sampling_defaults *d, wf_setting which);
/* Fills in all settings of a request. */
void wf_sampling_resolve(const wf_sampling_defaults *d, wf_sampling *out);

#endif
