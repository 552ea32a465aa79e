/* SPDX-License-Identifier: MIT */
/* output.h - may a path be written to? Asked by everything that writes files for a user, before the work begins. */
#ifndef WF_BASE_OUTPUT_H
#define WF_BASE_OUTPUT_H

#include "base/ctx.h"

/* WF_ERR_USAGE and one sentence when
 *   - `path` is a folder,
 *   - it is one of the `count` inputs under any name: by a hard link, a symbolic link or another path to it; NULL among
 *     the inputs is skipped,
 *   - it exists and `overwrite` is false.
 * Devices and pipes may always be written to, and so may /dev/stdout, whatever it stands for. */
wf_status wf_output_check(wf_ctx *ctx, const char *path, bool overwrite, const char *const *inputs,
                          int count);
/* The same for a folder: it may exist if it is empty. */
wf_status wf_output_check_folder(wf_ctx *ctx, const char *path, bool overwrite,
                                 const char *const *inputs, int count);

#endif
