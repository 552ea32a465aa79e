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

/* *out is NULL when nothing changes, else the new text, for wf_mem_free. The text is valid UTF-8. One that
 * would become many times as long is WF_ERR_UNSUPPORTED. */
wf_status wf_normal_run(wf_ctx *ctx, const wf_normal_step *steps, int count, const char *text,
                        size_t bytes, char **out, size_t *out_bytes);

/* Canonical composition, in linear time. */
wf_status wf_nfc(wf_ctx *ctx, const char *text, size_t bytes, char **out, size_t *out_bytes);

#endif
