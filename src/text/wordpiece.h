/* SPDX-License-Identifier: MIT */
/*
 * wordpiece.h - WordPiece: a word becomes the longest token at its start, then the longest that
 * continues it, and so on.
 */
#ifndef WF_TEXT_WORDPIECE_H
#define WF_TEXT_WORDPIECE_H

#include "text/bpe.h"
#include "text/trie.h"

#define WF_WORDPIECE_LONGEST 100 /* characters; of BERT, and so of GGUF, which has no key for it */

typedef struct {
    const wf_vocab *vocab;
    const char *prefix; /* of tokens that continue a word: "##" */
    size_t prefix_bytes;
    size_t longest;  /* characters; a longer word is unknown */
    int32_t unknown; /* token of a word that has no tokens */
    wf_trie trie;
    uint32_t inside; /* the node of the prefix, or WF_TRIE_NONE */
} wf_wordpiece;

/* Fills the trie. */
wf_status wf_wordpiece_index(wf_wordpiece *p, wf_arena *arena);
/* Appends the ids of one word, valid UTF-8. */
wf_status wf_wordpiece_word(const wf_wordpiece *p, wf_bpe_run *r, const char *word, size_t bytes);

#endif
