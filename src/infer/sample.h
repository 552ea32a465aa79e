/* SPDX-License-Identifier: MIT */
/*
 * sample.h - which token comes next: wf_sampling applied to the logits of one sequence.
 *
 * The random number of a draw is a function of the seed and of how many tokens were drawn before it, so
 * that a sequence is the same whatever is computed beside it.
 */
#ifndef WF_INFER_SAMPLE_H
#define WF_INFER_SAMPLE_H

#include "base/ctx.h"
#include "infer/likely.h"
#include "infer/mask.h"

/* The longest window of penalties, but for that without an end. */
#define WF_PENALTY_MAX (1 << 20)

/* Of one sequence. */
typedef struct wf_sampler wf_sampler;

/* Ids are 0 .. vocab - 1. A setting out of its range is WF_ERR_USAGE and a sentence with its name; NULL:
 * all defaults. The biases are copied. Everything that picking needs is allocated here. */
wf_status wf_sampler_new(wf_ctx *ctx, int64_t vocab, const wf_sampling *sampling, wf_sampler **out);
void wf_sampler_free(wf_sampler *s);

/* Ids that are never picked, whatever their logits and biases. Borrowed for as long as the sampler
 * lives. */
void wf_sampler_mask(wf_sampler *s, const wf_mask *mask);

/* false: always the first of the largest logits, which a device can find by itself. */
bool wf_sampler_needs_logits(const wf_sampler *s);

/* A token of the sequence, of its prompt or picked, for penalties. */
void wf_sampler_accept(wf_sampler *s, int32_t id);

/* The next token from logits f32[vocab]; the caller accepts it. Logits may be -infinity: such tokens are
 * never picked. When one is NaN or +infinity, or all are -infinity, there is no token and the status is
 * WF_ERR_DEVICE. */
wf_status wf_sampler_pick(wf_sampler *s, const float *logits, int32_t *id);

/* As if so many tokens had been picked: to go on with a sequence that another sampler began. */
void wf_sampler_seek(wf_sampler *s, uint64_t picked);

/* What a pick draws from, with weights; borrowed until the next call. */
wf_status wf_sampler_filter(wf_sampler *s, const float *logits, const wf_likely **kept);

#endif
