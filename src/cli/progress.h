/* SPDX-License-Identifier: MIT */
/*
 * progress.h - shows the progress of long work on stderr: a bar on a terminal, else a line every
 * few seconds.
 */
#ifndef WF_CLI_PROGRESS_H
#define WF_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { WF_PROGRESS_ITEMS, WF_PROGRESS_BYTES } wf_progress_unit;

typedef struct {
    const char *label; /* borrowed; the caller may change it during the work */
    wf_progress_unit unit;
    int64_t done, total;
    uint64_t began, shown; /* by wf_clock_ns */
    bool terminal, color;
} wf_progress;

void wf_progress_begin(wf_progress *p, const char *label, wf_progress_unit unit, int64_t total);
/* Cheap: writes at most 10 times per second. */
void wf_progress_update(wf_progress *p, int64_t done);
/* Prints a final line with amount, time and rate. After a failure call wf_progress_clear instead,
 * so that the error message has its own line. */
void wf_progress_end(wf_progress *p);
void wf_progress_clear(wf_progress *p);

/* Formats the bar after `seconds`, at most `columns` wide; columns 0: a line for a log. */
void wf_progress_text(const wf_progress *p, double seconds, int columns, char *out, size_t cap);

#endif
