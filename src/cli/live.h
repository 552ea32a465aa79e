/* SPDX-License-Identifier: MIT */
/*
 * live.h - how training goes, on stderr.
 *
 * On a terminal one line that is rewritten in place. It stays where something is said of its step, and the next step
 * begins another. Elsewhere plain lines, of the first steps and then now and then, for logs.
 */
#ifndef WF_CLI_LIVE_H
#define WF_CLI_LIVE_H

#include "train/record.h"

typedef struct {
    int64_t every;  /* in a log: a line each so many steps; 0: every ten seconds */
    int64_t seen;   /* steps of this process */
    uint64_t shown; /* by wf_clock_ns */
    bool terminal, color;
    bool waiting;       /* the last point was not shown yet */
    bool settled;       /* on a terminal: the last point's line stays where it is */
    wf_train_step last; /* if seen */
    double sum, weight; /* of the mean of the loss */
} wf_live;

void wf_live_begin(wf_live *l, int64_t every);
/* Cheap: writes at most ten times a second. */
void wf_live_step(wf_live *l, const wf_train_step *p);
/* A line that stays, or several: validation losses, samples, checkpoints, warnings. Control characters are escaped, but
 * for line ends and tabs. */
void wf_live_say(wf_live *l, const char *fmt, ...) WF_PRINTF(2, 3);
/* The same for wf_ctx_set_log, with the wf_live as its user: warnings and worse. */
void wf_live_log(void *user, wf_log_level level, const char *message);
/* Leaves the last step's line. */
void wf_live_end(wf_live *l);

/* The text of the last point. At most `columns` wide, less important figures left out when there is no room; for
 * logs, with commas, when columns is 0. */
void wf_live_text(const wf_live *l, int columns, char *out, size_t cap);

#endif
