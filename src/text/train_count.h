/* SPDX-License-Identifier: MIT */
/* train_count.h - counts the words of texts; training needs nothing else. */
#ifndef WF_TEXT_TRAIN_COUNT_H
#define WF_TEXT_TRAIN_COUNT_H

#include "text/token_priv.h"

typedef struct {
    size_t at, bytes; /* offset and length in wf_counts.text */
    int64_t count;    /* occurrences in all texts */
    uint32_t hash;    /* of the word's bytes */
} wf_counted_word;

typedef struct {
    wf_ctx *ctx;
    char *text;            /* all words, concatenated */
    size_t used, room;     /* bytes of text */
    wf_counted_word *word; /* [words], unordered */
    size_t words, word_room;
    uint32_t *slot; /* [mask + 1] hash table: 1 + index of a word; 0: free */
    size_t mask;
} wf_counts;

typedef struct {
    int threads;
    void (*progress)(void *user, double done); /* 0 .. 1, from the calling thread; may be NULL */
    void *user;
} wf_count_options;

/* Counts the words that t's normalizer and pre-tokenizer produce; control tokens in the texts are
 * plain text. Free *out with wf_counts_free, also after a failure. */
wf_status wf_counts_make(wf_ctx *ctx, const wf_tokenizer *t, const wf_text *texts, size_t count,
                         const wf_count_options *options, wf_counts *out);
void wf_counts_free(wf_counts *c);

#endif
