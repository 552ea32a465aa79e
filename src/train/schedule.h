/* SPDX-License-Identifier: MIT */
/* schedule.h - the learning rate of every step. */
#ifndef WF_TRAIN_SCHEDULE_H
#define WF_TRAIN_SCHEDULE_H

#include <stdint.h>

typedef enum {
    WF_SCHEDULE_CONSTANT, /* peak */
    WF_SCHEDULE_COSINE,   /* half a cosine from peak to floor */
    WF_SCHEDULE_LINEAR,   /* a straight line from peak to floor */
    WF_SCHEDULE_WSD       /* peak, and a straight line to floor in the last `decay` steps */
} wf_schedule_kind;

typedef struct {
    wf_schedule_kind kind;
    double peak;
    double floor;   /* share of peak at the end; constant rates have none */
    int64_t warmup; /* the first so many steps rise to peak */
    int64_t steps;  /* all of them, warm-up included */
    int64_t
        decay; /* WSD: steps of the last part; more than warm-up leaves are as many as it does */
} wf_schedule;

/* The rate of a step, of which 0 is the first. Every kind begins with warm-up, peak / warmup in step 0 and
 * peak in step warmup - 1; what of it lies beyond `steps` never happens. The floor belongs to step `steps`,
 * one past the last, so that no step of a run is wasted on a floor of 0; all later ones have it, too. A
 * step below 0 counts as 0. */
double wf_schedule_rate(const wf_schedule *s, int64_t step);

#endif
