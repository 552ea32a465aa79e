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
    const char *model, *device, *kv_k, *kv_v; /* flags; NULL: not given */
    int64_t context, chunk, threads;          /* -1: the default */
    bool check, quiet, verbose, fast;
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
    int64_t context; /* tokens */
    wf_type kv;      /* element type of the KV cache */
    wf_arena arena;  /* owns the paths in lora */
    wf_lora lora[WF_MAX_VALUES];
    wf_generator *generator; /* NULL before wf_open_load */
} wf_open;

/* Stores the model that the first operand or --model names. */
wf_status wf_open_path(wf_ctx *ctx, char *const *operands, int count, const char **path);
/* Opens model, tokenizer and device. Call wf_open_close after a failure as well. */
wf_status wf_open_model(wf_ctx *ctx, const char *path, wf_open *e);
/* The same for work without text: the model may lack a tokenizer. */
wf_status wf_open_weights(wf_ctx *ctx, const char *path, wf_open *e);
/* Opens only the device. --device auto chooses by `work`; with NULL it fails. */
wf_status wf_open_device(wf_ctx *ctx, const wf_auto_work *work, wf_device **out);
/* Prints the planned memory on stderr, allocates it and makes the generator. */
wf_status wf_open_load(wf_open *e, int64_t sequences);
void wf_open_close(wf_open *e);

/* Prints a line on stderr, unless --quiet. */
void wf_open_say(const char *fmt, ...) WF_PRINTF(1, 2);
/* Prints token counts and speeds on stderr. `prompt`: prompt tokens of all sequences; `begun`:
 * number of sequences. */
void wf_open_say_speed(const wf_open *e, uint64_t prompt, int begun, const char *ending);

/* Returns ", or give a larger context (-c, up to N for this model)", or "" at the model's limit. */
const char *wf_open_larger(const wf_open *e, char *buf, size_t cap);
/* "135M", "1.5B" */
const char *wf_open_count(int64_t count, char *buf, size_t cap);

#endif
