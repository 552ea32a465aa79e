/* SPDX-License-Identifier: MIT */
/*
 * store.h - named tensors that lie in mapped files: what is common to all formats of weights.
 *
 * A reader of a format fills a store, having checked everything: every tensor lies inside its file, its
 * bytes are those of its type and shape, and no name comes twice.
 */
#ifndef WF_FORMAT_STORE_H
#define WF_FORMAT_STORE_H

#include "base/arena.h"
#include "base/file.h"
#include "graph/type.h"

typedef struct {
    const char *name;
    wf_type type; /* WF_TYPE_NONE: one that the format has and Weft does not compute with */
    const char *type_name; /* as the format spells it: "Q4_K", "BF16", "I64" */
    wf_dims shape;         /* outermost first */
    int file;              /* index into the store's files */
    uint64_t offset;       /* of its first byte in that file */
    size_t bytes;
    const uint8_t *data; /* mapped; aligned only as far as the file is */
} wf_stored;

typedef struct {
    wf_ctx *ctx;
    wf_arena arena; /* of names and paths */
    struct {
        char *path;
        wf_map *map;
    } * file;
    int files, file_room;
    wf_stored *tensor; /* in the order of the files */
    int count, room;
    const void **sorted; /* the tensors by name (names.h); made by wf_store_seal */
} wf_store;

/* Allocates nothing. */
void wf_store_init(wf_store *s, wf_ctx *ctx);
void wf_store_free(wf_store *s); /* unmaps; a zeroed store is fine */
/* Maps a file and returns its index. */
wf_status wf_store_map(wf_store *s, const char *path, int *file);
/* The same of memory, which must outlive the store; what stands for the path in messages. */
wf_status wf_store_memory(wf_store *s, const char *what, const uint8_t *data, size_t bytes,
                          int *file);
/* Adds a tensor (a copy of *t, and of its name; data is set from file and offset). Fails when it does not
 * lie inside its file or its bytes are not those of its type and shape. */
wf_status wf_store_add(wf_store *s, const wf_stored *t);
/* When all are added: refuses names that come twice and makes wf_store_find quick. */
wf_status wf_store_seal(wf_store *s);
/* NULL when there is none of this name. */
const wf_stored *wf_store_find(const wf_store *s, const char *name);

/* WF_ERR_IO when a file was cut short while it was in use (base/guard.h): to be asked after tensors were
 * read, whose numbers are then wrong. */
wf_status wf_store_check(const wf_store *s);

/* The last part of a path, for messages; borrowed from it. */
const char *wf_store_base_name(const char *path);

#endif
