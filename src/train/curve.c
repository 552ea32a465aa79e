/* SPDX-License-Identifier: MIT */
/* curve.c - smooths a curve and reduces its points. */
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

wf_smoother wf_smoother_make(double keep, int points)
{
    /* Window: 1/20 of the curve. wf_smoother_add starts with a shorter one. */
    double window = points < 200 ? 10 : points > 20000 ? 1000 : points / 20.0;
    return (wf_smoother){.keep = keep < 0 ? 1 - 1 / window : keep, .grows = keep < 0};
}

/* sum / weight removes the bias towards 0 at the start. */
double wf_smoother_add(wf_smoother *s, double y)
{
    /* After n points the window is at most (10 + n) / 10. */
    double bound = 1 - 10 / (10 + s->added++);
    double keep = s->grows && s->keep > bound ? bound : s->keep;
    s->sum = keep * s->sum + (1 - keep) * y;
    s->weight = keep * s->weight + (1 - keep);
    return s->sum / s->weight;
}

/* Updates means incrementally, which does not overflow. */
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
    double width = x1 > x0 ? (x1 - x0) / n : 1;
    wf_smoother smoother = wf_smoother_make(keep, h->count);
    for (int i = 0; i < n; i++)
        buckets[i] = (wf_bucket){0};
    for (int i = 0; i < h->count; i++) {
        const wf_history_step *s = &h->steps[i];
        double x = wf_curve_step_x(s, axis), slice = (x - x0) / width;
        if (!wf_curve_usable(s->loss))
            continue;
        double smooth = wf_smoother_add(&smoother, s->loss);
        if (slice < 0 || slice > n)
            continue;
        wf_bucket *b = &buckets[slice < n ? (int)slice : n - 1];
        add(b, x, s->loss);
        b->smooth = smooth;
        b->rate = wf_curve_usable(s->rate) ? (double)s->rate : 0;
    }
}
