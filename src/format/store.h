/* SPDX-License-Identifier: MIT */
/*
 * store.h - named tensors in mapped files: the part that all weight formats share.
 *
 * The reader of a format fills a store and seals it. Then every tensor lies inside its file, its
 * size matches its type and shape, and names are unique.
 */
#ifndef WF_FORMAT_STORE_H
#define WF_FORMAT_STORE_H

#include "base/arena.h"
#include "base/file.h"
#include "graph/type.h"

typedef struct {
    const char *name;
    wf_type type;          /* WF_TYPE_NONE: a type of the format that Weft does not support */
    const char *type_name; /* the format's name: "Q4_K", "BF16", "I64" */
    wf_dims shape;         /* outermost first */
    int file;              /* index into the store's files */
    uint64_t offset;       /* of its first byte in the file */
    size_t bytes;
    const uint8_t *data; /* mapped; may be unaligned */
} wf_stored;

typedef struct {
    wf_ctx *ctx;
    wf_arena arena; /* owns names and paths */
    struct {
        char *path;
        wf_map *map;
    } * file;
    int files, file_room;
    wf_stored *tensor; /* [count], in the order of the files */
    int count, room;
    const void **sorted; /* tensors by name (names.h); NULL before wf_store_seal */
} wf_store;

/* Allocates nothing. */
void wf_store_init(wf_store *s, wf_ctx *ctx);
void wf_store_free(wf_store *s); /* unmaps all files; accepts a zeroed store */
/* Maps a file and sets *file to its index. */
wf_status wf_store_map(wf_store *s, const char *path, int *file);
/* The same for memory, which must outlive the store. Messages call it `what`. */
wf_status wf_store_memory(wf_store *s, const char *what, const uint8_t *data, size_t bytes,
                          int *file);
/* Adds a copy of *t and of its name, and sets data from file and offset. Fails if the tensor is not
 * inside its file, or if its bytes do not match type and shape. */
wf_status wf_store_add(wf_store *s, const wf_stored *t);
/* Ends adding: refuses duplicate names and sorts the tensors for wf_store_find. */
wf_status wf_store_seal(wf_store *s);
/* Returns NULL if the name is unknown. Call after wf_store_seal. */
const wf_stored *wf_store_find(const wf_store *s, const char *name);

/* Returns WF_ERR_IO if a file was truncated while in use (base/guard.h). Call it after reading
 * tensors: their values are then invalid. */
wf_status wf_store_check(const wf_store *s);

/* Returns the last component of a path, for messages. Points into the path. */
const char *wf_store_base_name(const char *path);

#endif
