/* SPDX-License-Identifier: MIT */
/*
 * blank.h - a model without a file, whose weights are in a trainer's session.
 *
 * wf_model_convert writes it like any other model. It requests the weights, all f32, one at a time,
 * so that writing needs only the memory of the largest weight.
 */
#ifndef WF_MODEL_BLANK_H
#define WF_MODEL_BLANK_H

#include "model/model.h"

/* Writes a whole weight to `to` as f32. `weight` is the name of its state; `count` its elements. */
typedef wf_status wf_fetch_fn(void *user, const char *weight, float *to, int64_t count);

typedef struct {
    const char *name;              /* display name of the model */
    const wf_config *config;       /* its arrays must outlive the model */
    const wf_tokenizer *tokenizer; /* borrowed; NULL: no tokenizer */
    const char *chat_template;     /* copied; NULL: no template */
    /* Its strings must outlive the model; NULL: no recommendation. */
    const wf_sampling_defaults *sampling;
    wf_fetch_fn *fetch;
    void *user;
} wf_blank;

wf_status wf_model_new(wf_ctx *ctx, const wf_blank *blank, wf_model **out);

#endif
