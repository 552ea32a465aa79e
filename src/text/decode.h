/* SPDX-License-Identifier: MIT */
/* decode.h - decoder steps, which turn a token into text, as in tokenizer.json. */
#ifndef WF_TEXT_DECODE_H
#define WF_TEXT_DECODE_H

#include "base/ctx.h"

typedef enum {
    WF_DECODE_BYTES,     /* byte-level letters to bytes */
    WF_DECODE_FALLBACK,  /* <0x0A> to its byte */
    WF_DECODE_REPLACE,   /* each `what` by `content` */
    WF_DECODE_METASPACE, /* each `what` by a space; by nothing in the first token if `first` */
    WF_DECODE_FUSE,      /* later steps apply to the whole text, not to single tokens */
    WF_DECODE_STRIP,     /* removes up to `start` leading and `stop` trailing `what` */
    WF_DECODE_WORDPIECE  /* after the first token: removes the prefix `what`, or else puts a space
                          * before the token */
} wf_decode_kind;

typedef struct {
    wf_decode_kind kind;
    const char *what, *content; /* in the tokenizer's arena */
    size_t what_bytes, content_bytes;
    bool first;           /* METASPACE only */
    bool clean;           /* WORDPIECE only: remove spaces before punctuation and contractions */
    uint32_t start, stop; /* STRIP only; repetitions */
} wf_decode_step;

#endif
