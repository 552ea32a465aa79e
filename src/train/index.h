/* SPDX-License-Identifier: MIT */
/* index.h - data.json, the description of a folder of shards. docs/data.md specifies it. */
#ifndef WF_TRAIN_INDEX_H
#define WF_TRAIN_INDEX_H

#include "base/arena.h"
#include "train/data.h"
#include "train/shard.h"

#define WF_INDEX_FILE "data.json"
#define WF_INDEX_SHARDS 100000 /* most shards of a split */

typedef struct {
    const char *file; /* a name in the folder */
    wf_shard_info info;
} wf_index_shard;

typedef struct {
    wf_index_shard *shard; /* [count] */
    size_t count;
} wf_index_split;

typedef struct {
    int64_t vocab;
    int id_bytes;
    bool masked;
    int32_t end;               /* the token that ends documents */
    const char *tokenizer;     /* origin, for display */
    uint64_t tokenizer_sum;    /* checksum of tokenizer.json */
    const char *chat_template; /* NULL: no template */
    wf_index_split split[2];   /* indexed by wf_split */
} wf_index;

extern const char *const wf_split_names[2];

/* The result points into the arena. Checks counts and names; does not open the shards. */
wf_status wf_index_read(wf_arena *arena, const char *folder, wf_index *out);
wf_status wf_index_write(wf_ctx *ctx, const char *folder, const wf_index *index);

#endif
