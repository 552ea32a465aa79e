/* SPDX-License-Identifier: MIT */
/* pre.h - the values of tokenizer.ggml.pre in GGUF files: the split patterns of byte-level BPE. */
#ifndef WF_TEXT_PRE_H
#define WF_TEXT_PRE_H

#include "text/token_priv.h"

#define WF_PRE_PATTERNS 6 /* the most patterns of a row */
enum {
    WF_PRE_NFC = 1,   /* normalize to NFC */
    WF_PRE_WHOLE = 2, /* a word that is a token becomes it without merging */
    WF_PRE_BOS = 4    /* add bos before a text, unless the file says otherwise */
};

typedef struct {
    const char *names; /* separated by commas; files are written with the first */
    unsigned is;       /* WF_PRE_... */
    const char
        *pattern[WF_PRE_PATTERNS]; /* applied in turn, each to the pieces of the one before */
} wf_pre;

extern const wf_pre wf_pres[]; /* ends with names NULL */

/* Returns NULL for an unknown name. */
const wf_pre *wf_pre_find(const char *name, size_t bytes);
/* Adds the normalizer, pre-tokenizer and decoder to a tokenizer. */
wf_status wf_pre_apply(const wf_pre *pre, wf_tokenizer *t);
/* Returns the row that splits as t does; NULL: no row does. */
const wf_pre *wf_pre_of(const wf_tokenizer *t);

#endif
