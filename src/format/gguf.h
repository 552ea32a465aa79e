/* SPDX-License-Identifier: MIT */
/*
 * gguf.h - reads and writes GGUF files, versions 2 and 3, single and split.
 *
 * Reading maps the file. Every count is checked against the file's size before memory is allocated
 * for it, so memory is proportional to the header's real bytes. Values are used in place. Tensors
 * without elements are refused. Tensor data is aligned to at least 8 bytes relative to the file's
 * start.
 */
#ifndef WF_FORMAT_GGUF_H
#define WF_FORMAT_GGUF_H

#include "format/store.h"

typedef enum { /* values are the format's */
               WF_GGUF_U8,
               WF_GGUF_I8,
               WF_GGUF_U16,
               WF_GGUF_I16,
               WF_GGUF_U32,
               WF_GGUF_I32,
               WF_GGUF_F32,
               WF_GGUF_BOOL,
               WF_GGUF_STRING,
               WF_GGUF_ARRAY,
               WF_GGUF_U64,
               WF_GGUF_I64,
               WF_GGUF_F64,
               WF_GGUF_KINDS
} wf_gguf_kind;

typedef struct {
    const char *bytes; /* arbitrary bytes, not NUL-terminated */
    size_t len;
} wf_gguf_text;

typedef struct {
    const char *key; /* NUL-terminated, no NUL inside */
    wf_gguf_kind kind;
    wf_gguf_kind element; /* kind of an array's elements; arrays of arrays are refused */
    uint64_t count;       /* elements of an array, else 1 */
    const uint8_t *data;  /* first element, little-endian, unaligned */
    wf_gguf_text *text;   /* [count] of a string or an array of strings; else NULL */
} wf_gguf_pair;

typedef struct wf_gguf {
    wf_store store; /* tensors of all parts */
    uint32_t version;
    wf_gguf_pair *pair; /* [pairs] of the first part, in its order */
    int pairs;
    int pairs_file;      /* index of their file in the store */
    const void **sorted; /* pairs by key (names.h) */
} wf_gguf;

/* Opens a file. The path of any part (NAME-00001-of-00003.gguf) opens all parts. */
wf_status wf_gguf_open(wf_ctx *ctx, const char *path, wf_gguf **out);
/* Reads one file from memory, which must outlive the result. Messages call it `what`. */
wf_status wf_gguf_read(wf_ctx *ctx, const char *what, const uint8_t *data, size_t bytes,
                       wf_gguf **out);
void wf_gguf_close(wf_gguf *f);

/* Returns NULL if the key is missing. */
const wf_gguf_pair *wf_gguf_find(const wf_gguf *f, const char *key);
/* Read a value; *out keeps its value if the key is missing. Any integer kind is accepted for an
 * integer, any integer or float kind for a float. Another kind, or an integer outside [low, high],
 * is WF_ERR_FORMAT. */
wf_status wf_gguf_get_int(const wf_gguf *f, const char *key, int64_t low, int64_t high,
                          int64_t *out);
wf_status wf_gguf_get_float(const wf_gguf *f, const char *key, double *out);
wf_status wf_gguf_get_bool(const wf_gguf *f, const char *key, bool *out);
/* Borrowed until wf_gguf_close; bytes is NULL if the key is missing. */
wf_status wf_gguf_get_text(const wf_gguf *f, const char *key, wf_gguf_text *out);
/* Read an array. *out is NULL and *count 0 if the key is missing. Any integer kind converts to
 * int64, any number to float; these copies are in the file's arena. */
wf_status wf_gguf_get_texts(const wf_gguf *f, const char *key, const wf_gguf_text **out,
                            size_t *count);
wf_status wf_gguf_get_ints(wf_gguf *f, const char *key, const int64_t **out, size_t *count);
wf_status wf_gguf_get_floats(wf_gguf *f, const char *key, const float **out, size_t *count);

/* ---- Writing: declare keys and tensors, begin, write the data in the tensors' order, end ---- */

typedef struct wf_gguf_writer wf_gguf_writer;

typedef struct {
    uint32_t alignment;   /* bytes; 0: 32 */
    uint64_t split_bytes; /* most bytes of tensors per part; 0: one file */
} wf_gguf_write_options;

/* Nothing is written before wf_gguf_write_begin. wf_gguf_write_end renames all files to their final
 * names, the first part last. */
wf_status wf_gguf_write_new(wf_ctx *ctx, const char *path, const wf_gguf_write_options *options,
                            wf_gguf_writer **out);
/* Declare a key; it must be new. Data is copied. The writer itself sets general.alignment and
 * split.*. */
wf_status wf_gguf_write_int(wf_gguf_writer *w, const char *key, wf_gguf_kind kind, int64_t value);
wf_status wf_gguf_write_float(wf_gguf_writer *w, const char *key, double value); /* stored as f32 */
wf_status wf_gguf_write_bool(wf_gguf_writer *w, const char *key, bool value);
wf_status wf_gguf_write_text(wf_gguf_writer *w, const char *key, const char *bytes, size_t len);
wf_status wf_gguf_write_texts(wf_gguf_writer *w, const char *key, const wf_gguf_text *texts,
                              size_t count);
/* An array of integers or floats: data is [count] of the element kind. */
wf_status wf_gguf_write_array(wf_gguf_writer *w, const char *key, wf_gguf_kind element,
                              const void *data, size_t count);
/* Copies a pair of another file. Ignores keys that the writer sets itself. */
wf_status wf_gguf_write_pair(wf_gguf_writer *w, const wf_gguf_pair *pair);
wf_status wf_gguf_write_tensor(wf_gguf_writer *w, const char *name, wf_type type,
                               const wf_dims *shape);
/* Ends the declarations. After it come exactly the bytes of every tensor, in order, in pieces of
 * any size. */
wf_status wf_gguf_write_begin(wf_gguf_writer *w);
wf_status wf_gguf_write_data(wf_gguf_writer *w, const void *data, size_t bytes);
/* Syncs the files to disk and renames them. */
wf_status wf_gguf_write_end(wf_gguf_writer *w);
/* Frees the writer. Removes the files unless wf_gguf_write_end succeeded. */
void wf_gguf_write_free(wf_gguf_writer *w);

#endif
