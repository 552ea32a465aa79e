/* SPDX-License-Identifier: MIT */
/*
 * lock.h - lock files: one process at a time holds a lock.
 *
 * The lock is flock(2), not the existence of the file, so it ends with the process, even after
 * `kill -9`. The file is never removed: removing it would let two processes lock two files of the
 * same name.
 */
#ifndef WF_BASE_LOCK_H
#define WF_BASE_LOCK_H

#include "base/ctx.h"

typedef struct wf_lock wf_lock;

/* Creates the file if it is missing, locks it, and writes the process id to it. WF_ERR_USAGE: the
 * lock is held, by this process or another; *holder is its process id, or 0 when not written yet.
 * WF_ERR_IO: the path is a link, or a file that is not a lock; it is left unchanged. On a file
 * system without locks the call succeeds without locking, and logs a warning. */
wf_status wf_lock_take(wf_ctx *ctx, const char *path, wf_lock **out, int64_t *holder);
void wf_lock_release(wf_lock *lock); /* lock may be NULL */

#endif
