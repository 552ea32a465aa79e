/* SPDX-License-Identifier: MIT */
/* train_count.h - how often each word occurs in texts: all that training looks at. */
#ifndef WF_TEXT_TRAIN_COUNT_H
#define WF_TEXT_TRAIN_COUNT_H

#include "text/token_priv.h"

typedef struct {
    size_t at, bytes; /* in the text of all words */
    int64_t count;
    uint32_t hash;
} wf_counted_word;

typedef struct {
    wf_ctx *ctx;
    char *text; /* of all words, one behind the other */
    size_t used, room;
    wf_counted_word *word; /* [words] in no order that matters */
    size_t words, word_room;
    uint32_t *slot; /* [mask + 1], word + 1, 0: free; NULL at first */
    size_t mask;
} wf_counts;

typedef struct {
    int threads;
    void (*progress)(void *user, double done); /* 0 .. 1, from the calling thread; may be NULL */
    void *user;
} wf_count_options;

/* Counts the words that t's normalizer and pre-tokenizer make of the texts; control tokens in them are
 * text. *out starts empty, holds memory of ctx, and goes back by wf_counts_free in any case. */
wf_status wf_counts_make(wf_ctx *ctx, const wf_tokenizer *t, const wf_text *texts, size_t count,
                         const wf_count_options *options, wf_counts *out);
void wf_counts_free(wf_counts *c);

#endif
