/* SPDX-License-Identifier: MIT */
/* sampling.h - the flags of sampling and stopping, and the request that they make. */
#ifndef WF_CLI_SAMPLING_H
#define WF_CLI_SAMPLING_H

#include "cli/cli.h"

/* NAN and WF_NOT_GIVEN mean that the flag was not given: the model's setting applies. */
#define WF_NOT_GIVEN INT64_MIN
typedef struct {
    double temp, top_p, min_p, repeat, frequency, presence;
    int64_t top_k, last, seed, limit; /* -1: a fresh seed, no limit */
    const char *samplers;
    wf_values stop, bias;
    bool ignore_end, special;
} wf_sampling_options;
extern wf_sampling_options wf_sampling_set;
extern const wf_flag wf_sampling_flags[];

/* A request with the arrays that it points to. */
typedef struct {
    wf_request request;
    bool models; /* the model has sampling settings */
    wf_logit_bias bias[WF_MAX_VALUES];
    const char *stop[WF_MAX_VALUES]; /* owned; request.stops of them */
} wf_sampled;

/* Checks the flags and makes a request from them; the model's settings fill the gaps. The model
 * must outlive the result. Call wf_sampled_free after a failure as well. */
wf_status wf_sampled_make(wf_ctx *ctx, const wf_model *model, wf_sampled *out);
/* Prints the settings on stderr if the model brings some, and the seed if it is fresh and used. */
void wf_sampled_say(const wf_sampled *s);
void wf_sampled_free(wf_ctx *ctx, wf_sampled *s);

/* "temp 0.7, top-k 20, top-p 0.8, min-p 0.05": the settings that have an effect. */
#define WF_SAMPLING_TEXT 256
const char *wf_sampling_text(const wf_sampling *s, char out[WF_SAMPLING_TEXT]);

/* Why generation stopped: a phrase for people, and a word for JSON. */
const char *wf_stop_sentence(wf_stop stop);
const char *wf_stop_word(wf_stop stop);

#endif
