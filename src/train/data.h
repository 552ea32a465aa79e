/* SPDX-License-Identifier: MIT */
/*
 * data.h - training data: a folder that `weft prepare` wrote, and batches of it.
 *
 * A batch is a pure function of the data, the options and its number. A position in the data is
 * therefore one number, and a resumed run sees the same batches.
 */
#ifndef WF_TRAIN_DATA_H
#define WF_TRAIN_DATA_H

#include "base/ctx.h"

typedef struct wf_data wf_data; /* both splits, mapped */
typedef enum { WF_SPLIT_TRAIN, WF_SPLIT_VALID } wf_split;

typedef struct {
    int64_t tokens, documents; /* of the split */
    int64_t bytes;             /* of text, for bits per byte */
    int64_t counted;           /* tokens with loss; equals tokens without masks */
    bool masked;               /* conversations: some tokens have no loss */
} wf_data_info;

/* Opens a folder. Reads all shards once and verifies checksums, ids and documents. */
wf_status wf_data_open(wf_ctx *ctx, const char *folder, wf_data **out);
/* Free the loaders first. Accepts NULL. */
void wf_data_close(wf_data *d);
/* All zeros if the split does not exist. */
void wf_data_get_info(const wf_data *d, wf_split split, wf_data_info *out);
/* The results are borrowed until close. */
const wf_tokenizer *wf_data_tokenizer(const wf_data *d);
const char *wf_data_chat_template(const wf_data *d); /* NULL: no template */
/* Returns the token that ends documents and pads batches. */
int32_t wf_data_end(const wf_data *d);
/* Returns a checksum over those of the shards and the tokenizer. It identifies the data. */
uint64_t wf_data_identity(const wf_data *d);

typedef struct {
    int64_t batch, length; /* B rows of T tokens each */
    uint64_t seed;         /* of the order of rows */
    /* Rows follow the order of the text, and a pass covers all of it; incomplete batches and rows
     * are padded. Otherwise every pass shuffles the rows, and drops those that do not fill a
     * batch. */
    bool in_order;
    /* Sequences end with documents, positions restart, and no token predicts the first one of the
     * next document. Always on for conversations (masked data). */
    bool documents;
    /* S: most sequences of a batch with `documents`; rows of conversations then hold at most S / B
     * of them. 0: as many as this data needs. Without `documents`, S is B. */
    int64_t sequences;
} wf_loader_options;

typedef struct wf_loader wf_loader;

/* Creates a loader. A row has T consecutive tokens of the concatenated texts, and the targets that
 * follow each. For masked data a row holds as many whole documents as fit, then padding. A document
 * that is longer than a row is truncated; a logged warning counts these. */
wf_status wf_loader_new(const wf_data *d, wf_split split, const wf_loader_options *o,
                        wf_loader **out);
void wf_loader_free(wf_loader *l);               /* accepts NULL */
int64_t wf_loader_batches(const wf_loader *l);   /* per pass over the split; at least 1 */
int64_t wf_loader_sequences(const wf_loader *l); /* S */

/* In a wf_batch, seq_start does not decrease, from 0 to B*T; the last sequences may be empty. A row
 * starts a sequence. If a row has more documents than S allows, its last ones share a sequence. */

/* Returns batch `index`, counted from the beginning of training over all passes. Any index, in any
 * order. Borrowed until the next call. A thread prepares the next batch meanwhile. */
wf_status wf_loader_get(wf_loader *l, int64_t index, const wf_batch **out);

#endif
