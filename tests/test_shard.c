/* SPDX-License-Identifier: MIT */
/* test_shard.c - shards: written tokens read back, and a damaged or forged shard is refused with
 * one sentence. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/checksum.h"
#include "base/mem.h"
#include "base/philox.h"
#include "data_fixture.h"
#include "support.h"
#include "train/index.h"
#include "train/shard_format.h"

static wt_scratch scratch;

static int begin(void **state)
{
    wt_scratch_make(&scratch);
    return wt_setup(state);
}

static int end(void **state)
{
    int result = wt_teardown(state);
    wt_scratch_remove(&scratch);
    return result;
}

/* ---- Round trips ---- */

static void write_shard(wf_ctx *ctx, const char *path, int64_t vocab, const wt_texts *t,
                        wf_shard_info *info)
{
    wf_shard_writer *w;
    wt_ok(ctx, wf_shard_write_new(ctx, path, vocab, t->mask != NULL, &w));
    for (int64_t d = 0; d < t->documents; d++) {
        /* In two pieces. */
        int64_t at = t->start[d], n = t->start[d + 1] - at, half = n / 2;
        const uint8_t *mask = t->mask ? t->mask + at : NULL;
        wt_ok(ctx, wf_shard_write_ids(w, t->ids + at, mask, half));
        wt_ok(ctx, wf_shard_write_ids(w, t->ids + at + half, mask ? mask + half : NULL, n - half));
        wt_ok(ctx, wf_shard_write_document(w, 3 * n));
    }
    wt_ok(ctx, wf_shard_write_document(w, 99)); /* without tokens: not a document */
    wt_ok(ctx, wf_shard_write_end(w, info));
    wf_shard_write_free(w);
}

static void test_round_trip(void **state)
{
    wf_ctx *ctx = *state;
    static const int32_t vocabs[] = {1, 2, 300, 65535, 65536, 65537, 70000, INT32_MAX};
    for (size_t k = 0; k < 2 * sizeof vocabs / sizeof *vocabs; k++) {
        int32_t vocab = vocabs[k / 2];
        bool masked = k & 1;
        wt_texts t = wt_texts_random(wt_seed() + k, 40, 500, vocab, vocab - 1, masked);
        const char *path = wt_path(&scratch, "a.weft");
        wf_shard_info info;
        wf_shard s;
        int64_t all = t.start[t.documents], counted = 0;
        write_shard(ctx, path, vocab, &t, &info);
        wt_ok(ctx, wf_shard_open(ctx, path, &s));
        assert_int_equal(wf_shard_verify(&s), WF_SHARD_GOOD);
        assert_int_equal(s.info.id_bytes, vocab <= 65536 ? 2 : 4);
        assert_int_equal(s.info.tokens, all);
        assert_int_equal(s.info.documents, t.documents);
        assert_int_equal(s.info.bytes, 3 * all);
        assert_int_equal(s.info.vocab, vocab);
        assert_true(s.info.sum == info.sum);
        int32_t *ids = malloc((size_t)all * sizeof *ids);
        assert_non_null(ids);
        wf_shard_copy(&s, 0, all, ids);
        assert_memory_equal(ids, t.ids, (size_t)all * sizeof *ids);
        free(ids);
        for (int64_t d = 0; d <= t.documents; d++)
            assert_int_equal(wf_shard_start(&s, d), t.start[d]);
        for (int64_t i = 0, d = 0; i < all; i++) {
            d += i == t.start[d + 1];
            assert_int_equal(wf_shard_document(&s, i), d);
            assert_int_equal(wf_shard_counts(&s, i), masked ? t.mask[i] : 1);
            counted += masked ? t.mask[i] : 1;
        }
        assert_int_equal(s.info.counted, counted);
        wf_shard_close(&s);
        wt_texts_free(&t);
    }
}

/* An unfinished shard leaves no file. */
static void test_abandoned(void **state)
{
    wf_ctx *ctx = *state;
    wf_shard_writer *w;
    wt_ok(ctx, wf_shard_write_new(ctx, wt_path(&scratch, "a.weft"), 10, false, &w));
    wt_ok(ctx, wf_shard_write_ids(w, (int32_t[]){1, 2, 3}, NULL, 3));
    wf_shard_write_free(w);
    assert_int_equal(wt_entries(&scratch), 0);
    wt_fails(ctx, wf_shard_write_new(ctx, wt_path(&scratch, "no/a.weft"), 10, false, &w), WF_ERR_IO,
             "cannot create");
}

/* ---- Hostile files ---- */

/* Five documents, 20 tokens of 4 bytes, a mask. */
static uint8_t *make_bytes(wf_ctx *ctx, size_t *size)
{
    int32_t ids[20];
    uint8_t mask[20];
    int64_t start[] = {0, 4, 5, 11, 12, 20};
    for (int i = 0; i < 20; i++) {
        ids[i] = 70000 - i;
        mask[i] = i % 3 == 0;
    }
    wt_texts t = {.ids = ids, .mask = mask, .start = start, .documents = 5};
    wf_shard_info info;
    const char *path = wt_path(&scratch, "made.weft");
    write_shard(ctx, path, 70001, &t, &info);
    char *text;
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 20, &text, size));
    uint8_t *copy = malloc(*size);
    assert_non_null(copy);
    memcpy(copy, text, *size);
    wf_mem_free(ctx, text);
    return copy;
}

static wf_status read_all(wf_ctx *ctx, const uint8_t *bytes, size_t size)
{
    wf_shard s;
    WF_TRY(wf_shard_memory(ctx, "x.weft", bytes, size, &s));
    wf_status status = wf_shard_report(ctx, "x.weft", &s, wf_shard_verify(&s));
    wf_shard_close(&s);
    return status;
}

static void test_truncated(void **state)
{
    wf_ctx *ctx = *state;
    size_t size;
    uint8_t *bytes = make_bytes(ctx, &size);
    wt_ok(ctx, read_all(ctx, bytes, size));
    for (size_t n = 0; n < size; n++) {
        /* Exact size, so that AddressSanitizer sees a read past the end. */
        uint8_t *part = malloc(n + 1);
        assert_non_null(part);
        memcpy(part, bytes, n);
        wt_fails(ctx, read_all(ctx, part, n), WF_ERR_FORMAT,
                 n < 8                 ? "is not a shard"
                 : n < WF_SHARD_HEADER ? "ends within its header"
                                       : "instead of");
        free(part);
    }
    uint8_t *more = realloc(bytes, size + 1);
    assert_non_null(more);
    more[size] = 0;
    wt_fails(ctx, read_all(ctx, more, size + 1), WF_ERR_FORMAT, "instead of");
    free(more);
}

static void test_flipped(void **state)
{
    wf_ctx *ctx = *state;
    size_t size;
    uint8_t *bytes = make_bytes(ctx, &size);
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            bytes[i] ^= (uint8_t)(1 << bit);
            wf_status status = read_all(ctx, bytes, size);
            assert_true(status == WF_ERR_FORMAT || status == WF_ERR_UNSUPPORTED);
            assert_true(wt_is_sentence(wf_ctx_message(ctx)));
            bytes[i] ^= (uint8_t)(1 << bit);
        }
    free(bytes);
}

static void put(uint8_t *p, uint64_t x, int bytes)
{
    for (int i = 0; i < bytes; i++)
        p[i] = (uint8_t)(x >> 8 * i);
}

/* Recomputes the checksums, as an attacker would. */
static void seal(uint8_t *bytes, size_t size)
{
    put(bytes + WF_AT_DATA_SUM, wf_checksum(bytes + WF_SHARD_HEADER, size - WF_SHARD_HEADER), 8);
    put(bytes + WF_AT_HEADER_SUM, wf_checksum(bytes, WF_AT_HEADER_SUM), 8);
}

static void test_forged(void **state)
{
    wf_ctx *ctx = *state;
    const size_t starts = WF_SHARD_HEADER + 80, mask = starts + 48;
    const struct {
        size_t at;
        int bytes;
        uint64_t value;
        const char *part;
    } forged[] = {
        {WF_AT_VERSION, 4, 2, "of version 2"},
        {WF_AT_ID_BYTES, 4, 3, "other than 2 and 4"},
        {WF_AT_ID_BYTES, 4, 2, "vocabulary size"},
        {WF_AT_ID_BYTES, 4, 0xFFFFFFFF, "other than 2 and 4"},
        {WF_AT_VOCAB, 8, 0, "vocabulary size"},
        {WF_AT_VOCAB, 8, UINT64_C(1) << 31, "vocabulary size"},
        {WF_AT_VOCAB, 8, UINT64_MAX, "vocabulary size"},
        {WF_AT_VOCAB, 8, 70000, "beyond the vocabulary"},
        {WF_AT_TOKENS, 8, 0, "is empty"},
        {WF_AT_TOKENS, 8, UINT64_MAX, "is empty"},
        {WF_AT_TOKENS, 8, INT64_MAX, "offsets that do not match"},
        {WF_AT_TOKENS, 8, UINT64_C(1) << 60, "offsets that do not match"},
        {WF_AT_TOKENS, 8, UINT64_C(1) << 62, "offsets that do not match"},
        {WF_AT_TOKENS, 8, 21, "offsets that do not match"},
        {WF_AT_DOCUMENTS, 8, 0, "is empty"},
        {WF_AT_DOCUMENTS, 8, 21, "inconsistent"},
        {WF_AT_DOCUMENTS, 8, UINT64_MAX, "is empty"},
        {WF_AT_DOCUMENTS, 8, 4, "offsets that do not match"},
        {WF_AT_BYTES, 8, UINT64_MAX, "inconsistent"},
        {WF_AT_COUNTED, 8, 21, "inconsistent"},
        {WF_AT_COUNTED, 8, UINT64_MAX, "inconsistent"},
        {WF_AT_COUNTED, 8, 6, "does not match its number of tokens"},
        {WF_AT_FLAGS, 4, 0, "inconsistent"},
        {WF_AT_FLAGS, 4, 3, "flags that this version does not support"},
        {WF_AT_FLAGS + 4, 4, 1, "flags that this version does not support"},
        {WF_AT_ZEROS, 8, 1, "flags that this version does not support"},
        {WF_AT_ZEROS + 8, 8, 1, "flags that this version does not support"},
        {WF_AT_IDS, 8, 0, "offsets that do not match"},
        {WF_AT_STARTS, 8, UINT64_MAX, "offsets that do not match"},
        {WF_AT_MASK, 8, 0, "offsets that do not match"},
        {WF_AT_SIZE, 8, 1, "offsets that do not match"},
        {WF_SHARD_HEADER, 4, 70001, "beyond the vocabulary"},
        {WF_SHARD_HEADER + 76, 4, UINT32_MAX, "beyond the vocabulary"},
        {starts, 8, 1, "are not in order"},
        {starts + 8, 8, 5, "are not in order"},
        {starts + 8, 8, 0, "are not in order"},
        {starts + 16, 8, UINT64_MAX, "are not in order"},
        {starts + 40, 8, 19, "are not in order"},
        {starts + 40, 8, 21, "are not in order"},
        {mask, 1, 0xFF, "does not match its number of tokens"},
        {mask + 2, 1, 0xF4, "does not match its number of tokens"}, /* after the last token */
    };
    size_t size;
    uint8_t *bytes = make_bytes(ctx, &size), *copy = malloc(size);
    assert_non_null(copy);
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        memcpy(copy, bytes, size);
        put(copy + forged[i].at, forged[i].value, forged[i].bytes);
        seal(copy, size);
        wt_fails(ctx, read_all(ctx, copy, size),
                 forged[i].at == WF_AT_VERSION ? WF_ERR_UNSUPPORTED : WF_ERR_FORMAT,
                 forged[i].part);
    }
    memcpy(copy, bytes, size); /* the same number of marks, one of them after the last token */
    copy[mask] &= 0xFE;
    copy[mask + 2] |= 0x10;
    seal(copy, size);
    wt_fails(ctx, read_all(ctx, copy, size), WF_ERR_FORMAT, "does not match its number of tokens");
    free(bytes);
    free(copy);
}

/* ---- Hostile folders ---- */

static void fails_after(wf_ctx *ctx, const char *folder, const char *command, wf_status wanted,
                        const char *part)
{
    char line[1024];
    wf_data *d;
    snprintf(line, sizeof line, "cd '%s' && rm -rf ../copy && cp -r . ../copy && cd ../copy && %s",
             folder, command);
    assert_int_equal(system(line), 0);
    char copy[700];
    snprintf(copy, sizeof copy, "%s/../copy", folder);
    wt_fails(ctx, wf_data_open(ctx, copy, &d), wanted, part);
}

static void test_folder(void **state)
{
    wf_ctx *ctx = *state;
    char folder[600];
    wt_texts t = wt_texts_random(wt_seed(), 30, 20, 300, 299, false);
    wf_data *d;
    wf_data_info info;
    snprintf(folder, sizeof folder, "%s", wt_data_write(ctx, &scratch, "data", 300, &t, &t, 10));
    wt_ok(ctx, wf_data_open(ctx, folder, &d));
    wf_data_get_info(d, WF_SPLIT_VALID, &info);
    assert_int_equal(info.tokens, t.start[30]);
    assert_int_equal(info.documents, 30);
    assert_int_equal(info.counted, info.tokens);
    assert_int_equal(wf_tokenizer_count(wf_data_tokenizer(d)), 300);
    assert_null(wf_data_chat_template(d));
    uint64_t identity = wf_data_identity(d);
    wf_data_close(d);
    wt_ok(ctx, wf_data_open(ctx, folder, &d));
    assert_true(wf_data_identity(d) == identity);
    wf_data_close(d);

    static const struct {
        const char *command;
        wf_status status;
        const char *part;
    } bad[] = {
        {"rm data.json", WF_ERR_IO, "data.json is missing"},
        {"echo '{' >data.json", WF_ERR_FORMAT, "data.json"},
        {"echo '{}' >data.json", WF_ERR_FORMAT, "does not describe training data"},
        {"sed -i 's/\"version\": 1/\"version\": 7/' data.json", WF_ERR_UNSUPPORTED, "version"},
        {"sed -i 's/\"vocab\": 300/\"vocab\": 301/' data.json", WF_ERR_FORMAT, "is not the shard"},
        {"sed -i 's/\"vocab\": 300/\"vocab\": -1/' data.json", WF_ERR_FORMAT,
         "invalid vocabulary size, id width or end token"},
        {"sed -i 's/\"end\": 299/\"end\": 300/' data.json", WF_ERR_FORMAT,
         "invalid vocabulary size, id width or end token"},
        {"sed -i 's/train-00000/..\\/x/' data.json", WF_ERR_FORMAT, "invalid name"},
        {"sed -i 's/\"tokens\": [0-9]*,/\"tokens\": 1e30,/' data.json", WF_ERR_FORMAT,
         "invalid name, count"},
        {"sed -i 's/\"documents\": 10/\"documents\": 11/' data.json", WF_ERR_FORMAT,
         "is not the shard"},
        {"sed -i 's/\"shards\"/\"shard\"/' data.json", WF_ERR_FORMAT, "no list of"},
        {"rm train-00001.weft", WF_ERR_IO, "train-00001.weft"},
        {"cp train-00001.weft train-00000.weft", WF_ERR_FORMAT, "is not the shard"},
        {"truncate -s -1 valid-00002.weft", WF_ERR_FORMAT, "instead of"},
        {"truncate -s 0 train-00000.weft", WF_ERR_FORMAT, "is not a shard"},
        {"printf x | dd of=valid-00001.weft bs=1 seek=140 conv=notrunc 2>/dev/null", WF_ERR_FORMAT,
         "checksum differs"},
        {"rm tokenizer.json", WF_ERR_IO, "tokenizer.json"},
        {"echo >>tokenizer.json", WF_ERR_FORMAT, "is not the tokenizer"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        fails_after(ctx, folder, bad[i].command, bad[i].status, bad[i].part);
    wt_texts_free(&t);
}

/* Every allocation fails in turn. */
static void test_memory(void **state)
{
    wf_ctx *ctx = *state;
    char folder[600];
    wt_texts t = wt_texts_random(wt_seed(), 6, 9, 300, 299, true);
    snprintf(folder, sizeof folder, "%s", wt_data_write(ctx, &scratch, "data", 300, &t, &t, 3));
    const wf_loader_options o = {.batch = 2, .length = 4};
    bool done = false;
    for (uint64_t n = 1; !done; n++) {
        wf_data *d = NULL;
        wf_loader *l = NULL;
        uint64_t before = wt_live_blocks(ctx);
        wf_ctx_fail_allocation(ctx, n);
        wf_status status = wf_data_open(ctx, folder, &d);
        if (status == WF_OK)
            status = wf_loader_new(d, WF_SPLIT_TRAIN, &o, &l);
        done = status == WF_OK;
        assert_true(done || status == WF_ERR_MEMORY);
        wf_ctx_fail_allocation(ctx, 0);
        wf_loader_free(l);
        wf_data_close(d);
        assert_true(wt_live_blocks(ctx) == before);
        if (n > 300)
            n += 37; /* the tokenizer's allocations are tested elsewhere */
    }
    wt_texts_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_round_trip, begin, end),
        cmocka_unit_test_setup_teardown(test_abandoned, begin, end),
        cmocka_unit_test_setup_teardown(test_truncated, begin, end),
        cmocka_unit_test_setup_teardown(test_flipped, begin, end),
        cmocka_unit_test_setup_teardown(test_forged, begin, end),
        cmocka_unit_test_setup_teardown(test_folder, begin, end),
        cmocka_unit_test_setup_teardown(test_memory, begin, end),
    };
    return cmocka_run_group_tests_name("shard", tests, NULL, NULL);
}
