/* SPDX-License-Identifier: MIT */
/*
 * mask.h - ids without a token: padding rows of the embedding, holes in the vocabulary.
 *
 * The model computes logits for them, but they have no text, so they are never sampled.
 */
#ifndef WF_INFER_MASK_H
#define WF_INFER_MASK_H

#include "base/ctx.h"

typedef struct {
    int32_t *ids; /* ascending */
    size_t count;
    int64_t limit; /* every id from here on is masked: the vocabulary without its padding */
    bool holes;    /* an id below the limit is masked, too */
} wf_mask;

/* Masks the ids below `vocab` that the tokenizer does not define. With t == NULL, or a tokenizer
 * without tokens, the mask is empty. Free it with wf_mask_free. */
wf_status wf_mask_make(wf_ctx *ctx, const wf_tokenizer *t, int64_t vocab, wf_mask *out);
void wf_mask_free(wf_ctx *ctx, wf_mask *m);

#endif
