/* SPDX-License-Identifier: MIT */
/*
 * chart.h - loss curves of runs as an SVG chart: raw and smoothed loss, validation loss, and the
 * learning rate in a panel below. Readable on light and dark backgrounds; below 100 kB for any
 * number of points.
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
    /* Smoothing, the share of the mean that each point keeps: 0 to below 1; negative: automatic. */
    double smooth;
    bool log_y;
} wf_chart_options;

/* Returns true if a loss can be drawn: finite, and above 0 on a logarithmic axis. */
bool wf_chart_drawable(const wf_chart_options *o, double loss);

/* The ranges that the axes must cover. */
typedef struct {
    wf_axis x, y;
    bool empty; /* no point can be drawn; the axes go from 0 to 1 */
} wf_chart_range;
void wf_chart_find_range(const wf_chart_run *runs, int n, const wf_chart_options *o,
                         wf_chart_range *out);

/* Draws runs[0 .. n), 1 to WF_CHART_RUNS of them. The caller frees the text with wf_mem_free. */
wf_status wf_chart_draw(wf_ctx *ctx, const wf_chart_run *runs, int n, const wf_chart_options *o,
                        char **svg, size_t *bytes);

#endif
