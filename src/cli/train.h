/* SPDX-License-Identifier: MIT */
/* train.h - the flags of a training setup, which weft train, finetune and plan share. */
#ifndef WF_CLI_TRAIN_H
#define WF_CLI_TRAIN_H

#include "base/arena.h"
#include "cli/cli.h"

/* Model, batches, optimizer, schedule, loss, numbers, adapters. */
extern const wf_flag wf_train_flags[];
/* Of a run: what is written and when. */
extern const wf_flag wf_run_flags[];

/* What the flags say. `model`: the one that is started from, or NULL. */
wf_status wf_train_options_get(wf_ctx *ctx, const char *model, wf_run_options *out);
/* Where the data is a file of text or JSON lines, prepares it in RUN/data, with the tokenizer of the model that is
 * started from, and makes that the data. */
wf_status wf_train_data(wf_ctx *ctx, wf_arena *arena, wf_run_options *o);
/* The device that the flags name. */
wf_status wf_train_device(wf_ctx *ctx, wf_device **out);
bool wf_train_quiet(void);
int64_t wf_train_log_every(void);

#endif
