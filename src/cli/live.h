/* SPDX-License-Identifier: MIT */
/*
 * live.h - shows the progress of training on stderr.
 *
 * On a terminal, one line is rewritten in place; a message about a step keeps the line of that
 * step. Otherwise prints plain lines for a log: the first steps, then one every few seconds or
 * steps.
 */
#ifndef WF_CLI_LIVE_H
#define WF_CLI_LIVE_H

#include "train/record.h"

typedef struct {
    int64_t every;  /* log: steps between lines; 0: a line every 10 s */
    int64_t seen;   /* number of steps of this process */
    uint64_t shown; /* time of the last line, by wf_clock_ns */
    bool terminal, color;
    bool waiting;       /* the last step is not shown yet */
    bool settled;       /* terminal: the line of the last step is final */
    wf_train_step last; /* valid if seen > 0 */
    double sum, weight; /* of the exponential mean of the loss */
} wf_live;

void wf_live_begin(wf_live *l, int64_t every);
/* Cheap: writes at most 10 times per second. */
void wf_live_step(wf_live *l, const wf_train_step *p);
/* Prints lines that stay: validation losses, samples, checkpoints, warnings. Escapes control
 * characters except newlines and tabs. */
void wf_live_say(wf_live *l, const char *fmt, ...) WF_PRINTF(2, 3);
/* Log function for wf_ctx_set_log with a wf_live as user: prints warnings and errors. */
void wf_live_log(void *user, wf_log_level level, const char *message);
/* Prints the last step if it is not shown yet, and ends the line. */
void wf_live_end(wf_live *l);

/* Formats the last step in at most `columns` columns; drops the least important figures that do not
 * fit. columns 0: for a log, separated by commas. */
void wf_live_text(const wf_live *l, int columns, char *out, size_t cap);

#endif
