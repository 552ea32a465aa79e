/* SPDX-License-Identifier: MIT */
/*
 * writer.h - a growing buffer for text or bytes.
 *
 * The first failed allocation is remembered and reported by wf_writer_take, so the callers of the
 * other functions need no checks.
 */
#ifndef WF_BASE_WRITER_H
#define WF_BASE_WRITER_H

#include "base/ctx.h"
#include "base/json.h"

struct wf_writer {
    wf_ctx *ctx;
    char *text; /* NUL-terminated after the first write; NULL before */
    /* Bytes used, without the NUL; bytes allocated. */
    size_t len, cap;
    /* WF_ERR_MEMORY after a failure: all writes are then ignored. */
    wf_status status;
};

/* Initialise with {.ctx = ctx}. */
void wf_writer_print(wf_writer *w, const char *fmt, ...) WF_PRINTF(2, 3);
void wf_writer_char(wf_writer *w, char c);
void wf_writer_bytes(wf_writer *w, const void *bytes, size_t count);
/* Write a JSON string, quotes included. A byte that is not UTF-8 becomes U+FFFD. _quoted: style
 * WF_JSON_NUMERIC. */
void wf_writer_json(wf_writer *w, const char *text, size_t bytes, wf_json_style style);
void wf_writer_quoted(wf_writer *w, const char *text, size_t bytes);
/* Writes foreign text as content of an XML element, escaped as wf_text_escape does, at most `most`
 * characters. */
void wf_writer_xml(wf_writer *w, const char *text, size_t most);
/* Passes the buffer to the caller, who frees it with wf_mem_free. *bytes: its length without the
 * NUL; bytes may be NULL. After a failure *out is NULL. The writer is empty in either case. */
wf_status wf_writer_take(wf_writer *w, char **out, size_t *bytes);

#endif
