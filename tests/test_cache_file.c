/* SPDX-License-Identifier: MIT */
/*
 * test_cache_file.c - keys and values of sequences in files: texts that continue restored ones are
 * not computed again and have the same answers; files of other engines and damaged files are refused
 * and change nothing.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/philox.h"
#include "infer/engine.h"
#include "model_fixture.h"
#include "support.h"

#define WHOLE WT_MODELS_FOLDER "/llama"
#define WINDOWS WT_MODELS_FOLDER "/mistral" /* windows in all layers */
#define MIXED WT_MODELS_FOLDER "/olmo3"     /* windows, and a layer without */
#define OTHER WT_MODELS_FOLDER "/gpt2"

enum { TEXT = 100, SAVED = TEXT / WF_PAGE_TOKENS * WF_PAGE_TOKENS, NEW = 12 };

static char path[64];
static int32_t text[TEXT]; /* the sequence that is saved has the first tokens */

static int begin(void **state)
{
    snprintf(path, sizeof path, "cache_file-%d.tmp", (int)getpid());
    remove(path);
    for (int i = 0; i < TEXT; i++)
        text[i] = 3 + i * 11 % 250;
    return wt_setup(state);
}

static int end(void **state)
{
    remove(path);
    return wt_teardown(state);
}

#define file_test(fn) cmocka_unit_test_setup_teardown(fn, begin, end)

/* ---- Helpers ---- */

static void run_all(wf_ctx *ctx, wf_engine *e)
{
    for (bool busy = true; busy;)
        wt_ok(ctx, wf_engine_step(e, &busy));
}

/* Answers the whole text. Returns how many of its tokens were reused. */
static size_t answer(wf_ctx *ctx, wf_engine *e, uint64_t salt, int32_t out[NEW])
{
    const wf_request request = {.limit = NEW, .ignore_end = true, .salt = salt};
    wf_sequence *s;
    size_t count, prompt;
    wt_ok(ctx, wf_engine_submit(e, text, TEXT, &request, &s));
    run_all(ctx, e);
    memcpy(out, wf_sequence_tokens(s, &count, &prompt) + TEXT, NEW * sizeof *out);
    assert_int_equal(count - prompt, NEW);
    size_t reused = wf_sequence_reused(s);
    wf_sequence_free(s);
    return reused;
}

/* Saves the first SAVED tokens. */
static void save(wf_ctx *ctx, const char *model, const wf_engine_options *options, uint64_t salt)
{
    wt_talker t = wt_talker_open(ctx, "cpu:2", model, options);
    wf_sequence *s;
    wt_ok(ctx,
          wf_engine_submit(t.engine, text, SAVED + 1, &(wf_request){.limit = 1, .salt = salt}, &s));
    wt_fails(ctx, wf_sequence_save(s, path), WF_ERR_USAGE, "97 tokens can be saved");
    run_all(ctx, t.engine);
    wt_ok(ctx, wf_sequence_save(s, path));
    wt_fails(ctx, wf_sequence_save(s, path), WF_ERR_USAGE, "exists");
    wf_sequence_free(s);
    wt_talker_close(&t);
}

/* Fails unless the engine refuses the file and holds no page of it. */
static void refuses(wf_ctx *ctx, wf_engine *e, wf_status status, const char *part)
{
    wf_engine_stats stats;
    size_t tokens = 1;
    wt_fails(ctx, wf_engine_restore(e, path, &tokens), status, part);
    assert_int_equal(tokens, 0);
    wf_engine_get_stats(e, &stats);
    assert_int_equal(stats.pages_used + stats.pages_cached, 0);
}

static char *read_file(size_t *bytes)
{
    static char data[1 << 20];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *bytes = fread(data, 1, sizeof data, f);
    fclose(f);
    assert_true(*bytes < sizeof data);
    return data;
}

static void write_file(const char *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    fclose(f);
}

/* ---- Saving and restoring ---- */

static void check_restored(wf_ctx *ctx, const char *model, wf_kv kv)
{
    const wf_engine_options alone = {.kv = kv, .no_reuse = true}, one = {.kv = kv};
    const wf_engine_options other = {
        .kv = kv, .sequences = 5, .context = 128, .cache = 256, .chunk = 30};
    int32_t want[NEW], got[NEW];
    size_t tokens;
    wt_talker t = wt_talker_open(ctx, "cpu:1", model, &alone);
    answer(ctx, t.engine, 0, want);
    wt_fails(ctx, wf_engine_restore(t.engine, path, &tokens), WF_ERR_USAGE, "no_reuse");
    wt_talker_close(&t);
    save(ctx, model, &one, 7);
    t = wt_talker_open(ctx, "cpu:1", model, &other);
    for (int twice = 0; twice < 2; twice++) {
        wt_ok(ctx, wf_engine_restore(t.engine, path, &tokens));
        assert_int_equal(tokens, SAVED);
    }
    assert_int_equal(answer(ctx, t.engine, 8, got), 0); /* another salt */
    assert_memory_equal(got, want, sizeof want);
    assert_int_equal(answer(ctx, t.engine, 7, got), SAVED);
    assert_memory_equal(got, want, sizeof want);
    wt_ok(ctx, wf_engine_restore(t.engine, path, NULL)); /* joins the pages that exist */
    assert_int_equal(answer(ctx, t.engine, 7, got), SAVED);
    assert_memory_equal(got, want, sizeof want);
    wf_engine_stats stats;
    wf_engine_get_stats(t.engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    wt_talker_close(&t);
    remove(path);
}

/* Engines of other sizes restore the file; the answer is that of an engine without reuse. */
static void restored(void **state)
{
    static const char *const models[] = {WHOLE, WINDOWS, MIXED, OTHER};
    static const wf_kv types[] = {WF_KV_F16, WF_KV_BF16, WF_KV_F32};
    for (int m = 0; m < 4; m++)
        for (int k = 0; k < 3; k++)
            check_restored(*state, models[m], types[k]);
    check_restored(*state, WHOLE, WF_KV_Q8_0); /* its heads are whole blocks */
}

/* A sequence is saved while it runs; another one continues. */
static void saved_while_running(void **state)
{
    const wf_engine_options options = {.sequences = 2, .chunk = 40};
    wt_talker t = wt_talker_open(*state, "cpu:1", MIXED, &options);
    int32_t want[NEW], got[NEW];
    size_t count, prompt, tokens;
    wf_sequence *s[2];
    answer(*state, t.engine, 1, want);
    for (int i = 0; i < 2; i++)
        wt_ok(*state, wf_engine_submit(t.engine, text + i, (size_t)(TEXT - i),
                                       &(wf_request){.limit = NEW, .ignore_end = true}, &s[i]));
    for (int i = 0; i < 6; i++)
        wt_ok(*state, wf_engine_step(t.engine, NULL));
    assert_int_equal(wf_sequence_stop(s[0]), WF_UNFINISHED);
    wt_ok(*state, wf_sequence_save(s[0], path));
    wt_ok(*state, wf_engine_restore(t.engine, path, &tokens));
    run_all(*state, t.engine);
    memcpy(got, wf_sequence_tokens(s[0], &count, &prompt) + TEXT, sizeof got);
    assert_memory_equal(got, want, sizeof want);
    for (int i = 0; i < 2; i++)
        wf_sequence_free(s[i]);
    wt_talker_close(&t);
}

/* ---- Refusals ---- */

static void other_engines(void **state)
{
    const wf_engine_options bf16 = {.kv = WF_KV_BF16}, shorter = {.context = 80},
                            f32 = {.compute = WF_F32},
                            small = {.sequences = 2, .context = 96, .cache = 96};
    save(*state, WHOLE, NULL, 0);
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &bf16);
    refuses(*state, t.engine, WF_ERR_USAGE, "belongs to another model");
    wt_talker_close(&t);
    t = wt_talker_open(*state, "cpu:1", WHOLE, &f32); /* matmuls round no activations */
    refuses(*state, t.engine, WF_ERR_USAGE, "compute type");
    wt_talker_close(&t);
    remove(path);
    save(*state, WHOLE, &(wf_engine_options){0}, 0);
    t = wt_talker_open(*state, "cpu:1", OTHER, &(wf_engine_options){0});
    refuses(*state, t.engine, WF_ERR_USAGE, "belongs to another model");
    wt_talker_close(&t);
    t = wt_talker_open(*state, "cpu:1", WHOLE, &shorter);
    refuses(*state, t.engine, WF_ERR_USAGE, "96 tokens, but this engine allows 80; use");
    wt_talker_close(&t);

    /* No page is unused while a sequence runs. */
    t = wt_talker_open(*state, "cpu:1", WHOLE, &small);
    wf_sequence *s;
    size_t tokens;
    wt_ok(*state, wf_engine_submit(t.engine, text + 1, 90, &(wf_request){.limit = 2}, &s));
    wt_ok(*state, wf_engine_step(t.engine, NULL));
    wt_fails(*state, wf_engine_restore(t.engine, path, &tokens), WF_ERR_MEMORY,
             "needs 6 pages of 16 tokens, but only 0 are unused");
    run_all(*state, t.engine);
    wf_sequence_free(s);
    wt_ok(*state, wf_engine_restore(t.engine, path, &tokens)); /* the cached pages go */
    assert_int_equal(tokens, SAVED);
    wt_talker_close(&t);
}

/* Files that are cut, or have a changed byte. Only padding may change without a refusal. */
static void damaged(void **state)
{
    const wf_engine_options options = {0};
    wf_rng r;
    size_t bytes, tokens;
    int refused = 0;
    wf_rng_init(&r, wt_seed(), 0);
    save(*state, MIXED, &options, 3);
    char *data = read_file(&bytes);
    wt_talker t = wt_talker_open(*state, "cpu:1", MIXED, &options);
    const int cases = wt_cases(400);
    for (int i = 0; i < cases; i++) {
        size_t at = i % 2 ? wf_rng_below(&r, bytes) : wf_rng_below(&r, 2000 < bytes ? 2000 : bytes);
        char before = data[at];
        const bool cut = i % 5 == 0;
        data[at] = (char)(before ^ (1 << wf_rng_below(&r, 8)));
        write_file(data, cut ? at : bytes);
        data[at] = before;
        wf_ctx_clear(*state);
        if (wf_engine_restore(t.engine, path, &tokens) == WF_OK) {
            assert_true(!cut || at + 32 > bytes); /* the padding at the end is missing */
            wf_prefix_clear(t.engine->prefix);
            continue;
        }
        assert_true(wt_is_sentence(wf_ctx_message(*state)));
        refused++;
    }
    write_file(data, bytes);
    wt_ok(*state, wf_engine_restore(t.engine, path, &tokens));
    wt_talker_close(&t);
    assert_true(refused > cases * 8 / 10);
    write_file("", 0);
    t = wt_talker_open(*state, "cpu:1", MIXED, &options);
    refuses(*state, t.engine, WF_ERR_FORMAT, "");
    remove(path);
    refuses(*state, t.engine, WF_ERR_IO, path);
    wt_talker_close(&t);
}

/* A file that is damaged in its values, or that needs more pages than are unused, evicts no pages
 * of other texts. */
static void keeps_others(void **state)
{
    const wf_engine_options options = {.sequences = 2, .context = 128, .cache = 128};
    size_t bytes;
    int32_t out[NEW];
    wf_engine_stats before, after;
    wf_sequence *s;
    save(*state, WHOLE, &(wf_engine_options){.context = 128}, 3);
    char *data = read_file(&bytes);
    data[bytes / 2] ^= 1;
    write_file(data, bytes);
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    assert_int_equal(answer(*state, t.engine, 0, out), 0);
    wt_fails(*state, wf_engine_restore(t.engine, path, NULL), WF_ERR_FORMAT, "damaged");
    assert_int_equal(answer(*state, t.engine, 0, out), SAVED);

    data[bytes / 2] ^= 1;
    write_file(data, bytes);
    wt_ok(*state, wf_engine_submit(t.engine, text + 1, 40, &(wf_request){.limit = 2}, &s));
    wt_ok(*state, wf_engine_step(t.engine, NULL)); /* 3 of 8 pages */
    wf_engine_get_stats(t.engine, &before);
    assert_true(before.pages_cached > 0);
    wt_fails(*state, wf_engine_restore(t.engine, path, NULL), WF_ERR_MEMORY,
             "needs 6 pages of 16 tokens, but only 5 are unused");
    wf_engine_get_stats(t.engine, &after);
    assert_int_equal(after.pages_cached, before.pages_cached);
    run_all(*state, t.engine);
    wf_sequence_free(s);
    wt_talker_close(&t);
}

/* A prompt that fills the context can be saved, and restored. */
static void full_context(void **state)
{
    enum { CONTEXT = WF_PAGE_TOKENS + 1 };
    const wf_engine_options options = {.context = CONTEXT};
    static const char *const models[] = {WHOLE, WINDOWS, MIXED};
    for (int m = 0; m < 3; m++) {
        size_t tokens;
        for (int twice = 0; twice < 2; twice++) {
            wt_talker t = wt_talker_open(*state, "cpu:1", models[m], &options);
            wf_sequence *s;
            if (twice)
                wt_ok(*state, wf_engine_restore(t.engine, path, &tokens));
            wt_ok(*state, wf_engine_submit(t.engine, text, CONTEXT, NULL, &s));
            run_all(*state, t.engine);
            assert_int_equal(wf_sequence_stop(s), WF_STOP_CONTEXT);
            assert_int_equal(wf_sequence_reused(s), twice ? WF_PAGE_TOKENS : 0);
            if (!twice)
                wt_ok(*state, wf_sequence_save(s, path));
            wf_sequence_free(s);
            wt_talker_close(&t);
        }
        assert_int_equal(tokens, WF_PAGE_TOKENS);
        remove(path);
    }
}

/* Every allocation of saving and restoring fails once. */
static void no_memory(void **state)
{
    const wf_engine_options options = {0};
    wf_ctx *ctx = *state;
    wf_engine_stats stats;
    wf_sequence *s;
    wt_talker t = wt_talker_open(ctx, "cpu:1", MIXED, &options);
    wt_ok(ctx, wf_engine_submit(t.engine, text, SAVED + 1, &(wf_request){.limit = 1}, &s));
    run_all(ctx, t.engine);
    bool failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        remove(path);
        wf_ctx_clear(ctx);
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_sequence_save(s, path);
        failed = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        assert_int_equal(status, failed ? WF_ERR_MEMORY : WF_OK);
        assert_int_equal(access(path, F_OK) == 0, !failed);
    }
    wf_sequence_free(s);
    wt_talker_close(&t);
    t = wt_talker_open(ctx, "cpu:1", MIXED, &options);
    failed = true;
    for (uint64_t nth = 1; failed; nth++) {
        wf_ctx_clear(ctx);
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_engine_restore(t.engine, path, NULL);
        failed = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        assert_int_equal(status, failed ? WF_ERR_MEMORY : WF_OK);
        wf_engine_get_stats(t.engine, &stats);
        assert_int_equal(stats.pages_used, 0);
        assert_int_equal(stats.pages_cached > 0, !failed);
    }
    wt_talker_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        file_test(restored),  file_test(saved_while_running), file_test(other_engines),
        file_test(damaged),   file_test(keeps_others),        file_test(full_context),
        file_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
