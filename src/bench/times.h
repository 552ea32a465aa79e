/* SPDX-License-Identifier: MIT */
/* times.h - the same thing measured several times. */
#ifndef WF_BENCH_TIMES_H
#define WF_BENCH_TIMES_H

#define WF_BENCH_REPEATS 1000 /* at most */

typedef struct {
    double second[WF_BENCH_REPEATS];
    int count;
} wf_bench_times;

/* What is beyond WF_BENCH_REPEATS is dropped. */
void wf_bench_times_add(wf_bench_times *t, double seconds);
double wf_bench_times_best(const wf_bench_times *t);
double wf_bench_times_median(const wf_bench_times *t);
/* Of so much work a second, each time: the mean, and the deviation of the sample (0 for a single one). */
double wf_bench_rate_mean(const wf_bench_times *t, double work);
double wf_bench_rate_deviation(const wf_bench_times *t, double work);

/* The share of a measured peak, 0 to 1. NAN above the peak, where the data came from caches or the measurement of the
 * peak was disturbed, and where either is not known. */
double wf_bench_share(double rate, double peak);

#endif
