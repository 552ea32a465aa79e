/* SPDX-License-Identifier: MIT */
/*
 * checkpoint_case.h - small checkpoints whose contents tell which they are. To be included after cmocka.h.
 */
#ifndef WEFT_TESTS_CHECKPOINT_CASE_H
#define WEFT_TESTS_CHECKPOINT_CASE_H

#include "scratch.h"
#include "train/checkpoint.h"

typedef struct {
    wt_scratch scratch;
    wf_ctx *ctx;
    char run[256]; /* SCRATCH/run */
    wf_run_lock *lock;
    char log[8192]; /* warnings since the last wt_expect_step, a line each */
} wt_checkpoints;

void wt_checkpoints_make(wt_checkpoints *t, wf_ctx *ctx);
void wt_checkpoints_remove(wt_checkpoints *t);
void wt_lock(wt_checkpoints *t);

#define WT_RUN UINT64_C(0x0123456789abcdef) /* id of the run that writes them */

/* Writes one of three files, model/weights.bin, optimizer.bin and state.json, all made of this letter. */
wf_status wt_try_save(wf_ctx *ctx, const char *run, int64_t step, char letter);
void wt_save(wt_checkpoints *t, int64_t step, char letter);
/* wf_checkpoint_retain of the run WT_RUN. */
wf_status wt_retain(wt_checkpoints *t, int64_t at, int64_t keep, int64_t major);
/* wf_checkpoint_find of step `at` fails, and the sentence has both parts in it. */
void wt_expect_refused(wt_checkpoints *t, int64_t at, const char *a, const char *b);
/* What wf_checkpoint_find says of step `at`; its files must be of this letter. The log is emptied before. */
void wt_expect_step(wt_checkpoints *t, int64_t at, int64_t step, char letter);
/* The letter of the newest whole one and its step; 0 when there is none. Fails when its files are not all of it. */
char wt_newest(wf_ctx *ctx, const char *run, int64_t *step);
/* The names in the run's folder, sorted, with spaces between them. */
void wt_expect_entries(wt_checkpoints *t, const char *names);
/* Adds to *count how many names end so. */
void wt_count_entries(wt_checkpoints *t, const char *end, int *count);
/* Inside the run's folder. */
void wt_move(wt_checkpoints *t, const char *from, const char *to);
void wt_copy(wt_checkpoints *t, const char *from, const char *to);

#endif
