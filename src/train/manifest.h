/* SPDX-License-Identifier: MIT */
/*
 * manifest.h - manifest.json: what files a folder has, how large they are, and their checksums.
 *
 *     {
 *       "format": 1,
 *       "weft": "0.1.0",
 *       "step": 1000,
 *       "files": [
 *         {"name": "model.safetensors", "bytes": 1234, "checksum": "1cb2f9e3ab8a7f05"},
 *         ...
 *       ],
 *       "checksum": "06c96e2e3ef0c3d4"
 *     }
 *
 * Checksums are those of base/checksum.h; the last is of the manifest's own text up to that line. A folder is
 * whole when each of these files is there and unchanged; others in it do not matter.
 */
#ifndef WF_TRAIN_MANIFEST_H
#define WF_TRAIN_MANIFEST_H

#include "base/ctx.h"

#define WF_MANIFEST_NAME "manifest.json"

/* Puts all files of the folder onto the disk, reads them back, and writes the manifest, on the disk as well. */
wf_status wf_manifest_write(wf_ctx *ctx, const char *folder, int64_t step);

/* Is the folder whole, and of this step? Only with `thorough` are the files read; else their sizes must do.
 * What is wrong is WF_ERR_FORMAT or WF_ERR_IO and one sentence. */
wf_status wf_manifest_check(wf_ctx *ctx, const char *folder, int64_t step, bool thorough);

#endif
