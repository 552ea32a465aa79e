/* SPDX-License-Identifier: MIT */
/*
 * sample.h - picks the next token of one sequence from its logits, as wf_sampling asks.
 *
 * The random number of a pick depends only on the seed and on the number of earlier picks. A
 * sequence is therefore the same whatever other sequences are in its batch.
 */
#ifndef WF_INFER_SAMPLE_H
#define WF_INFER_SAMPLE_H

#include "base/ctx.h"
#include "infer/likely.h"
#include "infer/mask.h"

/* The largest penalty_last, in tokens; -1 (all tokens) is allowed as well. */
#define WF_PENALTY_MAX (1 << 20)

typedef struct wf_sampler wf_sampler;

/* Ids are 0 .. vocab - 1. A setting out of range is WF_ERR_USAGE, and the message names it.
 * sampling == NULL: all defaults. Biases are copied. All memory is allocated here: picking
 * allocates nothing. */
wf_status wf_sampler_new(wf_ctx *ctx, int64_t vocab, const wf_sampling *sampling, wf_sampler **out);
void wf_sampler_free(wf_sampler *s);

/* Sets the ids that are never picked, whatever their logits and biases. The mask must outlive the
 * sampler. */
void wf_sampler_mask(wf_sampler *s, const wf_mask *mask);

/* false: the pick is always the argmax, the lowest id on ties, which the device computes. */
bool wf_sampler_needs_logits(const wf_sampler *s);

/* Adds a token of the sequence, from the prompt or picked, to the penalty window. */
void wf_sampler_accept(wf_sampler *s, int32_t id);

/* Picks the next token from logits f32[vocab]. The caller passes it to wf_sampler_accept. A token
 * with logit -infinity is never picked. WF_ERR_DEVICE: a logit is NaN or +infinity, or all are
 * -infinity. */
wf_status wf_sampler_pick(wf_sampler *s, const float *logits, int32_t *id);

/* Sets the number of earlier picks, to continue a sequence that another sampler began. */
void wf_sampler_seek(wf_sampler *s, uint64_t picked);

/* Returns the candidates of a pick, with their weights. Borrowed until the next call. */
wf_status wf_sampler_filter(wf_sampler *s, const float *logits, const wf_likely **kept);

#endif
