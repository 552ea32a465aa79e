/* SPDX-License-Identifier: MIT */
/*
 * sink.h - writes large files in pieces and publishes them atomically.
 *
 * Until wf_sink_commit the bytes go to a temporary file in the same folder, and the old file stays.
 * Links are followed. A path that is not a regular file (a pipe, /dev/stdout) is written directly.
 * Every failure message names the path.
 */
#ifndef WF_BASE_SINK_H
#define WF_BASE_SINK_H

#include "base/ctx.h"

typedef struct wf_sink wf_sink;

wf_status wf_sink_open(wf_ctx *ctx, const char *path, wf_sink **out);
/* Appends bytes; small pieces are buffered. */
wf_status wf_sink_write(wf_sink *s, const void *data, size_t bytes);
/* Overwrites bytes written earlier, such as a header whose counts are known only at the end. Works
 * on regular files only. */
wf_status wf_sink_patch(wf_sink *s, uint64_t offset, const void *data, size_t bytes);
/* Flushes, syncs and closes the temporary file, so that only the rename is left. To publish several
 * files together, seal all of them before committing the first. */
wf_status wf_sink_seal(wf_sink *s);
/* Seals if necessary, and renames the temporary file to its path. Nothing may be written
 * afterwards. */
wf_status wf_sink_commit(wf_sink *s);
/* Removes an uncommitted temporary file. s may be NULL. */
void wf_sink_free(wf_sink *s);

#endif
