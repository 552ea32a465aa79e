/* SPDX-License-Identifier: MIT */
/*
 * checkpoint.h - checkpoint folders that are either complete or absent.
 *
 *     RUN/lock                    the process that trains here (base/lock.h)
 *     RUN/step-00001000           a checkpoint, with a manifest of all its files (manifest.h)
 *     RUN/.step-00001000.part     being written, or left by a crash
 *     RUN/.step-00001000.old      being replaced, until the new one has its name
 *     RUN/.step-00001000.gone     being removed
 *     RUN/step-00001000.bak-1     of another run, or from before a restart
 *
 * Every run has a random id, which the manifests of its checkpoints contain. A run removes only
 * checkpoints with its own id, and of these only the files that the manifest lists.
 *
 * All functions except wf_checkpoint_find require the run's lock.
 */
#ifndef WF_TRAIN_CHECKPOINT_H
#define WF_TRAIN_CHECKPOINT_H

#include "base/lock.h"

typedef wf_lock wf_run_lock;

/* Creates the folder if necessary; its parent must exist. Fails with WF_ERR_USAGE and the process
 * id if another process trains there. The lock ends with the process. */
wf_status wf_run_lock_take(wf_ctx *ctx, const char *run, wf_run_lock **out);
void wf_run_lock_release(wf_run_lock *lock);

#define WF_RUN_LOCK "lock" /* the lock's file in the run's folder; it is never removed */

typedef struct wf_checkpoint wf_checkpoint;

/* Creates an empty folder for a checkpoint, and removes what an interrupted run left. */
wf_status wf_checkpoint_begin(wf_ctx *ctx, const char *run, int64_t step, uint64_t id,
                              wf_checkpoint **out);
/* Returns the folder for the files; subfolders are allowed. Borrowed until free. Names consist of
 * letters, digits, '.', '_' and '-', and do not start with a dot. */
const char *wf_checkpoint_folder(const wf_checkpoint *c);
/* Writes the manifest, syncs everything to disk and gives the folder its name. An existing
 * checkpoint of the same step stays valid until then; one of another run is renamed. On failure,
 * existing checkpoints are unchanged. */
wf_status wf_checkpoint_commit(wf_checkpoint *c);
/* Call it if writing the files fails: adds once to the message that this checkpoint is not saved
 * and that others are unchanged. Returns status. Begin and commit do this themselves. */
wf_status wf_checkpoint_explain(wf_checkpoint *c, wf_status status);
/* Removes an uncommitted checkpoint. Accepts NULL. */
void wf_checkpoint_free(wf_checkpoint *c);

typedef struct {
    char *path; /* the caller frees it with wf_mem_free; NULL: no checkpoint */
    int64_t step;
    uint64_t id; /* of the run that wrote it; 0: unknown */
} wf_checkpoint_found;

/* Finds the newest checkpoint (at = -1) or that of step `at`, and verifies all checksums. If it
 * exists but is unusable, fails with WF_ERR_FORMAT or WF_ERR_IO; the message names the file and an
 * alternative. Changes nothing. */
wf_status wf_checkpoint_find(wf_ctx *ctx, const char *run, int64_t at, wf_checkpoint_found *out);
/* Returns the step of the newest checkpoint, complete or not; -1: no checkpoint. */
wf_status wf_checkpoint_newest(wf_ctx *ctx, const char *run, int64_t *step);
/* Renames all checkpoints to step-N.bak-1, or the next free number. */
wf_status wf_checkpoint_set_aside(wf_ctx *ctx, const char *run);
/* Removes checkpoints of run `id`, which is at step `at`, except the last `keep` (0: remove none)
 * and those at multiples of `major` (0: off). Incomplete ones do not count as kept. Later steps and
 * other runs are untouched. */
wf_status wf_checkpoint_retain(wf_ctx *ctx, const char *run, uint64_t id, int64_t at, int64_t keep,
                               int64_t major);

#endif
