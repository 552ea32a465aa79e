/* SPDX-License-Identifier: MIT */
/* data_priv.h - data from the loaders' view. */
#ifndef WF_TRAIN_DATA_PRIV_H
#define WF_TRAIN_DATA_PRIV_H

#include "base/arena.h"
#include "train/data.h"
#include "train/shard.h"

/* Concatenated shards: tokens and documents are numbered across all of them. */
typedef struct {
    wf_shard *shard;   /* [shards] */
    int64_t *token;    /* [shards + 1]: number of the first token of each */
    int64_t *document; /* [shards + 1]: number of the first document of each */
    int shards;
    wf_data_info info; /* sums over the shards */
} wf_data_split;

struct wf_data {
    wf_ctx *ctx;
    wf_arena arena; /* owns names and the template */
    wf_data_split split[2];
    wf_tokenizer *tokenizer; /* owned */
    const char *chat_template;
    int32_t end;       /* token that ends documents */
    uint32_t *lengths; /* [vocab]: bytes of text per token */
    uint64_t identity; /* see wf_data_identity */
};

/* Returns the shard that contains number n; numbers[0 .. shards] are the first of each. */
int wf_data_shard(const int64_t *numbers, int shards, int64_t n);
/* Copies tokens from .. from + count. */
void wf_data_copy(const wf_data_split *s, int64_t from, int64_t count, int32_t *to);
/* Returns the start of the next document after the one that contains this token, or the end of all
 * tokens. Always greater than `token`. */
int64_t wf_data_next_start(const wf_data_split *s, int64_t token);
/* Returns whether a shard was truncated since it was mapped. */
bool wf_data_broken(const wf_data_split *s);

#endif
