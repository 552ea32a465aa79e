/* SPDX-License-Identifier: MIT */
/*
 * history.h - the curve of a run in memory, as it goes or from its log.jsonl.
 *
 * Steps only ever rise: a record of a step that is there already takes the place of all from it on, since whoever
 * wrote it had gone back.
 */
#ifndef WF_TRAIN_HISTORY_H
#define WF_TRAIN_HISTORY_H

#include "train/record.h"

/* Steps and validations that are read of a log; a longer one is refused. */
#define WF_HISTORY_RECORDS (1 << 22)

typedef struct {
    int64_t step, tokens; /* both so far */
    double seconds;       /* sum over the steps so far */
    double loss;          /* NAN when it was no number */
    float norm, rate, tokens_per_second;
    int32_t skipped; /* so far */
} wf_history_step;

typedef struct {
    int64_t step, tokens;
    double seconds;
    double loss, bits_per_byte; /* NAN: not known */
} wf_history_valid;

typedef struct {
    wf_ctx *ctx;
    wf_history_step *steps; /* count of them */
    wf_history_valid *valids;
    int count, room, valid_count, valid_room;
    int64_t wanted; /* steps of the whole run, as the last record says; 0: not known */
    int64_t
        ignored; /* lines of the log that could not be understood, a last one cut short not counted */
} wf_history;

/* Starts as {.ctx = ctx}. */
wf_status wf_history_add_step(wf_history *h, const wf_train_step *p);
wf_status wf_history_add_valid(wf_history *h, int64_t step, double loss, double bits_per_byte);
/* Forgets what came after this step. */
void wf_history_rewind(wf_history *h, int64_t step);
void wf_history_free(wf_history *h); /* what it holds */

/* Reads a log, which may have been written by anybody, and be written to meanwhile. h is new; it is the caller's to
 * free also when this fails. */
wf_status wf_history_read(wf_history *h, const char *path);
/* The same of its text; `what` names it in sentences. */
wf_status wf_history_parse(wf_history *h, const char *what, const char *text, size_t bytes);

/* The validation with the least loss; NULL: there is none. */
const wf_history_valid *wf_history_best(const wf_history *h);
/* Mean over the time of all steps; 0: not known. */
double wf_history_speed(const wf_history *h);

#endif
