/* SPDX-License-Identifier: MIT */
/*
 * shard.h - a file of token ids: what `weft prepare` writes and training reads. docs/data.md has it byte by byte.
 *
 *     header     128 bytes: counts, offsets, checksums
 *     ids        2 or 4 bytes each, little endian
 *     starts     8 bytes a document and one more: where each begins, and where the last ends
 *     mask       a bit a token, if there is one: does it carry loss?
 */
#ifndef WF_TRAIN_SHARD_H
#define WF_TRAIN_SHARD_H

#include "base/file.h"

#define WF_SHARD_HEADER 128
#define WF_SHARD_VERSION 1

typedef struct {
    int id_bytes;              /* 2 or 4 */
    int64_t vocab;             /* every id is below it */
    int64_t tokens, documents; /* 1 or more of both, and no document is empty */
    int64_t bytes;             /* of the texts behind them */
    int64_t counted;           /* tokens that carry loss; all without a mask */
    bool masked;
    uint64_t
        sum; /* of the header, and so of the rest, whose checksum it holds: tells one shard from another */
} wf_shard_info;

typedef struct {
    wf_map *map;
    wf_shard_info info;
    const uint8_t *ids, *starts, *mask; /* mask NULL: there is none */
    uint64_t data_sum;                  /* what the header says about all behind it */
} wf_shard;

/* Maps a file and checks its header and that all it promises is there. */
wf_status wf_shard_open(wf_ctx *ctx, const char *path, wf_shard *out);
/* The same of bytes in memory, called `what` in messages. */
wf_status wf_shard_memory(wf_ctx *ctx, const char *what, const uint8_t *data, size_t size,
                          wf_shard *out);
void wf_shard_close(wf_shard *s); /* zeros are fine */

/* What reading all of it may find. */
typedef enum {
    WF_SHARD_GOOD,
    WF_SHARD_CHANGED, /* another checksum */
    WF_SHARD_ID,      /* an id that is not below the vocabulary's size */
    WF_SHARD_STARTS,  /* documents that do not follow one another */
    WF_SHARD_COUNTED  /* another number of tokens that carry loss */
} wf_shard_fault;
/* Reads all of it. Uses no context, so that threads may share the work. */
wf_shard_fault wf_shard_verify(const wf_shard *s);
/* The sentence about it; WF_OK for WF_SHARD_GOOD. */
wf_status wf_shard_report(wf_ctx *ctx, const char *path, const wf_shard *s, wf_shard_fault fault);

/* Little endian, whatever the machine; compilers make one load of each. */
static inline uint64_t wf_shard_load(const uint8_t *p, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++)
        x |= (uint64_t)p[i] << 8 * i;
    return x;
}

/* Token where document d begins, 0 <= d <= documents. */
static inline int64_t wf_shard_start(const wf_shard *s, int64_t d)
{
    return (int64_t)wf_shard_load(s->starts + 8 * d, 8);
}

static inline bool wf_shard_counts(const wf_shard *s, int64_t token)
{
    return !s->mask || (s->mask[token / 8] >> token % 8 & 1);
}

/* Ids from .. from + count, which must be there. */
void wf_shard_copy(const wf_shard *s, int64_t from, int64_t count, int32_t *to);
/* The document that a token is part of. */
int64_t wf_shard_document(const wf_shard *s, int64_t token);

/* ---- Writing ---- */

/* Memory is in proportion to the documents (8 bytes each) and, with a mask, to the tokens (1 bit each). */
typedef struct wf_shard_writer wf_shard_writer;

wf_status wf_shard_write_new(wf_ctx *ctx, const char *path, int64_t vocab, bool masked,
                             wf_shard_writer **out);
/* Ids of the document that is being written, all below vocab. mask[i] is 1 where they carry loss; NULL: all do. */
wf_status wf_shard_write_ids(wf_shard_writer *w, const int32_t *ids, const uint8_t *mask,
                             int64_t count);
/* Ends a document, of so many bytes of text; one without ids is none. */
wf_status wf_shard_write_document(wf_shard_writer *w, int64_t bytes);
/* What is in it so far; sum is not known yet. */
const wf_shard_info *wf_shard_write_info(const wf_shard_writer *w);
/* Ends the file, which must have a document and no ids outside of one, and puts it onto the disk. */
wf_status wf_shard_write_end(wf_shard_writer *w, wf_shard_info *out);
/* Removes what was not ended. NULL is fine. */
void wf_shard_write_free(wf_shard_writer *w);

#endif
