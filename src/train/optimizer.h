/* SPDX-License-Identifier: MIT */
/*
 * optimizer.h - the nodes that make new parameters of old ones and their gradients.
 *
 * All numbers that an optimizer keeps are states, f32 and of the parameter's shape: m.NAME and v.NAME, by
 * NAME of the parameter, and ema.NAME. They begin as zeros, as states do, but for ema.NAME, which
 * the host begins as the parameter itself.
 */
#ifndef WF_TRAIN_OPTIMIZER_H
#define WF_TRAIN_OPTIMIZER_H

#include <stdbool.h>

#include "weft.h"

typedef enum {
    WF_ADAMW, /* m.NAME, v.NAME */
    WF_SGD,   /* m.NAME, with momentum only */
    WF_LION,  /* m.NAME */
    WF_MUON   /* m.NAME of matrices inside of blocks ("blk.*", two axes); AdamW for all others */
} wf_optimizer_kind;

/* Zeros stand for the defaults, and of the first four negative numbers for 0. */
typedef struct {
    wf_optimizer_kind kind;
    double beta1, beta2; /* AdamW: 0.9, 0.999; Lion: 0.9, 0.99 */
    double eps;          /* AdamW: 1e-8 */
    double momentum;     /* SGD: none; Muon: 0.95 */
    double
        weight_decay; /* of parameters with two axes or more: times the rate, and never part of what
                            moments are made of, but for SGD, where it is added to the gradient */
    bool decay_all;   /* of vectors, too */
    double ema;       /* decay of the average of the weights, which is states ema.NAME; 0: none */
} wf_optimizer_options;

/* Adds an update of each of n parameters, which must be states of the graph, by gradients as wf_grad_scaled
 * or sums for wf_unscale give them, whose factor, apply and step are in `s`. rate: f32[]. A step that
 * `apply` forbids leaves every state of it as it was, bit for bit. */
wf_status wf_optimizer_update(wf_graph *g, const wf_optimizer_options *o, wf_value *const *params,
                              wf_value *const *grads, int n, wf_value *rate, const wf_scaled *s);

#endif
