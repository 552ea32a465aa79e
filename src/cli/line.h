/* SPDX-License-Identifier: MIT */
/*
 * line.h - reads what somebody types: cursor keys, several lines, pastes, history.
 *
 * The prompt and the typed text appear on stderr. A terminal without escape sequences (TERM=dumb) reads whole lines
 * instead. Where stdin is not a terminal every line is read as it stands, without a prompt.
 *
 * On a terminal one text can have several lines: a paste; lines that end in a backslash; lines between """ and """;
 * Alt-Enter.
 */
#ifndef WF_CLI_LINE_H
#define WF_CLI_LINE_H

#include "base/ctx.h"

typedef struct wf_line wf_line;

typedef struct {
    const char *history; /* path of its file; NULL: in memory only */
    bool color;          /* of the prompt and of what is typed */
} wf_line_options;

/* options may be NULL. */
wf_status wf_line_new(wf_ctx *ctx, const wf_line_options *options, wf_line **out);
void wf_line_free(wf_line *l); /* NULL is fine */

/* The next text without its last newline, borrowed until the next call. Ctrl-C gives an empty text. *text is NULL at
 * the end: Ctrl-D on an empty line, or the end of the input. The prompt is printable and short. */
wf_status wf_line_read(wf_line *l, const char *prompt, const char **text);
/* The same for an answer to a question of the program, which the history does not keep. */
wf_status wf_line_ask(wf_line *l, const char *prompt, const char **text);
/* Did Ctrl-C end the last text? */
bool wf_line_cancelled(const wf_line *l);
/* Was the last text between """ and """? */
bool wf_line_quoted(const wf_line *l);

#endif
