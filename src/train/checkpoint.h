/* SPDX-License-Identifier: MIT */
/*
 * checkpoint.h - folders of a run that are whole or not there.
 *
 *     RUN/lock                    who trains here (base/lock.h)
 *     RUN/step-00001000           a checkpoint, with a manifest of all its files (manifest.h)
 *     RUN/.step-00001000.part     one that is being written, or was when the program ended
 *     RUN/.step-00001000.old      one that another takes the place of, until that has its name
 *     RUN/.step-00001000.gone     one that is being removed
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

typedef struct wf_checkpoint wf_checkpoint;

/* An empty folder for the files of a checkpoint; what an earlier program left unfinished is removed. */
wf_status wf_checkpoint_begin(wf_ctx *ctx, const char *run, int64_t step, wf_checkpoint **out);
/* Where its files go, in folders of their own if need be; borrowed until free. Names are of letters, digits,
 * '.', '_' and '-', and begin with no dot. */
const char *wf_checkpoint_folder(const wf_checkpoint *c);
/* Writes the manifest, puts everything onto the disk and gives the folder its name. A checkpoint of the same
 * step that is there already stays valid until then. When it fails, those that were there are as they were. */
wf_status wf_checkpoint_commit(wf_checkpoint *c);
/* For a failure while the files were written: adds to its sentence, once, that this checkpoint is not saved and
 * that others are as they were. Returns status. Begin and commit do so themselves. */
wf_status wf_checkpoint_explain(wf_checkpoint *c, wf_status status);
/* Removes what was not committed. NULL is fine. */
void wf_checkpoint_free(wf_checkpoint *c);

/* The newest that is whole (at = -1), or the one of step `at`, by its manifest and all checksums. *path is for
 * wf_mem_free; NULL: there is none. Each that is not whole is told to the log, WF_LOG_WARN, in one sentence.
 * Nothing is changed. */
wf_status wf_checkpoint_find(wf_ctx *ctx, const char *run, int64_t at, char **path, int64_t *step);
/* Of a run that has come to step `at`, removes all but the last `keep` (0: removes none) and those whose step is a
 * multiple of `major` (0: no such). What is not whole does not count as one of the last, nor does what is of a later
 * step, which is left alone: the run went on from before it because it is damaged. */
wf_status wf_checkpoint_retain(wf_ctx *ctx, const char *run, int64_t at, int64_t keep,
                               int64_t major);

#endif
