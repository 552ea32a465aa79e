/* SPDX-License-Identifier: MIT */
/* train.h - training steps of an example, on random tokens and from random weights: forward, backward and
 * the update of all parameters by AdamW. Other forms of it are run alike, of which no loss is known. */
#ifndef WF_BENCH_TRAIN_H
#define WF_BENCH_TRAIN_H

#include "bench/profile.h"
#include "model/example.h"

typedef struct {
    wf_ctx *ctx;
    const wf_example *example;
    wf_example_form form;
    int64_t batch, length; /* B sequences of T tokens; decoding: the last of T */
    wf_type compute;
    wf_graph *graph;
    wf_session *session;
    wf_exec *exec;
    int64_t parameters;
    int64_t tokens; /* of a step */
    double
        flops; /* of a step: 6 for each token and number in a matrix, and attention; of other forms 2 */
    int32_t step; /* made so far */
} wf_bench_train;

/* From example, batch, length and compute, which the caller has set. Freed by wf_bench_train_free, after a
 * failure as well. */
wf_status wf_bench_train_open(wf_device *device, wf_bench_train *t);
void wf_bench_train_close(wf_bench_train *t);
wf_status wf_bench_train_step(wf_bench_train *t, double *seconds, float *loss);

#endif
