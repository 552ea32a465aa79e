/* SPDX-License-Identifier: MIT */
/*
 * gguf.h - GGUF files, versions 2 and 3, single and split: reading and writing.
 *
 * Tensors of no elements are refused; data is aligned to 8 bytes at least, as far as the memory is.
 * Reading maps the file and checks everything against its size before anything is allocated that the file
 * asks for: memory is in proportion to the bytes of the header that are really there. Values stay where
 * they lie in the file; strings have no NUL behind them.
 */
#ifndef WF_FORMAT_GGUF_H
#define WF_FORMAT_GGUF_H

#include "format/store.h"

typedef enum { /* numbers of the format */
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
    const char *bytes; /* not ended by a NUL; may be anything */
    size_t len;
} wf_gguf_text;

typedef struct {
    const char *key; /* with a NUL; has none inside */
    wf_gguf_kind kind;
    wf_gguf_kind element; /* of an array; arrays of arrays are refused */
    uint64_t count;       /* of an array, else 1 */
    const uint8_t *data;  /* the first element, little-endian and not aligned */
    wf_gguf_text *text;   /* of a string, or of an array of strings: count of them; else NULL */
} wf_gguf_pair;

typedef struct wf_gguf {
    wf_store store; /* the tensors of all parts */
    uint32_t version;
    wf_gguf_pair *pair; /* of the first part, in its order */
    int pairs;
    int pairs_file;      /* the store's file that they are of */
    const void **sorted; /* by key (names.h) */
} wf_gguf;

/* Any part of a split file opens all of them (NAME-00001-of-00003.gguf). */
wf_status wf_gguf_open(wf_ctx *ctx, const char *path, wf_gguf **out);
/* One file that lies in memory, which must outlive the result; `what` stands for its name in messages. */
wf_status wf_gguf_read(wf_ctx *ctx, const char *what, const uint8_t *data, size_t bytes,
                       wf_gguf **out);
void wf_gguf_close(wf_gguf *f);

/* NULL when there is none. */
const wf_gguf_pair *wf_gguf_find(const wf_gguf *f, const char *key);
/* A value, *out left alone when the key is not there. Another kind of value (any integer kind will do for an
 * integer, when it is in [low, high]; any float or integer for a float) is WF_ERR_FORMAT and names the key. */
wf_status wf_gguf_get_int(const wf_gguf *f, const char *key, int64_t low, int64_t high,
                          int64_t *out);
wf_status wf_gguf_get_float(const wf_gguf *f, const char *key, double *out);
wf_status wf_gguf_get_bool(const wf_gguf *f, const char *key, bool *out);
/* Borrowed until close; bytes NULL when the key is not there. */
wf_status wf_gguf_get_text(const wf_gguf *f, const char *key, wf_gguf_text *out);
/* An array of strings, or of numbers (any integer kind as int64, floats as float); *out NULL and *count 0
 * when the key is not there. Arrays of numbers are copied into the file's arena. */
wf_status wf_gguf_get_texts(const wf_gguf *f, const char *key, const wf_gguf_text **out,
                            size_t *count);
wf_status wf_gguf_get_ints(wf_gguf *f, const char *key, const int64_t **out, size_t *count);
wf_status wf_gguf_get_floats(wf_gguf *f, const char *key, const float **out, size_t *count);

/* ---- Writing: keys and tensors are declared, then the data comes in the order of the tensors ---- */

typedef struct wf_gguf_writer wf_gguf_writer;

typedef struct {
    uint32_t alignment;   /* default 32 */
    uint64_t split_bytes; /* most bytes of tensors in one part; default: one file, never split */
} wf_gguf_write_options;

/* Nothing is written before wf_gguf_write_begin; the file appears under its name when finished, all parts
 * at once as far as the file system can. */
wf_status wf_gguf_write_new(wf_ctx *ctx, const char *path, const wf_gguf_write_options *options,
                            wf_gguf_writer **out);
/* Keys must be new. Data is copied. general.alignment and split.* are the writer's own. */
wf_status wf_gguf_write_int(wf_gguf_writer *w, const char *key, wf_gguf_kind kind, int64_t value);
wf_status wf_gguf_write_float(wf_gguf_writer *w, const char *key, double value); /* as F32 */
wf_status wf_gguf_write_bool(wf_gguf_writer *w, const char *key, bool value);
wf_status wf_gguf_write_text(wf_gguf_writer *w, const char *key, const char *bytes, size_t len);
wf_status wf_gguf_write_texts(wf_gguf_writer *w, const char *key, const wf_gguf_text *texts,
                              size_t count);
/* An array of a kind of number, from memory in this machine's layout of that kind. */
wf_status wf_gguf_write_array(wf_gguf_writer *w, const char *key, wf_gguf_kind element,
                              const void *data, size_t count);
/* Copies a pair of another file as it is; those that are the writer's own are left out. */
wf_status wf_gguf_write_pair(wf_gguf_writer *w, const wf_gguf_pair *pair);
wf_status wf_gguf_write_tensor(wf_gguf_writer *w, const char *name, wf_type type,
                               const wf_dims *shape);
/* Ends the header. Then exactly the bytes of every tensor, in order, in pieces of any size. */
wf_status wf_gguf_write_begin(wf_gguf_writer *w);
wf_status wf_gguf_write_data(wf_gguf_writer *w, const void *data, size_t bytes);
/* Syncs and renames. */
wf_status wf_gguf_write_end(wf_gguf_writer *w);
/* Without wf_gguf_write_end: removes what was written. */
void wf_gguf_write_free(wf_gguf_writer *w);

#endif
