/* SPDX-License-Identifier: MIT */
/*
 * manifest.h - manifest.json: the files of a folder, with sizes and checksums.
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
 * "run" is the random id of the run that wrote it; a resumed run keeps its id. Without one the id
 * is 0.
 *
 * Checksums are those of base/checksum.h; the last covers the manifest's own text up to that line.
 * A folder is complete if all listed files are present and unchanged. Other files in it do not
 * matter.
 */
#ifndef WF_TRAIN_MANIFEST_H
#define WF_TRAIN_MANIFEST_H

#include "base/ctx.h"

#define WF_MANIFEST_NAME "manifest.json"

/* Syncs all files of the folder to disk, reads them back, and writes and syncs the manifest. */
wf_status wf_manifest_write(wf_ctx *ctx, const char *folder, int64_t step, uint64_t run);

/* Checks that the folder is complete and of this step. Reads the files only if `thorough`, else
 * compares sizes. Fails with WF_ERR_FORMAT or WF_ERR_IO. */
wf_status wf_manifest_check(wf_ctx *ctx, const char *folder, int64_t step, bool thorough);
/* Reads the id of the run that wrote the folder; accesses only the manifest. */
wf_status wf_manifest_run(wf_ctx *ctx, const char *folder, int64_t step, uint64_t *run);
/* Removes the listed files, folders that become empty, and finally the manifest. Other files stay,
 * also those behind a link to a folder. */
wf_status wf_manifest_remove(wf_ctx *ctx, const char *folder, int64_t step);

#endif
