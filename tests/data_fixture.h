/* SPDX-License-Identifier: MIT */
/* data_fixture.h - folders of data for training, made from given tokens. To be included after cmocka.h. */
#ifndef WEFT_TESTS_DATA_FIXTURE_H
#define WEFT_TESTS_DATA_FIXTURE_H

#include "scratch.h"
#include "train/data.h"

typedef struct {
    int32_t *ids;   /* of all documents, behind each other */
    uint8_t *mask;  /* 1: carries loss; NULL: no mask */
    int64_t *start; /* [documents + 1] */
    int64_t documents;
} wt_texts;

/* Random documents of 1 to longest tokens below vocab, the last of each is `end`. */
wt_texts wt_texts_random(uint64_t seed, int64_t documents, int64_t longest, int32_t vocab,
                         int32_t end, bool masked);
void wt_texts_free(wt_texts *t);

/* A folder with these, cut into shards of about so many documents, and with a tokenizer of `vocab` tokens, of which the last
 * is a control token and the end of documents. valid may be NULL. Returns its path, valid until the next wt_path. */
const char *wt_data_write(wf_ctx *ctx, wt_scratch *s, const char *name, int32_t vocab,
                          const wt_texts *train, const wt_texts *valid, int64_t shard_documents);

#endif
