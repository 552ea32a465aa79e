/* SPDX-License-Identifier: MIT */
/* lex.h - splits a template into tokens, with Jinja's rules for white space around tags. */
#ifndef WF_TEXT_JINJA_LEX_H
#define WF_TEXT_JINJA_LEX_H

#include "base/arena.h"

typedef enum {
    WF_JT_END,
    WF_JT_DATA,        /* text between tags */
    WF_JT_BLOCK_BEGIN, /* {% */
    WF_JT_BLOCK_END,
    WF_JT_PRINT_BEGIN, /* {{ */
    WF_JT_PRINT_END,
    WF_JT_NAME,
    WF_JT_STRING, /* escapes resolved */
    WF_JT_INT,
    WF_JT_FLOAT,
    WF_JT_OP /* op, encoded by WF_J_OP */
} wf_jtoken_kind;

typedef struct {
    wf_jtoken_kind kind;
    int line;         /* of its first byte, from 1 */
    int op;           /* WF_JT_OP */
    const char *text; /* in the arena, not NUL-terminated */
    size_t bytes;
    /* Literals have no sign; the parser applies it. */
    int64_t integer;
    double number;
} wf_jtoken;

/* Splits `text` into tokens. *out and the tokens' text are in the arena; the last token is
 * WF_JT_END. Fails, with the line, for text over 4 MiB, invalid UTF-8, and unclosed or mismatched
 * tags, strings and brackets. */
wf_status wf_jlex(wf_arena *arena, const char *what, const char *text, size_t bytes,
                  wf_jtoken **out);

#endif
