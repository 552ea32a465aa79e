/* SPDX-License-Identifier: MIT */
/*
 * checkpoint.h - folders of a run that are whole or not there.
 *
 *     RUN/lock                    who trains here (base/lock.h)
 *     RUN/step-00001000           a checkpoint, with a manifest of all its files (manifest.h)
 *     RUN/.step-00001000.part     one that is being written, or was when the program ended
 *     RUN/.step-00001000.old      one that another takes the place of, until that has its name
 *     RUN/.step-00001000.gone     one that is being removed
 *     RUN/step-00001000.bak-1     one of another run that was in the way, or that was there before a restart
 *
 * Every run has a random id, which the manifests of its checkpoints carry. A run removes only checkpoints with its id,
 * and of these only the files that the manifest lists.
 *
 * Only wf_checkpoint_find is for others than the one who holds the lock.
 */
#ifndef WF_TRAIN_CHECKPOINT_H
#define WF_TRAIN_CHECKPOINT_H

#include "base/lock.h"

typedef wf_lock wf_run_lock;

/* Makes the folder if need be; the one around it must be there. WF_ERR_USAGE, with the number of the process,
 * when somebody trains there already. Ends with the process, however that ends. */
wf_status wf_run_lock_take(wf_ctx *ctx, const char *run, wf_run_lock **out);
void wf_run_lock_release(wf_run_lock *lock);

#define WF_RUN_LOCK "lock" /* its file in the run's folder, which stays */

typedef struct wf_checkpoint wf_checkpoint;

/* An empty folder for the files of a checkpoint; what an earlier program left unfinished is removed. */
wf_status wf_checkpoint_begin(wf_ctx *ctx, const char *run, int64_t step, uint64_t id,
                              wf_checkpoint **out);
/* Where its files go, in folders of their own if need be; borrowed until free. Names are of letters, digits,
 * '.', '_' and '-', and begin with no dot. */
const char *wf_checkpoint_folder(const wf_checkpoint *c);
/* Writes the manifest, puts everything onto the disk and gives the folder its name. A checkpoint of the same
 * step that is there already stays valid until then, and is set aside if it is another run's. When it fails, those that
 * were there are as they were. */
wf_status wf_checkpoint_commit(wf_checkpoint *c);
/* For a failure while the files were written: adds to its sentence, once, that this checkpoint is not saved and
 * that others are as they were. Returns status. Begin and commit do so themselves. */
wf_status wf_checkpoint_explain(wf_checkpoint *c, wf_status status);
/* Removes what was not committed. NULL is fine. */
void wf_checkpoint_free(wf_checkpoint *c);

typedef struct {
    char *path; /* for wf_mem_free; NULL: there is no checkpoint */
    int64_t step;
    uint64_t id; /* of the run that wrote it; 0: not known */
} wf_checkpoint_found;

/* The newest (at = -1), or the one of step `at`, verified by its manifest and all checksums. One that exists and cannot
 * be used is WF_ERR_FORMAT or WF_ERR_IO, with a sentence that names the file and what is whole. Nothing is changed. */
wf_status wf_checkpoint_find(wf_ctx *ctx, const char *run, int64_t at, wf_checkpoint_found *out);
/* The step of the newest, whole or not; -1: there is none. */
wf_status wf_checkpoint_newest(wf_ctx *ctx, const char *run, int64_t *step);
/* Renames all of them to step-N.bak-1, or the next number that is free. */
wf_status wf_checkpoint_set_aside(wf_ctx *ctx, const char *run);
/* Of the checkpoints of run `id`, which has come to step `at`, removes all but the last `keep` (0: removes none) and those
 * whose step is a multiple of `major` (0: no such). What is not whole does not count as one of the last. Checkpoints of
 * later steps and of other runs are left alone. */
wf_status wf_checkpoint_retain(wf_ctx *ctx, const char *run, uint64_t id, int64_t at, int64_t keep,
                               int64_t major);

#endif
