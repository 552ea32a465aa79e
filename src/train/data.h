/* SPDX-License-Identifier: MIT */
/*
 * data.h - what is trained on: a folder that `weft prepare` wrote, and batches of it.
 *
 * A batch is a pure function of the data, the options and its number, so that a position in the data is one number
 * and a run that goes on from it sees what it would have seen.
 */
#ifndef WF_TRAIN_DATA_H
#define WF_TRAIN_DATA_H

#include "base/ctx.h"

typedef struct wf_data wf_data; /* both splits, mapped */
typedef enum { WF_SPLIT_TRAIN, WF_SPLIT_VALID } wf_split;

typedef struct {
    int64_t tokens, documents;
    int64_t bytes;   /* of text, for bits a byte */
    int64_t counted; /* tokens with loss; = tokens without masks */
    bool masked;     /* conversations: some tokens carry no loss */
} wf_data_info;

/* Reads all shards once and checks them: checksums, every id against the vocabulary, documents. */
wf_status wf_data_open(wf_ctx *ctx, const char *folder, wf_data **out);
/* Loaders must be freed before it. NULL is fine. */
void wf_data_close(wf_data *d);
/* All zeros where there is no such split. */
void wf_data_get_info(const wf_data *d, wf_split split, wf_data_info *out);
/* What these return is borrowed until close. */
const wf_tokenizer *wf_data_tokenizer(const wf_data *d);
const char *wf_data_chat_template(const wf_data *d); /* NULL: none */
/* The token that ends documents, and pads. */
int32_t wf_data_end(const wf_data *d);
/* A checksum over those of the shards and the tokenizer: other data, another number. */
uint64_t wf_data_identity(const wf_data *d);

typedef struct {
    int64_t batch, length; /* B rows of T tokens */
    uint64_t seed;
    /* Rows follow each other as the text does, and a pass has all of it: where a batch or a row has nothing to hold
     * any more, it is padded. Otherwise rows are shuffled anew for each pass, and those that make no whole
     * batch are left out of it. */
    bool in_order;
    /* Block-diagonal: sequences end with documents, positions begin anew, and no token is to predict the first
     * one of the next document. Conversations (masked data) are always so. */
    bool documents;
    /* S: most sequences of a batch of documents, for which rows of conversations have no more of them than
     * S / B; 0: as many as there can be in this data. Without documents it is B. */
    int64_t sequences;
} wf_loader_options;

typedef struct wf_loader wf_loader;

/* Rows are T tokens of all texts behind each other, and what follows each. Of masked data, they are as many
 * whole documents one after the other as fit, padded; a document that does not fit a row is cut there, with a
 * warning to the log that says how many. */
wf_status wf_loader_new(const wf_data *d, wf_split split, const wf_loader_options *o,
                        wf_loader **out);
void wf_loader_free(wf_loader *l);               /* NULL is fine */
int64_t wf_loader_batches(const wf_loader *l);   /* in one pass over the split; 1 or more */
int64_t wf_loader_sequences(const wf_loader *l); /* S */

/* Of a wf_batch, seq_start is not descending, from 0 to B*T; sequences at the end may be empty. A row begins a
 * sequence; of texts, what a row has more documents than S leaves it sequences share its last one. */

/* Batch number `index` since the beginning of training: passes over the data follow each other. Any index at any
 * time; borrowed until the next call. The one behind it is prepared meanwhile by a thread. */
wf_status wf_loader_get(wf_loader *l, int64_t index, const wf_batch **out);

#endif
