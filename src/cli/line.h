/* SPDX-License-Identifier: MIT */
/*
 * line.h - a line editor: cursor keys, multi-line texts, pastes, history.
 *
 * The prompt and the typed text appear on stderr. On a terminal without escape sequences
 * (TERM=dumb) it reads whole lines. When stdin is not a terminal, every line is one text and there
 * is no prompt.
 *
 * On a terminal, a text of several lines is a paste, lines that end in a backslash, lines between
 * """ and """, or lines ended by Alt-Enter.
 */
#ifndef WF_CLI_LINE_H
#define WF_CLI_LINE_H

#include "base/ctx.h"

typedef struct wf_line wf_line;

typedef struct {
    const char *history; /* path of the file; NULL: in memory only */
    bool color;          /* color the prompt and the typed text */
} wf_line_options;

/* options may be NULL. */
wf_status wf_line_new(wf_ctx *ctx, const wf_line_options *options, wf_line **out);
void wf_line_free(wf_line *l); /* accepts NULL */

/* Reads a text, without its last newline; valid until the next call. Ctrl-C returns an empty text.
 * *text is NULL at the end: Ctrl-D on an empty line, or end of input. The prompt must be printable
 * and short. */
wf_status wf_line_read(wf_line *l, const char *prompt, const char **text);
/* The same for an answer to the program; the history does not keep it. */
wf_status wf_line_ask(wf_line *l, const char *prompt, const char **text);
/* Returns whether Ctrl-C ended the last text. */
bool wf_line_cancelled(const wf_line *l);
/* Returns whether the last text was between """ and """. */
bool wf_line_quoted(const wf_line *l);

#endif
