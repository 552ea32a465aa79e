/* SPDX-License-Identifier: MIT */
/*
 * disk.h - files and folders that must outlive a crash of the program or of the machine.
 *
 * A write is on the disk when the file was synced, and a name when its folder was. Every failure is one sentence
 * that names the path.
 */
#ifndef WF_BASE_DISK_H
#define WF_BASE_DISK_H

#include "base/arena.h"

/* Puts a file's bytes, or a folder's names, onto the disk. */
wf_status wf_disk_sync(wf_ctx *ctx, const char *path);
/* In one piece: others see the old name or the new one. A folder takes only a name that is free. */
wf_status wf_disk_rename(wf_ctx *ctx, const char *from, const char *to);
/* Removes a folder and all that is in it, or a file; links are removed, not followed. That there is nothing
 * is fine. */
wf_status wf_disk_remove(wf_ctx *ctx, const char *path);

/* Renames `path` to AS.bak-1, or to the first such name that is free, and returns it in the arena. Nothing is
 * replaced. Both must lie in one folder. */
wf_status wf_disk_set_aside(wf_arena *arena, const char *path, const char *as, const char **to);

/* The files of a folder and of folders in it, sorted, as paths from there on, in the arena. What is neither file
 * nor folder, and more than `limit` of them, is WF_ERR_IO. */
wf_status wf_disk_files(wf_arena *arena, const char *folder, size_t limit,
                        const char *const **names, size_t *count);

/* The size and checksum (base/checksum.h) of a file, by reading and not by mapping, so that a bad disk gives an error
 * and not a signal. The number of the error, or 0. May be called from several threads. */
int wf_disk_checksum(const char *path, uint64_t *bytes, uint64_t *sum);
/* What such a number means. */
const char *wf_disk_reason(int error, char *text, size_t bytes);

#endif
