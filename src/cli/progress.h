/* SPDX-License-Identifier: MIT */
/*
 * progress.h - how far long work has come, on stderr.
 *
 * A bar on a terminal; else a line every few seconds, for logs. Nothing is ever written to stdout.
 */
#ifndef WF_CLI_PROGRESS_H
#define WF_CLI_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum { WF_PROGRESS_ITEMS, WF_PROGRESS_BYTES } wf_progress_unit;

typedef struct {
    const char *label; /* borrowed; may be changed on the way */
    wf_progress_unit unit;
    int64_t done, total;
    uint64_t began, shown; /* by wf_clock_ns */
    bool terminal, color;
} wf_progress;

void wf_progress_begin(wf_progress *p, const char *label, wf_progress_unit unit, int64_t total);
/* Cheap enough to be called as often as one likes: it writes only now and then. */
void wf_progress_update(wf_progress *p, int64_t done);
/* Leaves one line that says what was done and how fast. After a failure use wf_progress_clear, so that the
 * failure's sentence has the line to itself. */
void wf_progress_end(wf_progress *p);
void wf_progress_clear(wf_progress *p);

/* The text of a bar after so many seconds, at most `columns` wide; of a line for logs when columns is 0. */
void wf_progress_text(const wf_progress *p, double seconds, int columns, char *out, size_t cap);

#endif
