/* SPDX-License-Identifier: MIT */
/*
 * sampling.h - how a model's authors want it to be sampled.
 *
 * A folder says it in generation_config.json, a GGUF file in keys that begin with general.sampling. Values out of
 * range, settings that Weft lacks and keys that it does not know become remarks, which wf_model_sampling logs.
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
    WF_SET_LAST, /* tokens that the penalty looks at; -1: all; 0: none */
    WF_SETTINGS
} wf_setting;

/* What differs between settings, and nothing else has to list them. */
typedef struct {
    const char *json, *gguf; /* the second without general.sampling. */
    double low, high;
    const char *rule; /* the range in words */
    bool whole;
    double otherwise; /* Weft's default */
    double sampled;   /* transformers' default when do_sample is true; < 0: ours */
} wf_setting_info;
extern const wf_setting_info wf_settings[WF_SETTINGS];

#define WF_MAX_REMARKS 8

typedef struct {
    bool given[WF_SETTINGS];
    double value[WF_SETTINGS]; /* where given, in its range */
    const char *samplers;      /* their order, which parses; NULL: not given */
    const char *remark[WF_MAX_REMARKS];
    int remarks; /* may be more than are kept */
} wf_sampling_defaults;

/* Strings are the arena's. These fail only for memory. */
wf_status wf_sampling_from_json(wf_arena *arena, const wf_json_node *generation,
                                wf_sampling_defaults *out);
wf_status wf_sampling_from_gguf(wf_arena *arena, const wf_gguf *f, wf_sampling_defaults *out);
wf_status wf_sampling_remark(wf_arena *arena, wf_sampling_defaults *d, const char *fmt, ...)
    WF_PRINTF(3, 4);

/* Did the model set anything? */
bool wf_sampling_any(const wf_sampling_defaults *d);
/* The model's value, or Weft's default. */
double wf_sampling_value(const wf_sampling_defaults *d, wf_setting which);
/* All of them as a request takes them. */
void wf_sampling_resolve(const wf_sampling_defaults *d, wf_sampling *out);

#endif
