/* SPDX-License-Identifier: MIT */
/* term.h - what the program writes to: a terminal that lines can be rewritten on, or not, and its width. */
#ifndef WF_CLI_TERM_H
#define WF_CLI_TERM_H

#include "base/ctx.h"

/* A terminal that understands escapes. */
bool wf_term_is(int fd);
/* Such a terminal, and nobody asked for no colours (NO_COLOR). */
bool wf_term_color(int fd);
/* Columns that a line may have: one less than the terminal, since terminals wrap when the last is written; 79 when it
 * does not say. */
int wf_term_columns(int fd);
/* Rows of the terminal; 24 when it does not say. */
int wf_term_rows(int fd);
/* --color: "auto" asks wf_term_color, "always" and "never" do not. */
wf_status wf_term_choose_color(wf_ctx *ctx, const char *when, int fd, bool *out);

#endif
