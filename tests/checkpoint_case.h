/* SPDX-License-Identifier: MIT */
/*
 * checkpoint_case.h - small checkpoints, each filled with one letter, so that a test can tell them
 * apart. Include after cmocka.h.
 */
#ifndef WEFT_TESTS_CHECKPOINT_CASE_H
#define WEFT_TESTS_CHECKPOINT_CASE_H

#include "scratch.h"
#include "train/checkpoint.h"

typedef struct {
    wt_scratch scratch;
    wf_ctx *ctx;
    char run[256]; /* path: SCRATCH/run */
    wf_run_lock *lock;
    char log[8192]; /* warnings since the last wt_expect_step, one per line */
} wt_checkpoints;

void wt_checkpoints_make(wt_checkpoints *t, wf_ctx *ctx);
void wt_checkpoints_remove(wt_checkpoints *t);
void wt_lock(wt_checkpoints *t);

#define WT_RUN UINT64_C(0x0123456789abcdef) /* id of the run that writes the checkpoints */

/* Saves a checkpoint of three files, model/weights.bin, optimizer.bin and state.json, filled with
 * this letter. */
wf_status wt_try_save(wf_ctx *ctx, const char *run, int64_t step, char letter);
void wt_save(wt_checkpoints *t, int64_t step, char letter);
/* Calls wf_checkpoint_retain for the run WT_RUN. */
wf_status wt_retain(wt_checkpoints *t, int64_t at, int64_t keep, int64_t major);
/* Expects wf_checkpoint_find of step `at` to fail with a message that contains both parts. */
void wt_expect_refused(wt_checkpoints *t, int64_t at, const char *a, const char *b);
/* Empties the log, then expects wf_checkpoint_find of step `at` to return `step`, with files of
 * this letter. */
void wt_expect_step(wt_checkpoints *t, int64_t at, int64_t step, char letter);
/* Returns the letter of the newest complete checkpoint and sets *step; returns 0 without a
 * checkpoint. Fails when its files are not all of one letter. */
char wt_newest(wf_ctx *ctx, const char *run, int64_t *step);
/* Expects exactly these names in the run's folder, sorted and separated by spaces. */
void wt_expect_entries(wt_checkpoints *t, const char *names);
/* Adds to *count the number of names with this ending. */
void wt_count_entries(wt_checkpoints *t, const char *end, int *count);
/* Both names are relative to the run's folder. */
void wt_move(wt_checkpoints *t, const char *from, const char *to);
void wt_copy(wt_checkpoints *t, const char *from, const char *to);

#endif
