/* SPDX-License-Identifier: MIT */
/*
 * engine.h - a model on a device, as the flags say: what run, chat, eval and bench share.
 *
 * A model is opened first, which takes no time and little memory, and loaded when all that can be refused
 * has been looked at: prompts, numbers, the context they need.
 */
#ifndef WF_CLI_ENGINE_H
#define WF_CLI_ENGINE_H

#include "cli/auto.h"
#include "model/model.h"

typedef struct {
    const char *model, *device, *kv_k, *kv_v;
    int64_t context, chunk, threads; /* -1: the default */
    bool check, quiet, verbose, fast;
    wf_values lora;
} wf_engine_options;
extern wf_engine_options wf_engine_set;
extern const wf_flag wf_engine_flags[];

typedef struct {
    wf_ctx *ctx;
    wf_model *model;
    wf_model_info info;
    const wf_tokenizer *tokenizer;
    wf_device *device;
    int64_t context; /* tokens */
    wf_type kv;
    wf_arena arena; /* of the paths of adapters */
    wf_lora lora[WF_MAX_VALUES];
    wf_generator *generator; /* NULL before wf_engine_load */
} wf_engine;

/* The model that the operands or --model name. */
wf_status wf_engine_path(wf_ctx *ctx, char *const *operands, int count, const char **path);
/* Model, tokenizer and device. Freed by wf_engine_close, after a failure as well. */
wf_status wf_engine_open(wf_ctx *ctx, const char *path, wf_engine *e);
/* The same for work without text: there need not be a tokenizer. */
wf_status wf_engine_open_weights(wf_ctx *ctx, const char *path, wf_engine *e);
/* The device alone; `work` is for --device auto to choose by, NULL where there is none. */
wf_status wf_engine_device(wf_ctx *ctx, const wf_auto_work *work, wf_device **out);
/* Says on stderr what memory it takes, and takes it. */
wf_status wf_engine_load(wf_engine *e, int64_t sequences);
void wf_engine_close(wf_engine *e);

/* Keys and values of so many sequences. */
size_t wf_engine_kv_bytes(const wf_engine *e, int64_t sequences);
/* A line on stderr, unless --quiet. */
void wf_engine_say(const char *fmt, ...) WF_PRINTF(1, 2);
/* What was computed and how fast. `prompt` tokens, of sequences that were `begun`. */
void wf_engine_say_speed(const wf_engine *e, uint64_t prompt, int begun, const char *ending);

/* ", or give a larger context (-c, up to N for this model)", where there is a larger one. */
const char *wf_engine_larger(const wf_engine *e, char *buf, size_t cap);
/* "135M", "1.5B" */
const char *wf_engine_count(int64_t count, char *buf, size_t cap);

#endif
