/* SPDX-License-Identifier: MIT */
/*
 * test_engine.c - exact answers: a sequence's tokens and text depend on its request only.
 *
 * Random requests run alone, then together under settings that change the order of everything:
 * batches, chunks, pools that are too small, no reuse, threads. Every answer must be the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/philox.h"
#include "infer/engine.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

enum { MOST_PROMPT = 100, MOST_NEW = 64, BEGINNINGS = 4, MOST_REQUESTS = 200 };

/* WEFT_ENGINE_DEVICE=NAME: the device that runs. */
static const char *device_name(void)
{
    const char *name = getenv("WEFT_ENGINE_DEVICE");
    return name ? name : "cpu:2";
}

/* ---- Requests ---- */

typedef struct {
    int32_t prompt[MOST_PROMPT];
    size_t count;
    wf_request request;
    wf_logit_bias bias;
    const char *stop[1];
} question;

/* An answer, or a hash of logits. */
typedef struct {
    int32_t id[MOST_NEW];
    size_t count;
    char text[16 * MOST_NEW];
    wf_stop stop;
    double sum; /* of the logits of a scored prompt, weighed by position */
} answer;

static int64_t pick(wf_rng *r, int64_t low, int64_t high)
{
    return low + (int64_t)wf_rng_below(r, (uint64_t)(high - low + 1));
}

static wf_status add_logits(void *user, size_t i, const float *logits, size_t vocab)
{
    answer *a = user;
    for (size_t k = 0; k < vocab; k++)
        a->sum += (double)logits[k] * (double)((i * 31 + k) % 97 + 1);
    return WF_OK;
}

static void draw_sampling(wf_rng *r, question *q)
{
    wf_sampling *s = &q->request.sampling;
    if (pick(r, 0, 2) == 0) /* greedy */
        return;
    s->temperature = 0.5 + wf_rng_unit(r);
    s->top_k = pick(r, 0, 1) * pick(r, 1, 40);
    s->top_p = pick(r, 0, 1) ? 0.5 + 0.5 * wf_rng_unit(r) : 0;
    s->seed = (uint64_t)pick(r, 0, 1000);
    if (pick(r, 0, 2) == 0) {
        s->repeat_penalty = 1.3;
        s->penalty_last = pick(r, -1, 20);
    }
    if (pick(r, 0, 3) == 0) {
        q->bias = (wf_logit_bias){(int32_t)pick(r, 0, 200), 2};
        s->bias = &q->bias;
        s->biases = 1;
    }
}

/* Half of the prompts begin with one of a few common texts. */
static void draw(wf_rng *r, int64_t vocab, const int32_t (*beginning)[MOST_PROMPT], question *q)
{
    *q = (question){.count = (size_t)pick(r, 1, MOST_PROMPT)};
    const int32_t *from = pick(r, 0, 1) ? beginning[pick(r, 0, BEGINNINGS - 1)] : NULL;
    size_t common = from ? (size_t)pick(r, 0, (int64_t)q->count) : 0;
    for (size_t i = 0; i < q->count; i++)
        q->prompt[i] = i < common ? from[i] : (int32_t)pick(r, 0, vocab - 1);
    q->request = (wf_request){.limit = pick(r, 0, 7) ? pick(r, 1, 16) : MOST_NEW,
                              .ignore_end = pick(r, 0, 3) > 0,
                              .priority = (int)pick(r, -1, 1),
                              .key = (uint64_t)pick(r, 0, 3),
                              .salt = (uint64_t)pick(r, 0, 1)};
    draw_sampling(r, q);
    if (pick(r, 0, 4) == 0) {
        q->stop[0] = "e";
        q->request.stop = q->stop;
        q->request.stops = 1;
    }
    if (pick(r, 0, 9) == 0) {
        q->request.logits = add_logits;
        q->request.logits_from = (size_t)pick(r, 0, (int64_t)q->count - 1);
    }
}

/* ---- Running ---- */

static void collect(wf_sequence *s, answer *a)
{
    size_t bytes, total, prompt;
    const char *text = wf_sequence_text(s, &bytes);
    const int32_t *ids = wf_sequence_tokens(s, &total, &prompt);
    a->stop = wf_sequence_stop(s);
    if (a->stop == WF_STOP_ERROR)
        fail_msg("%s", wf_sequence_error(s, NULL));
    a->count = total - prompt;
    assert_true(a->count <= MOST_NEW && bytes < sizeof a->text);
    memcpy(a->id, ids + prompt, a->count * sizeof *ids);
    memcpy(a->text, text, bytes);
    a->text[bytes] = '\0';
}

static wf_sequence *submit(wf_ctx *ctx, wf_engine *e, const question *q, answer *a)
{
    wf_request request = q->request;
    wf_sequence *s;
    request.user = a;
    wt_ok(ctx, wf_engine_submit(e, q->prompt, q->count, &request, &s));
    return s;
}

static void check_empty(const wf_engine *e)
{
    wf_engine_stats stats;
    wf_engine_get_stats(e, &stats);
    assert_int_equal(stats.pages_used, 0);
    assert_int_equal(stats.running, 0);
    assert_int_equal(stats.waiting, 0);
}

/* Answers all questions, at most `at_once` submitted at a time; 0: all. */
static void answer_all(wf_ctx *ctx, wf_engine *e, const question *q, int n, int at_once, answer *a)
{
    wf_sequence *s[MOST_REQUESTS] = {0};
    memset(a, 0, (size_t)n * sizeof *a);
    for (int from = 0; from < n; from += at_once ? at_once : n) {
        int end = at_once && from + at_once < n ? from + at_once : n;
        for (int i = from; i < end; i++)
            s[i] = submit(ctx, e, &q[i], &a[i]);
        for (bool busy = true; busy;)
            wt_ok(ctx, wf_engine_step(e, &busy));
        for (int i = from; i < end; i++) {
            collect(s[i], &a[i]);
            wf_sequence_free(s[i]);
        }
    }
    check_empty(e);
}

static void compare(const char *name, const char *how, const answer *want, const answer *got, int n)
{
    for (int i = 0; i < n; i++) {
        bool same = want[i].count == got[i].count && want[i].stop == got[i].stop &&
                    memcmp(want[i].id, got[i].id, want[i].count * sizeof *want[i].id) == 0 &&
                    strcmp(want[i].text, got[i].text) == 0 && want[i].sum == got[i].sum;
        if (!same)
            fail_msg("%s, %s: request %d of %d has another answer (%zu and %zu tokens, sums %.17g "
                     "and %.17g)",
                     name, how, i, n, want[i].count, got[i].count, want[i].sum, got[i].sum);
    }
}

/* ---- Settings ---- */

/* A way to answer the same questions. */
typedef struct {
    const char *name;
    wf_engine_options options;
    const char *device; /* NULL: the test's */
    bool preempts;      /* the pool is too small: some sequences may be preempted */
} setting;

static const setting settings[] = {
    {"32 at a time", {.sequences = 32}, NULL, false},
    {"small pool", {.sequences = 8, .context = 128, .cache = 160, .step_ms = 1e6}, NULL, true},
    {"small pool, small chunks", {.sequences = 12, .cache = 256, .chunk = 13}, NULL, true},
    {"no reuse", {.sequences = 32, .no_reuse = true}, NULL, false},
    {"no reuse, small pool", {.sequences = 9, .cache = 200, .no_reuse = true}, NULL, true},
    {"short steps", {.sequences = 16, .step_ms = 1e-3}, NULL, false},
    {"long steps, chunks of 40", {.sequences = 16, .step_ms = 1e6, .chunk = 40}, NULL, false},
    {"many rows", {.sequences = 5, .rows = 64}, NULL, false},
    {"one thread", {.sequences = 7}, "cpu:1", false},
    {"three threads", {.sequences = 32}, "cpu:3", false},
};

/* Returns how many sequences were preempted. */
static uint64_t run_setting(wf_ctx *ctx, const char *path, const setting *how, wf_kv kv,
                            const question *q, const answer *want, answer *got, int n)
{
    wf_engine_options options = how->options;
    wf_engine_stats stats;
    const bool named = getenv("WEFT_ENGINE_DEVICE") != NULL;
    options.kv = kv;
    if (how->device && named) /* another device has no threads to vary */
        return 0;
    wt_talker t = wt_talker_open(ctx, how->device ? how->device : device_name(), path, &options);
    answer_all(ctx, t.engine, q, n, 0, got);
    compare(path, how->name, want, got, n);
    wf_engine_get_stats(t.engine, &stats);
    assert_true(how->preempts || stats.preemptions == 0);
    if (options.no_reuse)
        assert_int_equal(stats.pages_cached, 0);
    answer_all(ctx, t.engine, q, n, 20, got); /* again, with pages of the first time */
    compare(path, how->name, want, got, n);
    wf_memory memory, planned;
    wf_engine_memory(t.engine, &memory);
    wt_ok(ctx, wf_engine_plan(t.device, t.model, &options, &planned));
    assert_int_equal(memory.states, planned.states);
    assert_int_equal(memory.ports, planned.ports);
    assert_int_equal(memory.region, planned.region);
    wt_talker_close(&t);
    return stats.preemptions;
}

/* WEFT_ENGINE_SHARE=N runs one in N of the requests, for slow kernels. From N = 16 on it runs three
 * of four tests, each with one model and two settings; from N = 64 on one of them. WEFT_ALL_CASES=1
 * runs all. The seed chooses. */
static int share(void)
{
    const char *n = getenv("WEFT_ENGINE_SHARE");
    const int value = n && !getenv("WEFT_ALL_CASES") ? atoi(n) : 1;
    return value > 0 ? value : 1;
}

/* BLOCKS runs beside WHOLE_CONTEXTS, because not all devices have blocks. */
enum { WHOLE_CONTEXTS, WINDOWS, QUANTIZED, WIDE_WINDOWS, TESTS, BLOCKS = TESTS };

/* Returns whether this run leaves the test out. */
static bool left_out(uint64_t test)
{
    const uint64_t run = share() < 16 ? TESTS : share() < 64 ? 3 : 1;
    return (wt_seed() / 4 + test) % TESTS >= run;
}

enum { SETTINGS = sizeof settings / sizeof *settings, FEW_SETTINGS = 2 };

static void run_path(wf_ctx *ctx, const char *path, wf_kv kv, uint64_t stream)
{
    static question q[MOST_REQUESTS];
    static answer want[MOST_REQUESTS], got[MOST_REQUESTS];
    static int32_t beginning[BEGINNINGS][MOST_PROMPT];
    const wf_engine_options alone = {.kv = kv, .no_reuse = true};
    const int n = wt_cases(MOST_REQUESTS / share());
    const int some = share() < 16 ? SETTINGS : FEW_SETTINGS;
    uint64_t preempted = 0;
    wf_rng r;
    wf_rng_init(&r, wt_seed(), stream);
    wt_talker t = wt_talker_open(ctx, device_name(), path, &alone);
    for (int b = 0; b < BEGINNINGS; b++)
        for (int i = 0; i < MOST_PROMPT; i++)
            beginning[b][i] = (int32_t)pick(&r, 0, t.engine->vocab - 1);
    for (int i = 0; i < n; i++)
        draw(&r, t.engine->vocab, beginning, &q[i]);
    answer_all(ctx, t.engine, q, n, 1, want);
    const bool whole = t.engine->caches.cache[0].kind == WF_CACHE_WHOLE;
    wt_talker_close(&t);
    const int64_t first = pick(&r, 0, SETTINGS - 1);
    for (int i = 0; i < some; i++)
        preempted += run_setting(ctx, path, &settings[(first + i * SETTINGS / some) % SETTINGS], kv,
                                 q, want, got, n);
    assert_true(preempted > 0 || n < MOST_REQUESTS || !whole);
}

static void run_model(wf_ctx *ctx, const char *name, wf_kv kv, uint64_t stream)
{
    char path[128];
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", name);
    run_path(ctx, path, kv, stream);
}

/* Runs both models, or one of them. */
static void run_models(wf_ctx *ctx, const char *const name[2], const wf_kv kv[2], uint64_t stream)
{
    if (left_out(stream))
        return;
    for (uint64_t i = 0; i < 2; i++)
        if (share() < 16 || i == (wt_seed() + stream) % 2)
            run_model(ctx, name[i], kv[i], 2 * stream + i);
}

static void whole_contexts(void **state)
{
    run_models(*state, (const char *[]){"llama", "gpt2"}, (wf_kv[]){WF_KV_F16, WF_KV_F32},
               WHOLE_CONTEXTS);
}

/* Engines with pools of blocks are refused before they load anything. */
static void refuse_blocks(wf_ctx *ctx)
{
    const wf_engine_options options = {.kv = WF_KV_Q8_0};
    wf_device *device;
    wf_model *m;
    wf_memory memory;
    wt_ok(ctx, wf_device_open(ctx, device_name(), &device));
    wt_ok(ctx, wf_model_open(ctx, WT_MODELS_FOLDER "/llama", &m));
    wt_fails(ctx, wf_engine_plan(device, m, &options, &memory), WF_ERR_UNSUPPORTED,
             "no kernel for kv_append");
    wf_model_close(m);
    wf_device_close(device);
}

/* Keys and values in blocks, of heads that are whole blocks. */
static void blocks(void **state)
{
    if (strcmp(device_name(), "cuda") == 0) {
        refuse_blocks(*state);
        return;
    }
    run_models(*state, (const char *[]){"llama", "qwen3"}, (wf_kv[]){WF_KV_Q8_0, WF_KV_Q8_0},
               BLOCKS);
}

static void windows(void **state)
{
    run_models(*state, (const char *[]){"mistral", "olmo3"}, (wf_kv[]){WF_KV_F16, WF_KV_BF16},
               WINDOWS);
}

/* ---- Changed models ---- */

/* Weights of 8 or 4 bits, which matmuls read as they are. */
static void quantized(void **state)
{
    wf_ctx *ctx = *state;
    const wf_convert_options o = {.type = wt_seed() % 2 ? "q8_0" : "q4_0", .pure = true};
    char path[256];
    wt_scratch s;
    wf_model *m;
    if (left_out(QUANTIZED))
        return;
    wt_scratch_make(&s);
    snprintf(path, sizeof path, "%s", wt_path(&s, "quantized.gguf"));
    wt_ok(ctx, wf_model_open(ctx, WT_MODELS_FOLDER "/llama", &m));
    wt_ok(ctx, wf_model_convert(m, ctx, path, &o));
    wf_model_close(m);
    run_path(ctx, path, WF_KV_F16, 2 * QUANTIZED);
    wt_scratch_remove(&s);
}

/* Copies a file of a fixture. change NULL: as it is; otherwise its first `change[0]` becomes
 * `change[1]`. */
static void copy_file(wf_ctx *ctx, wt_scratch *s, const char *model, const char *file,
                      const char *const *change)
{
    char path[256], *text;
    size_t bytes;
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s/%s", model, file);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 24, &text, &bytes));
    if (change) {
        const char *at = strstr(text, change[0]);
        char changed[8192];
        assert_non_null(at);
        snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, change[1],
                 at + strlen(change[0]));
        wt_put_text(s, file, changed);
    } else {
        wt_put(s, file, text, bytes);
    }
    wf_mem_free(ctx, text);
}

/* Windows of several pages, in all layers or beside a layer without a window. */
static void wide_windows(void **state)
{
    static const char *const files[] = {"model.safetensors", "tokenizer.json",
                                        "tokenizer_config.json", "generation_config.json"};
    static const char *const changes[][2] = {{"\"sliding_window\": 7", "\"sliding_window\": 40"},
                                             {"\"sliding_window\": 8", "\"sliding_window\": 40"}};
    const bool mixed = wt_seed() / 2 % 2;
    const char *model = mixed ? "olmo3" : "mistral";
    wt_scratch s;
    if (left_out(WIDE_WINDOWS))
        return;
    wt_scratch_make(&s);
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        copy_file(*state, &s, model, files[i], NULL);
    copy_file(*state, &s, model, "config.json", changes[mixed]);
    run_path(*state, s.folder, WF_KV_F16, 2 * WIDE_WINDOWS);
    wt_scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(whole_contexts), wt_test(blocks),       wt_test(windows),
        wt_test(quantized),      wt_test(wide_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
