/* SPDX-License-Identifier: MIT */
/*
 * line_history.h - the history of typed texts, kept in a file across sessions.
 *
 * The file has one entry per line; \n is a newline in an entry, \\ a backslash. Several programs
 * may use it at once. A file that cannot be read or written is not an error.
 */
#ifndef WF_CLI_LINE_HISTORY_H
#define WF_CLI_LINE_HISTORY_H

#include "base/ctx.h"

#define WF_HISTORY_ENTRIES 1000 /* in memory, and in a trimmed file */
/* A larger file is trimmed when it is opened; a file of twice this size takes no more entries. */
#define WF_HISTORY_BYTES ((size_t)1 << 20)
#define WF_HISTORY_ENTRY_BYTES ((size_t)64 << 10) /* longer entries are not written to the file */
#define WF_HISTORY_PATH 4096

typedef struct {
    wf_ctx *ctx;
    char *entry[WF_HISTORY_ENTRIES]; /* oldest first */
    int count;
    char path[WF_HISTORY_PATH]; /* "": no file */
} wf_line_history;

/* Stores weft/chat_history in XDG_STATE_HOME or ~/.local/state, and creates the folders. false: not
 * possible. */
bool wf_line_history_place(char path[WF_HISTORY_PATH]);
/* Reads the file. Path NULL or "": no file. */
void wf_line_history_open(wf_ctx *ctx, const char *path, wf_line_history *h);
/* Adds an entry to memory and to the file, unless it is empty or equal to the last one. */
void wf_line_history_add(wf_line_history *h, const char *text);
void wf_line_history_close(wf_line_history *h);

#endif
