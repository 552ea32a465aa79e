/* SPDX-License-Identifier: MIT */
/* axis.h - axes of charts: positions, ticks and labels. */
#ifndef WF_TRAIN_AXIS_H
#define WF_TRAIN_AXIS_H

#include <stdbool.h>

typedef enum {
    WF_AXIS_VALUE, /* 2.5 */
    WF_AXIS_COUNT, /* 250k */
    WF_AXIS_TIME   /* of seconds: 90 s, 15 min, 2 h */
} wf_axis_kind;

typedef struct {
    wf_axis_kind kind;
    double low, high; /* finite (wf_curve_usable); low < high; low > 0 if log */
    bool log;
} wf_axis;

/* Creates an axis for values from low to high, which may be equal; `room` adds a margin. */
wf_axis wf_axis_make(wf_axis_kind kind, double low, double high, bool log, bool room);
/* Maps a value to 0 (low end) .. 1 (high end), or beyond for values outside. */
double wf_axis_place(const wf_axis *a, double value);

/* Fills in about `about` round values, at most WF_AXIS_TICKS, and returns their number. */
#define WF_AXIS_TICKS 24
int wf_axis_ticks(const wf_axis *a, int about, double ticks[WF_AXIS_TICKS]);

/* Formats a tick, independent of the locale. Returns out. */
#define WF_AXIS_LABEL 48
const char *wf_axis_label(wf_axis_kind kind, double value, char out[WF_AXIS_LABEL]);
/* Formats with at most `digits` significant digits and no trailing zeros. */
const char *wf_axis_number(double value, int digits, char out[WF_AXIS_LABEL]);

#endif
