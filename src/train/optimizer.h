/* SPDX-License-Identifier: MIT */
/*
 * optimizer.h - nodes that update parameters from their gradients.
 *
 * An optimizer keeps its values in f32 states of the parameter's shape: m.NAME, v.NAME and
 * ema.NAME, where NAME is the parameter's. States start as zeros; the host initializes ema.NAME
 * with the parameter.
 */
#ifndef WF_TRAIN_OPTIMIZER_H
#define WF_TRAIN_OPTIMIZER_H

#include <stdbool.h>

#include "weft.h"

typedef enum {
    WF_ADAMW, /* m.NAME, v.NAME */
    WF_SGD,   /* m.NAME if momentum > 0 */
    WF_LION,  /* m.NAME */
    WF_MUON   /* m.NAME for matrices in blocks ("blk.*", two axes); AdamW for all others */
} wf_optimizer_kind;

/* 0 selects the default; in the first four fields a negative number means 0. */
typedef struct {
    wf_optimizer_kind kind;
    double beta1, beta2; /* AdamW: 0.9, 0.999; Lion: 0.9, 0.99 */
    double eps;          /* AdamW: 1e-8 */
    double momentum;     /* SGD: 0; Muon: 0.95 */
    /* Of parameters with two axes or more. Decoupled: multiplied by the rate and not part of
     * the moments. For SGD it is added to the gradient. */
    double weight_decay;
    bool decay_all; /* decay vectors, too */
    double ema;     /* decay of the moving average in ema.NAME; 0: off */
} wf_optimizer_options;

/* Adds an update for each of n parameters, which must be states of the graph. grads come from
 * wf_grad_scaled or are sums passed to wf_unscale; `s` has their factor, apply and step. rate:
 * f32[]. If `apply` is 0, every bit of every state stays unchanged. */
wf_status wf_optimizer_update(wf_graph *g, const wf_optimizer_options *o, wf_value *const *params,
                              wf_value *const *grads, int n, wf_value *rate, const wf_scaled *s);

#endif
