/* SPDX-License-Identifier: MIT */
/* sample_rows.h - picks the next tokens of many sequences in parallel. */
#ifndef WF_INFER_SAMPLE_ROWS_H
#define WF_INFER_SAMPLE_ROWS_H

#include "infer/sample.h"

/* One pick. */
typedef struct {
    wf_sampler *sampler; /* of this job only */
    const float *logits; /* [vocab] */
    int32_t id;          /* set unless the pick fails */
    wf_sampler_fault fault;
} wf_sample_job;

/* The scratch of each thread. */
typedef struct wf_sample_rows wf_sample_rows;

/* threads: at least 1. More than the most jobs that are passed at once waste 12 bytes per thread
 * and token of the vocabulary. */
wf_status wf_sample_rows_new(wf_ctx *ctx, int64_t vocab, int threads, wf_sample_rows **out);
void wf_sample_rows_free(wf_sample_rows *r);

/* Runs all jobs and sets their id and fault. The results do not depend on the number of threads. A
 * single job runs in the calling thread. */
void wf_sample_rows_pick(wf_sample_rows *r, wf_sample_job *jobs, size_t n);

#endif
