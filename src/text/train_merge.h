/* SPDX-License-Identifier: MIT */
/* train_merge.h - byte-level BPE is learned: the pair of tokens seen most often becomes a token, again and
 * again. */
#ifndef WF_TEXT_TRAIN_MERGE_H
#define WF_TEXT_TRAIN_MERGE_H

#include "text/merges.h"
#include "text/train_count.h"

typedef struct {
    int64_t minimum; /* pairs seen less often are not merged; at least 1 */
    void (*progress)(void *user, double done); /* 0 .. 1; may be NULL */
    void *user;
} wf_learn_options;

/* Adds tokens to the vocabulary, from id `first` on, until it is full or no pair is left, and cuts
 * v->count to what is there. letter[b] is the token of a byte. Of pairs seen equally often the one of
 * lower ids comes first, left before right, as in the package tokenizers. Pairs that would spell a token
 * that is there already (a control token) or too long a one are passed over. The counts are
 * used up. *out is for wf_mem_free, in any case. */
wf_status wf_merges_learn(wf_ctx *ctx, wf_counts *counts, const int32_t letter[256],
                          const wf_learn_options *options, wf_vocab *v, wf_arena *arena,
                          int32_t first, wf_merge_pair **out, size_t *count);

#endif
