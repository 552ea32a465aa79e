/* SPDX-License-Identifier: MIT */
/*
 * graph.h - the graphs of a training run, which share their states.
 *
 *     whole   forward, backward and update for one batch
 *     micro   forward and backward; adds gradients, loss and counts to grad.NAME, sum.loss
 *             and sum.count
 *     update  updates parameters from these sums, then zeros the sums
 *     valid   the loss of a batch without dropout and smoothing, as report f32[2]: sum, count
 *
 * The loss is a sum over targets, divided by the number of targets with loss in all batches of a
 * step. A model's extra loss (wf_model_values) counts once per target with loss, so the step adds
 * the mean of its batches' extra losses, weighted by their targets. Reports leave it out. Inputs
 * are those of build.h, targets i32[N], and in whole and update rate f32[]. Their output is report.
 */
#ifndef WF_TRAIN_GRAPH_H
#define WF_TRAIN_GRAPH_H

#include "train/setup.h"

typedef enum {
    WF_TRAIN_WHOLE,
    WF_TRAIN_MICRO,
    WF_TRAIN_UPDATE,
    WF_TRAIN_VALID,
    WF_TRAIN_COUNT
} wf_train_form;

/* report f32[WF_REPORT_COUNT] of a step. */
typedef enum {
    WF_REPORT_LOSS,    /* mean, without the model's extra loss */
    WF_REPORT_NORM,    /* gradient norm before clipping */
    WF_REPORT_APPLIED, /* 0: the step was skipped */
    WF_REPORT_SCALE,
    WF_REPORT_TARGETS, /* targets with loss */
    WF_REPORT_COUNT
} wf_report_field;

/* Returns true if the setup uses this graph. */
bool wf_train_uses(const wf_setup *s, wf_train_form form);
/* Tokens in the inputs of all forms. */
int64_t wf_train_tokens(const wf_setup *s);
/* Tokens of every sequence, at positions 0, 1, ...; 0: they differ. */
int64_t wf_train_length(const wf_setup *s);
/* Returns how the weights are named, typed and adapted. With an average, validation and samples
 * read its weights (`average`). */
wf_build_options wf_train_weights(const wf_setup *s, bool average);
wf_status wf_train_graph(const wf_setup *s, wf_train_form form, wf_graph **out);
wf_compile_options wf_train_compiling(const wf_setup *s, wf_train_form form);

#endif
