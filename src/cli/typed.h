/* SPDX-License-Identifier: MIT */
/* typed.h - the text being edited: its bytes, characters, lines and terminal columns. */
#ifndef WF_CLI_TYPED_H
#define WF_CLI_TYPED_H

#include "base/ctx.h"
#include "cli/width.h"

#define WF_TYPED_MAX ((size_t)1 << 24) /* bytes; more is WF_ERR_USAGE */

typedef struct {
    char *text; /* NUL-terminated; NULL before the first insert; free with wf_mem_free */
    size_t len, cap;
} wf_typed;

wf_status wf_typed_insert(wf_ctx *ctx, wf_typed *b, size_t at, const char *bytes, size_t n);
void wf_typed_erase(wf_typed *b, size_t from, size_t to);

/* Return the start of the character or word before `at`, and the end of the character after it. */
size_t wf_typed_before(const wf_typed *b, size_t at);
size_t wf_typed_word(const wf_typed *b, size_t at);
size_t wf_typed_after(const wf_typed *b, size_t at);
/* Returns whether the character before `at` is complete. */
bool wf_typed_whole(const wf_typed *b, size_t at);

/* Return the start and end of the line that contains `at`, without newlines. */
size_t wf_typed_line_begin(const wf_typed *b, size_t at);
size_t wf_typed_line_end(const wf_typed *b, size_t at);

/* Returns the character at `at` as it is drawn; a tab is four spaces. `at` is before the end. */
wf_shown wf_typed_show(const wf_typed *b, size_t at);

#endif
