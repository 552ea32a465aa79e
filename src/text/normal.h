/* SPDX-License-Identifier: MIT */
/* normal.h - normalizers: transform a text before it is split. */
#ifndef WF_TEXT_NORMAL_H
#define WF_TEXT_NORMAL_H

#include "base/writer.h"
#include "text/pattern.h"

typedef enum {
    WF_NORMAL_NFC,
    WF_NORMAL_PREPEND, /* puts `content` before a text that is not empty */
    WF_NORMAL_REPLACE, /* replaces each match of `pattern`, or of the string `what`, by `content` */
    WF_NORMAL_STRIP    /* removes white space at the start (left) and the end (right) */
} wf_normal_kind;

typedef struct {
    wf_normal_kind kind;
    wf_pattern *pattern;        /* of REPLACE, owned by the tokenizer; NULL: `what` is a string */
    const char *what, *content; /* in the tokenizer's arena */
    size_t what_bytes, content_bytes;
    bool left, right; /* of STRIP */
} wf_normal_step;

/* A text with a mark for each byte; plain == NULL: no marks. */
typedef struct {
    const char *text;
    const uint8_t *plain;
    size_t bytes;
} wf_marked;

/* Runs the steps on valid UTF-8. out->text is NULL when nothing changes; otherwise the caller frees
 * out->text and out->plain with wf_mem_free. A character is marked if any character that it was
 * made from was marked. A text that would grow too much is WF_ERR_UNSUPPORTED. */
wf_status wf_normal_run(wf_ctx *ctx, const wf_normal_step *steps, int count, wf_marked from,
                        wf_marked *out);

/* Unicode normalization form C, in linear time. */
wf_status wf_nfc(wf_ctx *ctx, wf_marked from, wf_marked *out);

/* Moves the text, and the marks unless NULL, from the writers to out. If status is a failure, frees
 * them and returns it. */
wf_status wf_normal_take(wf_writer *w, wf_writer *marks, wf_status status, wf_marked *out);

#endif
