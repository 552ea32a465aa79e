/* SPDX-License-Identifier: MIT */
/* test_loader.c - compares batches with a slow reimplementation of the rules in data.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/philox.h"
#include "data_fixture.h"
#include "support.h"
#include "train/permute.h"

#define VOCAB 300
#define END (VOCAB - 1)

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

/* ---- The order ---- */

/* A permutation maps [0, n) one to one for any n. */
static void test_permutation(void **state)
{
    (void)state;
    uint64_t seed = wt_seed();
    for (uint64_t n = 1; n < 300; n++) {
        bool seen[300] = {0};
        wf_permutation p = wf_permutation_make(n, seed, n);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t x = wf_permutation_at(&p, i);
            assert_true(x < n);
            assert_false(seen[x]);
            seen[x] = true;
        }
    }
    const uint64_t large[] = {UINT64_C(1) << 32, (UINT64_C(1) << 40) + 12345, INT64_MAX};
    for (int k = 0; k < 3; k++) {
        wf_permutation p = wf_permutation_make(large[k], seed, 0);
        uint64_t low = 0;
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t x = wf_permutation_at(&p, i);
            assert_true(x < large[k]);
            low += x < large[k] / 2;
        }
        assert_in_range(low, 400, 600);
    }
}

/* Neighbours are separated, and passes and seeds differ. */
static void test_shuffled(void **state)
{
    (void)state;
    uint64_t seed = wt_seed();
    int same = 0, neighbours = 0, other = 0;
    wf_permutation a = wf_permutation_make(1000, seed, 0), b = wf_permutation_make(1000, seed, 1),
                   c = wf_permutation_make(1000, seed + 1, 0);
    for (uint64_t i = 0; i < 999; i++) {
        same += wf_permutation_at(&a, i) == wf_permutation_at(&b, i);
        other += wf_permutation_at(&a, i) == wf_permutation_at(&c, i);
        neighbours += wf_permutation_at(&a, i) + 1 == wf_permutation_at(&a, i + 1);
    }
    assert_true(same < 15 && other < 15 && neighbours < 15);
}

/* ---- The expected batch ---- */

typedef struct {
    const wt_texts *t;
    wf_loader_options o;
    int64_t S, rows;
    int64_t pack[4096]; /* with a mask: first document of each row */
    int32_t tokens[4096], targets[4096], positions[4096], starts[4097];
} naive;

/* Returns the training pairs of document d in a row; 0 when a cut document has no answer left. */
static int64_t pairs_of(const naive *n, int64_t d)
{
    const wt_texts *t = n->t;
    int64_t pairs = t->start[d + 1] - t->start[d] - 1, counted = 0;
    if (pairs <= n->o.length)
        return pairs;
    for (int64_t i = 1; i <= n->o.length; i++)
        counted += t->mask[t->start[d] + i];
    return counted ? n->o.length : 0;
}

/* Assigns documents to rows, one after the other, as data.h describes. */
static void naive_plan(naive *n)
{
    const wt_texts *t = n->t;
    int64_t all = t->start[t->documents] - 1;
    n->rows = all / n->o.length + (n->o.in_order && all % n->o.length);
    if (!t->mask)
        return;
    n->rows = 0;
    int64_t used = INT64_MAX / 2, here = 0;
    for (int64_t d = 0; d < t->documents; d++) {
        int64_t pairs = pairs_of(n, d);
        if (pairs == 0)
            continue;
        bool full = n->o.sequences && here == n->o.sequences / n->o.batch;
        if (used + pairs > n->o.length || full) {
            n->pack[n->rows++] = d;
            used = here = 0;
        }
        used += pairs;
        here++;
    }
    n->pack[n->rows] = t->documents;
}

static int64_t document_of(const wt_texts *t, int64_t token)
{
    int64_t d = 0;
    while (t->start[d + 1] <= token)
        d++;
    return d;
}

/* Computes a row. document[i] is the document of token i, -1 for padding. */
static void naive_row(naive *n, int64_t row, int32_t *tokens, int32_t *targets, int64_t *document)
{
    const wt_texts *t = n->t;
    int64_t used = 0, all = t->start[t->documents];
    for (int64_t i = 0; i < n->o.length; i++) {
        tokens[i] = END;
        targets[i] = -100;
        document[i] = -1;
    }
    if (row >= n->rows)
        return;
    if (t->mask) {
        for (int64_t d = n->pack[row]; d < n->pack[row + 1]; d++)
            for (int64_t i = 0, pairs = pairs_of(n, d); i < pairs; i++, used++) {
                tokens[used] = t->ids[t->start[d] + i];
                if (t->mask[t->start[d] + i + 1])
                    targets[used] = t->ids[t->start[d] + i + 1];
                document[used] = d;
            }
        return;
    }
    for (int64_t i = 0; i < n->o.length && row * n->o.length + i + 1 < all; i++) {
        int64_t at = row * n->o.length + i;
        tokens[i] = t->ids[at];
        document[i] = n->o.documents ? document_of(t, at) : 0;
        if (!n->o.documents || document_of(t, at + 1) == document[i])
            targets[i] = t->ids[at + 1];
    }
}

/* Computes the expected batch from the rows of this pass's permutation. */
static void naive_batch(naive *n, int64_t batches, int64_t index)
{
    int64_t B = n->o.batch, T = n->o.length, s = 0;
    wf_permutation p =
        wf_permutation_make((uint64_t)n->rows, n->o.seed, (uint64_t)(index / batches));
    for (int64_t r = 0; r < B; r++) {
        int64_t row = index % batches * B + r, document[4096];
        if (!n->o.in_order && row < n->rows)
            row = (int64_t)wf_permutation_at(&p, (uint64_t)row);
        naive_row(n, row, n->tokens + r * T, n->targets + r * T, document);
        for (int64_t i = 0; i < T; i++) {
            bool fresh = i == 0 || (document[i] >= 0 && document[i] != document[i - 1]);
            if (fresh && (n->t->mask || i == 0 || s + (B - 1 - r) < n->S))
                n->starts[s++] = (int32_t)(r * T + i);
            n->positions[r * T + i] = (int32_t)(r * T + i) - n->starts[s - 1];
        }
    }
    while (s <= n->S)
        n->starts[s++] = (int32_t)(B * T);
}

static void same(const int32_t *got, const int32_t *wanted, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(got[i], wanted[i]);
}

static void check_batch(naive *n, wf_loader *l, int64_t index, wf_ctx *ctx)
{
    const wf_batch *b;
    int64_t tokens = n->o.batch * n->o.length, valid = 0, bytes = 0;
    wt_ok(ctx, wf_loader_get(l, index, &b));
    naive_batch(n, wf_loader_batches(l), index);
    same(b->tokens, n->tokens, tokens);
    same(b->targets, n->targets, tokens);
    same(b->seq_start, n->starts, n->S + 1);
    same(b->positions, n->positions, tokens);
    for (int64_t i = 0; i < tokens; i++)
        if (n->targets[i] >= 0) {
            valid++;
            bytes += n->targets[i] < 256 ? 1 : n->targets[i] < END ? 4 : 0; /* "t256" has 4 bytes */
        }
    assert_int_equal(b->valid, valid);
    assert_int_equal(b->bytes, bytes);
}

/* Reads batches in order, then at random with another loader. */
static void check_loader(wf_ctx *ctx, const wf_data *d, naive *n, wf_rng *rng)
{
    wf_loader *l, *other;
    naive_plan(n);
    int64_t whole = n->rows / n->o.batch, batches = whole + (n->o.in_order && n->rows % n->o.batch);
    if (n->t->mask && batches == 0)
        batches = n->rows > 0;
    if (batches == 0) {
        wt_fails(ctx, wf_loader_new(d, WF_SPLIT_TRAIN, &n->o, &l), WF_ERR_USAGE, "the data has");
        return;
    }
    wt_ok(ctx, wf_loader_new(d, WF_SPLIT_TRAIN, &n->o, &l));
    wt_ok(ctx, wf_loader_new(d, WF_SPLIT_TRAIN, &n->o, &other));
    assert_int_equal(wf_loader_batches(l), batches);
    n->S = wf_loader_sequences(l);
    if (n->o.sequences && (n->o.documents || n->t->mask))
        assert_int_equal(n->S, n->o.sequences); /* the requested number is kept */
    assert_true(n->S >= n->o.batch);
    for (int64_t i = 0; i < 2 * batches + 2 && i < 12; i++)
        check_batch(n, l, i, ctx);
    for (int k = 0; k < 8; k++) {
        int64_t index = (int64_t)wf_rng_below(rng, (uint64_t)(5 * batches));
        check_batch(n, other, index, ctx);
        check_batch(n, other, index + (k & 1), ctx);
    }
    wf_loader_free(l);
    wf_loader_free(other);
}

/* Random data and options: every batch equals the reference's. */
static void test_batches(void **state)
{
    wf_ctx *ctx = *state;
    wf_rng rng;
    static naive n;
    wf_rng_init(&rng, wt_seed(), 0);
    for (int trial = 0; trial < 60; trial++) {
        char name[32];
        bool masked = trial & 1;
        int64_t documents = 1 + (int64_t)wf_rng_below(&rng, 60);
        wt_texts t = wt_texts_random(wt_seed() + (uint64_t)trial, documents,
                                     1 + (int64_t)wf_rng_below(&rng, 40), VOCAB, END, masked);
        snprintf(name, sizeof name, "data%d", trial);
        const char *folder = wt_data_write(ctx, &scratch, name, VOCAB, &t, NULL,
                                           1 + (int64_t)wf_rng_below(&rng, 30));
        wf_data *d;
        wt_ok(ctx, wf_data_open(ctx, folder, &d));
        for (int k = 0; k < 8; k++) {
            n.t = &t;
            n.o = (wf_loader_options){.batch = 1 + (int64_t)wf_rng_below(&rng, 4),
                                      .length = 1 + (int64_t)wf_rng_below(&rng, 24),
                                      .seed = wf_rng_u64(&rng),
                                      .in_order = k & 1,
                                      .documents = k & 2};
            if (k & 4)
                n.o.sequences = n.o.batch + (int64_t)wf_rng_below(&rng, 4);
            check_loader(ctx, d, &n, &rng);
        }
        wf_data_close(d);
        wt_texts_free(&t);
    }
}

/* In order, a pass has every token but the first as a target once. Shuffled, it has the full
 * batches once. */
static void test_pass(void **state)
{
    wf_ctx *ctx = *state;
    wt_texts t = wt_texts_random(wt_seed(), 50, 30, VOCAB, END, false);
    wf_data *d;
    wt_ok(ctx, wf_data_open(ctx, wt_data_write(ctx, &scratch, "pass", VOCAB, &t, NULL, 9), &d));
    int64_t all = t.start[t.documents], seen = 0;
    for (int order = 0; order < 2; order++) {
        const wf_loader_options o = {.batch = 3, .length = 7, .seed = wt_seed(), .in_order = order};
        wf_loader *l;
        int64_t valid = 0;
        uint64_t sum = 0, wanted = 0;
        wt_ok(ctx, wf_loader_new(d, WF_SPLIT_TRAIN, &o, &l));
        for (int64_t i = 0; i < wf_loader_batches(l); i++) {
            const wf_batch *b;
            wt_ok(ctx, wf_loader_get(l, i, &b));
            valid += b->valid;
            for (int k = 0; k < 21; k++)
                sum += b->targets[k] >= 0 ? (uint64_t)b->targets[k] : 0;
        }
        for (int64_t i = 1; i < all; i++)
            wanted += (uint64_t)t.ids[i];
        if (order) {
            assert_int_equal(valid, all - 1);
            assert_true(sum == wanted);
        } else {
            assert_int_equal(valid, (all - 1) / 21 * 21);
        }
        seen += valid;
        wf_loader_free(l);
    }
    assert_true(seen > 0);
    wf_data_close(d);
    wt_texts_free(&t);
}

/* Token ids of four bytes. */
static void test_wide(void **state)
{
    wf_ctx *ctx = *state;
    const int32_t vocab = 70000;
    wt_texts t = wt_texts_random(wt_seed(), 20, 30, vocab, vocab - 1, false);
    wf_data *d;
    wf_loader *l;
    const wf_batch *b;
    wt_ok(ctx, wf_data_open(ctx, wt_data_write(ctx, &scratch, "wide", vocab, &t, &t, 7), &d));
    const wf_loader_options o = {.batch = 1, .length = 50, .in_order = true};
    wt_ok(ctx, wf_loader_new(d, WF_SPLIT_VALID, &o, &l));
    wt_ok(ctx, wf_loader_get(l, 0, &b));
    same(b->tokens, t.ids, 50);
    same(b->targets, t.ids + 1, 50);
    wf_loader_free(l);
    wf_data_close(d);
    wt_texts_free(&t);
}

static void remember(void *user, wf_log_level level, const char *message)
{
    assert_int_equal(level, WF_LOG_WARN);
    snprintf(user, 512, "%s", message);
}

/* Conversations of 10 and 3 tokens in rows of 5: the first one is cut in half. */
static void test_cut(void **state)
{
    wf_ctx *ctx = *state;
    int32_t ids[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, END, 10, 11, END};
    uint8_t mask[] = {0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 1};
    int64_t start[] = {0, 10, 13};
    wt_texts t = {.ids = ids, .mask = mask, .start = start, .documents = 2};
    char said[512] = "";
    wf_data *d;
    wf_loader *l;
    const wf_batch *b;
    wt_ok(ctx, wf_data_open(ctx, wt_data_write(ctx, &scratch, "cut", VOCAB, &t, NULL, 9), &d));
    wf_ctx_set_log(ctx, remember, said);
    const wf_loader_options o = {.batch = 2, .length = 5, .in_order = true};
    wt_ok(ctx, wf_loader_new(d, WF_SPLIT_TRAIN, &o, &l));
    assert_string_equal(said,
                        "conversations longer than 5 tokens, which are cut there: 1 of 2; of these "
                        "without an answer before the cut, which are left out: 0");
    wt_ok(ctx, wf_loader_get(l, 0, &b));
    const int32_t tokens[] = {1, 2, 3, 4, 5, 10, 11, END, END, END},
                  targets[] = {-100, -100, 4, 5, -100, 11, END, -100, -100, -100},
                  starts[] = {0, 5, 10};
    same(b->tokens, tokens, 10);
    same(b->targets, targets, 10);
    same(b->seq_start, starts, 3);
    assert_int_equal(b->valid, 4);
    wf_loader_free(l);
    /* The first two tokens of a conversation have no answer. */
    const wf_loader_options less = {.batch = 1, .length = 2, .in_order = true};
    wt_ok(ctx, wf_loader_new(d, WF_SPLIT_TRAIN, &less, &l));
    assert_string_equal(said,
                        "conversations longer than 2 tokens, which are cut there: 1 of 2; of these "
                        "without an answer before the cut, which are left out: 1");
    assert_int_equal(wf_loader_batches(l), 1);
    wt_ok(ctx, wf_loader_get(l, 0, &b));
    assert_int_equal(b->tokens[0], 10);
    wf_loader_free(l);
    wf_ctx_set_log(ctx, NULL, NULL);
    wf_data_close(d);
}

/* Truncating a shard while it is mapped gives an error, not a signal, whatever is read from it. The
 * document table is at the shard's end; after a partial truncation it reads as zeros. */
static void check_broken(wf_ctx *ctx, const char *name, bool masked, bool documents, off_t left)
{
    wt_texts t = wt_texts_random(wt_seed(), 2000, 30, VOCAB, END, masked);
    char folder[300], path[400];
    wf_data *d;
    wf_loader *l;
    const wf_batch *b;
    snprintf(folder, sizeof folder, "%s",
             wt_data_write(ctx, &scratch, name, VOCAB, &t, NULL, 1000000));
    wf_guard_mapped_files(true);
    wt_ok(ctx, wf_data_open(ctx, folder, &d));
    const wf_loader_options o = {.batch = 2, .length = 32, .documents = documents};
    wt_ok(ctx, wf_loader_new(d, WF_SPLIT_TRAIN, &o, &l));
    wt_ok(ctx, wf_loader_get(l, 0, &b));
    snprintf(path, sizeof path, "%s/train-00000.weft", folder);
    assert_int_equal(truncate(path, left), 0);
    wf_status status = WF_OK; /* the next batch may have been prepared before */
    for (int64_t i = 1; i < 50 && status == WF_OK; i++)
        status = wf_loader_get(l, i, &b);
    wt_fails(ctx, status, WF_ERR_IO, "truncated");
    wf_loader_free(l);
    wf_data_close(d);
    wf_guard_mapped_files(false);
    wt_texts_free(&t);
}

static void test_broken(void **state)
{
    check_broken(*state, "broken", false, false, 0);
    check_broken(*state, "broken-documents", false, true, 0);
    check_broken(*state, "broken-starts", false, true, 40000);
    check_broken(*state, "broken-chat", true, true, 0);
    check_broken(*state, "broken-chat-starts", true, true, 40000);
}

static void test_usage(void **state)
{
    wf_ctx *ctx = *state;
    wt_texts t = wt_texts_random(wt_seed(), 4, 5, VOCAB, END, false);
    wf_data *d;
    wf_loader *l;
    const wf_batch *b;
    wt_ok(ctx, wf_data_open(ctx, wt_data_write(ctx, &scratch, "usage", VOCAB, &t, NULL, 9), &d));
    const struct {
        wf_split split;
        wf_loader_options o;
        const char *part;
    } bad[] = {
        {WF_SPLIT_VALID, {.batch = 1, .length = 1}, "no tokens to validate on"},
        {WF_SPLIT_TRAIN, {.batch = 0, .length = 1}, "batch of 0 rows of 1 token"},
        {WF_SPLIT_TRAIN, {.batch = 1, .length = -1}, "batch of 1 row of -1 tokens"},
        {WF_SPLIT_TRAIN, {.batch = INT64_MAX, .length = 2}, "is not possible"},
        {WF_SPLIT_TRAIN, {.batch = 1 << 20, .length = 1 << 20}, "is not possible"},
        {WF_SPLIT_TRAIN, {.batch = 8, .length = 8}, "one batch of 8 x 8 needs 65"},
        {WF_SPLIT_TRAIN,
         {.batch = 2, .length = 1, .documents = true, .sequences = 1},
         "needs more than 1 sequence"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        wt_fails(ctx, wf_loader_new(d, bad[i].split, &bad[i].o, &l), WF_ERR_USAGE, bad[i].part);
    const wf_loader_options o = {.batch = 1, .length = 1};
    wt_ok(ctx, wf_loader_new(d, WF_SPLIT_TRAIN, &o, &l));
    wt_fails(ctx, wf_loader_get(l, -1, &b), WF_ERR_USAGE, "batch number -1");
    wt_ok(ctx, wf_loader_get(l, INT64_MAX - 1, &b));
    wf_loader_free(l);
    wf_data_close(d);
    wt_texts_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_permutation),
        cmocka_unit_test(test_shuffled),
        cmocka_unit_test_setup_teardown(test_batches, begin, end),
        cmocka_unit_test_setup_teardown(test_pass, begin, end),
        cmocka_unit_test_setup_teardown(test_wide, begin, end),
        cmocka_unit_test_setup_teardown(test_cut, begin, end),
        cmocka_unit_test_setup_teardown(test_broken, begin, end),
        cmocka_unit_test_setup_teardown(test_usage, begin, end),
    };
    return cmocka_run_group_tests_name("loader", tests, NULL, NULL);
}
