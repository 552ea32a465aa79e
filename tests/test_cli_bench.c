/* SPDX-License-Identifier: MIT */
/*
 * test_cli_bench.c - runs weft bench on a tiny checkpoint and the smallest example. Every figure is
 * present and plausible in each output format, and mistakes get a message.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <math.h>

#include "base/arena.h"
#include "base/json_tree.h"
#include "bench/op_case.h"
#include "bench/times.h"
#include "program.h"
#include "support.h"

#define LLAMA "tests/fixtures/models/llama"
/* Little memory and few repetitions, to be quick. */
#define QUICK " --stream 1 --repetitions 2 -q"

static wt_program p;

/* Parses stdout as JSON and returns its "bench" object, which the arena owns. */
static const wf_json_node *bench(wf_arena *arena)
{
    wf_json_node *node;
    if (wf_json_parse(arena, "stdout", p.out, strlen(p.out), &node) != WF_OK)
        fail_msg("%s:\n%s", wf_ctx_message(arena->ctx), p.out);
    const wf_json_node *b = wf_json_get(node, "bench");
    assert_non_null(b);
    return b;
}

/* Expects numbers above 0; `keys` ends with NULL. */
static void assert_positive(const wf_json_node *object, const char *const *keys)
{
    assert_non_null(object);
    for (; *keys; keys++)
        if (!(wf_json_get_number(object, *keys, NAN) > 0))
            fail_msg("'%s' is not above 0 in:\n%s", *keys, p.out);
}

static void assert_texts(const wf_json_node *object, const char *const *keys)
{
    assert_non_null(object);
    for (; *keys; keys++)
        if (!*wf_json_get_string(object, *keys, ""))
            fail_msg("there is no text '%s' in:\n%s", *keys, p.out);
}

static const wf_json_node *row(const wf_json_node *b, const char *section, size_t i)
{
    const wf_json_node *rows = wf_json_get(b, section);
    assert_non_null(rows);
    assert_true(i < rows->count);
    return &rows->child[i];
}

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void assert_head(const wf_json_node *b, const char *mode)
{
    assert_string_equal(wf_json_get_string(b, "mode", ""), mode);
    assert_texts(b, KEYS("version", "commit", "build", "compiler", "date", "command"));
    assert_texts(wf_json_get(b, "machine"), KEYS("cpu_model", "device", "device_description"));
    assert_positive(wf_json_get(b, "machine"),
                    KEYS("cores", "hardware_threads", "memory_bytes", "device_threads"));
}

/* Expects a share of the machine's peak, or null: on a busy machine the measured peak may be too
 * low. */
static void assert_share(const wf_json_node *row, const char *key)
{
    const wf_json_node *share = wf_json_get(row, key);
    assert_non_null(share);
    double value = share->kind == WF_JSON_NULL ? 1 : wf_json_get_number(row, key, NAN);
    assert_true(value >= 0 && value <= 1); /* a very small share is printed as 0 */
}

static void assert_peaks(const wf_json_node *b)
{
    const wf_json_node *peaks = wf_json_get(b, "peaks");
    assert_non_null(peaks);
    for (size_t i = 0; i < peaks->count; i++)
        assert_positive(&peaks->child[i], KEYS("threads", "read_gb_per_s", "copy_gb_per_s",
                                               "triad_gb_per_s", "fma_gflop_per_s"));
}

/* ---- Modes ---- */

/* Prints the peaks for one thread and for -t threads, as text and as JSON. */
static void test_machine(void **state)
{
    wf_arena arena;
    wf_arena_init(&arena, *state);
    assert_int_equal(wt_program_shell(&p, "$W bench machine --stream 1 -t 2 --json $D/m.json >&2 &&"
                                          " cat $D/m.json"),
                     0);
    wt_program_err(&p, "threads  read GB/s  copy GB/s  triad GB/s  FMA GFLOP/s");
    const wf_json_node *b = bench(&arena);
    assert_head(b, "machine");
    assert_peaks(b);
    assert_int_equal(wf_json_get(b, "peaks")->count, 2);
    assert_int_equal(wf_json_get_int(row(b, "peaks", 0), "threads", -1), 1);
    assert_int_equal(wf_json_get_int(row(b, "peaks", 1), "threads", -1), 2);
    wf_arena_free(&arena);
}

/* Prints prefill and decode rates at a depth, with the share of the machine's peaks. */
static void test_model(void **state)
{
    wf_arena arena;
    wf_arena_init(&arena, *state);
    wt_program_ok(&p, "bench " LLAMA " --n-prompt 32 -n 8 --depth 5 --ops --json - -t 1" QUICK);
    assert_string_equal(p.err, "");
    const wf_json_node *b = bench(&arena), *model = wf_json_get(b, "model");
    assert_head(b, "model");
    assert_peaks(b);
    assert_string_equal(wf_json_get_string(b, "command", ""),
                        "weft bench " LLAMA
                        " --n-prompt 32 -n 8 --depth 5 --ops --json - -t 1" QUICK);
    assert_texts(model, KEYS("name", "family"));
    assert_string_equal(wf_json_get_string(model, "kv_type", ""), "f16");
    assert_positive(model, KEYS("parameters", "weight_bytes", "context_tokens", "load_s",
                                "planned_bytes", "peak_resident_bytes"));
    assert_non_null(wf_json_get(model, "packing_s")); /* may be 0: float weights stay mapped */
    assert_int_equal(wf_json_get(b, "results")->count, 2);
    for (size_t i = 0; i < 2; i++) {
        const wf_json_node *r = row(b, "results", i);
        assert_string_equal(wf_json_get_string(r, "test", ""), i == 0 ? "pp32 @ 5" : "tg8 @ 5");
        assert_int_equal(wf_json_get_int(r, "tokens", -1), i == 0 ? 32 : 8);
        assert_int_equal(wf_json_get_int(r, "depth_tokens", -1), 5);
        assert_int_equal(wf_json_get_int(r, "sequences", -1), 1);
        assert_int_equal(wf_json_get_int(r, "repetitions", -1), 2);
        assert_positive(r, KEYS("tokens_per_s", "tokens_per_s_best", "ms_per_token", "bytes_read",
                                "flop", "gb_per_s", "gflop_per_s"));
        assert_share(r, "read_share");
        assert_share(r, "flop_share");
        assert_true(wf_json_get_number(r, "tokens_per_s_best", 0) >=
                    wf_json_get_number(r, "tokens_per_s", 0) * 0.999999);
    }
    double all = 0;
    for (size_t i = 0; i < wf_json_get(b, "ops")->count; i++) {
        assert_texts(row(b, "ops", i), KEYS("test", "op", "kernel"));
        assert_positive(row(b, "ops", i), KEYS("launches"));
        all += wf_json_get_number(row(b, "ops", i), "time_share", NAN);
    }
    assert_true(fabs(all - 2) < 1e-6); /* 1 for each of the two tests */
    wf_arena_free(&arena);
}

/* Computes bytes and FLOPs of a token by hand. It follows one other, and keys are f16. */
static void test_work(void **state)
{
    wf_ctx *ctx = *state;
    wf_arena arena;
    wf_model *model;
    wf_model_info m;
    wf_info w;
    double bytes = 0, flops = 0;
    wf_arena_init(&arena, ctx);
    wt_ok(ctx, wf_model_open(ctx, LLAMA, &model));
    wf_model_get_info(model, &m);
    for (int i = 0; wf_model_weight(model, i, &w); i++) {
        bool rows = strcmp(w.name, "token_embd.weight") == 0 && !m.tied;
        bytes += (double)w.bytes / (double)(rows ? w.dim[0] : 1);
        flops += w.rank == 2 && !rows ? 2.0 * (double)(w.dim[0] * w.dim[1]) : 0;
    }
    bytes += (double)(2 * 2 * m.layers * m.kv_heads * m.head_dim) * sizeof(uint16_t);
    flops += 2 * 4.0 * (double)(m.layers * m.heads * m.head_dim);
    wf_model_close(model);
    wt_program_ok(&p, "bench decode " LLAMA " -n 1 --no-peak -o json -q");
    const wf_json_node *r = row(bench(&arena), "results", 0);
    assert_int_equal(wf_json_get_int(r, "bytes_read", -1), (int64_t)bytes);
    assert_int_equal(wf_json_get_int(r, "flop", -1), (int64_t)flops);
    wf_arena_free(&arena);
}

/* --parallel: each step has a token of every sequence; the weights are read once. */
static void test_parallel(void **state)
{
    wf_arena arena;
    wf_arena_init(&arena, *state);
    double bytes[2], flops[2];
    static const char *const ways[] = {"", "--parallel 3"};
    for (int i = 0; i < 2; i++) {
        char args[200];
        snprintf(args, sizeof args,
                 "bench " LLAMA " -n 4 --n-prompt 20 --depth 16 %s --no-peak -o json -q", ways[i]);
        wt_program_ok(&p, args);
        const wf_json_node *b = bench(&arena);
        for (size_t k = 0; k < 2; k++) {
            const wf_json_node *r = row(b, "results", k);
            assert_int_equal(wf_json_get_int(r, "sequences", -1), i ? 3 : 1);
            assert_int_equal(wf_json_get_int(r, "tokens", -1), (k ? 4 : 20) * (i ? 3 : 1));
            assert_positive(r, KEYS("tokens_per_s"));
        }
        const wf_json_node *r = row(b, "results", 1);
        assert_string_equal(wf_json_get_string(r, "test", ""), i ? "tg4 x 3 @ 16" : "tg4 @ 16");
        bytes[i] = wf_json_get_number(r, "bytes_read", 0);
        flops[i] = wf_json_get_number(r, "flop", 0);
    }
    assert_true(flops[1] == 3 * flops[0] && bytes[1] > bytes[0] && bytes[1] < 1.2 * bytes[0]);
    wf_arena_free(&arena);
}

/* Prints the training rate of an example; its losses must be plausible. */
static void test_train(void **state)
{
    wf_arena arena;
    wf_arena_init(&arena, *state);
    wt_program_ok(&p, "bench train tiny --batch 2 --length 16 --ops -o json" QUICK);
    const wf_json_node *b = bench(&arena), *t = wf_json_get(b, "training");
    assert_head(b, "train");
    assert_peaks(b);
    assert_texts(t, KEYS("example", "precision"));
    assert_positive(t, KEYS("batch", "length_tokens", "parameters", "planned_bytes",
                            "peak_resident_bytes", "last_loss"));
    /* the loss of untrained weights is about log(vocab) */
    double loss = wf_json_get_number(t, "first_loss", NAN);
    if (!(fabs(loss - log(128)) < 0.2))
        fail_msg("the loss begins at %g, not at %g", loss, log(128));
    assert_positive(row(b, "results", 0), KEYS("ms_per_step_median", "ms_per_step_best",
                                               "tokens_per_s", "gflop", "gflop_per_s"));
    assert_share(row(b, "results", 0), "flop_share");
    double all = 0, last = INFINITY;
    for (size_t i = 0; i < wf_json_get(b, "ops")->count; i++) {
        double ms = wf_json_get_number(row(b, "ops", i), "ms", NAN);
        assert_texts(row(b, "ops", i), KEYS("op", "kernel"));
        assert_true(ms >= 0 && ms <= last);
        all += wf_json_get_number(row(b, "ops", i), "time_share", NAN);
        last = ms;
    }
    assert_true(fabs(all - 1) < 1e-6);
    wt_program_ok(
        &p, "bench train tiny --batch 1 --length 8 --precision bf16 --repetitions 1 --no-peak -q");
    wt_program_out(&p, "bf16");
    assert_null(strstr(p.out, "read GB/s"));
    wf_arena_free(&arena);
}

/* --shape selects cases by a part of their shape. */
static void test_ops(void **state)
{
    wf_arena arena;
    wf_arena_init(&arena, *state);
    wt_program_ok(
        &p, "bench ops rms_norm rope kv_append --shape f32 --no-peak --repetitions 1 -q -o json");
    const wf_json_node *b = bench(&arena), *rows = wf_json_get(b, "results");
    assert_head(b, "ops");
    assert_int_equal(rows->count, 4);
    for (size_t i = 0; i < rows->count; i++) {
        assert_texts(&rows->child[i], KEYS("op", "shape", "kernel"));
        assert_positive(&rows->child[i], KEYS("best_us", "bytes", "gb_per_s"));
        assert_int_equal(wf_json_get(&rows->child[i], "read_share")->kind, WF_JSON_NULL);
    }
    wt_program_ok(&p, "bench ops rms_norm --shape 1x2048 --no-peak --repetitions 1 -q -o json");
    rows = wf_json_get(bench(&arena), "results");
    assert_int_equal(rows->count, 1);
    assert_string_equal(wf_json_get_string(&rows->child[0], "shape", ""), "f32 1x2048");
    wf_arena_free(&arena);
}

/* The cpu can run every case of the table. */
static void test_case_table(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wt_ok(ctx, wf_device_open(ctx, "cpu:1", &device));
    for (const wf_bench_case *c = wf_bench_cases; c->op; c++) {
        wf_memory memory;
        if (strcmp(c->op, "adamw") == 0)
            /* a case that writes the weight is not packed */
            assert_false(wf_bench_case_packs(device, c));
        if (wf_bench_case_plan(device, c, &memory) != WF_OK)
            fail_msg("%s %s: %s", c->op, c->shape, wf_ctx_message(ctx));
    }
    wf_device_close(device);
}

/* ---- Output formats ---- */

/* The same figures as text, Markdown and JSON. */
static void test_forms(void **state)
{
    (void)state;
    wt_program_ok(&p, "bench prefill " LLAMA " --n-prompt 8 --no-peak --repetitions 1");
    wt_program_out(&p, "tokens/s");
    wt_program_out(&p, "pp8");
    assert_null(strstr(p.out, "tg"));
    wt_program_err(&p, "memory: weights");
    wt_program_ok(&p, "bench decode " LLAMA " -n 4 --no-peak --repetitions 1 -q -o md");
    assert_string_equal(p.err, "");
    wt_program_out(&p, "| test | runs |");
    wt_program_out(&p, "|---|--:|");
    assert_int_equal(wt_program_shell(&p, "$W bench decode " LLAMA
                                          " -n 4 --no-peak --repetitions 1 -q --json $D/b.json && "
                                          "cat $D/b.json"),
                     0);
    wt_program_out(&p, "tg4"); /* in the table and in the JSON */
    wt_program_out(&p, "\"tokens_per_s_best\": ");
    wt_program_out(&p, "tokens/s");
}

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *args, *sentence;
    } cases[] = {
        {2, "", "the mode is missing; give a model, or one of decode, prefill, train, ops and"},
        {2, "trian", "unknown mode or model 'trian'; did you mean 'train'?"},
        {1, "/nowhere/model.gguf", "/nowhere/model.gguf"},
        {2, "decode", "the model is missing; give a GGUF file"},
        {2, LLAMA " --n-prompt 0 -n 0", "there is nothing to measure: --n-prompt and --n-gen"},
        {2, "decode " LLAMA " -n 0", "there is nothing to measure"},
        {2, LLAMA " --n-prompt 4000 -q", "4000 tokens exceed the context of"},
        {2, "decode " LLAMA " -n 100 --depth 100 -q", "201 tokens exceed the context of"},
        {2, LLAMA " --n-prompt 64 -n 0 -c 32 -q", "64 tokens exceed --ctx-size 32; give fewer"},
        {2, "decode " LLAMA " -n 9223372036854775807", "-n must be a whole number from 0 to"},
        {2, LLAMA " --depth 9223372036854775800", "--depth must be a whole number from 0 to"},
        {2, LLAMA " --n-prompt 1000000000 --depth 1000000000 -q", "exceed the context of"},
        {2, LLAMA " " LLAMA, "is one argument too many for 'weft bench MODEL'"},
        {2, "machine tiny", "'tiny' is one argument too many for 'weft bench machine'"},
        {2, "train --parallel 2", "--parallel has no effect in 'weft bench train'"},
        {2, LLAMA " --parallel 0", "--parallel must be a whole number from 1 to 4096"},
        {2, LLAMA " --batch 3", "--batch has no effect in 'weft bench MODEL'"},
        {2, "train --n-prompt 3", "--n-prompt has no effect in 'weft bench train'"},
        {2, "machine --ops", "--ops has no effect in 'weft bench machine'"},
        {2, "machine --no-peak", "--no-peak has no effect in 'weft bench machine'"},
        {2, LLAMA " --repetitions 0", "--repetitions must be a whole number from 1 to 1000"},
        {2, LLAMA " -o yaml", "-o must be text, md or json, not 'yaml'"},
        {2, "machine --stream 0", "--stream must be a whole number from 1 to"},
        {2, "train gpt2", "unknown example 'gpt2'"},
        {2, "train tiny --precision q4_0", "--precision must be f32, bf16 or f16, not 'q4_0'"},
        {2, "train tiny --batch 0", "--batch must be a whole number from 1 to"},
        {2, "train tiny --length 65 -q", "length 65 exceeds the context of tiny, 64"},
        {2, "ops atention", "unknown op 'atention'; did you mean 'attention'?"},
        {2, "ops erf", "the op 'erf' has no cases to measure"},
        {2, "ops rope --shape 9x9", "no case has '9x9' in its shape"},
        {2, "machine --shape 9x9", "--shape has no effect in 'weft bench machine'"},
        {2, "ops -d abacus", "unknown device 'abacus'"},
        {1, "decode " LLAMA " -n 1 --repetitions 1 -q --no-peak -o json --json /nowhere/b.json",
         "/nowhere/b.json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char args[256];
        snprintf(args, sizeof args, "bench %s", cases[i].args);
        if (strstr(args, "--json")) { /* the results were printed before the file failed */
            assert_int_equal(wt_program_run(&p, args), cases[i].code);
            wt_program_err(&p, cases[i].sentence);
        } else {
            wt_program_fails(&p, cases[i].code, args, cases[i].sentence);
        }
    }
}

/* Checks best, median, mean and deviation by hand, including a time of 0. */
static void test_times(void **state)
{
    (void)state;
    wf_bench_times t = {0};
    const double s[] = {4, 1, 2};
    for (int i = 0; i < 3; i++)
        wf_bench_times_add(&t, s[i]);
    assert_true(wf_bench_times_best(&t) == 1 && wf_bench_times_median(&t) == 2);
    /* rates of 1, 4 and 2 per second */
    assert_true(fabs(wf_bench_rate_mean(&t, 4) - 7.0 / 3) < 1e-12);
    assert_true(fabs(wf_bench_rate_deviation(&t, 4) - sqrt(7.0 / 3)) < 1e-12);
    wf_bench_times_add(&t, 0);
    assert_true(wf_bench_times_best(&t) > 0 && wf_bench_times_median(&t) == 1.5);
    t.count = 1;
    assert_true(wf_bench_rate_deviation(&t, 4) == 0);
}

static int make(void **state)
{
    (void)state;
    return wt_program_make(&p);
}

static int clean(void **state)
{
    (void)state;
    wt_scratch_remove(&p.scratch);
    return 0;
}

/* No share exceeds 100% of the peak. */
static void test_share(void **state)
{
    (void)state;
    assert_true(isnan(wf_bench_share(57, 50))); /* printed as '-' */
    assert_true(isnan(wf_bench_share(nextafter(50, 51), 50)));
    assert_true(wf_bench_share(50, 50) == 1);
    assert_true(wf_bench_share(25, 50) == 0.5);
    assert_true(wf_bench_share(0, 50) == 0);
    assert_true(isnan(wf_bench_share(0, 0)));
    assert_true(isnan(wf_bench_share(NAN, 50)));
    assert_true(isnan(wf_bench_share(50, NAN)));
    assert_true(isnan(wf_bench_share(-1, 50)));
    for (int i = 1; i < 1000; i++)
        for (int k = 1; k < 40; k++)
            assert_false(wf_bench_share(i * 1e9 / k, 333e9 / k) > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share),
        wt_test(test_machine),
        wt_test(test_model),
        wt_test(test_work),
        wt_test(test_parallel),
        wt_test(test_train),
        wt_test(test_ops),
        wt_test(test_case_table),
        wt_test(test_forms),
        wt_test(test_mistakes),
        wt_test(test_times),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
