/* SPDX-License-Identifier: MIT */
/* output.h - checks an output path before the work begins. Every command that writes files calls
 * it. */
#ifndef WF_BASE_OUTPUT_H
#define WF_BASE_OUTPUT_H

#include "base/ctx.h"

/* Fails with WF_ERR_USAGE when `path`
 *   - is a folder,
 *   - is one of the `count` inputs, also through a hard link, a symbolic link or another path
 *     (NULL inputs are skipped), or
 *   - exists and `overwrite` is false.
 * Devices, pipes and /dev/stdout are always allowed. */
wf_status wf_output_check(wf_ctx *ctx, const char *path, bool overwrite, const char *const *inputs,
                          int count);
/* The same for an output folder. It may exist if it is empty. */
wf_status wf_output_check_folder(wf_ctx *ctx, const char *path, bool overwrite,
                                 const char *const *inputs, int count);

#endif
