/* SPDX-License-Identifier: MIT */
/*
 * sample.h - picks the next token of one sequence from its logits, as wf_sampling asks.
 *
 * The random number of a pick depends only on the seed and on the number of earlier picks. A
 * sequence is therefore the same whatever other sequences are in its batch.
 *
 * A sampler is small, so many sequences can wait with one each. The arrays of the vocabulary's size
 * are in a scratch, one per thread. Picks with different samplers and scratches may run in several
 * threads at once: they use no context and allocate nothing. sample_rows.h does this.
 */
#ifndef WF_INFER_SAMPLE_H
#define WF_INFER_SAMPLE_H

#include "base/ctx.h"
#include "infer/likely.h"
#include "infer/mask.h"

/* The largest penalty_last, in tokens; -1 (all tokens) is allowed as well. */
#define WF_PENALTY_MAX (1 << 20)

typedef struct wf_sampler wf_sampler;
typedef struct wf_sampler_scratch wf_sampler_scratch;

/* Ids are 0 .. vocab - 1. A setting out of range is WF_ERR_USAGE, and the message names it.
 * sampling == NULL: all defaults. Biases are copied; they and a few hundred bytes are all that is
 * allocated, so this also serves to check settings. */
wf_status wf_sampler_new(wf_ctx *ctx, int64_t vocab, const wf_sampling *sampling, wf_sampler **out);
void wf_sampler_free(wf_sampler *s);

/* For picks of samplers with at most `vocab` tokens: 12 bytes per token. */
wf_status wf_sampler_scratch_new(wf_ctx *ctx, int64_t vocab, wf_sampler_scratch **out);
void wf_sampler_scratch_free(wf_sampler_scratch *x);

/* Sets the ids that are never picked, whatever their logits and biases. The mask must outlive the
 * sampler. */
void wf_sampler_mask(wf_sampler *s, const wf_mask *mask);

/* false: the pick is always the argmax, the lowest id on ties, which the device computes. */
bool wf_sampler_needs_logits(const wf_sampler *s);

/* Adds a token of the sequence, from the prompt or picked, to the penalty window. A failed
 * allocation changes nothing. */
wf_status wf_sampler_accept(wf_sampler *s, int32_t id);

/* Sets the number of earlier picks, to continue a sequence that another sampler began. */
void wf_sampler_seek(wf_sampler *s, uint64_t picked);

/* ---- Picks ---- */

typedef enum {
    WF_FAULT_NONE,
    WF_FAULT_LOGIT,   /* a logit is NaN or +infinity */
    WF_FAULT_NO_TOKEN /* all logits are -infinity, possibly because of biases */
} wf_fault_kind;

/* Why a pick failed. */
typedef struct {
    wf_fault_kind kind;
    int32_t token; /* of WF_FAULT_LOGIT: the first such token, and its logit */
    float logit;
} wf_sampler_fault;

/* Picks the next token from logits f32[vocab]. The caller passes it to wf_sampler_accept. A token
 * with logit -infinity is never picked. After a fault *id is unchanged. */
wf_sampler_fault wf_sampler_pick(wf_sampler *s, wf_sampler_scratch *x, const float *logits,
                                 int32_t *id);

/* Returns the candidates of a pick, with their weights. Borrowed until the scratch is used again. */
wf_sampler_fault wf_sampler_filter(const wf_sampler *s, wf_sampler_scratch *x, const float *logits,
                                   const wf_likely **kept);

/* Writes the sentence that describes a fault of this sampler, cut to `size` bytes, and returns
 * it. */
#define WF_SAMPLER_FAULT_TEXT 192 /* bytes that hold any sentence */
const char *wf_sampler_fault_text(const wf_sampler *s, wf_sampler_fault fault, char *text,
                                  size_t size);

/* Returns WF_OK for WF_FAULT_NONE. Otherwise records the sentence in the sampler's context and
 * returns WF_ERR_DEVICE. Call in the thread that the context belongs to. */
wf_status wf_sampler_report(const wf_sampler *s, wf_sampler_fault fault);

#endif
