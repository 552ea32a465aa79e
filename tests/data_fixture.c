/* SPDX-License-Identifier: MIT */
/* data_fixture.c - implements data_fixture.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/philox.h"
#include "base/writer.h"
#include "data_fixture.h"
#include "support.h"
#include "text/token.h"
#include "text/utf8.h"
#include "text/vocab.h"
#include "train/index.h"

wt_texts wt_texts_random(uint64_t seed, int64_t documents, int64_t longest, int32_t vocab,
                         int32_t end, bool masked)
{
    wf_rng rng;
    wf_rng_init(&rng, seed, 77);
    wt_texts t = {.documents = documents};
    t.start = malloc(((size_t)documents + 1) * sizeof *t.start);
    t.ids = malloc((size_t)(documents * longest + 1) * sizeof *t.ids);
    t.mask = masked ? malloc((size_t)(documents * longest + 1)) : NULL;
    assert_true(t.start && t.ids && (t.mask || !masked));
    int64_t n = 0;
    for (int64_t d = 0; d < documents; d++) {
        t.start[d] = n;
        int64_t length = 1 + (int64_t)wf_rng_below(&rng, (uint64_t)longest);
        for (int64_t i = 0; i < length; i++, n++) {
            t.ids[n] = i == length - 1 ? end : (int32_t)wf_rng_below(&rng, (uint64_t)vocab);
            if (masked)
                t.mask[n] = wf_rng_below(&rng, 3) == 0;
        }
    }
    t.start[documents] = n;
    return t;
}

void wt_texts_free(wt_texts *t)
{
    free(t->ids);
    free(t->mask);
    free(t->start);
    *t = (wt_texts){0};
}

/* Writes tokenizer.json: the byte-level letters, then made-up words, then the end token. */
static void write_tokenizer(wf_ctx *ctx, const char *folder, int32_t vocab, uint64_t *sum)
{
    char path[600];
    wf_writer w = {.ctx = ctx};
    wf_writer_print(&w,
                    "{\"added_tokens\":[{\"id\":%d,\"content\":\"<|end|>\",\"special\":true}],"
                    "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                    "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
                    "\"merges\":[],\"vocab\":{",
                    (int)vocab - 1);
    for (int i = 0; i < vocab - 1; i++) {
        char letter[16] = "";
        if (i < 256)
            wf_utf8_encode(wf_byte_letter((uint8_t)i), letter);
        else
            snprintf(letter, sizeof letter, "t%d", i);
        const char *quote = strcmp(letter, "\"") == 0 || strcmp(letter, "\\") == 0 ? "\\" : "";
        wf_writer_print(&w, "%s\"%s%s\":%d", i ? "," : "", quote, letter, i);
    }
    wf_writer_print(&w, "}}}");
    char *text;
    size_t bytes;
    wt_ok(ctx, wf_writer_take(&w, &text, &bytes));
    *sum = wf_checksum(text, bytes);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    wt_ok(ctx, wf_file_write(ctx, path, text, bytes));
    wf_mem_free(ctx, text);
    static const char config[] = "{\"eos_token\":\"<|end|>\"}";
    snprintf(path, sizeof path, "%s/tokenizer_config.json", folder);
    wt_ok(ctx, wf_file_write(ctx, path, config, strlen(config)));
}

static void write_split(wf_ctx *ctx, const char *folder, int which, int32_t vocab,
                        const wt_texts *t, int64_t shard_documents, wf_index_split *out)
{
    out->count = (size_t)((t->documents + shard_documents - 1) / shard_documents);
    out->shard = calloc(out->count, sizeof *out->shard);
    assert_non_null(out->shard);
    for (size_t i = 0; i < out->count; i++) {
        char path[600], *name = malloc(32);
        assert_non_null(name);
        snprintf(name, 32, "%s-%05zu.weft", wf_split_names[which], i);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        out->shard[i].file = name;
        wf_shard_writer *w;
        wt_ok(ctx, wf_shard_write_new(ctx, path, vocab, t->mask != NULL, &w));
        for (int64_t d = (int64_t)i * shard_documents;
             d < (int64_t)(i + 1) * shard_documents && d < t->documents; d++) {
            int64_t n = t->start[d + 1] - t->start[d];
            wt_ok(ctx, wf_shard_write_ids(w, t->ids + t->start[d],
                                          t->mask ? t->mask + t->start[d] : NULL, n));
            wt_ok(ctx, wf_shard_write_document(w, n));
        }
        wt_ok(ctx, wf_shard_write_end(w, &out->shard[i].info));
        wf_shard_write_free(w);
    }
}

static void free_split(wf_index_split *s)
{
    for (size_t i = 0; i < s->count; i++)
        free((char *)(uintptr_t)s->shard[i].file);
    free(s->shard);
}

const char *wt_data_write(wf_ctx *ctx, wt_scratch *s, const char *name, int32_t vocab,
                          const wt_texts *train, const wt_texts *valid, int64_t shard_documents)
{
    const char *folder = wt_path(s, name);
    wt_ok(ctx, wf_path_make_folder(ctx, folder));
    wf_index x = {.vocab = vocab,
                  .id_bytes = vocab <= 65536 ? 2 : 4,
                  .masked = train->mask != NULL,
                  .end = vocab - 1,
                  .tokenizer = "made up"};
    write_tokenizer(ctx, folder, vocab, &x.tokenizer_sum);
    write_split(ctx, folder, 0, vocab, train, shard_documents, &x.split[0]);
    if (valid)
        write_split(ctx, folder, 1, vocab, valid, shard_documents, &x.split[1]);
    wt_ok(ctx, wf_index_write(ctx, folder, &x));
    free_split(&x.split[0]);
    free_split(&x.split[1]);
    return folder;
}
