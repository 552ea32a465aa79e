/* SPDX-License-Identifier: MIT */
/*
 * unigram.h - Unigram: a word becomes the tokens with the highest sum of scores (Viterbi).
 *
 * Every token that begins at a character extends the best path to that character. A character
 * without a token of its own may also be unknown, for less than the lowest score. Time is linear in
 * the word: a token has at most WF_TRIE_TOKEN bytes. A long word is processed in stretches, which
 * end where no token can span the boundary, so memory does not grow with the word.
 */
#ifndef WF_TEXT_UNIGRAM_H
#define WF_TEXT_UNIGRAM_H

#include "text/bpe.h"
#include "text/trie.h"

typedef struct {
    const wf_vocab *vocab;
    double *score;     /* [vocab] finite */
    double least;      /* the lowest score; an unknown character has 10 less */
    int32_t unknown;   /* token of adjacent unknown characters */
    bool fallback;     /* they become their byte tokens, if all of these exist */
    int32_t byte[256]; /* ids of <0x00> .. <0xFF>, or -1 */
    wf_trie trie;
    wf_joins joins;
} wf_unigram;

/* Fills the trie, byte[] and joins. */
wf_status wf_unigram_index(wf_unigram *u, wf_arena *arena);

/* Best path to each byte of a stretch, reused between words. Initialise with zeros. */
typedef struct {
    struct {
        double score;
        uint32_t from; /* where its last token begins */
        int32_t id;    /* of that token; -1: no path ends here */
    } * at;            /* [room] by the offset in the stretch */
    size_t count, room;
} wf_unigram_run;

void wf_unigram_run_free(wf_unigram_run *l, wf_ctx *ctx);
/* Appends the ids of one word, valid UTF-8. A word of more than WF_STRETCH_MOST bytes without a
 * boundary is WF_ERR_USAGE. */
wf_status wf_unigram_word(const wf_unigram *u, wf_unigram_run *l, wf_bpe_run *r, const char *word,
                          size_t bytes);

#endif
