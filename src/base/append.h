/* SPDX-License-Identifier: MIT */
/*
 * append.h - append-only files, such as logs.
 *
 * Writes are not buffered, so they survive a crash of the process. A failed write (a full disk, for
 * example) is undone: the file is truncated to its old length, and later writes may succeed. Only
 * one process may append to a file.
 */
#ifndef WF_BASE_APPEND_H
#define WF_BASE_APPEND_H

#include "base/ctx.h"

typedef struct wf_append wf_append;

/* Creates the file if it does not exist. lines: if a crash left an incomplete last line, ends it
 * with a newline. */
wf_status wf_append_open(wf_ctx *ctx, const char *path, bool lines, wf_append **out);
wf_status wf_append_write(wf_append *a, const void *bytes, size_t count);
void wf_append_close(wf_append *a); /* a may be NULL */

#endif
