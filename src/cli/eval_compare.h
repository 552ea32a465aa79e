/* SPDX-License-Identifier: MIT */
/* eval_compare.h - compares the predictions of a model with those of another: KL divergence and
 * agreement on the most likely token. */
#ifndef WF_CLI_EVAL_COMPARE_H
#define WF_CLI_EVAL_COMPARE_H

#include "cli/open.h"

typedef struct {
    wf_open *base; /* the model that predictions are compared with */
    float *logits; /* [room, vocab] of the current window */
    size_t vocab, room;
    double nats; /* sum of -log p of the text by base */
    double kl;   /* sum of KL(base || model), in nats */
    size_t same; /* predictions with the same most likely token */
} wf_comparison;

/* Loads the open `base`, which must have the tokens of `model`. Windows have at most `room` tokens. */
wf_status wf_comparison_begin(wf_comparison *c, const wf_open *model, wf_open *base, size_t room);
/* Computes the logits of a window. */
wf_status wf_comparison_window(wf_comparison *c, const int32_t *ids, size_t count);
/* Adds the model's logits after token i of the window, which `target` follows; nats: -log p of
 * target by these logits. */
void wf_comparison_add(wf_comparison *c, size_t i, const float *logits, int32_t target,
                       double nats);
void wf_comparison_end(wf_comparison *c);

#endif
