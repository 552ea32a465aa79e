/* SPDX-License-Identifier: MIT */
/*
 * selftest.h - every op on a device, against the float64 reference.
 *
 * One harness over op x type x shape. For each case it looks at the results, at each result read
 * alone, at operands that are views, at the gradient, at the op's expansion into core ops, and at
 * whether a second run gives the same bits. The library prints nothing: the caller gets a report.
 */
#ifndef WF_SELFTEST_SELFTEST_H
#define WF_SELFTEST_SELFTEST_H

#include "graph/op.h"
#include "weft.h"

/* What one op came to. */
typedef struct {
    const char *op; /* borrowed for ever */
    int cases;      /* variants times types that ran */
    int checks;     /* comparisons made for them */
    int skipped;    /* combinations of types that the device need not have, and has not */
    int failures;
    double worst;     /* largest error / bound among the checks that passed: at most 1 */
    char first[1024]; /* the first failure as one sentence, "" when there is none */
} wf_selftest_row;

typedef struct {
    wf_ctx *ctx;
    uint64_t seed;
    wf_selftest_row *rows; /* one for each op that was looked at */
    int ops;
    int cases, checks, skipped, failures; /* the sums over rows */
    const char **ops_without_case;        /* counted in failures, too */
    int ops_without_case_count;
} wf_selftest_report;

typedef struct {
    const char *device; /* as for wf_device_open; NULL: "cpu" */
    wf_device *opened;  /* the same, open already, and staying so; NULL: it is opened */
    const char *op;     /* NULL: all */
    wf_type type;       /* WF_TYPE_NONE: all */
    uint64_t seed;      /* decides all numbers; a caller takes a fresh one and prints it */
    int sample;         /* about so many cases, chosen by the seed, at least one per op; 0: all */
    const char *twin;   /* a second device that must give the same bits; NULL: none */

    /* Both may be NULL: called when an op is done, and with the sentence of every failure. */
    void (*on_op)(void *user, const wf_selftest_row *row);
    void (*on_failure)(void *user, const char *sentence);
    void *user;

    /* To test the tester: relative errors put into the reference, which must then be noticed. */
    double distort_forward, distort_gradient;
} wf_selftest_options;

/* How many cases an op has, whatever the device: variants times types. */
int wf_selftest_cases(wf_op op);

/* WF_OK when the harness could do its work, whatever it found: see the report. */
wf_status wf_selftest_run(wf_ctx *ctx, const wf_selftest_options *options,
                          wf_selftest_report **out);
void wf_selftest_report_free(wf_selftest_report *report);

#endif
