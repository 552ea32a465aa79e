/* SPDX-License-Identifier: MIT */
/* times.h - statistics of repeated measurements. */
#ifndef WF_BENCH_TIMES_H
#define WF_BENCH_TIMES_H

#define WF_BENCH_REPEATS 1000 /* maximum */

typedef struct {
    double second[WF_BENCH_REPEATS];
    int count;
} wf_bench_times;

/* Adds a time; ignores times beyond WF_BENCH_REPEATS. */
void wf_bench_times_add(wf_bench_times *t, double seconds);
double wf_bench_times_best(const wf_bench_times *t);
double wf_bench_times_median(const wf_bench_times *t);
/* Mean of work / seconds, and its sample standard deviation (0 for a single time). */
double wf_bench_rate_mean(const wf_bench_times *t, double work);
double wf_bench_rate_deviation(const wf_bench_times *t, double work);

/* Returns rate / peak, 0 to 1. NAN if either is unknown, or above the peak: then the data came from
 * caches, or the measurement of the peak was disturbed. */
double wf_bench_share(double rate, double peak);

#endif
