/* SPDX-License-Identifier: MIT */
/*
 * disk.h - file operations that survive a crash of the program or of the machine.
 *
 * Bytes are durable after the file is synced, and a name after its folder is. Every failure message
 * names the path.
 */
#ifndef WF_BASE_DISK_H
#define WF_BASE_DISK_H

#include "base/arena.h"

/* Syncs a file's bytes, or a folder's names, to the disk. */
wf_status wf_disk_sync(wf_ctx *ctx, const char *path);
/* Renames atomically: other processes see the old name or the new one. A folder cannot replace a
 * name in use. */
wf_status wf_disk_rename(wf_ctx *ctx, const char *from, const char *to);
/* Removes a file, or a folder with its contents. Links are removed, not followed. A missing path is
 * not an error. */
wf_status wf_disk_remove(wf_ctx *ctx, const char *path);

/* Renames `path` to AS.bak-N with the smallest free N >= 1; *to is that name, in the arena. Never
 * replaces a file. Both paths must be in one folder. */
wf_status wf_disk_set_aside(wf_arena *arena, const char *path, const char *as, const char **to);

/* Lists the files of a folder and its subfolders, sorted, as paths relative to it, in the arena.
 * WF_ERR_IO: it has more than `limit` files, or an entry that is neither file nor folder. */
wf_status wf_disk_files(wf_arena *arena, const char *folder, size_t limit,
                        const char *const **names, size_t *count);

/* Computes the size and checksum (base/checksum.h) of a file. Reads it rather than mapping it, so
 * that a bad disk causes an error and not a signal. Returns an errno value, or 0. Thread-safe. */
int wf_disk_checksum(const char *path, uint64_t *bytes, uint64_t *sum);
/* Describes an errno value, as strerror does; text is the buffer. Thread-safe. */
const char *wf_disk_reason(int error, char *text, size_t bytes);

#endif
