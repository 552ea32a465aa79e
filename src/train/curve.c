/* SPDX-License-Identifier: MIT */
/* curve.c - see curve.h. */
#include "train/curve.h"

#include <math.h>

double wf_curve_step_x(const wf_history_step *s, wf_curve_x x)
{
    return x == WF_X_STEPS ? (double)s->step : x == WF_X_TOKENS ? (double)s->tokens : s->seconds;
}

double wf_curve_valid_x(const wf_history_valid *v, wf_curve_x x)
{
    return x == WF_X_STEPS ? (double)v->step : x == WF_X_TOKENS ? (double)v->tokens : v->seconds;
}

bool wf_curve_usable(double y)
{
    return fabs(y) <= 1e30;
}

double wf_curve_keep(double keep, int points)
{
    double window = points / 100.0; /* a hundredth of the curve: smooth, and hardly late */
    if (keep >= 0)
        return keep;
    return window > 1 ? 1 - 1 / (window < 1000 ? window : 1000) : 0;
}

static void add(wf_bucket *b, double x, double y)
{
    if (b->count++ == 0)
        *b = (wf_bucket){.count = 1, .low = y, .high = y};
    b->low = y < b->low ? y : b->low;
    b->high = y > b->high ? y : b->high;
    b->mean += (y - b->mean) / (double)b->count;
    b->x += (x - b->x) / (double)b->count;
}

void wf_curve_slice(const wf_history *h, wf_curve_x axis, double x0, double x1, double keep,
                    wf_bucket *buckets, int n)
{
    double sum = 0, weight = 0, width = x1 > x0 ? (x1 - x0) / n : 1;
    for (int i = 0; i < n; i++)
        buckets[i] = (wf_bucket){0};
    for (int i = 0; i < h->count; i++) {
        const wf_history_step *s = &h->steps[i];
        double x = wf_curve_step_x(s, axis), slice = (x - x0) / width;
        if (!wf_curve_usable(s->loss))
            continue;
        sum = keep * sum + (1 - keep) * s->loss;
        weight = keep * weight + (1 - keep);
        if (slice < 0 || slice > n)
            continue;
        wf_bucket *b = &buckets[slice < n ? (int)slice : n - 1];
        add(b, x, s->loss);
        b->smooth = sum / weight;
        b->rate = wf_curve_usable(s->rate) ? (double)s->rate : 0;
    }
}
