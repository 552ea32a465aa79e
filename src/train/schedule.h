/* SPDX-License-Identifier: MIT */
/* schedule.h - the learning rate of each step. */
#ifndef WF_TRAIN_SCHEDULE_H
#define WF_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum {
    WF_SCHEDULE_CONSTANT, /* peak */
    WF_SCHEDULE_COSINE,   /* half a cosine from peak to floor */
    WF_SCHEDULE_LINEAR,   /* a straight line from peak to floor */
    WF_SCHEDULE_WSD       /* peak, then a straight line to floor in the last `decay` steps */
} wf_schedule_kind;

typedef struct {
    wf_schedule_kind kind;
    double peak;
    double floor;   /* final share of peak; constant ignores it */
    int64_t warmup; /* steps that rise linearly to peak */
    int64_t steps;  /* total, including warmup */
    /* WSD: steps of the final decay, at most those that warmup leaves. */
    int64_t decay;
} wf_schedule;

/* Returns the rate of a step; the first is 0. Warmup: peak / warmup in step 0, peak in step warmup
 * - 1. The floor is reached at step `steps`, one past the last, so that no step is wasted on a rate
 * of 0; later steps keep it. A negative step counts as 0. */
double wf_schedule_rate(const wf_schedule *s, int64_t step);

#endif
