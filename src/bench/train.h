/* SPDX-License-Identifier: MIT */
/* train.h - runs training steps of an example with random tokens and weights: forward, backward and
 * AdamW. Prefill and decode run the same way, without a loss. */
#ifndef WF_BENCH_TRAIN_H
#define WF_BENCH_TRAIN_H

#include "bench/profile.h"
#include "model/example.h"

typedef struct {
    wf_ctx *ctx;
    const wf_example *example;
    wf_example_form form;
    int64_t batch, length; /* B sequences of T tokens; decode: the last token of T */
    wf_type compute;
    /* Owned, as session and exec are; NULL until opened. */
    wf_graph *graph;
    wf_session *session;
    wf_exec *exec;
    /* Without the moments of AdamW. */
    int64_t parameters;
    int64_t tokens; /* per step */
    double flops; /* per step: 6 per token and matrix element (2 for other forms), plus attention */
    int32_t step; /* steps so far */
} wf_bench_train;

/* Builds and compiles from example, form, batch, length and compute, which the caller sets. Call
 * wf_bench_train_close after a failure as well. */
wf_status wf_bench_train_open(wf_device *device, wf_bench_train *t);
void wf_bench_train_close(wf_bench_train *t);
/* Runs one step and waits for it. *loss is NAN for forms other than training. */
wf_status wf_bench_train_step(wf_bench_train *t, double *seconds, float *loss);

#endif
