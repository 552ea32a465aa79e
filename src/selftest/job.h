/* SPDX-License-Identifier: MIT */
/* job.h - one case in the harness, and its checks. */
#ifndef WF_SELFTEST_JOB_H
#define WF_SELFTEST_JOB_H

#include "selftest/case.h"
#include "selftest/selftest.h"

typedef struct {
    wf_ctx *ctx;
    const wf_selftest_options *options;
    wf_device *device;
    wf_device *twin;        /* NULL: none */
    wf_selftest_row *total; /* results of the op */
    const wf_case_row *row;
    int variant;
    wf_type type;
    const wf_case
        *first;     /* the build for the reference, which others repeat; NULL: not yet built */
    char node[256]; /* description of the node under test */
    uint32_t limit; /* cases with a higher ticket are not in the sample (selftest.c) */
    bool stop;      /* no further checks: the case cannot be built, or is skipped */
} wf_job;

/* Counts and reports a failure. `what` names the check. */
void wf_job_fail(wf_job *j, const char *what, const char *fmt, ...) WF_PRINTF(3, 4);
/* Converts a status to a failure of the case. Out of memory ends the harness instead. */
wf_status wf_job_status(wf_job *j, const char *what, wf_status status);
/* Counts a check and reports its failure; `which` names the compared value. */
void wf_job_judge(wf_job *j, const char *what, const char *which, const wf_verdict *v);

/* Builds the case of the job. If that fails, reports it and sets *out to NULL. */
wf_status wf_job_build(wf_job *j, const char *what, int views, wf_case **out);

/* Returns the factor of the bounds of expansions and gradients. Devices that compile whole graphs
 * accumulate sequentially in f32, where kernels use float64, and differentiate expansions. */
double wf_job_slack(const wf_job *j);

/* Runs all checks of one case. Fails only if the harness itself cannot continue. */
wf_status wf_job_run(wf_job *j);
/* Checks the gradient of every f32 operand against central differences (gradient.c). */
wf_status wf_job_gradient(wf_job *j);

#endif
