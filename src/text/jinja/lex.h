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
    int line;
    int op;
    const char *text;
    size_t bytes;
    int64_t integer;
    double number;
} wf_jtoken;

/* The tokens and their text are in the arena; the last token is WF_JT_END. */
wf_status wf_jlex(wf_arena *arena, const char *what, const char *text, size_t bytes,
                  wf_jtoken **out);

#endif
