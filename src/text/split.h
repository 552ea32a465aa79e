/* SPDX-License-Identifier: MIT */
/*
 * split.h - hand-written matchers for the split patterns of most tokenizers.
 *
 * Regular expression engines take quadratic time or much memory on long runs of one character.
 * These matchers are linear: they read each character a few times at most.
 */
#ifndef WF_TEXT_SPLIT_H
#define WF_TEXT_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *pattern; /* as written in tokenizer.json */
    bool plain;          /* GPT-2: only a space may precede the letters of a word */
    bool marks;          /* combining marks are part of words */
    int digits;          /* most digits in a piece; 0: no limit */
} wf_split_style;

/* Returns the matcher of a pattern; NULL: it needs a regular expression engine. */
const wf_split_style *wf_split_known(const char *pattern, size_t bytes);
extern const char wf_split_gpt2[], wf_split_llama3[], wf_split_qwen2[]; /* the patterns */

/* Returns the length of the piece at the start of s, valid UTF-8 of n >= 1 bytes. Pieces cover the
 * whole text. */
size_t wf_split_next(const wf_split_style *style, const char *s, size_t n);

#endif
