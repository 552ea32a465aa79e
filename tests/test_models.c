/* SPDX-License-Identifier: MIT */
/* test_models.c - every model family matches transformers in logits and greedy tokens, with any
 * chunking, batching and reuse of the cache. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "infer/pages.h"
#include "model_fixture.h"
#include "pjrt_support.h"
#include "support.h"

#define LOGITS_BOUND 1e-5 /* relative to the largest logit, as in test_parity.c */

/* Compares the logits and 64 greedy tokens of a model with the transformers recording of the
 * checkpoint `name`. */
static void compare(wf_ctx *ctx, const char *device, const char *path, const char *name,
                    const wf_engine_options *options, double bound)
{
    wt_reference r;
    wt_reference_read(name, &r);
    wf_engine_options o = options ? *options : (wf_engine_options){0};
    o.kv = WF_KV_F32;
    if (o.context ==
        0) /* of all divisors of longrope, a context takes the short or the long ones */
        o.context = (int64_t)(r.prompt_count + r.greedy_count);
    wt_talker t = wt_talker_open(ctx, device, path ? path : r.path, &o);
    wf_model_info info;
    wf_model_get_info(t.model, &info);
    assert_int_equal(info.vocab, r.vocab);
    float *logits = wt_logits(ctx, t.engine, r.prompt, r.prompt_count, r.vocab);
    double error = wt_relative(logits, r.logits, (int64_t)r.prompt_count * r.vocab);
    print_message("%-10s on %-5s logits within %.1e\n", name, device, error);
    assert_true(error <= bound);
    int32_t *ids = malloc(r.greedy_count * sizeof *ids);
    wt_greedy(ctx, t.engine, r.prompt, r.prompt_count, ids, r.greedy_count);
    assert_memory_equal(ids, r.greedy, r.greedy_count * sizeof *ids);
    free(ids);
    free(logits);
    wt_talker_close(&t);
    wt_reference_free(&r);
}

static void families_agree_with_transformers(void **state)
{
    for (int i = 0; wt_models[i]; i++)
        compare(*state, "cpu", NULL, wt_models[i], NULL, LOGITS_BOUND);
}

/* The check device runs nodes in random order on poisoned memory: a wrong plan of a step changes
 * results. */
static void families_on_check(void **state)
{
    for (int i = 0; wt_models[i]; i++)
        compare(*state, "check", NULL, wt_models[i], NULL, LOGITS_BOUND);
}

/* The families on the device in WEFT_MODELS_DEVICE, with few sizes, because plugins compile slowly.
 * WEFT_MODELS_SHARE=N: every Nth checkpoint; the seed chooses the first. */
static void families_on_the_device_named(void **state)
{
    const wf_engine_options options = {.chunk = 8, .compute = WF_F32};
    const char *share = getenv("WEFT_MODELS_SHARE");
    const int step = share ? atoi(share) : 1;
    const int first = (int)(wt_seed() % (uint64_t)step);
    for (int i = 0; wt_models[i]; i++)
        if (i % step == first)
            compare(*state, getenv("WEFT_MODELS_DEVICE"), NULL, wt_models[i], &options,
                    LOGITS_BOUND);
}

/* Prompt chunks of any size and partly filled pages do not change the text. Sanitized builds take
 * every fourth pair of model and size (wt_cases). */
static void chunks_of_any_size(void **state)
{
    enum { SIZES = 5 };
    static const int64_t chunks[SIZES] = {1, 7, 16, 23, 64};
    const int step = wt_cases(SIZES) < SIZES ? 4 : 1;
    const int first = (int)(wt_seed() % (uint64_t)step);
    for (int i = 0; wt_models[i / SIZES]; i++) {
        const wf_engine_options options = {.chunk = chunks[i % SIZES]};
        if (i % step == first)
            compare(*state, "cpu", NULL, wt_models[i / SIZES], &options, LOGITS_BOUND);
    }
}

/* Both models have heads of whole blocks of q8_0. */
static void narrow_keys_and_values(void **state)
{
    wf_ctx *ctx = *state;
    static const struct {
        const char *name;
        wf_kv kv;
        const char *type;
        double bound;
    } rows[] = {{"llama", WF_KV_F16, "f16", 2e-3},   {"llama", WF_KV_BF16, "bf16", 1e-2},
                {"llama", WF_KV_Q8_0, "q8_0", 3e-2}, {"qwen3", WF_KV_F16, "f16", 2e-3},
                {"qwen3", WF_KV_BF16, "bf16", 1e-2}, {"qwen3", WF_KV_Q8_0, "q8_0", 3e-2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const wf_engine_options options = {.kv = rows[i].kv};
        wt_reference r;
        wt_reference_read(rows[i].name, &r);
        wt_talker t = wt_talker_open(ctx, "cpu", r.path, &options);
        float *logits = wt_logits(ctx, t.engine, r.prompt, r.prompt_count, r.vocab);
        double error = wt_relative(logits, r.logits, (int64_t)r.prompt_count * r.vocab);
        print_message("%s, keys and values in %s: logits within %.1e\n", rows[i].name, rows[i].type,
                      error);
        assert_true(error <= rows[i].bound && error > 0);
        free(logits);
        wt_talker_close(&t);
        wt_reference_free(&r);
    }
}

/* ---- Several sequences at once ---- */

enum { TOGETHER = 5, TOKENS = 20 };

static void alone(wf_ctx *ctx, const wt_reference *r, const size_t *begin,
                  const wf_request *request, int32_t out[TOGETHER][TOKENS])
{
    wt_talker t = wt_talker_open(ctx, "cpu", r->path, NULL);
    for (int i = 0; i < TOGETHER; i++) {
        wf_sequence *s;
        bool busy = true;
        wf_request own = *request;
        own.sampling.seed += (uint64_t)i;
        wt_ok(ctx, wf_engine_submit(t.engine, r->prompt + begin[i], r->prompt_count - begin[i],
                                    &own, &s));
        while (busy)
            wt_ok(ctx, wf_engine_step(t.engine, &busy));
        size_t count, prompt;
        const int32_t *ids = wf_sequence_tokens(s, &count, &prompt);
        assert_int_equal(count - prompt, TOKENS);
        memcpy(out[i], ids + prompt, sizeof out[i]);
        wf_sequence_free(s);
    }
    wt_talker_close(&t);
}

/* Sequences of different lengths, some started later, produce the same text as alone. */
static void sequences_do_not_disturb_each_other(void **state)
{
    wf_ctx *ctx = *state;
    const size_t begin[TOGETHER] = {0, 5, 23, 11, 20};
    const wf_request requests[] = {
        {.limit = TOKENS, .ignore_end = true},
        {.limit = TOKENS,
         .ignore_end = true,
         .sampling = {.temperature = 1, .top_k = 20, .seed = 7, .repeat_penalty = 1.2}}};
    for (size_t k = 0; k < sizeof requests / sizeof *requests; k++) {
        int32_t want[TOGETHER][TOKENS];
        wf_sequence *s[TOGETHER] = {0};
        wt_reference r;
        wt_reference_read("llama", &r);
        alone(ctx, &r, begin, &requests[k], want);
        const wf_engine_options options = {.sequences = TOGETHER, .chunk = 16, .kv = WF_KV_F32};
        wt_talker t = wt_talker_open(ctx, "cpu", r.path, &options);
        bool busy = true;
        for (int step = 0; busy || step <= 2 * (TOGETHER - 1); step++) {
            int i = step / 2;
            wf_request own = requests[k];
            own.sampling.seed += (uint64_t)i;
            if (step % 2 == 0 && i < TOGETHER)
                wt_ok(ctx, wf_engine_submit(t.engine, r.prompt + begin[i],
                                            r.prompt_count - begin[i], &own, &s[i]));
            wt_ok(ctx, wf_engine_step(t.engine, &busy));
        }
        for (int i = 0; i < TOGETHER; i++) {
            size_t count, prompt;
            const int32_t *ids = wf_sequence_tokens(s[i], &count, &prompt);
            assert_int_equal(count - prompt, TOKENS);
            assert_memory_equal(ids + prompt, want[i], sizeof want[i]);
            wf_sequence_free(s[i]);
        }
        wf_engine_stats stats;
        wf_engine_get_stats(t.engine, &stats);
        assert_int_equal(stats.pages_used, 0);
        wt_talker_close(&t);
        wt_reference_free(&r);
    }
}

/* Runs a request and compares its eight tokens. Returns how many tokens of the prompt were reused. */
static size_t continues_with(const wt_talker *t, const int32_t *ids, size_t count,
                             const int32_t *want)
{
    enum { NEW = 8 };
    const wf_request request = {.limit = NEW, .ignore_end = true};
    wf_sequence *s;
    wt_ok(t->ctx, wf_engine_submit(t->engine, ids, count, &request, &s));
    for (bool busy = true; busy;)
        wt_ok(t->ctx, wf_engine_step(t->engine, &busy));
    size_t total, prompt, reused = wf_sequence_reused(s);
    const int32_t *all = wf_sequence_tokens(s, &total, &prompt);
    assert_int_equal(prompt, count);
    assert_int_equal(total, count + NEW);
    assert_memory_equal(all, ids, count * sizeof *ids);
    assert_memory_equal(all + prompt, want, NEW * sizeof *want);
    wf_sequence_free(s);
    return reused;
}

/* A prompt reuses the full pages of its beginning, computes only the other tokens, and is continued
 * alike. */
static void later_sequences_reuse_their_beginning(void **state)
{
    wf_ctx *ctx = *state;
    const int64_t page = WF_PAGE_TOKENS;
    wt_reference r;
    wf_engine_stats stats;
    int32_t ids[128];
    wt_reference_read("llama", &r); /* no window: every prefix stays in the cache */
    const int64_t n = (int64_t)r.prompt_count;
    assert_true(n > page && n + 8 <= 128);
    wt_talker t = wt_talker_open(ctx, "cpu", r.path, NULL);
    wf_sequence *s;
    const wf_request one = {.limit = 1};
    wt_ok(ctx, wf_engine_submit(t.engine, r.prompt, 10, &one, &s)); /* less than a page */
    wt_ok(ctx, wf_engine_step(t.engine, NULL));
    wf_sequence_free(s);
    assert_int_equal(continues_with(&t, r.prompt, r.prompt_count, r.greedy), 0);
    wf_engine_get_stats(t.engine, &stats);
    assert_int_equal(stats.prompt_tokens, 10 + n - 2); /* a prompt's last token is not counted */
    /* the same prompt again: at least its last token is computed */
    const int64_t again = (n - 1) / page * page;
    assert_int_equal(continues_with(&t, r.prompt, r.prompt_count, r.greedy), again);
    wf_engine_get_stats(t.engine, &stats);
    assert_int_equal(stats.reused_tokens, again);
    assert_int_equal(stats.prompt_tokens, 10 + n - 2 + n - 1 - again);
    /* with its answer, whose last token was never computed */
    memcpy(ids, r.prompt, (size_t)n * sizeof *ids);
    memcpy(ids + n, r.greedy, 8 * sizeof *ids);
    const int64_t longer = (n + 7) / page * page;
    assert_int_equal(continues_with(&t, ids, (size_t)n + 8, r.greedy + 8), longer);
    wf_engine_get_stats(t.engine, &stats);
    assert_int_equal(stats.reused_tokens, again + longer);
    wt_talker_close(&t);
    /* without reuse */
    const wf_engine_options none = {.kv = WF_KV_F32, .no_reuse = true};
    t = wt_talker_open(ctx, "cpu", r.path, &none);
    for (int i = 0; i < 2; i++)
        assert_int_equal(continues_with(&t, r.prompt, r.prompt_count, r.greedy), 0);
    wt_talker_close(&t);
    wt_reference_free(&r);
}

/* A sequence that fails ends without disturbing the one beside it. */
static void failed_sequence_leaves_the_others(void **state)
{
    wf_ctx *ctx = *state;
    wt_reference r;
    wt_reference_read("llama", &r);
    const wf_engine_options options = {.sequences = 2, .kv = WF_KV_F32};
    wt_talker t = wt_talker_open(ctx, "cpu", r.path, &options);
    wf_logit_bias *none = malloc((size_t)r.vocab * sizeof *none);
    for (int32_t i = 0; i < r.vocab; i++)
        none[i] = (wf_logit_bias){.token = i, .bias = -INFINITY};
    const wf_request bad = {.sampling = {.bias = none, .biases = (int)r.vocab}};
    const wf_request good = {.limit = 8, .ignore_end = true};
    wf_sequence *s[2];
    size_t count, prompt;
    bool busy = true;
    wt_ok(ctx, wf_engine_submit(t.engine, r.prompt, 5, &bad, &s[0]));
    wt_ok(ctx, wf_engine_submit(t.engine, r.prompt, r.prompt_count, &good, &s[1]));
    wf_status status;
    wt_ok(ctx, wf_engine_step(t.engine, &busy));
    assert_true(busy);
    assert_int_equal(wf_sequence_stop(s[0]), WF_STOP_ERROR);
    assert_non_null(strstr(wf_sequence_error(s[0], &status), "no token can follow"));
    assert_int_equal(status, WF_ERR_DEVICE);
    wf_sequence_tokens(s[0], &count, &prompt);
    assert_int_equal(count, prompt);
    assert_int_equal(wf_sequence_stop(s[1]), WF_UNFINISHED);
    assert_string_equal(wf_sequence_error(s[1], &status), "");
    assert_int_equal(status, WF_OK);
    for (int steps = 0; busy; steps++) {
        assert_true(steps < 20);
        wt_ok(ctx, wf_engine_step(t.engine, &busy));
    }
    const int32_t *ids = wf_sequence_tokens(s[1], &count, &prompt);
    assert_int_equal(count - prompt, 8);
    assert_memory_equal(ids + prompt, r.greedy, 8 * sizeof *ids);
    for (int i = 0; i < 2; i++)
        wf_sequence_free(s[i]);
    free(none);
    wt_talker_close(&t);
    wt_reference_free(&r);
}

/* A greedy decode step transfers ids, not logits, when the caller asks for no logits. */
static void greedy_steps_move_ids(void **state)
{
    wf_ctx *ctx = *state;
    wt_reference r;
    wt_reference_read("llama", &r);
    wt_talker t = wt_talker_open(ctx, "cpu", r.path, NULL);
    int32_t ids[16];
    wf_engine_stats before, after;
    wf_engine_get_stats(t.engine, &before);
    wt_greedy(ctx, t.engine, r.prompt, r.prompt_count, ids, 16);
    wf_engine_get_stats(t.engine, &after);
    assert_int_equal(after.bytes_out - before.bytes_out, 16 * (sizeof(int32_t) + sizeof(float)));
    assert_int_equal(after.prompt_tokens, r.prompt_count - 1);
    assert_int_equal(after.tokens, 16);
    wt_talker_close(&t);
    wt_reference_free(&r);
}

/* ---- Ends and mistakes ---- */

static void a_full_context_ends_the_text(void **state)
{
    wf_ctx *ctx = *state;
    wt_reference r;
    wt_reference_read("llama", &r);
    const wf_engine_options options = {.context = 30, .kv = WF_KV_F32};
    wt_talker t = wt_talker_open(ctx, "cpu", r.path, &options);
    const wf_request request = {.ignore_end = true};
    wf_sequence *s, *other;
    bool busy = true;
    wt_ok(ctx, wf_engine_submit(t.engine, r.prompt, r.prompt_count, &request, &s));
    wt_ok(ctx, wf_engine_submit(t.engine, r.prompt, 3, NULL, &other)); /* waits for the first */
    while (wf_sequence_stop(s) == WF_UNFINISHED) {
        size_t n;
        wt_ok(ctx, wf_engine_step(t.engine, &busy));
        assert_true(busy);
        wf_sequence_tokens(other, &n, NULL);
        assert_int_equal(n, 3);
    }
    wf_sequence_free(other);
    for (busy = true; busy;)
        wt_ok(ctx, wf_engine_step(t.engine, &busy));
    size_t count, prompt, bytes;
    assert_int_equal(wf_sequence_stop(s), WF_STOP_CONTEXT);
    const int32_t *ids = wf_sequence_tokens(s, &count, &prompt);
    assert_int_equal(count, 30);
    /* the text has exactly the tokens generated */
    char *want;
    wt_ok(ctx, wf_tokenizer_decode(wf_model_tokenizer(t.model), ctx, ids + prompt, count - prompt,
                                   0, &want, &bytes));
    assert_string_equal(wf_sequence_text(s, NULL), want);
    wf_text_free(ctx, want);
    int32_t many[31] = {0};
    /* a prompt that leaves no room for a token */
    wf_sequence_free(s);
    wt_ok(ctx, wf_engine_submit(t.engine, many, 30, &request, &s));
    for (busy = true; busy;)
        wt_ok(ctx, wf_engine_step(t.engine, &busy));
    assert_int_equal(wf_sequence_stop(s), WF_STOP_CONTEXT);
    wf_sequence_tokens(s, &count, NULL);
    assert_int_equal(count, 30);
    wf_sequence_text(s, &bytes);
    assert_int_equal(bytes, 0);
    wf_sequence_free(s);
    wt_fails(ctx, wf_engine_submit(t.engine, many, 31, NULL, &s), WF_ERR_USAGE,
             "31 tokens, but the context has only 30");
    wt_fails(ctx, wf_engine_submit(t.engine, many, 0, NULL, &s), WF_ERR_USAGE, "empty");
    many[1] = (int32_t)r.vocab;
    wt_fails(ctx, wf_engine_submit(t.engine, many, 2, NULL, &s), WF_ERR_USAGE, "token 288");
    const wf_request bad[] = {{.limit = -1},
                              {.stop_tokens = 1, .stop_token = &many[1]},
                              {.stops = 1, .stop = (const char *const[]){""}},
                              {.sampling = {.temperature = -1}}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        wt_fails(ctx, wf_engine_submit(t.engine, many, 1, &bad[i], &s), WF_ERR_USAGE, "");
    wt_talker_close(&t);
    wt_reference_free(&r);
}

static void options_out_of_range(void **state)
{
    wf_ctx *ctx = *state;
    static const struct {
        wf_engine_options options;
        const char *part;
    } rows[] = {
        {{.context = 129}, "129"},     {{.context = -1}, "-1"}, {{.sequences = -1}, "-1"},
        {{.sequences = 5000}, "5000"}, {{.chunk = -3}, "-3"},   {{.kv = (wf_kv)4}, "kv is 4"},
        {{.rows = -2}, "-2"},          {{.cache = -5}, "-5"},   {{.step_ms = -1}, "-1"},
    };
    wf_device *device;
    wf_model *model;
    wf_engine *e;
    wt_ok(ctx, wf_device_open(ctx, "cpu", &device));
    wt_ok(ctx, wf_model_open(ctx, WT_MODELS_FOLDER "/gpt2", &model));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        wt_fails(ctx, wf_engine_new(device, model, &rows[i].options, &e), WF_ERR_USAGE,
                 rows[i].part);
    wf_model_close(model);
    wf_device_close(device);
}

/* The argument is a filter pattern for the tests. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        wt_test(families_agree_with_transformers),
        wt_test(families_on_check),
        wt_test(chunks_of_any_size),
        wt_test(narrow_keys_and_values),
        wt_test(sequences_do_not_disturb_each_other),
        wt_test(later_sequences_reuse_their_beginning),
        wt_test(failed_sequence_leaves_the_others),
        wt_test(greedy_steps_move_ids),
        wt_test(a_full_context_ends_the_text),
        wt_test(options_out_of_range),
    };
    const struct CMUnitTest named[] = {wt_test(families_on_the_device_named)};
    const char *other = getenv("WEFT_MODELS_DEVICE");
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    if (!other)
        return cmocka_run_group_tests(tests, NULL, NULL);
    if (!wt_can_open(other))
        return 0;
    return cmocka_run_group_tests(named, wt_cache_setup, wt_cache_teardown);
}
