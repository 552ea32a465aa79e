/* SPDX-License-Identifier: MIT */
/* source.h - the input files of data preparation. */
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
    const char *path; /* in the arena of wf_sources */
    wf_source_kind kind;
    uint64_t bytes; /* when it was listed */
} wf_source;

typedef struct {
    wf_ctx *ctx;
    wf_arena arena;    /* owns the paths */
    wf_source *source; /* [count] */
    size_t count, room;
    uint64_t bytes;
    int64_t skipped; /* files in folders that are empty or not UTF-8 text */
} wf_sources;

/* Adds a file, or the files of a folder sorted by name. Skips names that start with a dot, links to
 * folders, and folders of prepared data. A named file must be text. Initialize *s with zeros except
 * ctx and arena. `format` as in wf_prepare_options. */
wf_status wf_sources_add(wf_sources *s, const char *path, const char *format);
void wf_sources_free(wf_sources *s);

/* Returns the position after a byte order mark: 0 or 3. */
size_t wf_source_begin(const char *text, size_t size);

/* Finds the next element of a JSON array: text[*begin, *end). *at starts after the bracket, and
 * then moves past the element and its comma. Only brackets and strings are parsed, so the element
 * may be invalid JSON. `whole`: the text contains the end of the array. */
typedef enum {
    WF_ELEMENT,
    WF_ELEMENTS_END,
    WF_ELEMENTS_BAD, /* the array is not closed, or is followed by text */
    WF_ELEMENTS_LONG /* an element exceeds `most` bytes */
} wf_element_status;
wf_element_status wf_element_next(const char *text, size_t size, bool whole, size_t most,
                                  size_t *at, size_t *begin, size_t *end);

/* A mapped file. */
typedef struct {
    const wf_source *source;
    wf_map *map; /* NULL: not open */
} wf_opened;

/* Returns the start of the data: after a byte order mark and the bracket of an array. */
size_t wf_source_data(const wf_opened *o);
wf_status wf_source_open(wf_ctx *ctx, const wf_source *s, wf_opened *out);
/* Fails if the file was truncated meanwhile. Always closes it. */
wf_status wf_source_close(wf_ctx *ctx, wf_opened *o);

#endif
