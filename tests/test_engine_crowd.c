/* SPDX-License-Identifier: MIT */
/*
 * test_engine_crowd.c - many sequences in one engine while requests are cancelled and freed, devices
 * and allocations fail, and pages are saved and restored: every answer is that of its request alone.
 * And what a crowd costs: common beginnings, admission to small pools, and the time of steps.
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
#include "device/device.h"
#include "infer/engine.h"
#include "model_fixture.h"
#include "support.h"

#define WHOLE WT_MODELS_FOLDER "/llama"
#define MIXED WT_MODELS_FOLDER "/olmo3"     /* windows, and a layer without */
#define WINDOWS WT_MODELS_FOLDER "/mistral" /* windows in all layers */

enum { QUESTIONS = 24, LONGEST = 90, NEW = 20, SLOTS = 20 };

/* ---- Answers ---- */

typedef struct {
    int32_t prompt[LONGEST];
    size_t count;
    wf_request request;
    int32_t want[NEW]; /* the answer alone */
    size_t wants;
} question;

static question ask[QUESTIONS];

static void run_all(wf_ctx *ctx, wf_engine *e)
{
    for (bool busy = true; busy;)
        wt_ok(ctx, wf_engine_step(e, &busy));
}

static void make_questions(wf_ctx *ctx, wf_rng *r, const char *model)
{
    wt_talker t =
        wt_talker_open(ctx, "cpu:1", model, &(wf_engine_options){.context = 128, .no_reuse = true});
    for (int i = 0; i < QUESTIONS; i++) {
        question *q = &ask[i];
        wf_sequence *s;
        size_t total, prompt;
        const uint64_t common = wf_rng_below(r, LONGEST);
        *q = (question){.count = 1 + wf_rng_below(r, LONGEST)};
        for (size_t k = 0; k < q->count; k++)
            q->prompt[k] = k < common ? 3 + (int32_t)(k * 7 % 250)
                                      : (int32_t)wf_rng_below(r, (uint64_t)t.engine->vocab);
        q->request = (wf_request){
            .limit = 1 + (int64_t)wf_rng_below(r, NEW),
            .ignore_end = wf_rng_below(r, 2),
            .priority = (int)wf_rng_below(r, 3),
            .key = wf_rng_below(r, 3),
            .sampling = {.temperature = (double)wf_rng_below(r, 2), .seed = wf_rng_below(r, 9)}};
        wt_ok(ctx, wf_engine_submit(t.engine, q->prompt, q->count, &q->request, &s));
        run_all(ctx, t.engine);
        const int32_t *ids = wf_sequence_tokens(s, &total, &prompt);
        q->wants = total - prompt;
        memcpy(q->want, ids + prompt, q->wants * sizeof *ids);
        wf_sequence_free(s);
    }
    wt_talker_close(&t);
}

/* Compares what a sequence has generated so far; `ended`: it is complete. */
static void check_answer(const wf_sequence *s, const question *q)
{
    size_t total, prompt;
    const int32_t *ids = wf_sequence_tokens(s, &total, &prompt);
    const wf_stop stop = wf_sequence_stop(s);
    const bool whole = stop == WF_STOP_END || stop == WF_STOP_LIMIT || stop == WF_STOP_CONTEXT;
    assert_true(whole ? total - prompt == q->wants : total - prompt <= q->wants);
    assert_memory_equal(ids + prompt, q->want, (total - prompt) * sizeof *ids);
}

/* ---- A device that fails ---- */

static const wf_device_ops *real;
static int64_t copies_left; /* until a copy fails; negative: never */

static wf_status fail_copy(const wf_queue *queue)
{
    if (copies_left >= 0 && copies_left-- == 0)
        return wf_fail(queue->device->ctx, WF_ERR_DEVICE, "the device failed in a copy");
    return WF_OK;
}

static wf_status failing_copy_in(wf_queue *queue, wf_buffer *to, size_t offset, const void *from,
                                 size_t bytes)
{
    WF_TRY(fail_copy(queue));
    return real->copy_in(queue, to, offset, from, bytes);
}

static wf_status failing_copy_out(wf_queue *queue, void *to, const wf_buffer *from, size_t offset,
                                  size_t bytes)
{
    WF_TRY(fail_copy(queue));
    return real->copy_out(queue, to, from, offset, bytes);
}

/* ---- Random use ---- */

static int ended, failed; /* sequences and steps, in all engines */

static void use(wf_ctx *ctx, wf_rng *r, const char *model, const wf_engine_options *options)
{
    wt_talker t = wt_talker_open(ctx, "cpu:2", model, options);
    wf_device_ops ops = *t.device->ops;
    wf_sequence *s[SLOTS] = {0};
    int which[SLOTS] = {0};
    char path[64];
    snprintf(path, sizeof path, "engine_crowd-%d.tmp", (int)getpid());
    real = t.device->ops;
    ops.copy_in = failing_copy_in;
    ops.copy_out = failing_copy_out;
    copies_left = -1;
    t.device->ops = &ops;
    for (int n = 0; n < wt_cases(1200); n++) {
        const int i = (int)wf_rng_below(r, SLOTS), kind = (int)wf_rng_below(r, 40);
        wf_ctx_clear(ctx);
        if (kind == 0)
            copies_left = (int64_t)wf_rng_below(r, 12); /* a step has about 9 */
        if (kind == 1)
            wf_ctx_fail_allocation(ctx, 1 + wf_rng_below(r, 6));
        if (kind == 2 && s[i])
            wf_sequence_cancel(s[i]);
        if (kind == 3) {
            wf_sequence_free(s[i]);
            s[i] = NULL;
        }
        if (kind == 4 && s[i]) {
            remove(path);
            if (wf_sequence_save(s[i], path) == WF_OK)
                wf_engine_restore(t.engine, path, NULL);
        }
        if (!s[i] && wf_rng_below(r, 2)) {
            which[i] = (int)wf_rng_below(r, QUESTIONS);
            const question *q = &ask[which[i]];
            if (wf_engine_submit(t.engine, q->prompt, q->count, &q->request, &s[i]) != WF_OK)
                assert_int_equal(wf_ctx_status(ctx), WF_ERR_MEMORY);
        }
        if (wf_engine_step(t.engine, NULL) != WF_OK)
            failed++;
        copies_left = -1;
        for (int k = 0; k < SLOTS; k++) {
            wf_status why;
            if (!s[k])
                continue;
            check_answer(s[k], &ask[which[k]]);
            if (wf_sequence_stop(s[k]) == WF_UNFINISHED)
                continue;
            if (wf_sequence_stop(s[k]) == WF_STOP_ERROR) {
                wf_sequence_error(s[k], &why);
                assert_int_equal(why, WF_ERR_MEMORY);
            }
            ended++;
            wf_sequence_free(s[k]);
            s[k] = NULL;
        }
    }
    wf_ctx_fail_allocation(ctx, 0);
    run_all(ctx, t.engine);
    for (int k = 0; k < SLOTS; k++) {
        if (s[k])
            check_answer(s[k], &ask[which[k]]);
        wf_sequence_free(s[k]);
    }
    wf_engine_stats stats;
    wf_engine_get_stats(t.engine, &stats);
    assert_int_equal(stats.pages_used, 0);
    assert_int_equal(stats.running + stats.waiting, 0);
    t.device->ops = real;
    remove(path);
    wt_talker_close(&t);
}

static void random_use(void **state)
{
    static const char *const models[] = {WHOLE, MIXED, WINDOWS};
    static const wf_engine_options options[] = {
        {.sequences = 8, .context = 128, .cache = 256, .chunk = 40, .step_ms = 0.2},
        {.sequences = 20, .context = 128, .cache = 128, .chunk = 17},
        {.sequences = 3, .context = 128},
        {.sequences = 12, .context = 128, .cache = 300, .no_reuse = true}};
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 70);
    for (int m = 0; m < 3; m++) {
        make_questions(*state, &r, models[m]);
        for (int i = 0; i < 4; i++)
            use(*state, &r, models[m], &options[i]);
    }
    assert_true(ended > 0 && failed > 0);
}

/* ---- What a crowd costs ---- */

static wf_engine_stats stats_of(const wf_engine *e)
{
    wf_engine_stats s;
    wf_engine_get_stats(e, &s);
    return s;
}

/* Submits text number `text`: 64 tokens of it, then some of this request's own. */
static wf_sequence *submit_text(wf_ctx *ctx, wf_engine *e, int text, int own, int64_t limit)
{
    int32_t ids[70];
    wf_sequence *s;
    for (int k = 0; k < 70; k++)
        ids[k] = 3 + (k * 7 + text * 31 + (k < 64 ? 0 : own)) % 250;
    wt_ok(ctx, wf_engine_submit(e, ids, 70, &(wf_request){.limit = limit, .ignore_end = true}, &s));
    return s;
}

/* Requests with a common beginning compute it once, also if another prompt is computed first. */
static void beginning_behind_another(void **state)
{
    enum { N = 8 };
    const wf_engine_options options = {.sequences = N + 1, .context = 128, .chunk = 32};
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    wf_sequence *s[N + 1];
    for (int i = 0; i <= N; i++)
        s[i] = submit_text(*state, t.engine, i > 0, i, 2);
    run_all(*state, t.engine);
    assert_int_equal(stats_of(t.engine).reused_tokens, (N - 1) * 64);
    for (int i = 0; i <= N; i++)
        wf_sequence_free(s[i]);
    wt_talker_close(&t);
}

/* Requests that start together wait for pages instead of computing parts of prompts again and
 * again. */
static void admission(void **state)
{
    enum { N = 16 };
    const wf_engine_options options = {
        .sequences = N, .context = 128, .cache = 256, .chunk = 40, .no_reuse = true};
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    wf_sequence *s[N];
    for (int i = 0; i < N; i++)
        s[i] = submit_text(*state, t.engine, i, i, 50);
    run_all(*state, t.engine);
    assert_true(stats_of(t.engine).prompt_tokens < N * 70 * 5 / 4);
    for (int i = 0; i < N; i++)
        wf_sequence_free(s[i]);
    wt_talker_close(&t);
}

/* A request for which the pools have no room, even if all sequences of lower priority gave their
 * pages, preempts none of them. */
static void no_vain_preemption(void **state)
{
    enum { LOW = 3 };
    const wf_engine_options options = {
        .sequences = LOW + 2, .context = 128, .cache = 14 * 16, .no_reuse = true};
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    const wf_request high = {.limit = 20, .ignore_end = true, .priority = 5},
                     low = {.limit = 24, .ignore_end = true},
                     soon = {.limit = 8, .ignore_end = true, .priority = 5};
    int32_t ids[100];
    wf_sequence *s[LOW + 2];
    for (int k = 0; k < 100; k++)
        ids[k] = 3 + k * 7 % 250;
    wt_ok(*state, wf_engine_submit(t.engine, ids, 100, &high, &s[0])); /* 7 pages, then 8 */
    for (int i = 1; i <= LOW; i++)
        wt_ok(*state, wf_engine_submit(t.engine, ids + i, 8, &low, &s[i]));
    for (int n = 0; n < 14; n++) /* then they have 8 + 3 * 2 pages */
        wt_ok(*state, wf_engine_step(t.engine, NULL));
    wt_ok(*state, wf_engine_submit(t.engine, ids, 100, &soon, &s[LOW + 1])); /* 7 */
    while (wf_sequence_stop(s[0]) == WF_UNFINISHED) {
        wt_ok(*state, wf_engine_step(t.engine, NULL));
        assert_int_equal(stats_of(t.engine).preemptions, 0);
    }
    run_all(*state, t.engine);
    for (int i = 0; i < LOW + 2; i++) {
        assert_int_equal(wf_sequence_stop(s[i]), WF_STOP_LIMIT);
        wf_sequence_free(s[i]);
    }
    wt_talker_close(&t);
}

/* A sequence shares pages with one of lower priority. After a long run they are behind its window.
 * The pool fits one sequence, and the first one still advances in every step, because preempting
 * the other frees these pages, too. */
static void shared_behind_window(void **state)
{
    enum { WINDOW = 64, SHARED = 64, FIRST = 250 };
    const wf_engine_options options = {
        .sequences = 2, .context = 512, .cache = 64, .chunk = 64, .step_ms = 1e6};
    const wf_request low = {.limit = 12, .ignore_end = true},
                     high = {.limit = 5, .ignore_end = true, .priority = 1};
    char folder[] = "/tmp/weft-test-XXXXXX", command[512];
    int32_t ids[FIRST];
    wf_sequence *a, *b;
    assert_non_null(mkdtemp(folder));
    snprintf(command, sizeof command,
             "cp " WINDOWS "/* %s && chmod -R u+w %s && sed -i "
             "'s/\"max_position_embeddings\": *[0-9]*/\"max_position_embeddings\": 512/; "
             "s/\"sliding_window\": *[0-9]*/\"sliding_window\": %d/' %s/config.json",
             folder, folder, WINDOW, folder);
    assert_int_equal(system(command), 0);
    wt_talker t = wt_talker_open(*state, "cpu:1", folder, &options);
    assert_int_equal(t.engine->caches.count, 1);
    assert_int_equal(t.engine->caches.cache[0].window, WINDOW);
    for (int k = 0; k < FIRST; k++)
        ids[k] = 3 + k * 7 % 250;
    wt_ok(*state, wf_engine_submit(t.engine, ids, SHARED + 6, &low, &b));
    for (int n = 0; n < 3; n++) /* its prompt, and a token */
        wt_ok(*state, wf_engine_step(t.engine, NULL));
    wt_ok(*state, wf_engine_submit(t.engine, ids, FIRST, &high, &a));
    wt_ok(*state, wf_engine_step(t.engine, NULL));
    assert_int_equal(wf_sequence_reused(a), SHARED);
    while (wf_sequence_stop(a) == WF_UNFINISHED) {
        const int64_t before = a->cached;
        wt_ok(*state, wf_engine_step(t.engine, NULL));
        assert_true(wf_sequence_stop(a) != WF_UNFINISHED || a->cached > before);
    }
    assert_int_equal(stats_of(t.engine).preemptions, 1);
    run_all(*state, t.engine);
    assert_int_equal(wf_sequence_stop(a), WF_STOP_LIMIT);
    assert_int_equal(wf_sequence_stop(b), WF_STOP_LIMIT);
    wf_sequence_free(a);
    wf_sequence_free(b);
    wt_talker_close(&t);
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

/* By default the pools hold all sequences at full length, also if their context fills no page. */
static void default_pools(void **state)
{
    enum { N = 12 };
    const wf_engine_options options = {.sequences = N, .context = 73};
    static const char *const models[] = {WHOLE, MIXED, WINDOWS};
    for (int m = 0; m < 3; m++) {
        wt_talker t = wt_talker_open(*state, "cpu:1", models[m], &options);
        wf_sequence *s[N];
        for (int i = 0; i < N; i++)
            s[i] = submit_text(*state, t.engine, i, i, 0);
        while (wf_sequence_stop(s[0]) == WF_UNFINISHED) {
            wt_ok(*state, wf_engine_step(t.engine, NULL));
            assert_int_equal(stats_of(t.engine).waiting, 0);
        }
        run_all(*state, t.engine);
        assert_int_equal(stats_of(t.engine).preemptions, 0);
        for (int i = 0; i < N; i++)
            wf_sequence_free(s[i]);
        wt_talker_close(&t);
    }
}

/* One slow step does not decide how long later ones are. */
static void slow_step(void **state)
{
    const wf_engine_options options = {
        .sequences = 8, .context = 128, .step_ms = 1e5, .no_reuse = true};
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    wf_sequence *s[8] = {0};
    int64_t most = 0;
    s[0] = submit_text(*state, t.engine, 0, 0, 58); /* it generates all the time */
    for (int n = 0; n < 50; n++) {
        for (int i = 1; i < 8; i++) /* so prompts arrive */
            if (!s[i] || wf_sequence_stop(s[i]) != WF_UNFINISHED) {
                wf_sequence_free(s[i]);
                s[i] = submit_text(*state, t.engine, i, n, 2);
            }
        wt_ok(*state, wf_engine_step(t.engine, NULL));
        if (n == 20)
            t.engine->decode_ns = 1e12;
        if (n > 25 && stats_of(t.engine).last.prompt_tokens > most)
            most = stats_of(t.engine).last.prompt_tokens;
    }
    assert_true(most > 32);
    for (int i = 0; i < 8; i++)
        wf_sequence_free(s[i]);
    wt_talker_close(&t);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        wt_test(random_use),         wt_test(beginning_behind_another), wt_test(admission),
        wt_test(no_vain_preemption), wt_test(shared_behind_window),     wt_test(default_pools),
        wt_test(slow_step),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
