/* SPDX-License-Identifier: MIT */
/*
 * line_history.h - lines typed before, kept in a file across sessions.
 *
 * The file holds one entry a line, a newline in an entry written as \n and a backslash as \\. Several programs may
 * use it at once. A file that cannot be read or written costs its entries and is no failure.
 */
#ifndef WF_CLI_LINE_HISTORY_H
#define WF_CLI_LINE_HISTORY_H

#include "base/ctx.h"

#define WF_HISTORY_ENTRIES 1000 /* in memory, and in the file after it was trimmed */
/* A file of more bytes is trimmed when it is opened; one of twice as many takes no more entries until then. */
#define WF_HISTORY_BYTES ((size_t)1 << 20)
#define WF_HISTORY_ENTRY_BYTES ((size_t)64 << 10) /* longer entries are not written to the file */
#define WF_HISTORY_PATH 4096

typedef struct {
    wf_ctx *ctx;
    char *entry[WF_HISTORY_ENTRIES]; /* the oldest first */
    int count;
    char path[WF_HISTORY_PATH]; /* "": no file */
} wf_line_history;

/* weft/chat_history in XDG_STATE_HOME or in ~/.local/state, whose folders are made if need be. false: there is no
 * such place. */
bool wf_line_history_place(char path[WF_HISTORY_PATH]);
/* Reads the file; a path of NULL or "": none. */
void wf_line_history_open(wf_ctx *ctx, const char *path, wf_line_history *h);
/* Adds an entry to memory and to the file, unless it is empty or equal to the last one. */
void wf_line_history_add(wf_line_history *h, const char *text);
void wf_line_history_close(wf_line_history *h);

#endif
