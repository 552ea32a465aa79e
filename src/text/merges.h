/* SPDX-License-Identifier: MIT */
/* merges.h - converts between merges and scores, the two ways to rank pairs. */
#ifndef WF_TEXT_MERGES_H
#define WF_TEXT_MERGES_H

#include "text/bpe.h"

typedef struct {
    int32_t left, right, made; /* ids */
    uint32_t rank;             /* lower merges first */
} wf_merge_pair;

/* Lists the merges in order. For a model with scores: every pair of tokens whose concatenation is a
 * token, the better score first. The caller frees *out with wf_mem_free. */
wf_status wf_merges_list(const wf_bpe *b, wf_ctx *ctx, wf_merge_pair **out, size_t *count);

/* Computes scores that produce the same ids as the merges. The caller frees *out with wf_mem_free.
 * WF_ERR_UNSUPPORTED when no such scores exist: a token has merges of different ranks, or two
 * tokens concatenate to a third without a merge. */
wf_status wf_merges_scores(const wf_bpe *b, wf_ctx *ctx, float **out);

#endif
