/* SPDX-License-Identifier: MIT */
/*
 * append.h - files that only grow, such as logs.
 *
 * What is written goes to the system at once, so that it outlives the process. A write that fails, on a full disk
 * say, is taken back: the file ends where it did before, and later writes may succeed again. One process writes a file.
 */
#ifndef WF_BASE_APPEND_H
#define WF_BASE_APPEND_H

#include "base/ctx.h"

typedef struct wf_append wf_append;

/* Makes the file when it is not there. lines: a last line that a crash cut short is ended first, so that what is
 * written starts a line of its own. */
wf_status wf_append_open(wf_ctx *ctx, const char *path, bool lines, wf_append **out);
wf_status wf_append_write(wf_append *a, const void *bytes, size_t count);
void wf_append_close(wf_append *a); /* NULL is fine */

#endif
