/* SPDX-License-Identifier: MIT */
/*
 * chart.h - curves of runs as a drawing: loss as it was and smoothed, validation loss, and the learning rate in a strip
 * below. SVG, readable on light and dark grounds, less than 100 kB whatever the number of points.
 */
#ifndef WF_TRAIN_CHART_H
#define WF_TRAIN_CHART_H

#include "train/axis.h"
#include "train/curve.h"

#define WF_CHART_RUNS 32

typedef struct {
    const char *name;
    const wf_history *history;
} wf_chart_run;

typedef struct {
    wf_curve_x x;
    double smooth; /* how much of the mean each point keeps, from 0 to below 1; below 0: chosen */
    bool log_y;
} wf_chart_options;

/* Whether a loss can be drawn: on a logarithmic axis only what is above 0. */
bool wf_chart_drawable(const wf_chart_options *o, double loss);

/* What the axes must hold. */
typedef struct {
    wf_axis x, y;
    bool empty; /* there is no point that can be drawn; the axes are from 0 to 1 */
} wf_chart_range;
void wf_chart_find_range(const wf_chart_run *runs, int n, const wf_chart_options *o,
                         wf_chart_range *out);

/* Draws runs[0 .. n), 1 to WF_CHART_RUNS of them, as a text for wf_mem_free. */
wf_status wf_chart_draw(wf_ctx *ctx, const wf_chart_run *runs, int n, const wf_chart_options *o,
                        char **svg, size_t *bytes);

#endif
