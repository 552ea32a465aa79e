/* SPDX-License-Identifier: MIT */
/*
 * line.h - reads lines that somebody types, with cursor keys and history.
 *
 * The prompt and what is typed appear on stderr. Where stdin or stderr is no terminal, lines are read as
 * they come, and there is no prompt.
 */
#ifndef WF_CLI_LINE_H
#define WF_CLI_LINE_H

#include "base/ctx.h"

#define WF_LINE_HISTORY 200

typedef struct wf_line wf_line;

wf_status wf_line_new(wf_ctx *ctx, wf_line **out);
void wf_line_free(wf_line *l);

/* The next line without its end, borrowed until the next call. On a terminal a backslash at the end of a line
 * joins the next one to it, with a newline between them. Ctrl-C gives an empty line. *text is NULL when there are no
 * more: Ctrl-D on an empty line, or the end of the input. The prompt is plain text. */
wf_status wf_line_read(wf_line *l, const char *prompt, const char **text);
/* Did Ctrl-C end the last line? */
bool wf_line_cancelled(const wf_line *l);

#endif
