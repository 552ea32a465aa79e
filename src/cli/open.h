/* SPDX-License-Identifier: MIT */
/*
 * open.h - opens a model on a device by the flags that run, chat, eval and bench share.
 *
 * wf_open_model is quick and uses little memory. Commands check prompts, numbers and the context
 * first and call wf_open_load, which takes the memory, last.
 */
#ifndef WF_CLI_OPEN_H
#define WF_CLI_OPEN_H

#include "cli/auto.h"
#include "model/model.h"

typedef struct {
    const char *model, *device, *kv_k, *kv_v, *compute; /* flags; NULL: not given */
    int64_t context, chunk, threads, cache;             /* -1: the default */
    double step_ms;                                     /* -1: the default */
    bool check, quiet, verbose, fast, no_reuse;
    wf_values lora;
} wf_open_options;
extern wf_open_options wf_open_set;
extern const wf_flag wf_open_flags[];

typedef struct {
    wf_ctx *ctx;
    wf_model *model;
    wf_model_info info;
    const wf_tokenizer *tokenizer; /* of the model, borrowed; NULL: the model has none */
    wf_device *device;
    int64_t asked;   /* context of the engine, in tokens */
    int64_t context; /* most tokens of a sequence: `asked`, or what the KV cache holds */
    wf_kv kv;        /* type of the KV cache */
    wf_type compute; /* --compute */
    wf_arena arena;  /* owns the paths in lora */
    wf_lora lora[WF_MAX_VALUES];
    wf_engine *engine; /* NULL before wf_open_load */
} wf_open;

/* Stores the model that the first operand or --model names. */
wf_status wf_open_path(wf_ctx *ctx, char *const *operands, int count, const char **path);
/* Opens model, tokenizer and device. Call wf_open_close after a failure as well. */
wf_status wf_open_model(wf_ctx *ctx, const char *path, wf_open *e);
/* The same for work without text: the model may lack a tokenizer. */
wf_status wf_open_weights(wf_ctx *ctx, const char *path, wf_open *e);
/* Sets the context; --cache-tokens may limit it further. */
wf_status wf_open_limit(wf_open *e, int64_t context);
/* Opens only the device. --device auto chooses by `work`; with NULL it fails. */
wf_status wf_open_device(wf_ctx *ctx, const wf_auto_work *work, wf_device **out);
/* Prints the planned memory on stderr, allocates it and makes the engine. rows: most tokens per step
 * that have logits; 0: one per sequence. */
wf_status wf_open_load(wf_open *e, int64_t sequences, int64_t rows);
void wf_open_close(wf_open *e);

/* Range of --cache-tokens. */
#define WF_CACHE_RANGE "1,2147483632"
/* Names of wf_kv in its order, for the choices of a flag. */
#define WF_KV_NAMES "f16 bf16 f32 q8_0"
/* Finds a KV type by its name; NULL: the default. */
wf_status wf_open_kv(wf_ctx *ctx, const char *name, wf_kv *out);
/* Finds the type of wf_engine_options.compute by the value of --compute; NULL: the default. */
wf_status wf_open_compute(wf_ctx *ctx, const char *name, wf_type *out);
/* Fails as the sequence did, if it ended with WF_STOP_ERROR. */
wf_status wf_open_check(const wf_open *e, const wf_sequence *s);
/* Returns the name of a KV type. */
const char *wf_open_kv_name(wf_kv kv);
/* Prints a line on stderr, unless --quiet. */
void wf_open_say(const char *fmt, ...) WF_PRINTF(1, 2);
/* Prints token counts and speeds on stderr. `prompt`: prompt tokens of all sequences, of which
 * `cached` were not computed; `begun`: number of sequences. */
void wf_open_say_speed(const wf_open *e, uint64_t prompt, uint64_t cached, int begun,
                       const char *ending);

/* Returns ", or give a larger context (-c, up to N for this model)", or the flag of the KV cache if
 * that is the limit, or "" at the model's limit. */
const char *wf_open_larger(const wf_open *e, char *buf, size_t cap);
/* "135M", "1.5B" */
const char *wf_open_count(int64_t count, char *buf, size_t cap);

#endif
