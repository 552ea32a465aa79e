/* SPDX-License-Identifier: MIT */
/*
 * history.h - the curve of a run in memory, recorded live or read from log.jsonl.
 *
 * Steps increase. A record of an existing step replaces all records from that step on: the run was
 * resumed from an earlier checkpoint.
 */
#ifndef WF_TRAIN_HISTORY_H
#define WF_TRAIN_HISTORY_H

#include "train/record.h"

/* Most steps and validations read from a log; a longer log is an error. */
#define WF_HISTORY_RECORDS (1 << 22)

typedef struct {
    int64_t step, tokens; /* totals so far */
    double seconds;       /* total time of the steps so far */
    double loss;          /* NAN if it was not finite */
    float norm, rate, tokens_per_second;
    int32_t skipped; /* total so far */
} wf_history_step;

typedef struct {
    int64_t step, tokens;
    double seconds;
    double loss, bits_per_byte; /* NAN: unknown */
} wf_history_valid;

typedef struct {
    wf_ctx *ctx;
    wf_history_step *steps; /* [count] */
    wf_history_valid *valids;
    int count, room, valid_count, valid_room;
    int64_t wanted;  /* steps of the whole run, from the last record; 0: unknown */
    int64_t ignored; /* lines that are not records, except an incomplete last line */
} wf_history;

/* Initialize with {.ctx = ctx}. */
wf_status wf_history_add_step(wf_history *h, const wf_train_step *p);
wf_status wf_history_add_valid(wf_history *h, int64_t step, double loss, double bits_per_byte);
/* Removes the records after this step. */
void wf_history_rewind(wf_history *h, int64_t step);
void wf_history_free(wf_history *h); /* frees its contents */

/* Reads a log, which may be malformed or still being written. h must be new; the caller frees it,
 * also after a failure. */
wf_status wf_history_read(wf_history *h, const char *path);
/* The same for a text; `what` names it in errors. */
wf_status wf_history_parse(wf_history *h, const char *what, const char *text, size_t bytes);

/* Returns the validation with the lowest loss, or NULL. */
const wf_history_valid *wf_history_best(const wf_history *h);
/* Tokens per second, averaged over all steps; 0: unknown. */
double wf_history_speed(const wf_history *h);

#endif
