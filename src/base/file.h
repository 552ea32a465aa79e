/* SPDX-License-Identifier: MIT */
/* file.h - maps, reads and writes whole files. Every failure message names the path. */
#ifndef WF_BASE_FILE_H
#define WF_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/ctx.h"

/* A regular file mapped read-only. Pages are read on first access. If another process truncates the
 * file meanwhile, access beyond its end raises SIGBUS. With the guard on (guard.h) it reads zeros
 * instead, and wf_map_broken returns true. */
typedef struct {
    const uint8_t *data; /* never NULL, not even for an empty file */
    size_t size;
    wf_ctx *ctx;   /* owns this struct's memory */
    int guard;     /* slot in guard.c; -1: not guarded */
    bool borrowed; /* data is the caller's memory, not a mapping */
} wf_map;

wf_status wf_map_open(wf_ctx *ctx, const char *path, wf_map **out);
/* Wraps the caller's memory, which must outlive the map. */
wf_status wf_map_memory(wf_ctx *ctx, const uint8_t *data, size_t size, wf_map **out);
void wf_map_close(wf_map *map); /* map may be NULL */
/* Drops these pages, and some around them, from resident memory. They can still be read, also by
 * other threads during this call: the system reads them again. */
void wf_map_forget(const wf_map *map, size_t offset, size_t bytes);
/* Returns whether the file was truncated under the mapping and zeros were read: discard everything
 * read so far. */
bool wf_map_broken(const wf_map *map);

/* Reads a small file, or a pipe, to its end, and adds a NUL after its *size bytes. More than
 * `limit` bytes are WF_ERR_FORMAT. The caller frees *text with wf_mem_free; NULL on failure. */
wf_status wf_file_read(wf_ctx *ctx, const char *path, size_t limit, char **text, size_t *size);

/* Writes a file atomically: to a temporary name, then renamed. Nobody sees a part of it, and a
 * failure keeps the old file. Through a symbolic link, the target is replaced and the link stays. A
 * path that is not a regular file (/dev/stdout, a pipe) is written directly. */
wf_status wf_file_write(wf_ctx *ctx, const char *path, const char *bytes, size_t size);

/* Creates a new file and never replaces one: a path that exists, even as a dangling link, is
 * WF_ERR_USAGE. A partly written file is removed. */
wf_status wf_file_create(wf_ctx *ctx, const char *path, const char *bytes, size_t size);

/* Size and modification time: detects that a file was replaced. */
typedef struct {
    uint64_t bytes;
    int64_t seconds, nanoseconds; /* of the last modification */
} wf_file_stamp;

/* Returns false when the path is not a regular file or cannot be examined. */
bool wf_file_look(const char *path, wf_file_stamp *out);

typedef struct {
    const void *data;
    size_t bytes;
} wf_piece;

/* Replaces a file atomically by the concatenated pieces. Its folder must exist. Only the owner may
 * read the file. */
wf_status wf_file_replace(wf_ctx *ctx, const char *path, const wf_piece *pieces, int n);

#endif
