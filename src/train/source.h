/* SPDX-License-Identifier: MIT */
/* source.h - the files that are prepared: which they are, and their bytes. */
#ifndef WF_TRAIN_SOURCE_H
#define WF_TRAIN_SOURCE_H

#include "base/arena.h"
#include "base/file.h"

typedef enum {
    WF_SOURCE_TEXT,
    WF_SOURCE_LINES, /* of JSON */
    WF_SOURCE_ARRAY  /* of JSON */
} wf_source_kind;

typedef struct {
    const char *path;
    wf_source_kind kind;
    uint64_t bytes; /* when it was found */
} wf_source;

typedef struct {
    wf_ctx *ctx;
    wf_arena arena;
    wf_source *source; /* [count] */
    size_t count, room;
    uint64_t bytes;
    int64_t skipped; /* files in folders that are empty or no UTF-8 text */
} wf_sources;

/* Starts as zeros, but for ctx and an arena. Files as they are named, and those in folders, in order of their
 * names, but for what begins with a dot, links to folders and folders of prepared data. What is named must be
 * text. `format` as in wf_prepare_options. */
wf_status wf_sources_add(wf_sources *s, const char *path, const char *format);
void wf_sources_free(wf_sources *s);

/* The first byte behind a byte order mark: 0 or 3. */
size_t wf_source_begin(const char *text, size_t size);

/* The next element of a JSON array: text[*begin, *end). *at is behind the bracket at first, and then behind the
 * element and its comma. Only brackets and strings are looked at, so the element may be no JSON. `whole`: the text has
 * the end of the array. */
typedef enum {
    WF_ELEMENT,
    WF_ELEMENTS_END,
    WF_ELEMENTS_BAD, /* the array is not closed, or something stands behind it */
    WF_ELEMENTS_LONG /* one has more than `most` bytes */
} wf_element_status;
wf_element_status wf_element_next(const char *text, size_t size, bool whole, size_t most,
                                  size_t *at, size_t *begin, size_t *end);

/* The bytes of one, mapped. */
typedef struct {
    const wf_source *source;
    wf_map *map;
} wf_opened;

/* Where records or text begin: behind a byte order mark, and behind the bracket of an array. */
size_t wf_source_data(const wf_opened *o);
wf_status wf_source_open(wf_ctx *ctx, const wf_source *s, wf_opened *out);
/* Fails when the file was cut short meanwhile, and closes in any case. */
wf_status wf_source_close(wf_ctx *ctx, wf_opened *o);

#endif
