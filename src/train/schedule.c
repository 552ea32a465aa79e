/* SPDX-License-Identifier: MIT */
/* schedule.c - learning rate schedules. */
#include "train/schedule.h"

#include <math.h>

static const double PI = 3.14159265358979323846;

/* Returns the completed share of a decay from step `begin` to s->steps. */
static double progress(const wf_schedule *s, int64_t begin, int64_t step)
{
    if (step >= s->steps)
        return 1;
    return step <= begin ? 0 : (double)(step - begin) / (double)(s->steps - begin);
}

static int64_t decay_begin(const wf_schedule *s)
{
    int64_t begin = s->decay >= s->steps ? 0 : s->steps - s->decay;
    return begin > s->warmup ? begin : s->warmup;
}

double wf_schedule_rate(const wf_schedule *s, int64_t step)
{
    double left = 1; /* of the range between floor and peak */
    step = step < 0 ? 0 : step;
    if (step < s->warmup && step < s->steps)
        return s->peak * ((double)(step + 1) / (double)s->warmup);
    switch (s->kind) {
    case WF_SCHEDULE_CONSTANT: return s->peak;
    case WF_SCHEDULE_COSINE: left = 0.5 + 0.5 * cos(PI * progress(s, s->warmup, step)); break;
    case WF_SCHEDULE_LINEAR: left = 1 - progress(s, s->warmup, step); break;
    case WF_SCHEDULE_WSD: left = s->decay > 0 ? 1 - progress(s, decay_begin(s), step) : 1; break;
    }
    return s->peak * (s->floor + (1 - s->floor) * left);
}
