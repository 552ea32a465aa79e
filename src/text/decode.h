/* SPDX-License-Identifier: MIT */
/* decode.h - ids to text: what each token adds, in steps as tokenizer.json has them. */
#ifndef WF_TEXT_DECODE_H
#define WF_TEXT_DECODE_H

#include "base/ctx.h"

typedef enum {
    WF_DECODE_BYTES,     /* letters that stand for bytes become them */
    WF_DECODE_FALLBACK,  /* <0x0A> becomes its byte */
    WF_DECODE_REPLACE,   /* `content` for each `what` */
    WF_DECODE_METASPACE, /* a space for each `what`, but none in the first token if `first` */
    WF_DECODE_FUSE,      /* from here on the text is one piece */
    WF_DECODE_STRIP /* up to `start` characters `what` at the start of a piece, `stop` at its end */
} wf_decode_kind;

typedef struct {
    wf_decode_kind kind;
    const char *what, *content;
    size_t what_bytes, content_bytes;
    bool first;
    uint32_t start, stop;
} wf_decode_step;

#endif
