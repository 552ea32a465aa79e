/* SPDX-License-Identifier: MIT */
/*
 * lock.h - a file that one process at a time holds.
 *
 * The system keeps the lock, not the file's being there: it ends with the process, however that ends. The file
 * stays, since to remove it would let two processes hold two files of one name.
 */
#ifndef WF_BASE_LOCK_H
#define WF_BASE_LOCK_H

#include "base/ctx.h"

typedef struct wf_lock wf_lock;

/* Makes the file if need be and writes the number of this process to it. WF_ERR_USAGE when it is held already, by
 * this process or another, whose number *holder then is (0: it has not told yet). Where the file system has no
 * locks, one is taken in name only, with a warning to the log. WF_ERR_IO when the path is a link, or a file with other
 * content than a lock has: it is left as it is. */
wf_status wf_lock_take(wf_ctx *ctx, const char *path, wf_lock **out, int64_t *holder);
void wf_lock_release(wf_lock *lock); /* NULL is fine */

#endif
