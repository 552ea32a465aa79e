/* SPDX-License-Identifier: MIT */
/*
 * classifier.c - trains a linear classifier of ten classes on one random batch of 64 vectors of 784 values.
 *
 *     classifier
 *
 * README.md shows the part between the two marks; tests/test_readme.c compares them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "weft.h"

enum { STEPS = 20 };

/* README begins */
/* Builds one training step. The graph keeps its first error, and wf_compile reports it. */
static void build(wf_graph *g)
{
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){64, 784});
    wf_value *t = wf_input(g, "t", WF_I32, 1, (int64_t[]){64});
    wf_value *w = wf_state(g, "w", WF_F32, 2, (int64_t[]){10, 784});
    wf_value *logits = wf_linear(g, x, w, NULL);
    wf_value *loss = wf_reduce(g, "mean", wf_cross_entropy(g, logits, t, NULL), WF_AXIS(0), false);
    wf_value *dw = NULL;
    wf_grad(g, loss, &w, 1, &dw); /* appends the nodes that compute dw */
    wf_sgd(g, w, NULL, dw, wf_fill(g, WF_F32, 0, NULL, 0.1), NULL, NULL, NULL);
    wf_output(g, "loss", loss);
}
/* README ends */

/* Compiles the graph, which plans its memory, and runs it STEPS times; a run allocates nothing. */
static wf_status train(wf_session *session, wf_graph *g, const float x[64][784],
                       const int32_t t[64], float loss[STEPS])
{
    wf_exec *step = NULL;
    build(g);
    wf_status status = wf_compile(session, g, &step);
    if (status == WF_OK)
        status = wf_exec_write(step, "x", x, 64 * 784 * sizeof(float));
    if (status == WF_OK)
        status = wf_exec_write(step, "t", t, 64 * sizeof(int32_t));
    for (int i = 0; i < STEPS && status == WF_OK; i++) {
        status = wf_exec_run(step);
        if (status == WF_OK)
            status = wf_exec_read(step, "loss", &loss[i], sizeof loss[i]);
    }
    wf_exec_free(step);
    return status;
}

int main(void)
{
    static float x[64][784], loss[STEPS];
    int32_t t[64];
    wf_ctx *ctx;
    wf_device *device = NULL;
    wf_session *session = NULL;
    wf_graph *g = NULL;
    if (wf_ctx_new(&ctx) != WF_OK)
        return EXIT_FAILURE;
    wf_random_normal(1, 0, 0, 1, &x[0][0], 64 * 784);
    for (int i = 0; i < 64; i++)
        t[i] = i % 10;
    wf_status status = wf_device_open(ctx, "cpu", &device);
    if (status == WF_OK)
        status = wf_session_new(device, &session);
    if (status == WF_OK)
        status = wf_graph_new(ctx, &g);
    if (status == WF_OK)
        status = train(session, g, x, t, loss);
    if (status == WF_OK)
        printf("loss %.3f, after %d steps %.3f\n", (double)loss[0], STEPS - 1,
               (double)loss[STEPS - 1]);
    else
        fprintf(stderr, "classifier: %s\n", wf_ctx_message(ctx));
    wf_graph_free(g);
    wf_session_free(session);
    wf_device_close(device);
    wf_ctx_free(ctx);
    return status == WF_OK && fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
