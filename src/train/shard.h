/* SPDX-License-Identifier: MIT */
/*
 * shard.h - a file of token ids, which `weft prepare` writes and training reads. docs/data.md
 * specifies it.
 *
 *     header     128 bytes: counts, offsets, checksums
 *     ids        2 or 4 bytes each, little endian
 *     starts     8 bytes per document and one more: the start of each, and the end of the last
 *     mask       optional, one bit per token: 1 if it has loss
 */
#ifndef WF_TRAIN_SHARD_H
#define WF_TRAIN_SHARD_H

#include "base/file.h"

#define WF_SHARD_HEADER 128
#define WF_SHARD_VERSION 1

typedef struct {
    int id_bytes;              /* 2 or 4 */
    int64_t vocab;             /* all ids are below it */
    int64_t tokens, documents; /* both at least 1; no document is empty */
    int64_t bytes;             /* of the encoded text */
    int64_t counted;           /* tokens with loss; all without a mask */
    bool masked;
    /* Checksum of the header, which contains that of the data: identifies the shard. */
    uint64_t sum;
} wf_shard_info;

typedef struct {
    wf_map *map;
    wf_shard_info info;
    const uint8_t *ids, *starts, *mask; /* mask NULL: no mask */
    uint64_t data_sum;                  /* the header's checksum of everything after it */
} wf_shard;

/* Maps a file, and checks its header and its size. */
wf_status wf_shard_open(wf_ctx *ctx, const char *path, wf_shard *out);
/* The same for bytes in memory; `what` names them in errors. */
wf_status wf_shard_memory(wf_ctx *ctx, const char *what, const uint8_t *data, size_t size,
                          wf_shard *out);
void wf_shard_close(wf_shard *s); /* accepts zeros */

/* Faults that only a full read finds. */
typedef enum {
    WF_SHARD_GOOD,
    WF_SHARD_CHANGED, /* checksum differs */
    WF_SHARD_ID,      /* an id beyond the vocabulary */
    WF_SHARD_STARTS,  /* documents out of order */
    WF_SHARD_COUNTED  /* number of tokens with loss differs */
} wf_shard_fault;
/* Reads and verifies everything. Uses no context, so threads can share the work. */
wf_shard_fault wf_shard_verify(const wf_shard *s);
/* Fails with the fault's message; WF_OK for WF_SHARD_GOOD. */
wf_status wf_shard_report(wf_ctx *ctx, const char *path, const wf_shard *s, wf_shard_fault fault);

/* Little endian on every machine; compilers emit a single load. */
static inline uint64_t wf_shard_load(const uint8_t *p, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++)
        x |= (uint64_t)p[i] << 8 * i;
    return x;
}

/* Returns the first token of document d, 0 <= d <= documents. */
static inline int64_t wf_shard_start(const wf_shard *s, int64_t d)
{
    return (int64_t)wf_shard_load(s->starts + 8 * d, 8);
}

/* Returns whether the token has loss. */
static inline bool wf_shard_counts(const wf_shard *s, int64_t token)
{
    return !s->mask || (s->mask[token / 8] >> token % 8 & 1);
}

/* Copies ids from .. from + count, which must exist. */
void wf_shard_copy(const wf_shard *s, int64_t from, int64_t count, int32_t *to);
/* Returns the document that contains a token. */
int64_t wf_shard_document(const wf_shard *s, int64_t token);

/* ---- Writing ---- */

/* Uses 8 bytes of memory per document and, with a mask, one bit per token. */
typedef struct wf_shard_writer wf_shard_writer;

wf_status wf_shard_write_new(wf_ctx *ctx, const char *path, int64_t vocab, bool masked,
                             wf_shard_writer **out);
/* Appends ids to the current document; all must be below vocab. mask[i] is 1 for tokens with loss;
 * NULL: all. */
wf_status wf_shard_write_ids(wf_shard_writer *w, const int32_t *ids, const uint8_t *mask,
                             int64_t count);
/* Ends a document with `bytes` of text; one without ids is ignored. */
wf_status wf_shard_write_document(wf_shard_writer *w, int64_t bytes);
/* Returns the counts so far; sum is not set yet. */
const wf_shard_info *wf_shard_write_info(const wf_shard_writer *w);
/* Completes and syncs the file. It must have a document, and no ids after the last one. */
wf_status wf_shard_write_end(wf_shard_writer *w, wf_shard_info *out);
/* Removes an incomplete file. Accepts NULL. */
void wf_shard_write_free(wf_shard_writer *w);

#endif
