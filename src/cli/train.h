/* SPDX-License-Identifier: MIT */
/* train.h - the flags of a training setup, which weft train, finetune and plan share. */
#ifndef WF_CLI_TRAIN_H
#define WF_CLI_TRAIN_H

#include "base/arena.h"
#include "cli/auto.h"

/* The shape of a new model. */
extern const wf_flag wf_shape_flags[];
/* Batches, optimizer, schedule, loss, numbers. */
extern const wf_flag wf_train_flags[];
extern const wf_flag wf_adapter_flags[];
/* Of a run: what is written and when. */
extern const wf_flag wf_run_flags[];

/* What the flags say. `model`: the one that is started from, or NULL. */
wf_status wf_train_options_get(wf_ctx *ctx, const char *model, wf_run_options *out);
/* Data that this command prepared. */
typedef struct {
    const char *run;
    const char *folder; /* RUN/data; NULL: none was prepared, or the folder was there before */
    const char *place;  /* RUN/data; NULL: --restart renamed nothing */
    const char *aside;  /* what --restart renamed it to, or NULL */
} wf_train_prepared;

/* Where the data is a file of text or JSON lines, prepares it in RUN/data, with the tokenizer of the model that is
 * started from, and makes that the data. */
wf_status wf_train_data(wf_ctx *ctx, wf_arena *arena, wf_run_options *o, wf_train_prepared *made);
/* After a run that was refused: removes what was prepared for it, so that the corrected command finds the folder as this
 * one did. The context keeps its message. */
void wf_train_data_undo(wf_ctx *ctx, wf_train_prepared *made);
/* Whether they leave it open: --device auto. */
bool wf_train_chooses(void);
/* The device that the flags name; `work` is for --device auto to choose by. */
wf_status wf_train_device(wf_ctx *ctx, const wf_auto_work *work, wf_device **out);
/* The setup that the options make, without their data: its vocabulary is that of the preset, or as large as they usually are
 * (given: 0 or less). To be freed also after a failure. */
wf_status wf_train_guess(wf_ctx *ctx, const wf_train_options *o, int64_t given, wf_setup *out);
/* Whether the flag of a setting, as wf_trainer_setting calls it, was given. */
bool wf_train_given(const char *setting);
/* A flag of the tables above but wf_run_flags that was given and is not in the list, which ends with NULL; or NULL. */
const char *wf_train_unused(const char *const *used);
bool wf_train_quiet(void);
bool wf_train_skips_bad(void); /* records of a file of data */
int64_t wf_train_log_every(void);

#endif
