/* SPDX-License-Identifier: MIT */
/* term.h - properties of the terminal: escape sequences, colors, size. */
#ifndef WF_CLI_TERM_H
#define WF_CLI_TERM_H

#include "base/ctx.h"

/* Returns whether fd is a terminal with escape sequences. */
bool wf_term_is(int fd);
/* The same, and NO_COLOR is not set. */
bool wf_term_color(int fd);
/* Returns the usable columns: one less than the width, since terminals wrap after the last column;
 * 79 if unknown. */
int wf_term_columns(int fd);
/* Returns the rows; 24 if unknown. */
int wf_term_rows(int fd);
/* Parses --color: "always", "never", or "auto" for wf_term_color. */
wf_status wf_term_choose_color(wf_ctx *ctx, const char *when, int fd, bool *out);

#endif
