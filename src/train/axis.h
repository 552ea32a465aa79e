/* SPDX-License-Identifier: MIT */
/* axis.h - axes of drawings: where numbers lie, which of them get a tick, and how they are written. */
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
    double low, high; /* usable by wf_curve_usable; low < high; low > 0 when log */
    bool log;
} wf_axis;

/* An axis for numbers from low to high, which may be equal, with some room around them if asked for. */
wf_axis wf_axis_make(wf_axis_kind kind, double low, double high, bool log, bool room);
/* From 0 at its low end to 1 at its high end; outside of that for what lies outside. */
double wf_axis_place(const wf_axis *a, double value);

/* Round numbers on the axis, `about` so many and at most WF_AXIS_TICKS; returns how many. */
#define WF_AXIS_TICKS 24
int wf_axis_ticks(const wf_axis *a, int about, double ticks[WF_AXIS_TICKS]);

/* The same in every locale. Returns out. */
#define WF_AXIS_LABEL 48
const char *wf_axis_label(wf_axis_kind kind, double value, char out[WF_AXIS_LABEL]);
/* In at most so many significant digits, without zeros at the end. */
const char *wf_axis_number(double value, int digits, char out[WF_AXIS_LABEL]);

#endif
