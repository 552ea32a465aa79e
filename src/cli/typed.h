/* SPDX-License-Identifier: MIT */
/* typed.h - text while it is typed: bytes, characters, lines, and columns of a terminal. */
#ifndef WF_CLI_TYPED_H
#define WF_CLI_TYPED_H

#include "base/ctx.h"
#include "cli/width.h"

#define WF_TYPED_MAX ((size_t)1 << 24) /* bytes; more is WF_ERR_USAGE */

typedef struct {
    char *text; /* NUL after len bytes, once anything was inserted; for wf_mem_free */
    size_t len, cap;
} wf_typed;

wf_status wf_typed_insert(wf_ctx *ctx, wf_typed *b, size_t at, const char *bytes, size_t n);
void wf_typed_erase(wf_typed *b, size_t from, size_t to);

/* The beginning of the character, or the word, before a place; the end of the character after it. */
size_t wf_typed_before(const wf_typed *b, size_t at);
size_t wf_typed_word(const wf_typed *b, size_t at);
size_t wf_typed_after(const wf_typed *b, size_t at);
/* false: more bytes must be coming of the character before a place. */
bool wf_typed_whole(const wf_typed *b, size_t at);

/* The beginning and the end of the line that a place is in, without the newlines around it. */
size_t wf_typed_line_begin(const wf_typed *b, size_t at);
size_t wf_typed_line_end(const wf_typed *b, size_t at);

/* The character at a place before the end, as it is drawn: a tab is four spaces. */
wf_shown wf_typed_show(const wf_typed *b, size_t at);

#endif
