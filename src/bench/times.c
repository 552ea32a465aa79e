/* SPDX-License-Identifier: MIT */
/* times.c - see times.h. */
#include "bench/times.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void wf_bench_times_add(wf_bench_times *t, double seconds)
{
    if (t->count < WF_BENCH_REPEATS)
        t->second[t->count++] = seconds > 0 ? seconds : 1e-9; /* resolution of the clock */
}

double wf_bench_times_best(const wf_bench_times *t)
{
    double best = INFINITY;
    for (int i = 0; i < t->count; i++)
        best = fmin(best, t->second[i]);
    return best;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double wf_bench_times_median(const wf_bench_times *t)
{
    double sorted[WF_BENCH_REPEATS];
    int n = t->count;
    if (n == 0)
        return NAN;
    memcpy(sorted, t->second, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, compare);
    /* The same element twice when n is odd. */
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

double wf_bench_rate_mean(const wf_bench_times *t, double work)
{
    double sum = 0;
    for (int i = 0; i < t->count; i++)
        sum += work / t->second[i];
    return sum / t->count;
}

double wf_bench_rate_deviation(const wf_bench_times *t, double work)
{
    double mean = wf_bench_rate_mean(t, work), sum = 0;
    for (int i = 0; i < t->count; i++)
        sum += pow(work / t->second[i] - mean, 2);
    return t->count > 1 ? sqrt(sum / (t->count - 1)) : 0;
}

double wf_bench_share(double rate, double peak)
{
    return rate >= 0 && peak > 0 && rate <= peak ? rate / peak : NAN;
}
