/* SPDX-License-Identifier: MIT */
/* test_train_plan.c - the planned memory of a training setup equals the allocated memory to the
 * byte. A setup that does not fit is refused before any allocation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "program.h"
#include "support.h"
#include "train/fit.h"
#include "train/trainer.h"

#define LLAMA .model = WT_MODELS_FOLDER "/llama"
static const wf_train_options setups[] = {
    {.depth = 1, .batch = 2, .length = 32},
    {.depth = 3, .batch = 4, .length = 48, .recompute = 1},
    {.depth = 2, .batch = 1, .length = 16, .accumulate = 3},
    {.depth = 2, .batch = 3, .length = 40, .optimizer = "muon"},
    {.depth = 2, .batch = 2, .length = 64, .optimizer = "lion", .compute = WF_BF16},
    {.depth = 1, .batch = 2, .length = 64, .compute = WF_F16, .accumulate = 2, .recompute = 1},
    {.depth = 1, .batch = 2, .length = 33, .optimizer = "sgd", .ema = 0.99, .documents = true},
    {LLAMA, .batch = 2, .length = 32},
    {LLAMA, .batch = 2, .length = 32, .lora = 4, .lora_dropout = 0.1},
    {.model = WT_MODELS_FOLDER "/gpt2", .batch = 2, .length = 24, .lora = 2, .accumulate = 2},
    {.model = WT_MODELS_FOLDER "/qwen3", .batch = 1, .length = 32, .dropout = 0.1, .z_loss = 1e-4},
};
#define SETUPS (sizeof setups / sizeof *setups)

static wf_setup make(wf_ctx *ctx, size_t i)
{
    wf_train_options o = setups[i];
    wf_setup s;
    o.steps = 4;
    wt_ok(ctx, wf_setup_make(ctx, &o, o.model ? 0 : 300, &s));
    return s;
}

/* A batch of zero tokens whose targets are all 1. */
static wf_status next(void *user, int64_t index, const wf_batch **out)
{
    (void)index;
    *out = user;
    return WF_OK;
}

static void run_step(wf_ctx *ctx, wf_trainer *t)
{
    wf_train_info i;
    wf_train_step step;
    wf_trainer_get_info(t, &i);
    size_t n = (size_t)(i.batch * i.length), s = (size_t)i.sequences;
    int32_t *x = calloc(3 * n + s + 1, sizeof *x);
    assert_non_null(x);
    for (size_t k = 0; k < n; k++) {
        x[n + k] = (int32_t)(k % (size_t)i.length);
        x[2 * n + k] = 1;
    }
    for (size_t k = 0; k <= s; k++)
        x[3 * n + k] = (int32_t)(k < (size_t)i.batch ? k * (size_t)i.length : n);
    wf_batch b = {.tokens = x, .positions = x + n, .targets = x + 2 * n, .seq_start = x + 3 * n};
    wt_ok(ctx, wf_trainer_step(t, next, &b, &step));
    double loss;
    int64_t count;
    wt_ok(ctx, wf_trainer_evaluate(t, &b, &loss, &count));
    assert_int_equal(count, n);
    free(x);
}

static void test_planned_is_measured(void **state)
{
    static const char *const devices[] = {"cpu:2", "cpu:1"};
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < 2 * SETUPS; i++) {
        wf_device *device;
        wf_trainer *t;
        wf_setup_plan plan;
        wf_train_info info;
        size_t now, peak;
        wt_ok(ctx, wf_device_open(ctx, devices[i / SETUPS], &device));
        wf_setup s = make(ctx, i % SETUPS);
        wt_ok(ctx, wf_setup_plan_memory(&s, device, NULL, &plan));
        wf_device_memory(device, &now, &peak);
        assert_int_equal(peak, 0); /* planning allocates nothing */
        wt_ok(ctx, wf_trainer_make(device, NULL, &s, plan.total, &t));
        run_step(ctx, t);
        wf_trainer_get_info(t, &info);
        wf_device_memory(device, &now, &peak);
        assert_int_equal(plan.memory.states, info.memory.states);
        assert_int_equal(plan.memory.mapped, info.memory.mapped);
        assert_int_equal(plan.memory.region, info.memory.region);
        assert_int_equal(plan.memory.ports, info.memory.ports);
        assert_int_equal(plan.weights + plan.gradients + plan.moments + plan.averages + plan.others,
                         plan.memory.states);
        assert_int_equal(plan.total, now);
        assert_int_equal(plan.total, peak);
        assert_true(plan.flops > 0 && plan.bytes > 0);
        wf_trainer_free(t);
        wf_device_close(device);
    }
}

static void test_too_large_is_refused(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wf_trainer *t;
    size_t now, peak;
    wt_ok(ctx, wf_device_open(ctx, "cpu:2", &device));
    for (size_t i = 0; i < SETUPS; i++) {
        wf_setup s = make(ctx, i);
        wf_setup_plan plan;
        wt_ok(ctx, wf_setup_plan_memory(&s, device, NULL, &plan));
        wt_fails(ctx, wf_trainer_make(device, NULL, &s, plan.total - 1, &t), WF_ERR_MEMORY,
                 "GB are available");
    }
    wf_device_memory(device, &now, &peak);
    assert_int_equal(peak, 0);
    wf_device_close(device);
}

/* The setup that --fit chooses makes the same steps in less memory. */
static void test_choices(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wf_choice choice[WF_MAX_CHOICES];
    const wf_device_peak rates = {.read = 1e10, .copy = 1e10, .triad = 1e10, .flops = 1e11};
    const wf_train_options o = {.depth = 4, .batch = 8, .length = 128, .steps = 4};
    int count;
    wf_setup s;
    char words[96];
    wt_ok(ctx, wf_device_open(ctx, "cpu:2", &device));
    wt_ok(ctx, wf_setup_make(ctx, &o, 300, &s));
    wt_ok(ctx, wf_fit_choices(&s, device, &rates, 0, choice, &count));
    assert_true(wf_fit_best(&s, choice, count) == &choice[0]);
    size_t limit = choice[0].plan.total - 1;
    wt_ok(ctx, wf_fit_choices(&s, device, &rates, limit, choice, &count));
    const wf_choice *best = wf_fit_best(&s, choice, count);
    assert_true(best && best != &choice[0] && best->plan.total <= limit);
    assert_int_equal(best->batch * best->accumulate, 8);
    assert_int_equal(best->compute, WF_F32);
    assert_non_null(strstr(wf_fit_words(best, words, sizeof words), "--batch"));
    for (int i = 0; i < count; i++) /* no equivalent setup that fits is faster */
        if (choice[i].fits && choice[i].compute == WF_F32)
            assert_true(choice[i].plan.seconds >= best->plan.seconds);
    wf_fit_apply(&s, best);
    wf_setup_plan plan;
    wt_ok(ctx, wf_setup_plan_memory(&s, device, &rates, &plan));
    assert_int_equal(plan.total, best->plan.total);
    assert_true(plan.seconds > 0);
    wt_ok(ctx, wf_fit_choices(&s, device, &rates, 1, choice, &count));
    assert_null(wf_fit_best(&s, choice, count));
    wf_setup_free(&s);

    /* Batch sizes other than powers of two are also cut down to single sequences. */
    const wf_train_options odd = {.depth = 1, .batch = 15, .length = 16, .steps = 4};
    bool single = false;
    wt_ok(ctx, wf_setup_make(ctx, &odd, 300, &s));
    wt_ok(ctx, wf_fit_choices(&s, device, &rates, 0, choice, &count));
    for (int i = 0; i < count; i++) {
        assert_int_equal(choice[i].batch * choice[i].accumulate, 15);
        single |= choice[i].batch == 1;
    }
    assert_true(single);
    wf_setup_free(&s);
    wf_device_close(device);
}

static wt_program p;

static void test_command(void **state)
{
    (void)state;
    wt_program_ok(&p, "plan gpt2-124M --train --batch 2 --length 64 --memory 100G");
    wt_program_out(&p, "training 124M parameters");
    wt_program_out(&p, "it fits");
    wt_program_out(&p, "--recompute 1");
    wt_program_ok(&p, "plan gpt2-124M --train --batch 8 --length 1024 --memory 3G");
    wt_program_out(&p, "it does not fit");
    wt_program_out(&p, "<- --fit");
    wt_program_ok(&p, "plan --train --depth 2 --vocab 1000 --json");
    wt_program_out(&p, "\"choices\"");
    wt_program_ok(&p, "plan " WT_MODELS_FOLDER "/llama");
    wt_program_out(&p, "running");
    wt_program_ok(&p, "plan " WT_MODELS_FOLDER "/llama --train --lora 4 --batch 1 --length 16");
    wt_program_out(&p, "in adapters");
    assert_null(strstr(p.out, "samples"));
    wt_program_ok(&p, "plan --train --depth 2 --sample-every 5 --sample-prompt the");
    wt_program_out(&p, "samples");
    wt_program_fails(&p, 2, "plan gpt2-124M --sample-every 5", "add --train");
    wt_program_fails(&p, 2, "plan --train", "the model's shape is missing");
    wt_program_fails(&p, 2, "plan --train gpt2-12M", "did you mean");
    wt_program_fails(&p, 2, "plan gpt2-124M --train --memory much", "--memory must be a size");
}

/* The error of a refused option states its range; the warning of an option without effect states
 * the reason. */
static void test_refused(void **state)
{
    wf_ctx *ctx = *state;
#define A .depth = 1, .length = 16
    static const struct {
        wf_train_options o;
        const char *sentence;
    } cases[] = {
        {{A, .rate = 5000}, "rate must be above 0 up to 1000, not 5000"},
        {{A, .rate = -1}, "rate must be above 0 up to 1000, not -1"},
        {{A, .rate = NAN}, "rate must be above 0 up to 1000, not "},
        {{A, .clip = INFINITY}, "clip must be >= 0, not "},
        {{A, .beta1 = 1}, "beta1 must be from 0 to 0.999999999, not 1"},
        {{A, .floor = 7}, "floor must be from 0 to 1, not 7"},
        {{A, .dropout = -0.5}, "dropout must be from 0 to 0.95, not -0.5"},
        {{A, .batch = -3}, "batch must be from 1 to 1048576, not -3"},
        {{A, .recompute = 5000}, "recompute must be from 0 to 4096, not 5000"},
        {{A, .steps = (int64_t)1 << 40}, "steps must be from 1 to 2147483647, not 1099511627776"},
        {{A, .lora = 5000}, "lora must be from 1 to 4096, not 5000"},
        {{A, .steps = 3, .epochs = 2}, "epochs has no effect with steps"},
        {{A, .optimizer = "sgd", .beta1 = -1}, "beta1 has no effect with the optimizer sgd"},
        {{A, .momentum = 0.5}, "momentum has no effect with the optimizer adamw"},
        {{A, .optimizer = "lion", .eps = 1e-3}, "eps has no effect with the optimizer lion"},
        {{A, .decay = 3}, "decay has no effect with the schedule cosine"},
        {{A, .schedule = "constant", .floor = -1},
         "floor has no effect with the schedule constant"},
        {{A, .lora_alpha = 3}, "lora_alpha has no effect without lora"},
        {{A, .lora_targets = "all"}, "lora_targets has no effect without lora"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_setup s;
        wt_fails(ctx, wf_setup_make(ctx, &cases[i].o, 300, &s), WF_ERR_USAGE, cases[i].sentence);
        wf_setup_free(&s);
    }
    /* The options recorded in a setup make the same setup again. */
    const wf_train_options o = {A, .schedule = "constant", .optimizer = "sgd", .epochs = 2};
    wf_setup s, again;
    wt_ok(ctx, wf_setup_make(ctx, &o, 300, &s));
    wt_ok(ctx, wf_setup_count(&s, 10));
    assert_int_equal(s.options.steps, 20);
    wt_ok(ctx, wf_setup_make(ctx, &s.options, 300, &again));
    assert_int_equal(again.options.steps, 20);
    wf_setup_free(&again);
    wf_setup_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_refused), wt_test(test_planned_is_measured),
                                       wt_test(test_too_large_is_refused), wt_test(test_choices),
                                       cmocka_unit_test(test_command)};
    if (wt_program_make(&p) != 0)
        return 1;
    int failed = cmocka_run_group_tests_name("train_plan", tests, NULL, NULL);
    wt_scratch_remove(&p.scratch);
    return failed;
}
