/* SPDX-License-Identifier: MIT */
/* file.h - files as memory. Every failure is one sentence that names the path. */
#ifndef WF_BASE_FILE_H
#define WF_BASE_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/ctx.h"

/* A regular file mapped read-only. Pages are read when first touched, so a file cut short by
 * someone else while it is mapped raises SIGBUS there, or, with the guard on (guard.h), reads as zeros
 * from there on and wf_map_broken says so. */
typedef struct {
    const uint8_t *data; /* never NULL, not even for an empty file */
    size_t size;
    wf_ctx *ctx;   /* holds this struct's memory */
    int guard;     /* its number there; -1: none */
    bool borrowed; /* memory of somebody else's */
} wf_map;

wf_status wf_map_open(wf_ctx *ctx, const char *path, wf_map **out);
/* Memory in place of a file; it must outlive the map. */
wf_status wf_map_memory(wf_ctx *ctx, const uint8_t *data, size_t size, wf_map **out);
void wf_map_close(wf_map *map); /* NULL is fine */
/* These bytes will not be needed for a while: they, and some around them, need not stay in memory. They can be
 * read as before, by others meanwhile, too. */
void wf_map_forget(const wf_map *map, size_t offset, size_t bytes);
/* Whether bytes that the file no longer has were read: all that was read so far is worth nothing. */
bool wf_map_broken(const wf_map *map);

/* Reads the whole of a small file, or of a pipe, and puts a NUL after its *size bytes. More than
 * limit bytes are WF_ERR_FORMAT. *text is the caller's, for wf_mem_free; NULL on failure. */
wf_status wf_file_read(wf_ctx *ctx, const char *path, size_t limit, char **text, size_t *size);

/* Writes a file as a whole: under another name at first, so that nobody sees a part of it and what was
 * there before stays when it fails. A link stays a link: the file behind it is replaced. What is there and is no
 * plain file (/dev/stdout, a pipe) is written to as it stands. */
wf_status wf_file_write(wf_ctx *ctx, const char *path, const char *bytes, size_t size);

/* Makes a new file of these bytes and never replaces one: a path that exists, if only as a dangling link, is
 * WF_ERR_USAGE. What could not be written whole is removed. */
wf_status wf_file_create(wf_ctx *ctx, const char *path, const char *bytes, size_t size);

/* What tells a file from another that was put in its place. */
typedef struct {
    uint64_t bytes;
    int64_t seconds, nanoseconds; /* of its last change */
} wf_file_stamp;

/* false: there is no such regular file, or it cannot be looked at. */
bool wf_file_look(const char *path, wf_file_stamp *out);

typedef struct {
    const void *data;
    size_t bytes;
} wf_piece;

/* Makes a file of these pieces, in place of what has that name: others see the old one or the whole
 * new one. Its folder must exist. The owner alone may read it. */
wf_status wf_file_replace(wf_ctx *ctx, const char *path, const wf_piece *pieces, int n);

#endif
