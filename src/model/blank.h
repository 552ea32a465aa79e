/* SPDX-License-Identifier: MIT */
/*
 * blank.h - a model that lies in no file: its weights are wherever somebody trains them.
 *
 * It can be written (wf_model_convert) like any other. Its weights, all f32, are asked for one after the
 * other when they are needed, so that writing takes the memory of the largest one only.
 */
#ifndef WF_MODEL_BLANK_H
#define WF_MODEL_BLANK_H

#include "model/model.h"

/* All of a weight, by the name of its state, as f32. */
typedef wf_status wf_fetch_fn(void *user, const char *weight, float *to, int64_t count);

typedef struct {
    const char *name;                     /* of the model, for people */
    const wf_config *config;              /* what its arrays point to must outlive the model */
    const wf_tokenizer *tokenizer;        /* borrowed; NULL: none */
    const char *chat_template;            /* NULL: none */
    const wf_sampling_defaults *sampling; /* its strings must outlive the model; NULL: none */
    wf_fetch_fn *fetch;
    void *user;
} wf_blank;

wf_status wf_model_new(wf_ctx *ctx, const wf_blank *blank, wf_model **out);

#endif
