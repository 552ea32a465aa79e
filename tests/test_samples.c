/* SPDX-License-Identifier: MIT */
/*
 * test_samples.c - samples of a model in training: they are those of the same weights in an engine
 * of their own, take exactly the planned memory, and leave training and checkpoints as they are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "infer/engine.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"
#include "train/fit.h"
#include "train/generate.h"
#include "train/trainer.h"

enum { VOCAB = 320, MOST = 2048 };

/* ---- Trainers ---- */

/* WEFT_FAMILIES_DEVICE=NAME: the device that trains. */
static wf_device *open_device(wf_ctx *ctx)
{
    const char *name = getenv("WEFT_FAMILIES_DEVICE");
    wf_device *device;
    wt_ok(ctx, wf_device_open(ctx, name ? name : "cpu:2", &device));
    return device;
}

static wf_trainer *open_trainer(wf_device *device, const wf_train_options *options,
                                int64_t sample_tokens)
{
    wf_train_options o = *options;
    wf_setup setup;
    wf_trainer *t;
    o.steps = 20;
    wt_ok(device->ctx, wf_setup_make(device->ctx, &o, o.model ? 0 : VOCAB, &setup));
    setup.sample_tokens = sample_tokens;
    wt_ok(device->ctx, wf_trainer_make(device, NULL, &setup, 0, &t));
    return t;
}

typedef struct {
    int32_t tokens[MOST], targets[MOST], positions[MOST], starts[MOST];
    wf_batch batch;
} lesson;

static wf_status next(void *user, int64_t index, const wf_batch **out)
{
    (void)index;
    *out = &((lesson *)user)->batch;
    return WF_OK;
}

/* A batch of a pattern that repeats. */
static void make_lesson(lesson *l, const wf_trainer *t)
{
    wf_train_info i;
    wf_trainer_get_info(t, &i);
    const int64_t n = i.batch * i.length;
    assert_true(n <= MOST && i.sequences < MOST);
    for (int64_t k = 0; k < n; k++) {
        l->tokens[k] = (int32_t)(k * 7 % 250);
        l->targets[k] = (int32_t)((k + 1) * 7 % 250);
        l->positions[k] = (int32_t)(k % i.length);
    }
    for (int64_t k = 0; k <= i.sequences; k++)
        l->starts[k] = (int32_t)(k < i.batch ? k * i.length : n);
    l->batch = (wf_batch){.tokens = l->tokens,
                          .targets = l->targets,
                          .positions = l->positions,
                          .seq_start = l->starts,
                          .valid = n};
}

static double step(wf_trainer *t, lesson *l)
{
    wf_train_step s;
    wt_ok(t->ctx, wf_trainer_step(t, next, l, &s));
    return s.loss;
}

/* Samples and returns the number of tokens in ids, which has room for `limit`. */
static size_t sample(wf_trainer *t, const int32_t *prompt, size_t count, int64_t limit,
                     const wf_sampling *how, int32_t *ids)
{
    int32_t *got;
    size_t n;
    wt_ok(t->ctx, wf_trainer_generate(t, prompt, count, limit, how, &got, &n));
    assert_true(n <= (size_t)limit);
    memcpy(ids, got, n * sizeof *ids);
    wf_ids_free(t->ctx, got);
    return n;
}

/* ---- The same text ---- */

/* Greedy samples of every family are those of transformers, up to a token that ends a text: when
 * all weights are trained, whose rows have the order of checkpoints, and when they are frozen under
 * adapters, which start as zero. The length is that of the text, because frequencies depend on
 * it. */
static void test_families(void **state)
{
    wf_device *device = open_device(*state);
    int count = 0;
    while (wt_models[count])
        count++;
    for (int i = 0; i < 2 * wt_cases(count); i++) {
        const char *name = wt_models[((uint64_t)(i / 2) + wt_seed()) % (uint64_t)count];
        wt_reference r;
        int32_t ids[MOST];
        wt_reference_read(name, &r);
        const wf_train_options o = {.model = r.path,
                                    .batch = 1,
                                    .length = (int64_t)(r.prompt_count + r.greedy_count),
                                    .lora = i % 2 * 4};
        wf_trainer *t = open_trainer(device, &o, 0);
        size_t n =
            sample(t, r.prompt, r.prompt_count, (int64_t)r.greedy_count, &(wf_sampling){0}, ids);
        bool ended = n < r.greedy_count && wf_tokenizer_ends(t->tokenizer, r.greedy[n]);
        if ((n < r.greedy_count && !ended) || memcmp(ids, r.greedy, n * sizeof *ids) != 0)
            fail_msg("%s, %s: another text than that of transformers", name,
                     o.lora ? "adapters" : "all weights");
        wf_trainer_free(t);
        wt_reference_free(&r);
    }
    wf_device_close(device);
}

/* Samples from the exported model in an engine of its own. */
static size_t sample_exported(wf_trainer *t, const int32_t *prompt, size_t count, int64_t limit,
                              const wf_sampling *how, int32_t *ids)
{
    wt_scratch scratch;
    size_t n;
    wt_scratch_make(&scratch);
    wt_ok(t->ctx, wf_trainer_export(t, wt_path(&scratch, "model"), NULL));
    const wf_engine_options options = {.kv = WF_KV_F32};
    const wf_request request = {.limit = limit, .sampling = *how};
    wt_talker talker = wt_talker_open(t->ctx, "cpu:2", wt_path(&scratch, "model"), &options);
    wf_sequence *s;
    wt_ok(t->ctx, wf_engine_submit(talker.engine, prompt, count, &request, &s));
    for (bool busy = true; busy;)
        wt_ok(t->ctx, wf_engine_step(talker.engine, &busy));
    const int32_t *all = wf_sequence_tokens(s, &n, NULL);
    n -= count;
    memcpy(ids, all + count, n * sizeof *ids);
    wf_sequence_free(s);
    wt_talker_close(&talker);
    wt_scratch_remove(&scratch);
    return n;
}

/* After each step, a sample is that of the weights, or averages, at this step, and every token sees
 * the whole text, which exceeds a page and a chunk of any kernel. */
static void test_follows_weights(void **state)
{
    static const wf_train_options setups[] = {
        {.depth = 1, .batch = 2, .length = 256, .rate = 3e-2, .warmup = -1},
        {.depth = 1, .batch = 2, .length = 256, .rate = 3e-2, .warmup = -1, .ema = 0.5}};
    wf_device *device = open_device(*state);
    const int32_t prompt[] = {7, 14, 21};
    for (size_t i = 0; i < 2; i++) {
        static lesson l;
        int32_t ids[MOST], want[MOST], before[MOST] = {0};
        wf_trainer *t = open_trainer(device, &setups[i], 203);
        make_lesson(&l, t);
        for (int k = 0; k < 3; k++) {
            const wf_sampling how = {.temperature = 1, .seed = 5};
            const size_t n = sample(t, prompt, 3, 200, &how, ids);
            assert_int_equal(n, 200);
            assert_int_equal(sample_exported(t, prompt, 3, 200, &how, want), n);
            assert_memory_equal(ids, want, n * sizeof *ids);
            assert_memory_not_equal(ids, before, n * sizeof *ids);
            memcpy(before, ids, n * sizeof *ids);
            step(t, &l);
        }
        wf_trainer_free(t);
    }
    wf_device_close(device);
}

/* ---- Memory ---- */

#define LLAMA .model = WT_MODELS_FOLDER "/llama"
static const wf_train_options setups[] = {
    {.depth = 1, .batch = 2, .length = 32},
    {.depth = 2, .batch = 1, .length = 64, .accumulate = 2, .optimizer = "muon"},
    {.depth = 1, .batch = 2, .length = 48, .compute = WF_BF16},
    {.depth = 1, .batch = 2, .length = 64, .compute = WF_F16, .recompute = 1},
    {.depth = 1, .batch = 2, .length = 33, .ema = 0.9, .documents = true, .dropout = 0.1},
    {LLAMA, .batch = 2, .length = 32},
    {LLAMA, .batch = 2, .length = 32, .lora = 4, .lora_dropout = 0.1},
    {.model = WT_MODELS_FOLDER "/gpt2", .batch = 2, .length = 24, .lora = 2, .accumulate = 2},
    {.model = WT_MODELS_FOLDER "/mistral", .batch = 1, .length = 32},
};
enum { SETUPS = sizeof setups / sizeof *setups };

static wf_setup_plan plan(wf_device *device, const wf_train_options *options, int64_t tokens)
{
    wf_train_options o = *options;
    wf_setup s;
    wf_setup_plan out;
    o.steps = 20;
    wt_ok(device->ctx, wf_setup_make(device->ctx, &o, o.model ? 0 : VOCAB, &s));
    s.sample_tokens = tokens;
    wt_ok(device->ctx, wf_setup_plan_memory(&s, device, NULL, &out));
    wf_setup_free(&s);
    return out;
}

/* Steps and samples take no more than the trainer did when it was made, and that is the plan. */
static void test_planned(void **state)
{
    static lesson l;
    for (int i = 0; i < SETUPS; i++) {
        wf_device *device = open_device(*state);
        const int64_t tokens = 30;
        const wf_setup_plan with = plan(device, &setups[i], tokens);
        const wf_setup_plan without = plan(device, &setups[i], 0);
        const int32_t prompt[] = {1, 2, 3};
        int32_t ids[MOST];
        wf_train_info info;
        size_t now, peak;
        assert_int_equal(without.samples, 0);
        assert_true(with.samples > 0 && with.total > without.total);
        assert_int_equal(with.weights, without.weights);
        wf_trainer *t = open_trainer(device, &setups[i], tokens);
        make_lesson(&l, t);
        for (int k = 0; k < 2; k++) {
            step(t, &l);
            sample(t, prompt, 3, tokens - 3, &(wf_sampling){0}, ids);
        }
        wf_trainer_get_info(t, &info);
        wf_device_memory(device, &now, &peak);
        assert_int_equal(info.memory.states, with.memory.states);
        assert_int_equal(info.memory.ports, with.memory.ports);
        assert_int_equal(info.memory.region, with.memory.region);
        assert_int_equal(now, with.total);
        assert_int_equal(peak, with.total);
        wf_trainer_free(t);
        wf_device_close(device);
    }
}

/* A sample that was not planned makes an engine, and a longer one replaces it. Neither changes what
 * shorter samples say. */
static void test_grows(void **state)
{
    wf_device *device = open_device(*state);
    const wf_train_options o = {.depth = 1, .batch = 1, .length = 128};
    const int32_t prompt[] = {9, 8, 7, 6};
    const wf_sampling how = {.temperature = 1, .seed = 2};
    int32_t first[MOST], ids[MOST];
    size_t before, small, large, peak;
    wf_trainer *t = open_trainer(device, &o, 0);
    wf_device_memory(device, &before, &peak);
    assert_int_equal(before, plan(device, &o, 0).total);
    assert_int_equal(sample(t, prompt, 4, 8, &how, first), 8);
    wf_device_memory(device, &small, &peak);
    assert_true(small > before);
    assert_int_equal(sample(t, prompt, 4, 100, &how, ids), 100);
    assert_memory_equal(ids, first, 8 * sizeof *ids);
    wf_device_memory(device, &large, &peak);
    assert_true(large > small);
    assert_int_equal(sample(t, prompt, 4, 8, &how, ids), 8);
    assert_memory_equal(ids, first, 8 * sizeof *ids);
    wf_device_memory(device, &small, &peak);
    assert_int_equal(small, large);
    int pools = 0;
    wf_info s;
    for (int i = 0; wf_session_state(t->session, i, &s); i++)
        pools += wf_is_pool(s.name);
    assert_int_equal(pools, 2); /* those of the first engine are gone */
    wf_trainer_free(t);
    wf_device_close(device);
}

/* Every allocation of an engine in a trainer's session fails once. The trainer has no engine then,
 * holds what it held, and makes one later. */
static void test_no_memory(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device = open_device(ctx);
    const wf_train_options o = {.depth = 1, .batch = 1, .length = 128};
    wf_trainer *t = open_trainer(device, &o, 0);
    bool failed = true;
    const uint64_t before = wt_live_blocks(ctx);
    for (uint64_t nth = 1; failed; nth++) {
        wf_ctx_clear(ctx);
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_trainer_attach(t, 64);
        failed = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        assert_int_equal(status, failed ? WF_ERR_MEMORY : WF_OK);
        assert_true(failed == !t->engine);
        assert_true(!failed || wt_live_blocks(ctx) <= before + 2); /* a buffer of shared ports */
    }
    wf_trainer_free(t);
    wf_device_close(device);
}

/* ---- Training is not affected ---- */

/* Fails unless both folders contain the same files. */
static void expect_same_files(wf_ctx *ctx, const char *a, const char *b)
{
    DIR *folder = opendir(a);
    int files = 0;
    assert_non_null(folder);
    for (struct dirent *f; (f = readdir(folder));) {
        char path[2][1024], *text[2];
        size_t bytes[2];
        if (f->d_name[0] == '.')
            continue;
        snprintf(path[0], sizeof path[0], "%s/%s", a, f->d_name);
        snprintf(path[1], sizeof path[1], "%s/%s", b, f->d_name);
        for (int i = 0; i < 2; i++)
            wt_ok(ctx, wf_file_read(ctx, path[i], 1 << 26, &text[i], &bytes[i]));
        if (bytes[0] != bytes[1] || memcmp(text[0], text[1], bytes[0]) != 0)
            fail_msg("%s differs with samples", f->d_name);
        wf_mem_free(ctx, text[0]);
        wf_mem_free(ctx, text[1]);
        files++;
    }
    closedir(folder);
    assert_true(files >= 3);
}

/* A trainer that samples between its steps has the same losses, and the same bytes in its
 * checkpoint, as one that does not; the checkpoint continues in one that does not. */
static void test_training_is_the_same(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device = open_device(ctx);
    for (int i = 0; i < SETUPS; i++) {
        static lesson l;
        const int32_t prompt[] = {1, 2, 3};
        wt_scratch scratch;
        char folder[2][512];
        wt_scratch_make(&scratch);
        wf_trainer *t[2] = {open_trainer(device, &setups[i], 0),
                            open_trainer(device, &setups[i], 20)};
        make_lesson(&l, t[0]);
        for (int k = 0; k < 4; k++) {
            const wf_sampling how = {.temperature = 1, .seed = (uint64_t)k};
            int32_t ids[MOST];
            sample(t[1], prompt, 3, k < 2 ? 17 : 28, &how, ids);
            const double loss[2] = {step(t[0], &l), step(t[1], &l)};
            assert_memory_equal(&loss[0], &loss[1], sizeof loss[0]);
        }
        for (int k = 0; k < 2; k++) {
            snprintf(folder[k], sizeof folder[k], "%s", wt_path(&scratch, k ? "with" : "without"));
            wt_ok(ctx, wf_path_make_folder(ctx, folder[k]));
            wt_ok(ctx, wf_trainer_save(t[k], folder[k]));
        }
        expect_same_files(ctx, folder[0], folder[1]);
        bool exact;
        wt_ok(ctx, wf_trainer_load(t[0], folder[1], &exact));
        wf_trainer_free(t[0]);
        wf_trainer_free(t[1]);
        wt_scratch_remove(&scratch);
    }
    wf_device_close(device);
}

/* ---- Limits ---- */

static void test_limits(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device = open_device(ctx);
    const wf_train_options o = {.depth = 1, .batch = 1, .length = 32};
    wf_trainer *t = open_trainer(device, &o, 0);
    int32_t prompt[33] = {0}, ids[MOST], *got;
    const wf_sampling how = {0};
    size_t n;
    assert_int_equal(sample(t, prompt, 1, 0, &how, ids), 0);
    assert_int_equal(sample(t, prompt, 2, 64, &how, ids), 30); /* the context is 32 */
    assert_int_equal(sample(t, prompt, 32, 4, &how, ids), 0);
    wt_fails(ctx, wf_trainer_generate(t, prompt, 33, 4, &how, &got, &n), WF_ERR_USAGE,
             "the prompt has 33 tokens, but the model's context is 32");
    wt_fails(ctx, wf_trainer_generate(t, prompt, 0, 4, &how, &got, &n), WF_ERR_USAGE,
             "the prompt is empty");
    wt_fails(ctx, wf_trainer_generate(t, prompt, 1, -1, &how, &got, &n), WF_ERR_USAGE,
             "limit is -1, but must be 0 to 1048576 tokens");
    prompt[0] = 1 << 20;
    wt_fails(ctx, wf_trainer_generate(t, prompt, 1, 4, &how, &got, &n), WF_ERR_USAGE,
             "token 1048576");
    prompt[0] = 0;
    /* Weights that became NaN fail the sample, not the trainer. */
    wf_info s;
    for (int i = 0; wf_session_state(t->session, i, &s); i++)
        if (strcmp(s.name, "output_norm.weight") == 0) {
            float *x = malloc(s.bytes);
            assert_non_null(x);
            for (size_t k = 0; k < s.bytes / sizeof *x; k++)
                x[k] = NAN;
            wt_ok(ctx, wf_session_write(t->session, s.name, x, s.bytes));
            free(x);
        }
    wt_fails(ctx, wf_trainer_generate(t, prompt, 1, 4, &how, &got, &n), WF_ERR_DEVICE, "NaN");
    wf_trainer_free(t);
    wf_device_close(device);

    static const struct {
        wf_run_options o;
        int64_t tokens;
    } runs[] = {
        {{.sample_tokens = 5}, 0}, /* off */
        {{.sample_every = 1}, 1 + WF_SAMPLE_TOKENS},
        {{.sample_every = 1, .sample_prompt = "abc", .sample_tokens = 5}, 4 + 5},
        {{.sample_every = 1, .sample_tokens = -1}, 1},
        {{.sample_every = 1, .sample_tokens = INT64_MAX}, 1 + (1 << 20)},
    };
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++)
        assert_int_equal(wf_run_sample_tokens(&runs[i].o), runs[i].tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_families),  wt_test(test_follows_weights),
                                       wt_test(test_planned),   wt_test(test_grows),
                                       wt_test(test_no_memory), wt_test(test_training_is_the_same),
                                       wt_test(test_limits)};
    return cmocka_run_group_tests_name("samples", tests, NULL, NULL);
}
