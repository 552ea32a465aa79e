/* SPDX-License-Identifier: MIT */
/* curve.h - reduces a curve with many points for a chart of a given width. */
#ifndef WF_TRAIN_CURVE_H
#define WF_TRAIN_CURVE_H

#include "train/history.h"

typedef enum { WF_X_STEPS, WF_X_TOKENS, WF_X_SECONDS } wf_curve_x;

/* Returns a step's x coordinate. */
double wf_curve_step_x(const wf_history_step *s, wf_curve_x x);
double wf_curve_valid_x(const wf_history_valid *v, wf_curve_x x);
/* Returns true if a value can be drawn: finite, and small enough that ranges do not overflow. */
bool wf_curve_usable(double y);

/* A slice of the x axis. */
typedef struct {
    int64_t count;          /* points in it; 0: all other fields are 0 */
    double x;               /* mean */
    double low, high, mean; /* of the loss */
    double smooth;          /* smoothed loss at its last point */
    double rate;            /* learning rate at its last point */
} wf_bucket;

/* Exponential moving average: m = keep * m + (1 - keep) * y, with bias correction at the start. */
typedef struct {
    double keep, sum, weight;
    double added; /* points so far */
    bool grows;   /* keep is a limit: the window starts short, where losses fall fast, and grows */
} wf_smoother;

/* keep: 0 to below 1; negative: chosen from the number of points. */
wf_smoother wf_smoother_make(double keep, int points);
double wf_smoother_add(wf_smoother *s, double y);

/* Puts the points of a run into n slices of [x0, x1], with smoothing as in wf_smoother_make. Skips
 * points that cannot be drawn. */
void wf_curve_slice(const wf_history *h, wf_curve_x axis, double x0, double x1, double keep,
                    wf_bucket *buckets, int n);

#endif
