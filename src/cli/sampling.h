/* SPDX-License-Identifier: MIT */
/* sampling.h - the flags that say how tokens are chosen and when a text ends, and the request they make. */
#ifndef WF_CLI_SAMPLING_H
#define WF_CLI_SAMPLING_H

#include "cli/cli.h"

typedef struct {
    double temp, top_p, min_p, repeat, frequency, presence;
    int64_t top_k, last, seed, limit; /* -1: a fresh seed, no limit */
    wf_values stop, bias;
    bool ignore_end, special;
} wf_sampling_options;
extern wf_sampling_options wf_sampling_set;
extern const wf_flag wf_sampling_flags[];

/* A request and what it points to. */
typedef struct {
    wf_request request;
    wf_logit_bias bias[WF_MAX_VALUES];
    const char *stop[WF_MAX_VALUES]; /* ours */
} wf_sampled;

/* Checks the flags. Freed after a failure as well. */
wf_status wf_sampled_make(wf_ctx *ctx, int64_t vocab, wf_sampled *out);
/* A fresh seed on stderr, when it matters. */
void wf_sampled_say(const wf_sampled *s);
void wf_sampled_free(wf_ctx *ctx, wf_sampled *s);

/* Why a text ended, for people and for programs. */
const char *wf_stop_sentence(wf_stop stop);
const char *wf_stop_word(wf_stop stop);

#endif
