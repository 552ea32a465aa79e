/* SPDX-License-Identifier: MIT */
/*
 * test_models_written.c - every family after conversion: to GGUF, back to a folder, and quantized.
 * References of quantized models come from transformers on the dequantized weights
 * (make_quantized.py).
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "device/device.h"
#include "model_fixture.h"
#include "pjrt_support.h"
#include "scratch.h"
#include "support.h"

#define LOGITS_BOUND 1e-5 /* relative to the largest logit, as in test_models.c */
/* Devices that pack quantized weights round activations to 15 bits. These tiny random models with
 * short rows show the largest error. */
#define ROUNDED_BOUND 5e-4
/* The same for rows of 32 elements and long texts; 1.1e-3 was measured (smollm3 in q4_0). */
#define COPY_BOUND 3e-3
#define QUANTIZED "tests/fixtures/quantized"

enum { GREEDY = 32 }; /* tokens that a quantized model and its dequantized copy are compared on */

/* WEFT_MODELS_DEVICE=NAME: the device whose results are compared. */
static const char *device_name(void)
{
    const char *name = getenv("WEFT_MODELS_DEVICE");
    return name ? name : "cpu";
}

/* What the engine computes in: a named device rounds no activations, so that its bound is that of
 * f32. */
static wf_type compute(void)
{
    return getenv("WEFT_MODELS_DEVICE") ? WF_F32 : WF_TYPE_NONE;
}

static void write_model(wf_ctx *ctx, const char *from, const char *to, const char *type)
{
    const wf_convert_options options = {.type = type, .pure = true};
    wf_model *m;
    wt_ok(ctx, wf_model_open(ctx, from, &m));
    wt_ok(ctx, wf_model_convert(m, ctx, to, &options));
    wf_model_close(m);
}

/* Returns how far logits of a model with this type of weights may be off: `rounded` on a device
 * that rounds activations. */
static double bound_of(wf_device *device, wf_type type, double rounded)
{
    const wf_dims some = {2, {32, 256}};
    const bool rounds = wf_type_get(type)->kind == WF_KIND_BLOCK && device->ops->pack &&
                        device->ops->packed_bytes(device, type, &some) > 0;
    return rounds ? rounded : LOGITS_BOUND;
}

/* Compares the logits of the prompt, and as many greedy ids as the recording has. */
static void compare(wf_ctx *ctx, const char *path, const char *what, const wt_reference *r,
                    const float *want, const int32_t *greedy, size_t count, wf_type type)
{
    const wf_engine_options options = {.context = (int64_t)(r->prompt_count + r->greedy_count),
                                       .kv = WF_KV_F32,
                                       .compute = compute()};
    wt_talker t = wt_talker_open(ctx, device_name(), path, &options);
    float *logits = wt_logits(ctx, t.engine, r->prompt, r->prompt_count, r->vocab);
    double error = wt_relative(logits, want, (int64_t)r->prompt_count * r->vocab);
    print_message("%-16s logits within %.1e, %zu greedy ids\n", what, error, count);
    assert_true(error <= bound_of(t.device, type, ROUNDED_BOUND));
    int32_t ids[64];
    assert_true(count <= 64);
    if (count) {
        wt_greedy(ctx, t.engine, r->prompt, r->prompt_count, ids, count);
        assert_memory_equal(ids, greedy, count * sizeof *ids);
    }
    free(logits);
    wt_talker_close(&t);
}

static void to_gguf_and_back(void **state)
{
    wf_ctx *ctx = *state;
    for (int i = 0; wt_models[i]; i++) {
        wt_scratch s;
        wt_reference r;
        char file[600], folder[600];
        wt_scratch_make(&s);
        wt_reference_read(wt_models[i], &r);
        snprintf(file, sizeof file, "%s", wt_path(&s, "model.gguf"));
        snprintf(folder, sizeof folder, "%s", wt_path(&s, "folder"));
        write_model(ctx, r.path, file, NULL);
        compare(ctx, file, "as GGUF", &r, r.logits, r.greedy, r.greedy_count, WF_F32);
        write_model(ctx, file, folder, NULL);
        compare(ctx, folder, "as a folder", &r, r.logits, r.greedy, r.greedy_count, WF_F32);
        wt_scratch_remove(&s);
        wt_reference_free(&r);
    }
}

/* ---- Quantized ---- */

/* Checks that the recording was made from exactly this file. */
static void check_hash(wf_ctx *ctx, const char *file, const char *stem, const char *wanted)
{
    wf_map *map;
    char hash[17];
    wt_ok(ctx, wf_map_open(ctx, file, &map));
    snprintf(hash, sizeof hash, "%016llx",
             (unsigned long long)wf_hash_fnv1a(WF_FNV1A, map->data, map->size));
    wf_map_close(map);
    if (strcmp(hash, wanted) != 0)
        fail_msg(
            "%s was recorded of another file: if quantize or convert was changed on purpose, run "
            "tests/fixtures/make_quantized.py",
            stem);
}

static void compare_quantized(wf_ctx *ctx, const char *name, const char *type)
{
    wt_scratch s;
    wt_reference r;
    wf_arena arena;
    wf_json_node *json;
    char stem[128], path[160], file[600], *text;
    size_t bytes;
    wt_scratch_make(&s);
    wf_arena_init(&arena, ctx);
    wt_reference_read(name, &r);
    snprintf(stem, sizeof stem, QUANTIZED "/%s-%s", name, type);
    snprintf(path, sizeof path, "%s.json", stem);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 16, &text, &bytes));
    wt_ok(ctx, wf_json_parse(&arena, path, text, bytes, &json));
    wf_mem_free(ctx, text);
    const wf_json_node *greedy = wf_json_get(json, "greedy");
    int32_t ids[64] = {0};
    for (size_t i = 0; i < greedy->count && i < 64; i++)
        ids[i] = (int32_t)greedy->child[i].integer;

    snprintf(file, sizeof file, "%s", wt_path(&s, "quantized.gguf"));
    write_model(ctx, r.path, file, type);
    check_hash(ctx, file, stem, wf_json_get_string(json, "fnv", ""));
    snprintf(path, sizeof path, "%s.f32", stem);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 24, &text, &bytes));
    assert_int_equal(bytes, (int64_t)r.prompt_count * r.vocab * (int64_t)sizeof(float));
    snprintf(path, sizeof path, "%s %s", name, type);
    compare(ctx, file, path, &r, (const float *)text, ids, greedy->count, wf_type_from_name(type));
    wf_mem_free(ctx, text);
    wf_arena_free(&arena);
    wt_reference_free(&r);
    wt_scratch_remove(&s);
}

static void quantized_weights(void **state)
{
    static const char *const rows[][2] = {
        {"gpt2", "q8_0"},    {"llama", "q8_0"},      {"llama", "q4_0"},   {"llama", "q4_1"},
        {"llama", "q4_K"},   {"llama", "q6_K"},      {"llama", "q5_0"},   {"llama", "q5_K"},
        {"llama", "q5_1"},   {"llama", "q3_K"},      {"llama", "q2_K"},   {"llama", "iq4_nl"},
        {"llama", "iq4_xs"}, {"llama-bias", "q4_0"}, {"mistral", "q8_0"}, {"qwen2", "q4_1"},
        {"qwen3", "q4_0"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        compare_quantized(*state, rows[i][0], rows[i][1]);
}

/* ---- Quantized, every family ---- */

/* What a model computes of a prompt and of the greedy tokens after it. */
typedef struct {
    int32_t ids[128];
    size_t prompt, count;
    float *logits; /* [count, vocab] */
    double bound;
} answer;

/* Fills in the greedy tokens if there are none yet, and the logits of all tokens. */
static void answer_with(wf_ctx *ctx, const char *path, const wt_reference *r, wf_type type,
                        answer *a)
{
    /* The context decides which divisors longrope uses. */
    const wf_engine_options options = {.context = (int64_t)(r->prompt_count + r->greedy_count),
                                       .kv = WF_KV_F32,
                                       .compute = compute()};
    wt_talker t = wt_talker_open(ctx, device_name(), path, &options);
    if (a->count == a->prompt) {
        wt_greedy(ctx, t.engine, a->ids, a->prompt, a->ids + a->prompt, GREEDY);
        a->count += GREEDY;
    }
    a->logits = wt_logits(ctx, t.engine, a->ids, a->count, r->vocab);
    a->bound = bound_of(t.device, type, COPY_BOUND);
    wt_talker_close(&t);
}

/* The tokens that the quantized model chose are the most likely ones of the copy, within the
 * bound. */
static void check_greedy(const answer *got, const float *want, int64_t vocab)
{
    double largest = 0;
    for (int64_t i = 0; i < (int64_t)got->count * vocab; i++)
        largest = fmax(largest, fabs((double)want[i]));
    for (size_t i = got->prompt; i < got->count; i++) {
        const float *row = want + (int64_t)(i - 1) * vocab;
        double best = row[0];
        for (int64_t v = 1; v < vocab; v++)
            best = fmax(best, row[v]);
        assert_true(row[got->ids[i]] >= best - 2 * got->bound * largest);
    }
}

static bool has_type(wf_ctx *ctx, const char *path, wf_type type)
{
    wf_model *m;
    wf_info info;
    bool found = false;
    wt_ok(ctx, wf_model_open(ctx, path, &m));
    for (int i = 0; wf_model_weight(m, i, &info); i++)
        found |= info.type == type;
    wf_model_close(m);
    return found;
}

static void compare_answers(wf_ctx *ctx, const char *file, const char *copy, const char *name,
                            wf_type type, const wt_reference *r)
{
    answer got = {.prompt = r->prompt_count, .count = r->prompt_count};
    assert_true(r->prompt_count + GREEDY <= sizeof got.ids / sizeof *got.ids);
    memcpy(got.ids, r->prompt, r->prompt_count * sizeof *r->prompt);
    answer_with(ctx, file, r, type, &got);
    answer want = got;
    answer_with(ctx, copy, r, type, &want);
    double error = wt_relative(got.logits, want.logits, (int64_t)got.count * r->vocab);
    print_message("%-16s %-6s logits within %.1e\n", name, wf_type_name(type), error);
    assert_true(error <= got.bound);
    check_greedy(&got, want.logits, r->vocab);
    free(got.logits);
    free(want.logits);
}

/* Compares a quantized model with its own dequantized copy. A K type is skipped where no row has
 * whole blocks. */
static void compare_copy(wf_ctx *ctx, const char *name, const char *type_name)
{
    const wf_type type = wf_type_from_name(type_name);
    wt_scratch s;
    wt_reference r;
    char file[600], copy[600];
    wt_scratch_make(&s);
    wt_reference_read(name, &r);
    snprintf(file, sizeof file, "%s", wt_path(&s, "quantized.gguf"));
    snprintf(copy, sizeof copy, "%s", wt_path(&s, "copy.gguf"));
    write_model(ctx, r.path, file, type_name);
    write_model(ctx, file, copy, "f32");
    const bool fits = has_type(ctx, file, type);
    assert_true(fits || wf_type_get(type)->block > 32);
    if (fits)
        compare_answers(ctx, file, copy, name, type, &r);
    wt_reference_free(&r);
    wt_scratch_remove(&s);
}

/* Types with blocks of 32, which divide rows of every fixture, and a K type. The seed chooses which
 * pairs of model and type run; WEFT_ALL_CASES=1 runs all. */
static void quantized_families(void **state)
{
    static const char *const types[] = {"q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "iq4_nl", "q4_K"};
    const int count = sizeof types / sizeof *types;
    const int step = getenv("WEFT_ALL_CASES") ? 1 : wt_cases(4) < 4 ? 16 : 4;
    const int first = (int)(wt_seed() % (uint64_t)step);
    for (int i = 0; wt_models[i / count]; i++)
        if (i % step == first)
            compare_copy(*state, wt_models[i / count], types[i % count]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(to_gguf_and_back), wt_test(quantized_weights),
                                       wt_test(quantized_families)};
    if (!wt_can_open(device_name()))
        return 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
