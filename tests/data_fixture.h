/* SPDX-License-Identifier: MIT */
/* data_fixture.h - writes prepared data folders from given tokens. Include after cmocka.h. */
#ifndef WEFT_TESTS_DATA_FIXTURE_H
#define WEFT_TESTS_DATA_FIXTURE_H

#include "scratch.h"
#include "train/data.h"

typedef struct {
    int32_t *ids;   /* tokens of all documents, concatenated */
    uint8_t *mask;  /* 1: the token contributes to the loss; NULL: no mask */
    int64_t *start; /* [documents + 1] index of each document's first token */
    int64_t documents;
} wt_texts;

/* Returns random documents of 1 to `longest` tokens below vocab. Each document ends with `end`. */
wt_texts wt_texts_random(uint64_t seed, int64_t documents, int64_t longest, int32_t vocab,
                         int32_t end, bool masked);
void wt_texts_free(wt_texts *t);

/* Writes a data folder with these texts, in shards of about shard_documents documents. Its
 * tokenizer has `vocab` tokens; the last is a control token and ends documents. valid may be NULL.
 * Returns the folder's path, valid until the next wt_path. */
const char *wt_data_write(wf_ctx *ctx, wt_scratch *s, const char *name, int32_t vocab,
                          const wt_texts *train, const wt_texts *valid, int64_t shard_documents);

#endif
