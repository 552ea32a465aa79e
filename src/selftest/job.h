/* SPDX-License-Identifier: MIT */
/* job.h - one case at work in the harness, and the looks it takes at it. */
#ifndef WF_SELFTEST_JOB_H
#define WF_SELFTEST_JOB_H

#include "selftest/case.h"
#include "selftest/selftest.h"

typedef struct {
    wf_ctx *ctx;
    const wf_selftest_options *options;
    wf_device *device;
    wf_device *twin;        /* or NULL */
    wf_selftest_row *total; /* of the op */
    const wf_case_row *row;
    int variant;
    wf_type type;
    char node[256]; /* the node under test, in words */
    uint32_t limit; /* of tickets: which cases are in the sample (selftest.c) */
    bool stop;      /* nothing more to learn from this case: it could not be built, or is skipped */
} wf_job;

/* Counts a failure and tells it. `what` is the look that failed. */
void wf_job_fail(wf_job *j, const char *what, const char *fmt, ...) WF_PRINTF(3, 4);
/* Turns a status into a failure of the case, except when memory ran out, which ends the harness. */
wf_status wf_job_status(wf_job *j, const char *what, wf_status status);
/* Counts a check and, when it failed, tells of it; `which` names the thing that was compared. */
void wf_job_judge(wf_job *j, const char *what, const char *which, const wf_verdict *v);

/* Builds the case of the job. *out is NULL, and the failure told, when that is not possible. */
wf_status wf_job_build(wf_job *j, const char *what, int views, wf_case **out);

/* What bounds of expansions and gradients are multiplied with. Devices that compile whole graphs add
 * up in f32, one after the other, where kernels use doubles, and differentiate expansions. */
double wf_job_slack(const wf_job *j);

/* Every look at one case. Fails only when the harness itself cannot go on. */
wf_status wf_job_run(wf_job *j);
/* The gradient with respect to every f32 operand, against central differences (gradient.c). */
wf_status wf_job_gradient(wf_job *j);

#endif
