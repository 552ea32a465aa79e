/* SPDX-License-Identifier: MIT */
/* merges.h - between merges and scores, the two ways to say which pair is merged first. */
#ifndef WF_TEXT_MERGES_H
#define WF_TEXT_MERGES_H

#include "text/bpe.h"

typedef struct {
    int32_t left, right, made;
    uint32_t rank;
} wf_merge_pair;

/* The merges in their order; of a model with scores, those that these amount to: every way to make a token
 * of two others, the better score first. For wf_mem_free. */
wf_status wf_merges_list(const wf_bpe *b, wf_ctx *ctx, wf_merge_pair **out, size_t *count);

/* Scores that lead to the same ids as the merges, for wf_mem_free; WF_ERR_UNSUPPORTED when there are none:
 * when tokens are not merged in one order, or one could be made that has no merge. */
wf_status wf_merges_scores(const wf_bpe *b, wf_ctx *ctx, float **out);

#endif
