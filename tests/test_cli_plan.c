/* SPDX-License-Identifier: MIT */
/*
 * test_cli_plan.c - weft plan MODEL --serve and --fit: the parts add up, an engine of the printed
 * options holds what was planned, plans that fit, and mistakes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/philox.h"
#include "device/device.h"
#include "infer/engine.h"
#include "model_fixture.h"
#include "program.h"
#include "support.h"

#define LLAMA WT_MODELS_FOLDER "/llama"

static wt_program p;

/* What weft plan --json prints, in bytes and tokens. */
typedef struct {
    int64_t states, activations, ports, mapped, total, available, context, sequences, cache_tokens,
        kv;
} figures;

static figures read_json(wf_ctx *ctx)
{
    wf_arena arena;
    wf_json_node *j;
    wf_arena_init(&arena, ctx);
    wt_ok(ctx, wf_json_parse(&arena, "stdout", p.out, strlen(p.out), &j));
    const figures f = {.states = wf_json_get_int(j, "states", -1),
                       .activations = wf_json_get_int(j, "activations", -1),
                       .ports = wf_json_get_int(j, "ports", -1),
                       .mapped = wf_json_get_int(j, "mapped", -1),
                       .total = wf_json_get_int(j, "total", -1),
                       .available = wf_json_get_int(j, "available", -1),
                       .context = wf_json_get_int(j, "context", -1),
                       .sequences = wf_json_get_int(j, "sequences", -1),
                       .cache_tokens = wf_json_get_int(j, "cache_tokens", -1),
                       .kv = wf_json_get_int(j, "kv", -1)};
    wf_arena_free(&arena);
    assert_int_equal(f.total, f.states + f.activations + f.ports);
    assert_in_range(f.kv, 1, f.states);
    return f;
}

/* Returns the bytes on the line of the table that begins with `part`. */
static int64_t bytes_of(const char *part)
{
    char start[32];
    snprintf(start, sizeof start, "\n  %-14s ", part);
    const char *line = strstr(p.out, start);
    if (!line)
        fail_msg("the line '%s' is missing in:\n%s", part, p.out);
    return strtoll(line + strlen(start), NULL, 10);
}

/* Plans an engine. */
static figures plan(wf_ctx *ctx, const char *args)
{
    char line[512];
    snprintf(line, sizeof line, "plan --serve --json %s", args);
    wt_program_ok(&p, line);
    return read_json(ctx);
}

/* The table has the same figures. */
static void expect_text(const char *args, const figures *f)
{
    char line[512];
    snprintf(line, sizeof line, "plan --serve %s", args);
    wt_program_ok(&p, line);
    assert_int_equal(bytes_of("KV cache"), f->kv);
    assert_int_equal(bytes_of("weights"), f->states - f->kv);
    assert_int_equal(bytes_of("activations"), f->activations);
    assert_int_equal(bytes_of("ports"), f->ports);
    assert_int_equal(bytes_of("total"), f->total);
    assert_int_equal(bytes_of("mapped"), f->mapped);
    assert_true(bytes_of("available") > 0); /* changes between two runs */
    wt_program_out(&p, "it fits");
}

/* ---- What an engine holds ---- */

/* An engine of these options holds the planned bytes, by the device's account. */
static void expect_engine(wf_ctx *ctx, const char *path, const wf_engine_options *options,
                          const figures *f)
{
    wt_talker t = wt_talker_open(ctx, "cpu", path, options);
    wf_memory held;
    wf_engine_stats stats;
    wf_engine_memory(t.engine, &held);
    wf_engine_get_stats(t.engine, &stats);
    assert_int_equal(t.device->bytes, f->total);
    assert_int_equal(held.states, f->states);
    assert_int_equal(held.mapped, f->mapped);
    assert_int_equal(held.activations, f->activations);
    assert_int_equal(held.ports, f->ports);
    if (t.engine->caches.count == 1 && t.engine->caches.cache[0].kind == WF_CACHE_WHOLE)
        assert_int_equal(stats.pages * WF_PAGE_TOKENS, f->cache_tokens);
    wt_talker_close(&t);
}

/* Every option that changes the plan changes it as it changes the engine. */
static void test_serve(void **state)
{
    static const struct {
        const char *flags;
        wf_engine_options options;
    } rows[] = {
        {"", {.sequences = 1}},
        {"-np 7 -c 100", {.sequences = 7, .context = 100}},
        {"-np 5 --cache-tokens 320", {.sequences = 5, .cache = 320}},
        {"-np 3 -ctk f32", {.sequences = 3, .kv = WF_KV_F32}},
        {"-np 32 -c 64 --compute auto", {.sequences = 32, .context = 64}},
        {"-np 2 -c 64 --compute f32", {.sequences = 2, .context = 64, .compute = WF_F32}},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    static const char *const models[] = {"llama", "gpt2", "mistral", "olmo3"};
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 90);
    const size_t as_text = (size_t)wf_rng_below(&r, ROWS);
    for (size_t row = 0; row < ROWS; row++) { /* a plan measures the device, which takes long */
        const size_t m = (size_t)wf_rng_below(&r, 4);
        char path[128], args[256];
        snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", models[m]);
        snprintf(args, sizeof args, "%s %s", path, rows[row].flags);
        const figures f = plan(*state, args);
        assert_int_equal(f.sequences, rows[row].options.sequences);
        expect_engine(*state, path, &rows[row].options, &f);
        if (row == as_text)
            expect_text(args, &f);
    }
}

/* Matmuls that round no activations read quantized weights as they are in the file. */
static void test_compute(void **state)
{
    wt_program_ok(&p, "convert " LLAMA " \"$D/q8.gguf\" --type q8_0");
    char path[256];
    snprintf(path, sizeof path, "%s", wt_path(&p.scratch, "q8.gguf"));
    const figures rounded = plan(*state, "\"$D/q8.gguf\" -np 4"),
                  exact = plan(*state, "\"$D/q8.gguf\" -np 4 --compute f32");
    expect_engine(*state, path, &(wf_engine_options){.sequences = 4}, &rounded);
    expect_engine(*state, path, &(wf_engine_options){.sequences = 4, .compute = WF_F32}, &exact);
    assert_true(rounded.states != exact.states || rounded.activations != exact.activations);
}

/* ---- Plans that fit ---- */

/* The chosen options fit, and planning them again gives the same bytes. */
static void test_fit(void **state)
{
    static const struct {
        const char *flags;
        int64_t memory, context, sequences, cache; /* bytes; 0: --fit chooses */
    } rows[] = {
        {"", 100000000, 0, 0, 0},
        {"", 3000000, 0, 0, 0},
        {"-ctk f32 --compute f32", 3200000, 0, 0, 0},
        {"-c 64 -np 3", 2600000, 64, 3, 0},
        {"--cache-tokens 200", 4000000, 0, 0, 200},
    };
    int64_t tokens[2] = {0};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char args[256];
        snprintf(args, sizeof args, LLAMA " --fit --memory %lld %s", (long long)rows[i].memory,
                 rows[i].flags);
        const figures f = plan(*state, args);
        assert_int_equal(f.available, rows[i].memory);
        assert_true(f.total + f.mapped <= rows[i].memory);
        assert_true(!rows[i].context || f.context == rows[i].context);
        assert_true(!rows[i].sequences || f.sequences == rows[i].sequences);
        assert_true(!rows[i].cache || f.cache_tokens == rows[i].cache);
        snprintf(args, sizeof args, LLAMA " -c %lld -np %lld --cache-tokens %lld %s",
                 (long long)f.context, (long long)f.sequences, (long long)f.cache_tokens,
                 strstr(rows[i].flags, "-ctk") ? rows[i].flags : "");
        const figures again = plan(*state, args);
        assert_int_equal(again.total, f.total);
        assert_int_equal(again.mapped, f.mapped);
        if (i < 2)
            tokens[i] = f.cache_tokens;
    }
    assert_true(tokens[0] > tokens[1]);
}

/* Without --memory the plan leaves a sixteenth of the free memory. */
static void test_fit_free(void **state)
{
    const figures f = plan(*state, LLAMA " --fit");
    assert_true(f.available > 0 && f.total + f.mapped <= f.available - f.available / 16);
    assert_int_equal(f.context, 128); /* the model's */
    assert_int_equal(f.sequences, 32);
    assert_int_equal(f.cache_tokens, 32 * 128);
}

/* ---- Mistakes ---- */

static void test_mistakes(void **state)
{
    (void)state;
    static const struct {
        int code;
        const char *args, *sentence;
    } cases[] = {
        {2, LLAMA " --fit", "--fit needs --serve"},
        {2, "tiny --serve", "--serve applies to running a model"},
        {2, "--train tiny --serve", "--serve applies to running a model"},
        {1, LLAMA " --serve --fit --memory 100000",
         "bytes with a context of 128 tokens, but only 100000 are available"},
        {2, LLAMA " --serve --memory 0", "--memory must be a size from 1"},
        {2, LLAMA " --serve -c 129", "129"},
        {2, LLAMA " --serve --fit -c 129", "129"},
        {2, LLAMA " --serve --parallel 0", "--parallel must be a whole number from 1 to 1024"},
        {2, LLAMA " --serve --compute bf16", "--compute must be auto or f32, not 'bf16'"},
        {2, "tiny --compute auto", "--compute must be f32, bf16 or f16, not 'auto'"},
        {2, LLAMA " --serve -ctk q4_0", "must be f16, bf16, f32 or q8_0, not 'q4_0'"},
        {2, LLAMA " --serve --cache-tokens 0", "--cache-tokens must be a whole number from 1"},
        {2, LLAMA " --serve --batch 2", "--batch applies to training"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char args[256];
        snprintf(args, sizeof args, "plan %s", cases[i].args);
        wt_program_fails(&p, cases[i].code, args, cases[i].sentence);
    }
    wt_program_ok(&p, "plan " LLAMA " --serve --memory 1000000 -c 0 -np 8");
    wt_program_out(&p, "it does not fit");
    wt_program_out(&p, "to save memory: --fit");
}

static int make(void **state)
{
    (void)state;
    setenv("WEFT_THREADS", "1", 1);
    return wt_program_make(&p);
}

static int clean(void **state)
{
    (void)state;
    wt_scratch_remove(&p.scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_serve),    wt_test(test_compute),  wt_test(test_fit),
        wt_test(test_fit_free), wt_test(test_mistakes),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
