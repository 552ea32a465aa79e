/* SPDX-License-Identifier: MIT */
/*
 * split.h - the patterns by which most tokenizers cut text into words, written by hand.
 *
 * What regular expression engines do with them takes quadratic time or much memory on long runs of one
 * character; this reads each character a few times at most.
 */
#ifndef WF_TEXT_SPLIT_H
#define WF_TEXT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *pattern; /* as tokenizer.json spells it */
    bool plain;          /* GPT-2's way: a word may begin with a space and nothing else */
    bool marks;          /* marks are part of words */
    int digits;          /* most digits that stay together; 0: any number */
} wf_split_style;

/* NULL: the pattern is none of those written by hand. */
const wf_split_style *wf_split_known(const char *pattern, size_t bytes);
extern const char wf_split_gpt2[], wf_split_llama3[], wf_split_qwen2[]; /* the patterns */

/* The length of the piece at the start of s, which is valid UTF-8 of n >= 1 bytes. Everything is part of
 * some piece. */
size_t wf_split_next(const wf_split_style *style, const char *s, size_t n);

#endif
