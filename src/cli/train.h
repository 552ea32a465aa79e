/* SPDX-License-Identifier: MIT */
/* train.h - the flags of a training setup, shared by weft train, finetune and plan. */
#ifndef WF_CLI_TRAIN_H
#define WF_CLI_TRAIN_H

#include "base/arena.h"
#include "cli/auto.h"

/* Shape of a new model. */
extern const wf_flag wf_shape_flags[];
/* Batches, optimizer, schedule, loss, precision. */
extern const wf_flag wf_train_flags[];
extern const wf_flag wf_adapter_flags[];
/* Samples of the model while it learns. */
extern const wf_flag wf_sample_flags[];
/* The run: data, output, checkpoints, validation. */
extern const wf_flag wf_run_flags[];

/* Converts the flags to options. `model`: the model to finetune, or NULL. */
wf_status wf_train_options_get(wf_ctx *ctx, const char *model, wf_run_options *out);
/* Data that this command prepared, for wf_train_data_undo. */
typedef struct {
    const char *run;
    const char *folder; /* RUN/data; NULL: nothing was prepared, or the folder existed before */
    const char *place;  /* RUN/data; NULL: --restart renamed nothing */
    const char *aside;  /* the name that --restart gave the old data, or NULL */
} wf_train_prepared;

/* If the data is a file of text or JSON lines, prepares it in RUN/data and makes that the data.
 * Finetuning uses the tokenizer of the model. */
wf_status wf_train_data(wf_ctx *ctx, wf_arena *arena, wf_run_options *o, wf_train_prepared *made);
/* After a run that was refused: removes the data prepared for it, so that a corrected command finds
 * the folder unchanged. The context keeps its message. */
void wf_train_data_undo(wf_ctx *ctx, wf_train_prepared *made);
/* Stores the bytes of --memory, or 0. */
wf_status wf_train_memory(wf_ctx *ctx, size_t *out);
/* Returns the value of --compute, or NULL. */
const char *wf_train_compute(void);
/* Returns whether --device is auto. */
bool wf_train_chooses(void);
/* Opens the device. --device auto chooses by `work`; with NULL it fails. */
wf_status wf_train_device(wf_ctx *ctx, const wf_auto_work *work, wf_device **out);
/* Makes the setup of a run without reading its data. The vocabulary is `given` or, if that is <= 0,
 * the preset's or 32000. Call wf_setup_free after a failure as well. */
wf_status wf_train_guess(wf_ctx *ctx, const wf_run_options *run, int64_t given, wf_setup *out);
/* Returns whether the flag of a setting was given. `setting` is a name of wf_trainer_setting. */
bool wf_train_given(const char *setting);
/* Returns the first given flag of wf_shape_flags, wf_train_flags, wf_adapter_flags and
 * wf_sample_flags that is not in `used`, a list that ends with NULL; or NULL. */
const char *wf_train_unused(const char *const *used);
bool wf_train_quiet(void);
bool wf_train_skips_bad(void); /* --skip-bad */
int64_t wf_train_log_every(void);

#endif
