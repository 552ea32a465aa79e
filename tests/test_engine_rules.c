/* SPDX-License-Identifier: MIT */
/*
 * test_engine_rules.c - an engine's scheduling, limits and failures: order of requests, shared
 * beginnings, cancelling, tiny pools, NaN, memory that runs out, and many requests.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "infer/engine.h"
#include "model_fixture.h"
#include "support.h"

#define WHOLE WT_MODELS_FOLDER "/llama"   /* one layer that sees its whole context */
#define WINDOWS WT_MODELS_FOLDER "/olmo3" /* windows, and a layer without */
#define ALL_WINDOWS WT_MODELS_FOLDER "/mistral"
#define LONG WT_MODELS_FOLDER "/phi3-short"    /* a context of 1024 tokens */
#define LONGROPE WT_MODELS_FOLDER "/phi3-long" /* frequencies depend on the context */

static int32_t text[128]; /* tokens of the fixtures' vocabulary */

static int fill_text(void **state)
{
    for (int i = 0; i < 128; i++)
        text[i] = 3 + i * 7 % 250;
    return wt_setup(state);
}

#define engine_test(fn) cmocka_unit_test_setup_teardown(fn, fill_text, wt_teardown)

static wf_engine_stats stats_of(const wf_engine *e)
{
    wf_engine_stats s;
    wf_engine_get_stats(e, &s);
    return s;
}

static void run_all(wf_ctx *ctx, wf_engine *e)
{
    for (bool busy = true; busy;)
        wt_ok(ctx, wf_engine_step(e, &busy));
}

static wf_sequence *submit(wf_ctx *ctx, wf_engine *e, const int32_t *ids, size_t count,
                           const wf_request *request)
{
    wf_sequence *s;
    wt_ok(ctx, wf_engine_submit(e, ids, count, request, &s));
    return s;
}

static size_t generated(const wf_sequence *s)
{
    size_t count, prompt;
    wf_sequence_tokens(s, &count, &prompt);
    return count - prompt;
}

/* ---- Order ---- */

/* Writes the numbers of requests in the order in which they start, one at a time. */
static void starts(wf_ctx *ctx, const wf_request *requests, int n, int *order)
{
    const wf_engine_options options = {.sequences = 1};
    wt_talker t = wt_talker_open(ctx, "cpu:1", WHOLE, &options);
    wf_sequence *s[16];
    int started = 0;
    for (int i = 0; i < n; i++) {
        wf_request r = requests[i];
        r.limit = 1;
        r.ignore_end = true;
        r.user = &s[i];
        s[i] = submit(ctx, t.engine, text, 8, &r);
    }
    for (bool busy = true; busy;) {
        size_t events;
        wt_ok(ctx, wf_engine_step(t.engine, &busy));
        const wf_engine_event *event = wf_engine_events(t.engine, &events);
        for (size_t k = 0; k < events; k++)
            if (event[k].kind == WF_EVENT_START)
                order[started++] = (int)((wf_sequence **)event[k].user - s);
    }
    assert_int_equal(started, n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(wf_sequence_stop(s[i]), WF_STOP_LIMIT);
        wf_sequence_free(s[i]);
    }
    wt_talker_close(&t);
}

static void expect_order(const int *got, const int *want, int n)
{
    for (int i = 0; i < n; i++)
        assert_int_equal(got[i], want[i]);
}

/* Priority, then turns among keys, then arrival. */
static void order(void **state)
{
    const wf_request equal[4] = {{.priority = 0}};
    const wf_request priorities[4] = {
        {.priority = 0}, {.priority = 2}, {.priority = -1}, {.priority = 2}};
    const wf_request keys[6] = {{.key = 7}, {.key = 7}, {.key = 7},
                                {.key = 7}, {.key = 9}, {.key = 9}};
    int got[16];
    starts(*state, equal, 4, got);
    expect_order(got, (int[]){0, 1, 2, 3}, 4);
    starts(*state, priorities, 4, got);
    expect_order(got, (int[]){1, 3, 0, 2}, 4);
    starts(*state, keys, 6, got);
    expect_order(got, (int[]){0, 4, 1, 5, 2, 3}, 6);
}

/* A key that asks again when its request ends takes turns with a key that has many requests. */
static void turns(void **state)
{
    enum { N = 6 };
    const wf_engine_options options = {.sequences = 1};
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    const wf_request many = {.limit = 1, .ignore_end = true, .key = 1},
                     single = {.limit = 1, .ignore_end = true, .key = 2};
    wf_sequence *s[N], *again = submit(*state, t.engine, text, 9, &single);
    int asked = 0;
    for (int i = 0; i < N; i++)
        s[i] = submit(*state, t.engine, text, 8, &many);
    while (wf_sequence_stop(s[N - 1]) == WF_UNFINISHED) {
        wt_ok(*state, wf_engine_step(t.engine, NULL));
        if (wf_sequence_stop(again) == WF_UNFINISHED)
            continue;
        wf_sequence_free(again);
        again = submit(*state, t.engine, text, 9, &single);
        asked++;
    }
    assert_true(asked >= N - 1 && asked <= N + 1);
    wf_sequence_free(again);
    for (int i = 0; i < N; i++)
        wf_sequence_free(s[i]);
    wt_talker_close(&t);
}

/* A request takes the place, and the pages, of a running one of lower priority. */
static void urgent(void **state)
{
    const wf_engine_options all[] = {
        {.sequences = 1, .context = 128, .step_ms = 1e6}, /* a slow machine splits no prompt */
        {.sequences = 2, .context = 128, .cache = 128, .step_ms = 1e6}};
    for (int i = 0; i < 2; i++) {
        wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &all[i]);
        const wf_request low = {.limit = 60, .ignore_end = true, .priority = -5},
                         high = {.limit = 4, .ignore_end = true, .priority = 5};
        wf_sequence *slow = submit(*state, t.engine, text, 20, &low);
        for (int k = 0; k < 30; k++)
            wt_ok(*state, wf_engine_step(t.engine, NULL));
        assert_int_equal(generated(slow), 30);
        wf_sequence *fast = submit(*state, t.engine, text + 30, 90, &high);
        for (int k = 0; k < 4; k++)
            wt_ok(*state, wf_engine_step(t.engine, NULL));
        assert_int_equal(wf_sequence_stop(fast), WF_STOP_LIMIT);
        run_all(*state, t.engine);
        assert_int_equal(generated(slow), 60);
        assert_int_equal(wf_sequence_reused(slow), 0); /* its own pages do not count */
        assert_int_equal(stats_of(t.engine).preemptions, 1);
        wf_sequence_free(slow);
        wf_sequence_free(fast);
        wt_talker_close(&t);
    }
}

/* Random additions and removals against a plain list. */
static void waitlist(void **state)
{
    enum { TICKETS = 200 };
    static wf_ticket ticket[TICKETS];
    bool waits[TICKETS] = {0};
    wf_waitlist q;
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 50);
    wf_waitlist_init(&q, *state);
    for (int step = 0; step < 4000; step++) {
        int i = (int)wf_rng_below(&r, TICKETS), waiting = 0;
        if (!waits[i]) {
            ticket[i] =
                (wf_ticket){.priority = (int)wf_rng_below(&r, 3), .key = wf_rng_below(&r, 5)};
            wt_ok(*state, wf_waitlist_add(&q, &ticket[i]));
            waits[i] = true;
        } else if (wf_rng_below(&r, 2)) {
            wf_waitlist_remove(&q, &ticket[i], false);
            waits[i] = false;
        } else {
            wf_ticket *first = wf_waitlist_first(&q);
            for (int k = 0; k < TICKETS; k++) /* none of higher priority waits */
                assert_true(!waits[k] || ticket[k].priority <= first->priority);
            for (int k = 0; k < TICKETS; k++) /* the first of its line */
                assert_true(!waits[k] || ticket[k].key != first->key ||
                            ticket[k].priority != first->priority || first->resumes ||
                            ticket[k].resumes || ticket[k].arrival >= first->arrival);
            wf_waitlist_remove(&q, first, true);
            if (wf_rng_below(&r, 4) == 0)
                wf_waitlist_resume(&q, first);
            else
                waits[first - ticket] = false;
        }
        for (int k = 0; k < TICKETS; k++)
            waiting += waits[k];
        assert_int_equal(q.count, waiting);
    }
    for (wf_ticket *t; (t = wf_waitlist_first(&q));)
        wf_waitlist_remove(&q, t, true);
    assert_int_equal(q.count, 0);
    assert_int_equal(q.lines, 0);
    wf_waitlist_free(&q);
}

/* ---- Shared beginnings ---- */

/* Requests that start together compute 64 common tokens once. */
static void common_beginning(void **state)
{
    enum { N = 8, COMMON = 64, OWN = 5 };
    const char *const paths[] = {WHOLE, WINDOWS};
    for (int p = 0; p < 2; p++) {
        const wf_engine_options options = {.sequences = N, .chunk = p ? 512 : 24};
        wt_talker t = wt_talker_open(*state, "cpu:2", paths[p], &options);
        const wf_request request = {.limit = 3, .ignore_end = true};
        wf_sequence *s[N];
        int32_t ids[COMMON + OWN];
        for (int i = 0; i < N; i++) {
            memcpy(ids, text, sizeof ids);
            for (int k = 0; k < OWN; k++)
                ids[COMMON + k] = i + 3;
            s[i] = submit(*state, t.engine, ids, COMMON + OWN, &request);
        }
        run_all(*state, t.engine);
        wf_engine_stats stats = stats_of(t.engine);
        assert_int_equal(stats.reused_tokens, (N - 1) * COMMON);
        assert_int_equal(stats.prompt_tokens,
                         COMMON + N * OWN - N); /* the last ones count as new */
        for (int i = 0; i < N; i++) {
            assert_int_equal(wf_sequence_reused(s[i]), i ? COMMON : 0);
            wf_sequence_free(s[i]);
        }
        assert_true(stats_of(t.engine).pages_cached > 0);
        wt_talker_close(&t);
    }
}

/* Another salt shares nothing, and no_reuse caches nothing. */
static void salts(void **state)
{
    for (int reuse = 0; reuse < 2; reuse++) {
        const wf_engine_options options = {.no_reuse = !reuse};
        wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
        for (int i = 0; i < 3; i++) {
            const wf_request request = {.limit = 1, .salt = (uint64_t)(i / 2)};
            wf_sequence *s = submit(*state, t.engine, text, 40, &request);
            run_all(*state, t.engine);
            assert_int_equal(wf_sequence_reused(s), reuse && i == 1 ? 32 : 0);
            wf_sequence_free(s);
        }
        wt_talker_close(&t);
    }
}

/* Asks for the first `count` tokens of text number i. Returns how many were reused. */
static size_t ask_long(wf_ctx *ctx, wf_engine *e, int i, size_t count)
{
    static int32_t ids[4096];
    for (size_t k = 0; k < count; k++)
        ids[k] = 3 + (int32_t)(k * 5 + (size_t)i * 7) % 250;
    wf_sequence *s = submit(ctx, e, ids, count, &(wf_request){.limit = 2, .ignore_end = true});
    run_all(ctx, e);
    size_t reused = wf_sequence_reused(s);
    wf_sequence_free(s);
    return reused;
}

/* With windows in all layers, old texts keep many nodes of the prefix cache and few pages. They make
 * room for new ones. */
static void many_texts(void **state)
{
    const wf_engine_options options = {.context = 4096, .sequences = 2, .chunk = 256};
    char folder[] = "/tmp/weft-test-XXXXXX", command[512];
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "cp " ALL_WINDOWS "/* %s && chmod -R u+w %s && sed -i "
             "'s/\"max_position_embeddings\": *[0-9]*/\"max_position_embeddings\": 4096/' "
             "%s/config.json",
             folder, folder, folder);
    assert_int_equal(system(command), 0);
    wt_talker t = wt_talker_open(*state, "cpu:2", folder, &options);
    const wf_prefix *prefix = t.engine->prefix;
    size_t reused = 0;
    for (size_t count = 20; prefix->count < prefix->capacity && count < 1100; count += 16)
        for (int i = 0; i < 12 && prefix->count < prefix->capacity; i++) /* conversations */
            ask_long(*state, t.engine, i, count);
    assert_int_equal(prefix->count, prefix->capacity);
    ask_long(*state, t.engine, 20, 3000); /* more pages at once than the run fills */
    for (int i = 30; i < 36; i++)
        for (int twice = 0; twice < 2; twice++)
            reused += ask_long(*state, t.engine, i, 520);
    assert_int_equal(reused, 6 * 512);
    wt_talker_close(&t);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* Frequencies that depend on the context do not depend on the size of the pools. */
static wf_status keep_first(void *user, size_t i, const float *logits, size_t vocab)
{
    float *to = user;
    memcpy(to + i * vocab, logits, vocab * sizeof *logits);
    return WF_OK;
}

static void small_pools(void **state)
{
    enum { TOKENS = 10 };
    float *first = NULL;
    const int64_t caches[] = {0, 64, 48, 32, 16};
    for (int i = 0; i < 5; i++) {
        const wf_engine_options options = {.context = 64, .cache = caches[i]};
        wt_talker t = wt_talker_open(*state, "cpu:1", LONGROPE, &options);
        const size_t bytes = TOKENS * (size_t)t.engine->vocab * sizeof *first;
        float *logits = malloc(bytes);
        wt_ok(*state, wf_engine_logits(t.engine, text, TOKENS, 0, keep_first, logits));
        wt_talker_close(&t);
        if (first) {
            assert_memory_equal(first, logits, bytes);
            free(logits);
        } else
            first = logits;
    }
    free(first);
}

/* ---- Cancelling ---- */

/* Cancels or frees a request while it waits, reads its prompt, and generates. */
static void cancel(void **state)
{
    const wf_engine_options options = {.sequences = 2, .chunk = 16};
    wt_talker t = wt_talker_open(*state, "cpu:1", WINDOWS, &options);
    const wf_request request = {.limit = 20, .ignore_end = true};
    for (int steps = 0; steps < 12; steps++) {
        wf_sequence *s[4];
        for (int i = 0; i < 4; i++)
            s[i] = submit(*state, t.engine, text + i, 50, &request);
        for (int k = 0; k < steps; k++)
            wt_ok(*state, wf_engine_step(t.engine, NULL));
        for (int i = 3; i >= 1; i--) { /* waiting ones first, then a running one */
            size_t before = generated(s[i]);
            wf_sequence_cancel(s[i]);
            wf_sequence_cancel(s[i]);
            assert_int_equal(wf_sequence_stop(s[i]), WF_STOP_CANCEL);
            assert_int_equal(generated(s[i]), before);
        }
        assert_int_equal(stats_of(t.engine).running, steps > 0);
        run_all(*state, t.engine);
        assert_int_equal(wf_sequence_stop(s[0]), WF_STOP_LIMIT);
        assert_int_equal(generated(s[0]), 20);
        for (int i = 0; i < 4; i++)
            wf_sequence_free(s[i]);
        assert_int_equal(stats_of(t.engine).pages_used, 0);
    }
    wt_talker_close(&t);
}

/* ---- Limits ---- */

static void refused(void **state)
{
    const wf_engine_options options = {.cache = 32};
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    wf_sequence *s;
    const int32_t low = -1, high = 5000;
    const wf_request bad_limit = {.limit = -2}, bad_stop = {.stop_tokens = 1, .stop_token = &high},
                     bad_sampling = {.sampling = {.top_p = 7}};
    wt_fails(*state, wf_engine_submit(t.engine, text, 33, NULL, &s), WF_ERR_USAGE,
             "33 tokens, but the cache holds only 32");
    wt_fails(*state, wf_engine_submit(t.engine, text, 0, NULL, &s), WF_ERR_USAGE, "empty");
    wt_fails(*state, wf_engine_submit(t.engine, &low, 1, NULL, &s), WF_ERR_USAGE, "token -1");
    wt_fails(*state, wf_engine_submit(t.engine, &high, 1, NULL, &s), WF_ERR_USAGE, "5000");
    wt_fails(*state, wf_engine_submit(t.engine, text, 2, &bad_limit, &s), WF_ERR_USAGE, "-2");
    wt_fails(*state, wf_engine_submit(t.engine, text, 2, &bad_stop, &s), WF_ERR_USAGE, "5000");
    wt_fails(*state, wf_engine_submit(t.engine, text, 2, &bad_sampling, &s), WF_ERR_USAGE, "top_p");
    assert_null(s);
    assert_int_equal(stats_of(t.engine).waiting, 0);
    wt_talker_close(&t);
}

/* A prompt that fills the context gets no token, and no event of one. */
static void full_context(void **state)
{
    const wf_engine_options options = {.context = 16};
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    wf_sequence *s = submit(*state, t.engine, text, 16, NULL);
    size_t events;
    wt_ok(*state, wf_engine_step(t.engine, NULL));
    const wf_engine_event *event = wf_engine_events(t.engine, &events);
    assert_int_equal(events, 2);
    assert_int_equal(event[0].kind, WF_EVENT_START);
    assert_int_equal(event[1].kind, WF_EVENT_END);
    assert_int_equal(wf_sequence_stop(s), WF_STOP_CONTEXT);
    assert_int_equal(stats_of(t.engine).tokens, 0);
    wf_sequence_free(s);
    wt_talker_close(&t);
}

/* Chosen sizes fit in the limit; bad ones are refused like those of an engine. */
static void fit(void **state)
{
    wf_device *device;
    wf_model *model;
    wf_engine_options chosen;
    wf_memory m;
    wt_ok(*state, wf_device_open(*state, "cpu:1", &device));
    wt_ok(*state, wf_model_open(*state, WHOLE, &model));
    wt_ok(*state, wf_engine_fit(device, model, NULL, 64 << 20, &chosen, &m));
    assert_true(m.states + m.region + m.ports <= 64 << 20);
    assert_int_equal(chosen.context, 128);
    assert_int_equal(chosen.sequences, 32);
    const wf_engine_options given = {.cache = 64}, negative = {.sequences = -1};
    wt_ok(*state, wf_engine_fit(device, model, &given, 64 << 20, &chosen, &m));
    assert_int_equal(chosen.context, 32);
    assert_int_equal(chosen.cache, 64);
    wt_fails(*state, wf_engine_fit(device, model, &negative, 64 << 20, &chosen, &m), WF_ERR_USAGE,
             "sequences is -1");
    wt_fails(*state, wf_engine_fit(device, model, NULL, 1000, &chosen, &m), WF_ERR_MEMORY,
             "but only 1000 are available");
    const wf_engine_options huge = {.cache = INT64_MAX - 3};
    wt_fails(*state, wf_engine_plan(device, model, &huge, &m), WF_ERR_USAGE, "outside the range");
    const wf_engine_options most = {.cache = INT64_MAX}, longest = {.context = INT64_MAX};
    wt_fails(*state, wf_engine_fit(device, model, &most, 64 << 20, &chosen, &m), WF_ERR_USAGE,
             "outside the range");
    wt_fails(*state, wf_engine_fit(device, model, &longest, 64 << 20, &chosen, &m), WF_ERR_USAGE,
             "context 9223372036854775807");
    const wf_engine_options all = {.sequences = 32};
    wt_ok(*state, wf_engine_plan(device, model, &all, &m));
    size_t limit = m.states + m.region + m.ports;
    wt_ok(*state, wf_engine_fit(device, model, NULL, limit, &chosen, &m));
    assert_true(m.mapped > 0 && m.states + m.mapped + m.region + m.ports <= limit);
    wf_model_close(model);

    /* Where one text fits, the context is halved, so that it does not block all others. */
    const wf_engine_options single = {.context = 1024};
    wt_ok(*state, wf_model_open(*state, LONG, &model));
    wt_ok(*state, wf_engine_plan(device, model, &single, &m));
    limit = m.states + m.mapped + m.region + m.ports;
    wt_ok(*state, wf_engine_fit(device, model, NULL, limit, &chosen, &m));
    assert_int_equal(chosen.context, 512);
    assert_true(m.states + m.mapped + m.region + m.ports <= limit);
    wf_model_close(model);
    wf_device_close(device);
}

/* A pool of one page: sequences take turns, and end when it is full. */
static void one_page(void **state)
{
    const wf_engine_options options = {.cache = 1, .sequences = 4};
    wt_talker t = wt_talker_open(*state, "cpu:2", WHOLE, &options);
    const wf_request request = {.ignore_end = true};
    wf_sequence *s[6];
    for (int i = 0; i < 6; i++)
        s[i] = submit(*state, t.engine, text + i, 5 + (size_t)i, &request);
    run_all(*state, t.engine);
    for (int i = 0; i < 6; i++) {
        assert_int_equal(wf_sequence_stop(s[i]), WF_STOP_CONTEXT);
        assert_int_equal(generated(s[i]), 11 - i);
        wf_sequence_free(s[i]);
    }
    assert_int_equal(stats_of(t.engine).pages, 1);
    wt_talker_close(&t);
}

/* ---- Failures of one sequence ---- */

static wf_status refuse_logits(void *user, size_t i, const float *logits, size_t vocab)
{
    (void)logits, (void)vocab;
    return i == 7 ? wf_fail(user, WF_ERR_FORMAT, "row %zu is not wanted", i) : WF_OK;
}

static wf_status refuse_silently(void *user, size_t i, const float *logits, size_t vocab)
{
    (void)user, (void)i, (void)logits, (void)vocab;
    return WF_ERR_IO;
}

/* NaN in the embedding of one token ends only the sequences that contain it. */
static void faults_of_one(void **state)
{
    const wf_engine_options options = {.sequences = 4, .kv = WF_KV_F32};
    wt_talker t = wt_talker_open(*state, "cpu:2", WINDOWS, &options);
    const wf_config *c = t.engine->source.config;
    const wf_request plain = {.limit = 6, .ignore_end = true},
                     sampled = {.limit = 6, .ignore_end = true, .sampling = {.temperature = 1}},
                     scored = {.logits = refuse_logits, .user = *state},
                     silent = {.logits = refuse_silently},
                     scored_from = {.logits = refuse_logits, .logits_from = 15, .user = *state};
    int32_t poisoned[20], good[6];
    const int32_t bad = 280; /* no fixture text contains it */
    memcpy(poisoned, text, sizeof poisoned);
    poisoned[19] = bad;
    wf_sequence *s = submit(*state, t.engine, text, 20, &plain);
    run_all(*state, t.engine);
    size_t count, prompt;
    memcpy(good, wf_sequence_tokens(s, &count, &prompt) + 20, sizeof good);
    wf_sequence_free(s);

    /* The table has 16 bits per element; all bits set is NaN. */
    const size_t row = (size_t)c->width * 2, bytes = (size_t)c->vocab * row;
    char *table = malloc(bytes);
    wt_ok(*state, wf_session_read(t.engine->session, "token_embd.weight", table, bytes));
    memset(table + (size_t)bad * row, 0xff, row);
    wt_ok(*state, wf_session_write(t.engine->session, "token_embd.weight", table, bytes));
    free(table);
    wf_sequence *all[] = {submit(*state, t.engine, poisoned, 20, &plain),
                          submit(*state, t.engine, text, 20, &plain),
                          submit(*state, t.engine, poisoned, 20, &sampled),
                          submit(*state, t.engine, text, 20, &scored),
                          submit(*state, t.engine, text, 20, &silent),
                          submit(*state, t.engine, poisoned, 20, &scored_from)};
    run_all(*state, t.engine);
    wf_status why;
    assert_int_equal(wf_sequence_stop(all[0]), WF_STOP_ERROR);
    assert_non_null(strstr(wf_sequence_error(all[0], &why), "NaN"));
    assert_int_equal(why, WF_ERR_DEVICE);
    assert_true(wt_is_sentence(wf_sequence_error(all[0], NULL)));
    assert_int_equal(wf_sequence_stop(all[1]), WF_STOP_LIMIT);
    assert_memory_equal(wf_sequence_tokens(all[1], &count, &prompt) + 20, good, sizeof good);
    assert_int_equal(wf_sequence_stop(all[2]), WF_STOP_ERROR);
    assert_non_null(strstr(wf_sequence_error(all[2], NULL), "logit of token"));
    assert_int_equal(wf_sequence_stop(all[3]), WF_STOP_ERROR);
    assert_string_equal(wf_sequence_error(all[3], &why), "row 7 is not wanted");
    assert_int_equal(why, WF_ERR_FORMAT);
    assert_string_equal(wf_sequence_error(all[4], &why),
                        "the logits callback failed without a message");
    assert_int_equal(why, WF_ERR_IO);
    assert_non_null(strstr(wf_sequence_error(all[5], &why), "NaN"));
    assert_string_equal(wf_sequence_error(all[1], &why), "");
    for (int i = 0; i < 6; i++)
        wf_sequence_free(all[i]);
    assert_int_equal(stats_of(t.engine).pages_used, 0);
    wt_talker_close(&t);
}

/* ---- Memory that runs out ---- */

enum { SURVIVORS = 3, LAST = 9 };

/* Submits requests and runs them while the nth allocation fails. Every sequence ends well, with the
 * tokens of `want`, or with its own error; the engine stays usable. Returns whether an allocation
 * failed. nth 0: none fails, and `want` is written. */
static bool survive(wf_ctx *ctx, wf_engine *e, uint64_t nth, int32_t want[SURVIVORS][LAST])
{
    const wf_request request = {
        .limit = LAST, .ignore_end = true, .sampling = {.temperature = 1, .repeat_penalty = 1.1}};
    wf_sequence *s[SURVIVORS] = {0};
    bool busy = true;
    wf_ctx_clear(ctx);
    wf_ctx_fail_allocation(ctx, nth);
    for (int i = 0; i < SURVIVORS; i++)
        if (wf_engine_submit(e, text + i, 30, &request, &s[i]) != WF_OK) {
            assert_int_equal(wf_ctx_status(ctx), WF_ERR_MEMORY);
            assert_null(s[i]);
        }
    for (int steps = 0; busy && steps < 200; steps++)
        wt_ok(ctx, wf_engine_step(e, &busy)); /* a run that cannot be compiled uses a larger one */
    bool reached = nth > 0 && ctx->fail_in_calls == 0;
    wf_ctx_fail_allocation(ctx, 0);
    assert_false(busy);
    for (int i = 0; i < SURVIVORS; i++) {
        wf_status why = WF_OK;
        if (s[i] && wf_sequence_stop(s[i]) == WF_STOP_ERROR) {
            wf_sequence_error(s[i], &why);
            assert_int_equal(why, WF_ERR_MEMORY);
        } else if (s[i]) {
            assert_int_equal(wf_sequence_stop(s[i]), WF_STOP_LIMIT);
            const int32_t *ids = wf_sequence_tokens(s[i], NULL, NULL) + 30;
            assert_int_equal(generated(s[i]), LAST);
            if (nth == 0)
                memcpy(want[i], ids, sizeof want[i]);
            assert_memory_equal(want[i], ids, sizeof want[i]);
        }
        wf_sequence_free(s[i]);
    }
    assert_int_equal(stats_of(e).pages_used, 0);
    return reached;
}

static void no_memory(void **state)
{
    const wf_engine_options options = {.sequences = 2, .cache = 96, .context = 64};
    int32_t want[SURVIVORS][LAST];
    bool failed = true;
    for (uint64_t nth = 0; failed || nth == 1; nth++) {
        wt_talker t = wt_talker_open(*state, "cpu:1", WINDOWS, &options);
        failed = survive(*state, t.engine, nth, want);
        wf_sequence *s =
            submit(*state, t.engine, text, 40, &(wf_request){.limit = 3, .ignore_end = true});
        run_all(*state, t.engine);
        assert_int_equal(generated(s), 3);
        wf_sequence_free(s);
        wt_talker_close(&t);
    }
}

/* ---- Many ---- */

/* Waiting requests are small. WEFT_ALL_CASES: a million of them. */
static void many_waiting(void **state)
{
    enum { EACH = 1024 /* bytes, at most */ };
    const int n = getenv("WEFT_ALL_CASES") ? 1000000 : 20000;
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, NULL);
    wf_sequence **s = calloc((size_t)n, sizeof *s);
    wf_ctx *ctx = *state;
    size_t before = ctx->mem.live_bytes;
    for (int i = 0; i < n; i++) {
        const wf_request request = {.sampling = {.temperature = 1},
                                    .limit = 3,
                                    .ignore_end = true,
                                    .priority = i % 3,
                                    .key = (uint64_t)(i % 1000)};
        s[i] = submit(ctx, t.engine, text, 8, &request);
    }
    assert_int_equal(stats_of(t.engine).waiting, n);
    size_t each = (ctx->mem.live_bytes - before) / (size_t)n;
    if (each > EACH)
        fail_msg("a waiting request takes %zu bytes", each);
    for (int i = 0; i < 10; i++) /* three requests, and a token of the fourth */
        wt_ok(ctx, wf_engine_step(t.engine, NULL));
    assert_int_equal(stats_of(t.engine).waiting, n - 4);
    for (int i = 0; i < n; i += 7)
        wf_sequence_cancel(s[i]);
    for (int i = n; i-- > 0;)
        wf_sequence_free(s[i]);
    assert_int_equal(stats_of(t.engine).waiting, 0);
    free(s);
    wt_talker_close(&t);
}

/* What an engine holds between requests. */
typedef struct {
    uint64_t blocks, bytes;
    int files, buckets;
    uint64_t compiling_ns; /* equal: it has the same executables */
} holding;

static holding look(wf_ctx *ctx, const wf_engine *e)
{
    holding h = {wt_live_blocks(ctx), ctx->mem.live_bytes, 0, e->buckets, e->compiling_ns};
    DIR *open = opendir("/proc/self/fd");
    assert_non_null(open);
    while (readdir(open))
        h.files++;
    closedir(open);
    return h;
}

/* Answers n random requests, up to 32 at a time. */
static void answer_many(wf_ctx *ctx, wf_engine *e, wf_rng *r, int n)
{
    enum { AT_ONCE = 32 };
    wf_sequence *s[AT_ONCE] = {0};
    for (int i = 0; i < n; i++) {
        wf_sequence **at = &s[i % AT_ONCE];
        while (*at && wf_sequence_stop(*at) == WF_UNFINISHED)
            wt_ok(ctx, wf_engine_step(e, NULL));
        wf_sequence_free(*at);
        int32_t ids[40];
        size_t count = 1 + wf_rng_below(r, 40);
        for (size_t k = 0; k < count; k++)
            ids[k] = (int32_t)wf_rng_below(r, k < 20 ? 2 : 250);
        const wf_request request = {.limit = 1 + (int64_t)wf_rng_below(r, 6),
                                    .key = wf_rng_below(r, 5),
                                    .sampling = {.temperature = 1, .seed = (uint64_t)i}};
        *at = submit(ctx, e, ids, count, &request);
    }
    for (int i = 0; i < AT_ONCE; i++)
        wf_sequence_free(s[i]);
}

/* WEFT_RECORD=FILE: begins a record with the version of the program, which names the commit. */
static FILE *begin_record(void)
{
    const char *path = getenv("WEFT_RECORD"), *program = getenv("WEFT_PROGRAM");
    if (!path)
        return NULL;
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_non_null(program);
    fprintf(f, "{\"what\": \"engine, many sequences\", \"weft\": ");
    char command[512], line[512];
    snprintf(command, sizeof command, "'%s' version --json", program);
    FILE *version = popen(command, "r");
    assert_non_null(version);
    while (fgets(line, sizeof line, version))
        fputs(line, f);
    assert_int_equal(pclose(version), 0);
    fprintf(f, ", \"seed\": %llu, \"parts\": [", (unsigned long long)wt_seed());
    return f;
}

static void record(FILE *f, int sequences, const holding *h, const wf_engine_stats *stats)
{
    if (f)
        fprintf(f,
                "\n {\"sequences\": %d, \"pages_used\": %lld, \"pages_cached\": %lld, "
                "\"heap_blocks\": %llu, \"heap_bytes\": %llu, \"descriptors\": %d, "
                "\"executables\": %d}",
                sequences, (long long)stats->pages_used, (long long)stats->pages_cached,
                (unsigned long long)h->blocks, (unsigned long long)h->bytes, h->files, h->buckets);
}

/* Pages, memory and file descriptors stay flat over many sequences, but for executables of runs
 * that did not occur before: parts of few sequences may each have one. WEFT_ALL_CASES: 10^5
 * sequences. WEFT_RECORD=FILE writes what the engine holds. */
static void many_sequences(void **state)
{
    enum { PARTS = 10 };
    const int n = getenv("WEFT_ALL_CASES") ? 100000 : wt_cases(2000);
    const wf_engine_options options = {
        .sequences = 8, .cache = 512, .context = 64, .step_ms = 1e6}; /* time splits no prompt */
    wt_talker t = wt_talker_open(*state, "cpu:2", WINDOWS, &options);
    holding before = {0};
    int same = 0;
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 60);
    FILE *f = begin_record();
    for (int part = 0; part < PARTS; part++) {
        answer_many(*state, t.engine, &r, n / PARTS);
        const holding now = look(*state, t.engine);
        const wf_engine_stats stats = stats_of(t.engine);
        if (f && part > 0)
            fputc(',', f);
        record(f, (part + 1) * (n / PARTS), &now, &stats);
        if (part > 0 && now.compiling_ns == before.compiling_ns) {
            assert_int_equal(now.blocks, before.blocks);
            assert_int_equal(now.bytes, before.bytes);
            same++;
        }
        assert_true(part == 0 || now.files == before.files);
        before = now;
        assert_int_equal(stats.pages_used, 0);
        assert_int_equal(stats.running + stats.waiting, 0);
    }
    assert_true(same > 0 || n / PARTS < 200);
    if (f) {
        fputs("]}\n", f);
        assert_int_equal(fclose(f), 0);
    }
    wt_talker_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        engine_test(order),
        engine_test(turns),
        engine_test(urgent),
        engine_test(waitlist),
        engine_test(common_beginning),
        engine_test(salts),
        engine_test(many_texts),
        engine_test(small_pools),
        engine_test(cancel),
        engine_test(refused),
        engine_test(full_context),
        engine_test(fit),
        engine_test(one_page),
        engine_test(faults_of_one),
        engine_test(no_memory),
        engine_test(many_waiting),
        engine_test(many_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
