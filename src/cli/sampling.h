/* SPDX-License-Identifier: MIT */
/* sampling.h - the flags that say how tokens are chosen and when a text ends, and the request they make. */
#ifndef WF_CLI_SAMPLING_H
#define WF_CLI_SAMPLING_H

#include "cli/cli.h"

/* A setting that is not given is the model's: NAN, or WF_NOT_GIVEN. */
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

/* A request and what it points to. */
typedef struct {
    wf_request request;
    bool models; /* the model brings settings of its own */
    wf_logit_bias bias[WF_MAX_VALUES];
    const char *stop[WF_MAX_VALUES]; /* ours */
} wf_sampled;

/* The flags, checked, and the model's settings where there is no flag. The model must outlive the result. Freed
 * after a failure as well. */
wf_status wf_sampled_make(wf_ctx *ctx, const wf_model *model, wf_sampled *out);
/* On stderr: the model's settings, and a fresh seed when it matters. */
void wf_sampled_say(const wf_sampled *s);
void wf_sampled_free(wf_ctx *ctx, wf_sampled *s);

/* "temp 0.7, top-k 20, top-p 0.8, min-p 0.05": what has an effect, by the names of the flags. */
#define WF_SAMPLING_TEXT 256
const char *wf_sampling_text(const wf_sampling *s, char out[WF_SAMPLING_TEXT]);

/* Why a text ended, for people and for programs. */
const char *wf_stop_sentence(wf_stop stop);
const char *wf_stop_word(wf_stop stop);

#endif
