/* SPDX-License-Identifier: MIT */
/* train_merge.h - learns the merges of byte-level BPE: repeatedly makes the most frequent pair a
 * token. */
#ifndef WF_TEXT_TRAIN_MERGE_H
#define WF_TEXT_TRAIN_MERGE_H

#include "text/merges.h"
#include "text/train_count.h"

typedef struct {
    int64_t minimum;                           /* rarer pairs are not merged; at least 1 */
    void (*progress)(void *user, double done); /* 0 .. 1; may be NULL */
    void *user;
} wf_learn_options;

/* Adds tokens to the vocabulary, from id `first` on, until it is full or no pair is left; then
 * reduces v->count to the tokens that exist. letter[b] is the token of byte b. Ties go to the lower
 * left id, then the lower right id, as in the package tokenizers. Pairs that spell an existing
 * token (a control token) or a too long one are skipped. Consumes the counts. The caller frees *out
 * with wf_mem_free, also after a failure. */
wf_status wf_merges_learn(wf_ctx *ctx, wf_counts *counts, const int32_t letter[256],
                          const wf_learn_options *options, wf_vocab *v, wf_arena *arena,
                          int32_t first, wf_merge_pair **out, size_t *count);

#endif
