/* SPDX-License-Identifier: MIT */
/* curve.h - a curve of many points as few, for drawings of a given width. */
#ifndef WF_TRAIN_CURVE_H
#define WF_TRAIN_CURVE_H

#include "train/history.h"

typedef enum { WF_X_STEPS, WF_X_TOKENS, WF_X_SECONDS } wf_curve_x;

/* Where a step lies. */
double wf_curve_step_x(const wf_history_step *s, wf_curve_x x);
double wf_curve_valid_x(const wf_history_valid *v, wf_curve_x x);
/* A number that can be drawn: finite, and not so large that ranges overflow. */
bool wf_curve_usable(double y);

/* A slice of the x axis. */
typedef struct {
    int64_t count;          /* of its points; 0: there are none, and all else is 0 */
    double x;               /* mean */
    double low, high, mean; /* of the loss */
    double smooth;          /* the smoothed loss at its last point */
    double rate;            /* of its last point */
} wf_bucket;

/* A mean that follows the curve: m = keep * m + (1 - keep) * y, corrected at the start. */
typedef struct {
    double keep, sum, weight;
    double added; /* points so far */
    bool
        grows; /* keep is a bound: the mean starts short, where losses fall fast, and gets longer */
} wf_smoother;

/* keep is from 0 to below 1; a negative one is chosen by the number of points. */
wf_smoother wf_smoother_make(double keep, int points);
double wf_smoother_add(wf_smoother *s, double y);

/* The points of a run in n slices of [x0, x1], smoothed as wf_smoother_make says. Points that cannot be drawn are left out. */
void wf_curve_slice(const wf_history *h, wf_curve_x axis, double x0, double x1, double keep,
                    wf_bucket *buckets, int n);

#endif
