/* SPDX-License-Identifier: MIT */
/*
 * words.h - pre-tokenizers: split text into words. Each step splits the pieces of the previous one.
 */
#ifndef WF_TEXT_WORDS_H
#define WF_TEXT_WORDS_H

#include "text/pattern.h"
#include "text/split.h"

typedef enum {
    WF_WORDS_SPLIT,  /* splits at matches of a pattern or string */
    WF_WORDS_DIGITS, /* splits at numbers; ISOLATED: each digit, CONTIGUOUS: runs of digits */
    WF_WORDS_PUNCTUATION,
    WF_WORDS_SPACES,    /* splits at white space */
    WF_WORDS_RUNS,      /* matches runs of \w, and of characters that are neither \w nor \s */
    WF_WORDS_METASPACE, /* replaces spaces by `text`; with `split`, splits before each */
    WF_WORDS_BYTES      /* with `split`, GPT-2's pattern; then maps each byte to a letter */
} wf_words_kind;

typedef enum { /* how a match is split off */
               WF_SPLIT_ISOLATED,
               WF_SPLIT_REMOVED,
               WF_SPLIT_MERGED_WITH_PREVIOUS,
               WF_SPLIT_MERGED_WITH_NEXT,
               WF_SPLIT_CONTIGUOUS
} wf_split_behavior;
extern const char *const wf_split_behavior_names[]; /* as in tokenizer.json; ends with NULL */

typedef enum { WF_PREPEND_ALWAYS, WF_PREPEND_FIRST, WF_PREPEND_NEVER } wf_prepend;

typedef struct {
    wf_words_kind kind;
    wf_split_behavior behavior;
    bool invert;                 /* the text between matches counts as the match */
    const wf_split_style *style; /* hand-written matcher, or NULL */
    wf_pattern *pattern;         /* regular expression, or NULL; both NULL: a string */
    const char *text;            /* the pattern or string; METASPACE: the replacement of a space */
    size_t bytes;
    bool split;         /* METASPACE: split; BYTES: use GPT-2's pattern */
    bool prefix;        /* BYTES: add a leading space to a piece that has none */
    wf_prepend prepend; /* METASPACE: where to add a leading replacement */
} wf_words_step;

/* The word is valid during the call only. A failure ends the run. */
typedef wf_status wf_word_fn(void *user, const char *word, size_t bytes);

/* Calls fn with the words of a text, in order. bytes_last: a BYTES step at the end does not map
 * bytes to letters. first: this is the start of the whole text. */
wf_status wf_words_run(wf_ctx *ctx, const wf_words_step *steps, int count, bool bytes_last,
                       bool first, const char *text, size_t bytes, wf_word_fn *fn, void *user);

#endif
