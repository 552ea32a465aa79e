/* SPDX-License-Identifier: MIT */
/*
 * sink.h - large files written piece by piece, which appear under their name when they are whole.
 *
 * Until wf_sink_commit everything goes to a file of another name in the same folder, and what was there
 * before stays as it is. A link is followed; what is no plain file (a pipe, /dev/stdout) is written to
 * as it stands. Every failure is one sentence that names the path.
 */
#ifndef WF_BASE_SINK_H
#define WF_BASE_SINK_H

#include "base/ctx.h"

typedef struct wf_sink wf_sink;

wf_status wf_sink_open(wf_ctx *ctx, const char *path, wf_sink **out);
/* Small pieces are gathered. */
wf_status wf_sink_write(wf_sink *s, const void *data, size_t bytes);
/* Writes over bytes that were written before, all of them: a header whose counts are known at the end. Not into
 * what is no plain file. */
wf_status wf_sink_patch(wf_sink *s, uint64_t offset, const void *data, size_t bytes);
/* Puts everything onto the disk and closes, so that nothing is left but the renaming: of several
 * files that belong together, all are sealed before one is committed. */
wf_status wf_sink_seal(wf_sink *s);
/* Seals what is not sealed, and renames. Nothing may be written after it. */
wf_status wf_sink_commit(wf_sink *s);
/* Removes what was not committed. NULL is fine. */
void wf_sink_free(wf_sink *s);

#endif
