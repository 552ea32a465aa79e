/* SPDX-License-Identifier: MIT */
/*
 * engine.h - opens a model on a device by the flags that run, chat, eval and bench share.
 *
 * wf_engine_open is quick and uses little memory. Commands check prompts, numbers and the context
 * first and call wf_engine_load, which takes the memory, last.
 */
#ifndef WF_CLI_ENGINE_H
#define WF_CLI_ENGINE_H

#include "cli/auto.h"
#include "model/model.h"

typedef struct {
    const char *model, *device, *kv_k, *kv_v; /* flags; NULL: not given */
    int64_t context, chunk, threads;          /* -1: the default */
    bool check, quiet, verbose, fast;
    wf_values lora;
} wf_engine_options;
extern wf_engine_options wf_engine_set;
extern const wf_flag wf_engine_flags[];

typedef struct {
    wf_ctx *ctx;
    wf_model *model;
    wf_model_info info;
    const wf_tokenizer *tokenizer; /* of the model, borrowed; NULL: the model has none */
    wf_device *device;
    int64_t context; /* tokens */
    wf_type kv;      /* element type of the KV cache */
    wf_arena arena;  /* owns the paths in lora */
    wf_lora lora[WF_MAX_VALUES];
    wf_generator *generator; /* NULL before wf_engine_load */
} wf_engine;

/* Stores the model that the first operand or --model names. */
wf_status wf_engine_path(wf_ctx *ctx, char *const *operands, int count, const char **path);
/* Opens model, tokenizer and device. Call wf_engine_close after a failure as well. */
wf_status wf_engine_open(wf_ctx *ctx, const char *path, wf_engine *e);
/* The same for work without text: the model may lack a tokenizer. */
wf_status wf_engine_open_weights(wf_ctx *ctx, const char *path, wf_engine *e);
/* Opens only the device. --device auto chooses by `work`; with NULL it fails. */
wf_status wf_engine_device(wf_ctx *ctx, const wf_auto_work *work, wf_device **out);
/* Prints the planned memory on stderr, allocates it and makes the generator. */
wf_status wf_engine_load(wf_engine *e, int64_t sequences);
void wf_engine_close(wf_engine *e);

/* Prints a line on stderr, unless --quiet. */
void wf_engine_say(const char *fmt, ...) WF_PRINTF(1, 2);
/* Prints token counts and speeds on stderr. `prompt`: prompt tokens of all sequences; `begun`:
 * number of sequences. */
void wf_engine_say_speed(const wf_engine *e, uint64_t prompt, int begun, const char *ending);

/* Returns ", or give a larger context (-c, up to N for this model)", or "" at the model's limit. */
const char *wf_engine_larger(const wf_engine *e, char *buf, size_t cap);
/* "135M", "1.5B" */
const char *wf_engine_count(int64_t count, char *buf, size_t cap);

#endif
