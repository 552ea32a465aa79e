/* SPDX-License-Identifier: MIT */
/*
 * selftest.h - compares every op of a device with the float64 reference.
 *
 * One harness covers op x type x shape. For each case it checks the results, each result read
 * alone, operands that are views, the gradient, the op's expansion into core ops, and that a second
 * run gives the same bits. It prints nothing; the caller gets a report.
 */
#ifndef WF_SELFTEST_SELFTEST_H
#define WF_SELFTEST_SELFTEST_H

#include "graph/op.h"
#include "weft.h"

/* The results of one op. */
typedef struct {
    const char *op; /* static string */
    int cases;      /* variant and type pairs that ran */
    int checks;     /* comparisons in these cases */
    int skipped;    /* combinations of types that the device lacks */
    int failures;
    double worst;     /* largest error / bound of the checks that passed; at most 1 */
    char first[1024]; /* message of the first failure; "": none */
} wf_selftest_row;

typedef struct {
    wf_ctx *ctx;
    uint64_t seed;
    wf_selftest_row *rows; /* [ops] one for each tested op */
    int ops;
    int cases, checks, skipped, failures; /* sums over rows */
    const char **ops_without_case;        /* also counted in failures */
    int ops_without_case_count;
} wf_selftest_report;

typedef struct {
    const char *device; /* as for wf_device_open; NULL: "cpu" */
    wf_device *opened;  /* an open device to use; stays open; NULL: open `device` */
    const char *op;     /* NULL: all */
    wf_type type;       /* WF_TYPE_NONE: all */
    uint64_t seed;      /* determines all operands; the caller prints it */
    int sample; /* approximate number of cases, chosen by the seed, at least one per op; 0: all */
    const char *twin; /* a second device that must produce the same bits; NULL: none */

    /* Called after each op, and with the message of every failure. Both may be NULL. */
    void (*on_op)(void *user, const wf_selftest_row *row);
    void (*on_failure)(void *user, const char *sentence);
    void *user;

    /* Relative errors added to the reference, to test that the harness reports them. */
    double distort_forward, distort_gradient;
} wf_selftest_options;

/* Returns the number of cases of an op, independent of the device: variants times types. */
int wf_selftest_cases(wf_op op);

/* Returns WF_OK when the harness ran; the report has the failures. */
wf_status wf_selftest_run(wf_ctx *ctx, const wf_selftest_options *options,
                          wf_selftest_report **out);
void wf_selftest_report_free(wf_selftest_report *report);

#endif
