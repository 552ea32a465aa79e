/* SPDX-License-Identifier: MIT */
/* prepare_priv.h - the parts of data preparation. */
#ifndef WF_TRAIN_PREPARE_PRIV_H
#define WF_TRAIN_PREPARE_PRIV_H

#include "base/lock.h"
#include "train/index.h"
#include "train/piece.h"

/* ---- The output folder, under a temporary name until it is complete ---- */

typedef struct {
    wf_ctx *ctx;
    wf_arena arena;
    const char *folder; /* final path, in the arena */
    const char *part;   /* path while writing */
    const char *old;    /* path of replaced data until it is removed */
    wf_lock *lock;
    /* Replace existing data; the temporary folder is ours; it has its final name. */
    bool overwrite, begun, done;
} wf_data_output;

/* Fails if existing files would be overwritten. Initialize *o with {0}. */
wf_status wf_data_output_check(wf_ctx *ctx, wf_data_output *o, const char *folder, bool overwrite);
/* Creates the empty folder, and removes what an interrupted run left. One process at a time. */
wf_status wf_data_output_begin(wf_data_output *o);
wf_status wf_data_output_commit(wf_data_output *o);
/* Removes an uncommitted folder. */
void wf_data_output_free(wf_data_output *o);

/* ---- Shards of one split ---- */

typedef struct {
    wf_ctx *ctx;
    wf_arena *arena;
    const char *folder;
    wf_split split;
    int64_t vocab, most; /* most: approximate tokens per shard */
    bool masked;
    wf_shard_writer *writer; /* NULL: no open shard */
    int64_t bytes;           /* of the current document's text, in this shard */
    wf_index_split *index;   /* rows of finished shards; owned by the caller */
    int room;                /* of index->shard */
} wf_shard_set;

/* Appends tokens to the current document. */
wf_status wf_shard_set_ids(wf_shard_set *s, const int32_t *ids, const uint8_t *mask, size_t count,
                           size_t bytes);
/* Ends the document. */
wf_status wf_shard_set_document(wf_shard_set *s);
/* Ends the shard. */
wf_status wf_shard_set_end(wf_shard_set *s);
void wf_shard_set_free(wf_shard_set *s);

/* ---- Held-out documents ---- */

/* Holds out one of every 1 / share consecutive documents, chosen by number. With few texts, holds
 * out the end of each. */
typedef struct {
    double share; /* of documents; 0: none */
    double tail;  /* of each text; 0: none */
} wf_holding;

wf_status wf_holding_plan(wf_ctx *ctx, const wf_sources *s, const char *split_on, double share,
                          wf_holding *out);
/* Returns whether the document with this number is held out. */
bool wf_holding_takes(const wf_holding *h, int64_t document);

/* ---- The tokenizer ---- */

/* Learns a tokenizer from a sample of the sources. */
wf_status wf_prepare_learn(wf_ctx *ctx, const wf_sources *s, const wf_prepare_options *o,
                           wf_tokenizer **out);

#endif
