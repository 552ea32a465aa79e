/* SPDX-License-Identifier: MIT */
/*
 * test_engine_device.c - an engine and its device: asynchronous and slow runs, runs that find no
 * memory, the number of executables, failures while engines are created, and what a step reports.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/philox.h"
#include "base/thread.h"
#include "device/device.h"
#include "device/executor.h"
#include "infer/engine.h"
#include "model_fixture.h"
#include "support.h"

#define WHOLE WT_MODELS_FOLDER "/llama"
#define MIXED WT_MODELS_FOLDER "/olmo3"     /* windows, and a layer without */
#define LONG WT_MODELS_FOLDER "/phi3-short" /* a context of 1024 tokens */

static int32_t text[1024]; /* tokens of the fixtures' vocabulary */

static int fill_text(void **state)
{
    for (int i = 0; i < 1024; i++)
        text[i] = 3 + i * 7 % 250;
    return wt_setup(state);
}

#define device_test(fn) cmocka_unit_test_setup_teardown(fn, fill_text, wt_teardown)

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

static wf_sequence *submit(wf_ctx *ctx, wf_engine *e, size_t from, size_t count, int64_t limit)
{
    wf_sequence *s;
    const wf_request request = {.limit = limit, .ignore_end = true};
    wt_ok(ctx, wf_engine_submit(e, text + from, count, &request, &s));
    return s;
}

static void sleep_ms(double ms)
{
    const long ns = (long)(ms * 1e6);
    nanosleep(&(struct timespec){.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000}, NULL);
}

/* ---- A device with other runs ---- */

static struct {
    wf_device_ops ops;
    const wf_device_ops *real;
    const wf_engine *engine;
    double run_ms, token_ms; /* time of a run, and of each of its tokens */
    double later_ms;         /* time that passes only when somebody waits for the run */
    bool waiting;            /* nobody has waited for the last run */
    bool copy_fails;
    const char *failing; /* "write", "compile" or "run": the calls that fail with this message */
    int64_t fitting;     /* tokens of the smallest run that finds memory */
    int failed;          /* runs */
} device;

/* Fails if the test wants calls of this kind to fail. */
static wf_status fail_if(wf_ctx *ctx, const char *kind)
{
    if (!device.failing || strcmp(device.failing, kind) != 0)
        return WF_OK;
    device.failed++;
    return wf_fail(ctx, WF_ERR_DEVICE, "the device failed in %s", kind);
}

static wf_status other_write(wf_queue *queue, wf_buffer *to, size_t offset, const void *from,
                             size_t bytes)
{
    WF_TRY(fail_if(queue->device->ctx, "write"));
    return device.real->copy_in(queue, to, offset, from, bytes);
}

static wf_status other_compile(wf_session *session, wf_graph *graph,
                               const wf_compile_options *options, wf_exec **out)
{
    WF_TRY(fail_if(session->ctx, "compile"));
    return device.real->compile(session, graph, options, out);
}

static wf_status other_run(wf_plan_exec *e)
{
    WF_TRY(fail_if(e->head.session->ctx, "run"));
    for (int i = 0; i < device.engine->buckets; i++) {
        const wf_bucket *b = &device.engine->bucket[i];
        if (b->exec == &e->head && b->tokens < device.fitting) {
            device.failed++;
            return wf_fail(e->head.session->ctx, WF_ERR_MEMORY, "no memory for this run");
        }
    }
    sleep_ms(device.run_ms + device.token_ms * (double)device.engine->batch_tokens);
    for (int i = 0; i < e->plan->step_count; i++)
        if (wf_plan_exec_step(e, i) != WF_OK)
            return WF_ERR_DEVICE;
    device.waiting = true;
    return WF_OK;
}

static wf_status other_wait(wf_event *event)
{
    if (device.waiting)
        sleep_ms(device.later_ms);
    device.waiting = false;
    return device.real->event_wait(event);
}

static wf_status other_copy(wf_queue *queue, void *to, const wf_buffer *from, size_t offset,
                            size_t bytes)
{
    return device.copy_fails ? WF_ERR_DEVICE
                             : device.real->copy_out(queue, to, from, offset, bytes);
}

/* The engine's device behaves as usual until a member of `device` is set. */
static void change_device(wt_talker *t)
{
    memset(&device, 0, sizeof device);
    device.real = t->device->ops;
    device.engine = t->engine;
    device.ops = *t->device->ops;
    device.ops.run_plan = other_run;
    device.ops.event_wait = other_wait;
    device.ops.copy_out = other_copy;
    device.ops.copy_in = other_write;
    device.ops.compile = other_compile;
    t->device->ops = &device.ops;
}

static void close_changed(wt_talker *t)
{
    t->device->ops = device.real;
    wt_talker_close(t);
}

/* ---- Runs that read nothing ---- */

/* A piece of a prompt has no rows. Its step still waits for the run, so that the step has the run's
 * time, and fails if the run does. */
static void no_rows(void **state)
{
    const wf_engine_options options = {.chunk = 32};
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    change_device(&t);
    device.later_ms = 30;
    wf_sequence *s = submit(*state, t.engine, 0, 100, 3);
    wt_ok(*state, wf_engine_step(t.engine, NULL));
    assert_int_equal(stats_of(t.engine).last.rows, 0);
    assert_true(stats_of(t.engine).last.nanoseconds >= 30000000);
    device.later_ms = 0;
    device.copy_fails = true; /* where the device reports what kernels found */
    const int64_t nodes = t.engine->prefix->count;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(wf_engine_step(t.engine, NULL), WF_ERR_DEVICE);
        assert_int_equal(t.engine->prefix->count, nodes);
    }
    device.copy_fails = false;
    run_all(*state, t.engine);
    assert_int_equal(wf_sequence_stop(s), WF_STOP_LIMIT);
    wf_sequence_free(s);
    close_changed(&t);
}

/* ---- Time ---- */

/* Returns the most prompt tokens of a step, from the third on, while another sequence generates. */
static int64_t longest_piece(wf_ctx *ctx, double step_ms)
{
    const wf_engine_options options = {
        .sequences = 2, .context = 1024, .chunk = 512, .step_ms = step_ms, .no_reuse = true};
    wt_talker t = wt_talker_open(ctx, "cpu:1", LONG, &options);
    change_device(&t);
    device.token_ms = 1;
    int64_t piece[64], most = 0;
    int n = 0;
    wf_sequence *first = submit(ctx, t.engine, 0, 40, 200);
    for (int i = 0; i < 3; i++)
        wt_ok(ctx, wf_engine_step(t.engine, NULL));
    wf_sequence *second = submit(ctx, t.engine, 100, 400, 1);
    while (wf_sequence_stop(second) == WF_UNFINISHED && n < 64) {
        wt_ok(ctx, wf_engine_step(t.engine, NULL));
        piece[n++] = stats_of(t.engine).last.prompt_tokens;
        assert_int_equal(wf_sequence_stop(first), WF_UNFINISHED);
        assert_int_equal(stats_of(t.engine).last.sequences, 2); /* the first one goes on */
    }
    assert_int_equal(wf_sequence_stop(second), WF_STOP_LIMIT);
    for (int i = 0; i < n; i++)
        most = piece[i] > most ? piece[i] : most;
    wf_sequence_free(first);
    wf_sequence_free(second);
    close_changed(&t);
    return most;
}

/* A run of a device whose tokens take a millisecond each holds no more of them than fit in step_ms.
 * On a machine that is busy they take longer, so fewer are right. */
static void step_time(void **state)
{
    assert_true(longest_piece(*state, 1e6) > 300);
    assert_in_range(longest_piece(*state, 60), 16,
                    66); /* a tenth more: clocks and sleep are rough */
    assert_in_range(longest_piece(*state, 30), 16, 33);
    assert_in_range(longest_piece(*state, 1), 16, 16); /* the least */
}

/* ---- Runs without memory ---- */

/* A run that finds no memory is done by a larger executable, and tried once. If the largest one
 * finds none either, the step fails, and succeeds when it is repeated with memory. */
static void no_memory_in_runs(void **state)
{
    const wf_engine_options options = {.sequences = 4, .chunk = 64, .no_reuse = true};
    int32_t want[9];
    size_t count, prompt;
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    change_device(&t);
    wf_sequence *s = submit(*state, t.engine, 0, 30, 9);
    run_all(*state, t.engine);
    memcpy(want, wf_sequence_tokens(s, &count, &prompt) + 30, sizeof want);
    wf_sequence_free(s);
    const int compiled = t.engine->buckets;
    device.fitting = 1000;
    s = submit(*state, t.engine, 0, 30, 9);
    wt_fails(*state, wf_engine_step(t.engine, NULL), WF_ERR_MEMORY, "no memory for this run");
    assert_int_equal(device.failed, 2); /* its own and the largest */
    device.failed = 0;
    device.fitting = 20; /* the prompt's run */
    run_all(*state, t.engine);
    assert_memory_equal(wf_sequence_tokens(s, &count, &prompt) + 30, want, sizeof want);
    assert_int_equal(device.failed, 1); /* the run of one token */
    assert_int_equal(t.engine->buckets, compiled);
    wf_sequence_free(s);
    close_changed(&t);
}

/* ---- Failing devices ---- */

enum { SEVERAL = 5 };

/* Submits prompts of several lengths, some with a common beginning. */
static void submit_several(wf_ctx *ctx, wf_engine *e, wf_sequence *s[SEVERAL])
{
    for (size_t i = 0; i < SEVERAL; i++)
        s[i] = submit(ctx, e, i < 2 ? 0 : 7 * i, 20 + 13 * i, (int64_t)(12 + 3 * i));
}

static void free_several(wf_sequence *s[SEVERAL])
{
    for (int i = 0; i < SEVERAL; i++)
        wf_sequence_free(s[i]);
}

static void expect_several(wf_sequence *s[SEVERAL], wf_sequence *want[SEVERAL])
{
    for (int i = 0; i < SEVERAL; i++) {
        size_t count, wants, prompt;
        const int32_t *ids = wf_sequence_tokens(want[i], &wants, &prompt);
        assert_int_equal(wf_sequence_stop(s[i]), WF_STOP_LIMIT);
        assert_memory_equal(wf_sequence_tokens(s[i], &count, &prompt), ids, wants * sizeof *ids);
        assert_int_equal(count, wants);
    }
}

/* Runs an engine whose device fails `kind` of calls for some steps. Failed steps have a message and
 * lose nothing: the repeated ones continue. */
static void run_failing(wf_ctx *ctx, wf_rng *r, const char *model, const char *kind,
                        const wf_engine_options *options)
{
    wf_sequence *want[SEVERAL], *s[SEVERAL];
    char message[64];
    int failed = 0;
    snprintf(message, sizeof message, "the device failed in %s", kind);
    wt_talker alone = wt_talker_open(ctx, "cpu:1", model, options),
              t = wt_talker_open(ctx, "cpu:1", model, options);
    submit_several(ctx, alone.engine, want);
    run_all(ctx, alone.engine);
    change_device(&t);
    submit_several(ctx, t.engine, s);
    for (bool busy = true; busy;) {
        const wf_engine_stats before = stats_of(t.engine);
        device.failing = failed == 0 || wf_rng_below(r, 3) > 0 ? kind : NULL;
        wf_ctx_clear(ctx);
        const wf_status status = wf_engine_step(t.engine, &busy);
        if (!device.failing)
            wt_ok(ctx, status);
        if (status == WF_OK)
            continue;
        wt_fails(ctx, status, WF_ERR_DEVICE, message);
        assert_int_equal(stats_of(t.engine).tokens, before.tokens);
        assert_int_equal(stats_of(t.engine).running + stats_of(t.engine).waiting,
                         before.running + before.waiting);
        failed++;
    }
    assert_true(failed > 0 && failed == device.failed);
    expect_several(s, want);
    assert_int_equal(stats_of(t.engine).pages_used, 0);
    free_several(s);
    free_several(want);
    close_changed(&t);
    wt_talker_close(&alone);
}

static void failing_device(void **state)
{
    static const char *const kinds[] = {"write", "compile", "run"};
    static const char *const models[] = {WHOLE, MIXED};
    static const wf_engine_options options[] = {
        {.sequences = 4, .context = 128, .chunk = 48},
        {.sequences = 5, .context = 128, .cache = 160, .chunk = 30}}; /* preempts */
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 81);
    for (int k = 0; k < 3; k++)
        for (int m = 0; m < 2; m++)
            for (int i = 0; i < 2; i++)
                run_failing(*state, &r, models[m], kinds[k], &options[i]);
}

/* ---- Executables ---- */

/* Engines have a bounded number of executables: the least recently used ones go. */
static void many_sizes(void **state)
{
    const wf_engine_options options = {.sequences = 32, .rows = 64, .context = 128, .chunk = 512};
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    wf_engine *e = t.engine;
    wf_ctx *ctx = *state;
    const wf_exec *largest = e->bucket[0].exec;
    const wf_bucket *b;
    uint64_t in = 0, full = 0;
    int sizes = 0;
    wf_sequence *s = submit(ctx, e, 0, 100, 3);
    run_all(ctx, e);
    in = stats_of(e).bytes_in;
    for (int64_t tokens = 1; tokens <= 512; tokens += tokens / 4 + 1)
        for (int64_t sequences = 1; sequences <= 32; sequences *= 4)
            for (int64_t rows = 1; rows <= 64; rows *= 4, sizes++) {
                wt_ok(ctx, wf_bucket_find(e, tokens, sequences, rows, &b));
                assert_true(b->tokens >= tokens && b->sequences >= sequences && b->rows >= rows);
                const wf_exec *exec = b->exec;
                wt_ok(ctx, wf_bucket_find(e, 3, 1, 1, &b)); /* this one is used all the time */
                wt_ok(ctx, wf_bucket_find(e, tokens, sequences, rows, &b));
                assert_ptr_equal(b->exec, exec);
                assert_true(e->buckets <= WF_MOST_BUCKETS);
                if (e->buckets == WF_MOST_BUCKETS && full == 0)
                    full = ctx->mem.live_bytes;
            }
    assert_true(sizes > 200 && full > 0 && ctx->mem.live_bytes < full + full / 2);
    assert_ptr_equal(e->bucket[0].exec, largest);
    assert_int_equal(stats_of(e).bytes_in, in);
    wf_sequence_free(s);
    s = submit(ctx, e, 0, 100, 3);
    run_all(ctx, e);
    assert_int_equal(wf_sequence_stop(s), WF_STOP_LIMIT);
    wf_sequence_free(s);
    wt_talker_close(&t);
}

/* ---- Creation ---- */

/* A device without threads of its own leaves sampling to those of the host. */
static void host_threads(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t blocks[2]; /* of memory: some for each sampling thread */
    for (int k = 0; k < 2; k++) {
        wt_talker t = {.ctx = ctx};
        wt_ok(ctx, wf_device_open(ctx, "cpu:1", &t.device));
        t.device->threads = k ? wf_threads_available() : 0;
        wt_ok(ctx, wf_model_open(ctx, WHOLE, &t.model));
        wt_ok(ctx, wf_engine_new(t.device, t.model, NULL, &t.engine));
        blocks[k] = wt_live_blocks(ctx);
        wt_talker_close(&t);
    }
    assert_int_equal(blocks[0], blocks[1]);
}

/* Every allocation of a new engine, or every few of them, fails once. */
static void no_memory_for_engines(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const models[] = {WHOLE, MIXED};
    const wf_engine_options options = {.sequences = 3, .context = 64};
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 80);
    for (int m = 0; m < 2; m++) {
        wt_talker t = {.ctx = ctx};
        wt_ok(ctx, wf_device_open(ctx, "cpu:1", &t.device));
        wt_ok(ctx, wf_model_open(ctx, models[m], &t.model));
        bool failed = true;
        const uint64_t before = wt_live_blocks(ctx);
        for (uint64_t nth = 1; failed; nth += 1 + wf_rng_below(&r, wt_cases(8) < 8 ? 8 : 1)) {
            wf_ctx_clear(ctx);
            wf_ctx_fail_allocation(ctx, nth);
            wf_status status = wf_engine_new(t.device, t.model, &options, &t.engine);
            failed = ctx->fail_in_calls == 0;
            wf_ctx_fail_allocation(ctx, 0);
            assert_int_equal(status, failed ? WF_ERR_MEMORY : WF_OK);
            assert_true(!failed || (!t.engine && wt_live_blocks(ctx) == before));
        }
        wt_talker_close(&t);
    }
}

/* The same for a plan that chooses sizes. */
static void no_memory_to_fit(void **state)
{
    wf_ctx *ctx = *state;
    wt_talker t = {.ctx = ctx};
    wf_engine_options chosen;
    wf_memory memory;
    bool failed = true;
    wt_ok(ctx, wf_device_open(ctx, "cpu:1", &t.device));
    wt_ok(ctx, wf_model_open(ctx, LONG, &t.model));
    const uint64_t before = wt_live_blocks(ctx);
    for (uint64_t nth = 1; failed; nth++) {
        wf_ctx_clear(ctx);
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status =
            wf_engine_fit(t.device, t.model, NULL, (size_t)64 << 20, &chosen, &memory);
        failed = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        assert_int_equal(status, failed ? WF_ERR_MEMORY : WF_OK);
        assert_int_equal(wt_live_blocks(ctx), before);
    }
    wf_model_close(t.model);
    wf_device_close(t.device);
}

/* ---- What a step reports ---- */

static void expect_step(const wf_engine *e, int64_t sequences, int64_t tokens,
                        int64_t prompt_tokens, int64_t rows, int64_t pages)
{
    const wf_engine_step_info last = stats_of(e).last;
    assert_int_equal(last.sequences, sequences);
    assert_int_equal(last.tokens, tokens);
    assert_int_equal(last.prompt_tokens, prompt_tokens);
    assert_int_equal(last.rows, rows);
    assert_int_equal(last.pages, pages);
    assert_int_equal(last.preempted, 0);
    assert_true(last.nanoseconds > 0);
}

static void step_info(void **state)
{
    const wf_engine_options options = {
        .sequences = 3, .chunk = 48, .step_ms = 1e6, .no_reuse = true}; /* no piece is smaller */
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    wf_sequence *s[4];
    for (size_t i = 0; i < 4; i++)
        s[i] = submit(*state, t.engine, i, i == 2 ? 60 : 14, 4);
    wt_ok(*state, wf_engine_step(t.engine, NULL)); /* two prompts, and 20 tokens of the third */
    expect_step(t.engine, 3, 48, 46, 2, 1 + 1 + 2);
    assert_int_equal(stats_of(t.engine).last.running, 3);
    assert_int_equal(stats_of(t.engine).last.waiting, 1);
    wt_ok(*state, wf_engine_step(t.engine, NULL)); /* the third's other 40 tokens */
    expect_step(t.engine, 3, 42, 39, 3, 1 + 1 + 4);
    wt_ok(*state, wf_engine_step(t.engine, NULL));
    expect_step(t.engine, 3, 3, 0, 3, 1 + 1 + 4);
    wt_ok(*state, wf_engine_step(t.engine, NULL)); /* tokens 17 of the first two: none, they end */
    expect_step(t.engine, 3, 3, 0, 3, 2 + 2 + 4);
    assert_int_equal(stats_of(t.engine).last.running, 1);
    wt_ok(*state, wf_engine_step(t.engine, NULL));
    expect_step(t.engine, 2, 15, 13, 2, 4 + 1);
    run_all(*state, t.engine);
    wt_ok(*state, wf_engine_step(t.engine, NULL)); /* nothing to do */
    assert_int_equal(stats_of(t.engine).last.tokens, 0);
    assert_int_equal(stats_of(t.engine).last.pages, 0);
    for (int i = 0; i < 4; i++)
        wf_sequence_free(s[i]);
    wt_talker_close(&t);
}

/* Steps add up to the totals, also with preemptions. */
static void step_sums(void **state)
{
    enum { N = 10 };
    const wf_engine_options options = {
        .sequences = 6, .context = 128, .cache = 192, .chunk = 40, .no_reuse = true};
    wt_talker t = wt_talker_open(*state, "cpu:1", WHOLE, &options);
    wf_sequence *s[N];
    wf_engine_stats sum = {0};
    int64_t events = 0;
    for (size_t i = 0; i < N; i++) {
        const wf_request request = {.limit = 60, .ignore_end = true, .priority = (int)(i / 3)};
        wt_ok(*state, wf_engine_submit(t.engine, text + i, 30, &request, &s[i]));
        wt_ok(*state, wf_engine_step(t.engine, NULL)); /* each third one is more urgent */
        sum.last = stats_of(t.engine).last;
        sum.preemptions += (uint64_t)sum.last.preempted;
        sum.prompt_tokens += (uint64_t)sum.last.prompt_tokens;
        sum.steps += sum.last.tokens > 0;
    }
    for (bool busy = true; busy;) {
        size_t count;
        wt_ok(*state, wf_engine_step(t.engine, &busy));
        sum.last = stats_of(t.engine).last;
        sum.preemptions += (uint64_t)sum.last.preempted;
        sum.prompt_tokens += (uint64_t)sum.last.prompt_tokens;
        sum.steps += sum.last.tokens > 0;
        assert_true(sum.last.rows <= sum.last.tokens && sum.last.pages <= 12);
        const wf_engine_event *event = wf_engine_events(t.engine, &count);
        for (size_t i = 0; i < count; i++)
            events += event[i].kind == WF_EVENT_TOKEN;
    }
    const wf_engine_stats all = stats_of(t.engine);
    assert_true(all.preemptions > 0 && events > 0);
    assert_int_equal(sum.preemptions, all.preemptions);
    assert_int_equal(sum.prompt_tokens, all.prompt_tokens);
    assert_int_equal(sum.steps, all.steps);
    assert_int_equal(all.tokens, N * 60);
    for (int i = 0; i < N; i++)
        wf_sequence_free(s[i]);
    wt_talker_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        device_test(no_rows),           device_test(step_time),
        device_test(no_memory_in_runs), device_test(many_sizes),
        device_test(host_threads),      device_test(no_memory_for_engines),
        device_test(no_memory_to_fit),  device_test(step_info),
        device_test(step_sums),         device_test(failing_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
