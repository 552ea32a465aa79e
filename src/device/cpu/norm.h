/* SPDX-License-Identifier: MIT */
/*
 * norm.h - the launcher of all norm ops. It reads the operands and outputs of a launch by their
 * places; an implementation supplies the functions that compute rows.
 */
#ifndef WF_DEVICE_CPU_NORM_H
#define WF_DEVICE_CPU_NORM_H

#include "device/kernel.h"

/* One launch of a norm or of its gradient. Rows are [length]. */
typedef struct {
    const wf_launch *l;
    int64_t rows, length;
    double eps;
    bool centered;                        /* layer norm: subtracts the mean */
    const wf_view *dy, *x, *gamma, *beta; /* gamma, beta: NULL when absent */
    const wf_view *residual;              /* added to x before, or to dx after; or NULL */
    const wf_view *mean, *rstd;           /* saved statistics: outputs, or inputs of the gradient */
    const wf_view *total, *y, *dx, *dgamma, *dbeta; /* outputs: NULL when nobody reads them */
} wf_norm;

typedef struct {
    /* Computes y and the statistics of rows [begin, end) of a wf_norm; run by wf_parallel_for. */
    void (*forward)(void *norm, int64_t begin, int64_t end, int thread);
    /* Computes dx, dgamma and dbeta of all rows. */
    void (*backward)(const wf_norm *o);
    /* Adds up the rows of x [..., C] in sums f32[C]. */
    void (*sum_rows)(const wf_launch *l, const wf_view *x, const wf_view *sums);
} wf_norm_rows;

/* Runs any op of the norm family, by the op of the node. */
wf_status wf_norm_launch(const wf_launch *l, const wf_norm_rows *with);

#endif
