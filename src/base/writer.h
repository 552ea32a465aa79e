/* SPDX-License-Identifier: MIT */
/*
 * writer.h - text of any length, written piece by piece into memory.
 *
 * Running out of memory is remembered and reported at the end, so that the pieces need no checks.
 */
#ifndef WF_BASE_WRITER_H
#define WF_BASE_WRITER_H

#include "base/ctx.h"
#include "base/json.h"

typedef struct {
    wf_ctx *ctx;
    char *text; /* NUL-terminated once anything was written */
    size_t len, cap;
    wf_status status;
} wf_writer;

/* Starts as {.ctx = ctx}. */
void wf_writer_print(wf_writer *w, const char *fmt, ...) WF_PRINTF(2, 3);
void wf_writer_char(wf_writer *w, char c);
void wf_writer_bytes(wf_writer *w, const void *bytes, size_t count);
/* Write a JSON string, quotes included. A byte that is not UTF-8 becomes U+FFFD. _quoted: style WF_JSON_NUMERIC. */
void wf_writer_json(wf_writer *w, const char *text, size_t bytes, wf_json_style style);
void wf_writer_quoted(wf_writer *w, const char *text, size_t bytes);
/* Foreign text as content of an XML element: escaped as wf_text_escape does, at most `most` characters. */
void wf_writer_xml(wf_writer *w, const char *text, size_t most);
/* Hands the text over, to be given to wf_mem_free; its length without the NUL to *bytes, which may
 * be NULL. After a failure *out is NULL. The writer is empty then in either case. */
wf_status wf_writer_take(wf_writer *w, char **out, size_t *bytes);

#endif
