/* SPDX-License-Identifier: MIT */
/* place.h - the folder of a run: what it contains, and what a run may replace there. */
#ifndef WF_TRAIN_PLACE_H
#define WF_TRAIN_PLACE_H

#include "model/model.h"

/* Fails with WF_ERR_USAGE if the run would replace files in o->out that are not its own, or would
 * continue or restart a run without the option for it. Reads names only and changes nothing; the
 * folder need not exist. */
wf_status wf_place_check(wf_ctx *ctx, const wf_run_options *o);
/* The same for the files of the base model: they are never replaced. */
wf_status wf_place_check_base(wf_ctx *ctx, const wf_run_options *o, const wf_model *base);
/* Before a restart: renames the checkpoints of earlier runs and the files that this run will
 * write. */
wf_status wf_place_set_aside(wf_ctx *ctx, const wf_run_options *o);
/* Returns RUN/model.gguf, or RUN/adapter for adapters; NULL if memory runs out. */
const char *wf_place_export(wf_arena *arena, const wf_run_options *o);

#endif
