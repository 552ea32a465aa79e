/* SPDX-License-Identifier: MIT */
/* normal.h - normalizers: what a text becomes before it is split. */
#ifndef WF_TEXT_NORMAL_H
#define WF_TEXT_NORMAL_H

#include "base/writer.h"
#include "text/pattern.h"

typedef enum {
    WF_NORMAL_NFC,
    WF_NORMAL_PREPEND, /* `content` before a text that is not empty */
    WF_NORMAL_REPLACE, /* `content` for each match of `pattern`, or of the string `what` */
    WF_NORMAL_STRIP    /* white space at the start, the end */
} wf_normal_kind;

typedef struct {
    wf_normal_kind kind;
    wf_pattern *pattern;
    const char *what, *content;
    size_t what_bytes, content_bytes;
    bool left, right; /* of STRIP */
} wf_normal_step;

/* A text and a mark for each of its bytes; plain NULL: there are no marks. */
typedef struct {
    const char *text;
    const uint8_t *plain;
    size_t bytes;
} wf_marked;

/* Sets out->text to NULL when nothing changes, else to the new text; it and out->plain are for wf_mem_free.
 * The text is valid UTF-8. A character is marked when any character that it was made of was marked. A text
 * that would become many times as long is WF_ERR_UNSUPPORTED. */
wf_status wf_normal_run(wf_ctx *ctx, const wf_normal_step *steps, int count, wf_marked from,
                        wf_marked *out);

/* Canonical composition, in linear time. */
wf_status wf_nfc(wf_ctx *ctx, wf_marked from, wf_marked *out);

/* Hands over what was written, and the marks where there are any, unless `status` is a failure. */
wf_status wf_normal_take(wf_writer *w, wf_writer *marks, wf_status status, wf_marked *out);

#endif
