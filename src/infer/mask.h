/* SPDX-License-Identifier: MIT */
/*
 * mask.h - ids without a token: rows that pad an embedding, holes in a vocabulary.
 *
 * Their logits are numbers like any other, but the ids mean nothing. They are never sampled.
 */
#ifndef WF_INFER_MASK_H
#define WF_INFER_MASK_H

#include "base/ctx.h"

typedef struct {
    int32_t *ids; /* ascending */
    size_t count;
    int64_t limit; /* ids from here on are all masked: the length without padding at the end */
    bool holes;    /* an id below the limit is masked */
} wf_mask;

/* Masks the ids below `vocab` that the tokenizer has no token for. NULL, or a tokenizer without any
 * token, masks nothing. */
wf_status wf_mask_make(wf_ctx *ctx, const wf_tokenizer *t, int64_t vocab, wf_mask *out);
void wf_mask_free(wf_ctx *ctx, wf_mask *m);

#endif
