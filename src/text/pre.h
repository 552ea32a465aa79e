/* SPDX-License-Identifier: MIT */
/* pre.h - what tokenizer.ggml.pre of a GGUF file says: the patterns by which byte-level BPE splits. */
#ifndef WF_TEXT_PRE_H
#define WF_TEXT_PRE_H

#include "text/token_priv.h"

#define WF_PRE_PATTERNS 6
enum {
    WF_PRE_NFC = 1,   /* the models' own tokenizers normalize */
    WF_PRE_WHOLE = 2, /* a word that is a token is not built of merges */
    WF_PRE_BOS = 4    /* bos before a text, unless the file says otherwise */
};

typedef struct {
    const char *names; /* with commas; the first is written */
    unsigned is;       /* WF_PRE_... */
    const char
        *pattern[WF_PRE_PATTERNS]; /* applied in turn, each to the pieces of the one before */
} wf_pre;

extern const wf_pre wf_pres[]; /* ends with names NULL */

/* NULL: unknown. */
const wf_pre *wf_pre_find(const char *name, size_t bytes);
/* Gives a tokenizer its normalizer, words and decoder. */
wf_status wf_pre_apply(const wf_pre *pre, wf_tokenizer *t);
/* The one that splits as t does, NULL: none. */
const wf_pre *wf_pre_of(const wf_tokenizer *t);

#endif
