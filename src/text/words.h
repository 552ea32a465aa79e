/* SPDX-License-Identifier: MIT */
/*
 * words.h - pre-tokenizers: text into words, by steps of which each cuts the pieces of the one before.
 */
#ifndef WF_TEXT_WORDS_H
#define WF_TEXT_WORDS_H

#include "text/pattern.h"
#include "text/split.h"

typedef enum {
    WF_WORDS_SPLIT,  /* where a pattern or a string matches */
    WF_WORDS_DIGITS, /* at numbers; ISOLATED: each by itself, CONTIGUOUS: runs of them */
    WF_WORDS_PUNCTUATION,
    WF_WORDS_METASPACE, /* spaces become another character, before which it cuts if asked to */
    WF_WORDS_BYTES      /* GPT-2's pattern if asked for; then each byte becomes a letter */
} wf_words_kind;

typedef enum { /* what becomes of a match */
               WF_SPLIT_ISOLATED,
               WF_SPLIT_REMOVED,
               WF_SPLIT_MERGED_WITH_PREVIOUS,
               WF_SPLIT_MERGED_WITH_NEXT,
               WF_SPLIT_CONTIGUOUS
} wf_split_behavior;
extern const char *const wf_split_behavior_names[]; /* as tokenizer.json has them; ends with NULL */

typedef enum { WF_PREPEND_ALWAYS, WF_PREPEND_FIRST, WF_PREPEND_NEVER } wf_prepend;

typedef struct {
    wf_words_kind kind;
    wf_split_behavior behavior;
    bool invert;                 /* what lies between the matches counts as match */
    const wf_split_style *style; /* of a pattern written by hand */
    wf_pattern *pattern;         /* of another; both NULL: a string */
    const char *text;            /* the pattern or string; what METASPACE puts for a space */
    size_t bytes;
    bool split;         /* METASPACE: cut; BYTES: by GPT-2's pattern */
    bool prefix;        /* BYTES: a space before the piece, unless it has one */
    wf_prepend prepend; /* METASPACE */
} wf_words_step;

typedef wf_status wf_word_fn(void *user, const char *word, size_t bytes);

/* Gives the words of a text to fn, one after the other. `bytes_last`: a BYTES step at the end leaves bytes
 * as they are. `first`: the text stands at the very beginning. */
wf_status wf_words_run(wf_ctx *ctx, const wf_words_step *steps, int count, bool bytes_last,
                       bool first, const char *text, size_t bytes, wf_word_fn *fn, void *user);

#endif
