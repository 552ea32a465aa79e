/* SPDX-License-Identifier: MIT */
/* words.h - options whose value is one word of a list. */
#ifndef WF_BASE_WORDS_H
#define WF_BASE_WORDS_H

#include "base/ctx.h"

/* Finds `word` in words[0 .. count) and sets *out to its index. Otherwise fails with WF_ERR_USAGE
 * and lists the words; `what` names the option's kind, as in "unknown optimizer 'adam'". */
wf_status wf_words_find(wf_ctx *ctx, const char *what, const char *word, const char *const *words,
                        int count, int *out);

#endif
