/* SPDX-License-Identifier: MIT */
/*
 * manifest.h - manifest.json: what files a folder has, how large they are, and their checksums.
 *
 *     {
 *       "format": 1,
 *       "weft": "0.1.0",
 *       "run": "7d0c9a4f1be52c83",
 *       "step": 1000,
 *       "files": [
 *         {"name": "model.safetensors", "bytes": 1234, "checksum": "1cb2f9e3ab8a7f05"},
 *         ...
 *       ],
 *       "checksum": "06c96e2e3ef0c3d4"
 *     }
 *
 * "run" is the random id of the run that wrote it; a resumed run keeps the id. Manifests without one have the id 0.
 *
 * Checksums are those of base/checksum.h; the last is of the manifest's own text up to that line. A folder is
 * whole when each of these files is there and unchanged; others in it do not matter.
 */
#ifndef WF_TRAIN_MANIFEST_H
#define WF_TRAIN_MANIFEST_H

#include "base/ctx.h"

#define WF_MANIFEST_NAME "manifest.json"

/* Puts all files of the folder onto the disk, reads them back, and writes the manifest, on the disk as well. */
wf_status wf_manifest_write(wf_ctx *ctx, const char *folder, int64_t step, uint64_t run);

/* Is the folder whole, and of this step? Only with `thorough` are the files read; else their sizes must do.
 * What is wrong is WF_ERR_FORMAT or WF_ERR_IO and one sentence. */
wf_status wf_manifest_check(wf_ctx *ctx, const char *folder, int64_t step, bool thorough);
/* Reads the id of the run that wrote the folder, and looks at no other file. */
wf_status wf_manifest_run(wf_ctx *ctx, const char *folder, int64_t step, uint64_t *run);
/* Removes the files that the manifest lists, folders inside that become empty, and at last the manifest itself. All
 * other files stay, as do files behind a link to a folder. */
wf_status wf_manifest_remove(wf_ctx *ctx, const char *folder, int64_t step);

#endif
