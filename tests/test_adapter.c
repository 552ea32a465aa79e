/* SPDX-License-Identifier: MIT */
/* test_adapter.c - compares adapters with PEFT: reading, writing and merging. */
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
#include "base/mem.h"
#include "base/philox.h"
#include "format/safetensors.h"
#include "model/adapter.h"
#include "model/model.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

#define FOLDER "tests/fixtures/lora/"
#define LOGITS_BOUND 1e-5 /* relative to the largest logit, as in test_models.c */

static const char *const names[] = {"llama", "gpt2", "llama-bias"};
#define NAMES ((int)(sizeof names / sizeof *names))

/* A checkpoint, its adapter, and the logits that PEFT computes from both. */
typedef struct {
    wt_reference r;
    char adapter[96];
    float *logits;
    int64_t count;
} fixture;

static fixture fixture_read(wf_ctx *ctx, const char *name, const char *adapter)
{
    fixture f = {0};
    char path[128], *text;
    size_t bytes;
    wt_reference_read(name, &f.r);
    snprintf(f.adapter, sizeof f.adapter, FOLDER "%s", adapter);
    snprintf(path, sizeof path, FOLDER "%s/logits.f32", adapter);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 24, &text, &bytes));
    f.count = (int64_t)f.r.prompt_count * f.r.vocab;
    assert_int_equal(bytes, (size_t)f.count * sizeof(float));
    f.logits = malloc(bytes);
    memcpy(f.logits, text, bytes);
    wf_mem_free(ctx, text);
    return f;
}

static void fixture_free(fixture *f)
{
    wt_reference_free(&f->r);
    free(f->logits);
}

static float *logits_of(wf_ctx *ctx, const fixture *f, const char *device, const char *base,
                        const wf_lora *lora, int loras)
{
    const wf_engine_options options = {.chunk = 16, .kv = WF_KV_F32, .lora = lora, .loras = loras};
    wt_talker t = wt_talker_open(ctx, device, base, &options);
    float *logits = wt_logits(ctx, t.engine, f->r.prompt, f->r.prompt_count, f->r.vocab);
    wt_talker_close(&t);
    return logits;
}

/* Expects the logits of a base with adapters to match the fixture's. */
static void expect_logits(wf_ctx *ctx, const fixture *f, const char *device, const char *base,
                          const wf_lora *lora, int loras)
{
    float *logits = logits_of(ctx, f, device, base, lora, loras);
    double error = wt_relative(logits, f->logits, f->count);
    print_message("%s on %s, %s, %d adapters: logits within %.1e\n", f->adapter, device, base,
                  loras, error);
    assert_true(error <= LOGITS_BOUND);
    free(logits);
}

static void convert(wf_ctx *ctx, const char *from, const char *to,
                    const wf_convert_options *options)
{
    wf_model *m;
    wt_ok(ctx, wf_model_open(ctx, from, &m));
    wt_ok(ctx, wf_model_convert(m, ctx, to, options));
    wf_model_close(m);
}

/* ---- Reading ---- */

/* Reads each base from its folder and from a GGUF file, which stores llama's rows in another
 * order. */
static void agrees_with_peft(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_scratch_make(&s);
    for (int i = 0; i < NAMES; i++) {
        fixture f = fixture_read(ctx, names[i], names[i]);
        const wf_lora lora = {.path = f.adapter};
        expect_logits(ctx, &f, "cpu", f.r.path, &lora, 1);
        expect_logits(ctx, &f, "check", f.r.path, &lora, 1);
        convert(ctx, f.r.path, wt_path(&s, "base.gguf"), NULL);
        expect_logits(ctx, &f, "cpu", wt_path(&s, "base.gguf"), &lora, 1);
        fixture_free(&f);
    }
    wt_scratch_remove(&s);
}

/* Scales add up: 0.75 + 0.25 of an adapter equals the adapter, and 2 - 2 of it equals the base. */
static void adapters_add_up(void **state)
{
    wf_ctx *ctx = *state;
    fixture f = fixture_read(ctx, "llama", "llama");
    const wf_lora halves[] = {{f.adapter, 0.75f}, {f.adapter, 0.25f}};
    const wf_lora cancel[] = {{f.adapter, 2}, {f.adapter, -2}};
    expect_logits(ctx, &f, "cpu", f.r.path, halves, 2);
    float *logits = logits_of(ctx, &f, "cpu", f.r.path, cancel, 2);
    assert_true(wt_relative(logits, f.r.logits, f.count) <= LOGITS_BOUND);
    free(logits);
    fixture_free(&f);
}

/* An adapter on a quantized base gives the logits of the same weights in f32. The bound allows for
 * the blockwise matmul, which rounds activations. */
static void on_quantized_bases(void **state)
{
    static const char *const types[] = {"f16", "q8_0", "q6_K", "q4_K"};
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_scratch_make(&s);
    fixture f = fixture_read(ctx, "llama", "llama");
    const wf_lora lora = {.path = f.adapter};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        const wf_convert_options o = {.type = types[i], .pure = true};
        char plain[300];
        snprintf(plain, sizeof plain, "%s", wt_path(&s, "plain.gguf"));
        convert(ctx, f.r.path, wt_path(&s, "base.gguf"), &o);
        convert(ctx, wt_path(&s, "base.gguf"), plain, &(wf_convert_options){.type = "f32"});
        float *want = logits_of(ctx, &f, "cpu", plain, &lora, 1);
        float *logits = logits_of(ctx, &f, "cpu", wt_path(&s, "base.gguf"), &lora, 1);
        double error = wt_relative(logits, want, f.count);
        print_message("adapter on %s: logits within %.1e\n", types[i], error);
        assert_true(error <= (i == 0 ? LOGITS_BOUND : 2e-3));
        free(want);
        free(logits);
    }
    fixture_free(&f);
    wt_scratch_remove(&s);
}

/* ---- Writing ---- */

static int find_state(const wf_adapter *a, const char *state, wf_info *info)
{
    for (int i = 0; wf_adapter_tensor(a, i, info); i++)
        if (strcmp(info->name, state) == 0)
            return i;
    fail_msg("there is no state %s", state);
    return -1;
}

static wf_status fetch(void *user, const char *state, void *to, size_t bytes)
{
    wf_info info;
    int i = find_state(user, state, &info);
    assert_int_equal(bytes, info.bytes);
    return wf_adapter_read(user, i, to);
}

/* Expects two files to have the same tensors, bit for bit after conversion to f32. */
static void expect_same_tensors(wf_ctx *ctx, const char *folder, const char *wanted)
{
    wf_store got, want;
    char path[400];
    wf_store_init(&got, ctx);
    wf_store_init(&want, ctx);
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    wt_ok(ctx, wf_safetensors_read(&got, path));
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", wanted);
    wt_ok(ctx, wf_safetensors_read(&want, path));
    wt_ok(ctx, wf_store_seal(&got));
    wt_ok(ctx, wf_store_seal(&want));
    assert_int_equal(got.count, want.count);
    for (int i = 0; i < want.count; i++) {
        const wf_stored *w = &want.tensor[i], *g = wf_store_find(&got, w->name);
        assert_non_null(g);
        assert_true(wf_dims_equal(&g->shape, &w->shape));
        int64_t n = wf_dims_count(&w->shape);
        float *numbers = malloc((size_t)n * sizeof *numbers);
        void *raw = malloc(w->bytes);
        memcpy(raw, w->data, w->bytes);
        wt_ok(ctx, wf_type_to_f32(ctx, w->type, raw, numbers, n));
        assert_int_equal(g->type, WF_F32);
        assert_memory_equal(g->data, numbers, (size_t)n * sizeof *numbers);
        free(raw);
        free(numbers);
    }
    wf_store_free(&got);
    wf_store_free(&want);
}

/* Writing an adapter that was read from PEFT reproduces PEFT's tensors, whatever the row order of
 * the base. Reading it again gives the same adapter. */
static void written_adapters_equal_read_ones(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    char base[300], folder[300];
    wt_scratch_make(&s);
    snprintf(base, sizeof base, "%s", wt_path(&s, "base.gguf"));
    snprintf(folder, sizeof folder, "%s", wt_path(&s, "adapter"));
    for (int k = 0; k < 2 * NAMES; k++) {
        fixture f = fixture_read(ctx, names[k / 2], names[k / 2]);
        convert(ctx, f.r.path, base, NULL);
        wf_model *m;
        wf_adapter *a;
        wt_ok(ctx, wf_model_open(ctx, k % 2 ? base : f.r.path, &m));
        wt_ok(ctx, wf_adapter_open(ctx, f.adapter, &m->config, &a));
        wt_ok(ctx, wf_adapter_save(a, ctx, folder, names[k / 2], fetch, a));
        expect_same_tensors(ctx, folder, f.adapter);
        wf_adapter_free(a);
        wf_model_close(m);
        expect_logits(ctx, &f, "cpu", f.r.path, &(wf_lora){.path = folder}, 1);
        fixture_free(&f);
    }
    wt_scratch_remove(&s);
}

/* Returns a new adapter's tensors. B is random: with its initial zeros the adapter would have no
 * effect. */
static wf_status fetch_made(void *user, const char *state, void *to, size_t bytes)
{
    wf_info info;
    wf_rng rng;
    float *numbers = to;
    int at = find_state(user, state, &info);
    wf_adapter_init(user, 6, at, to);
    wf_rng_init(&rng, 6, (uint64_t)at);
    for (size_t i = 0; at % 2 && i < bytes / sizeof *numbers; i++)
        numbers[i] = (float)(wf_rng_unit(&rng) - 0.5);
    return WF_OK;
}

static void expect_same_file(wf_ctx *ctx, const char *folder, const char *wanted, const char *name)
{
    char path[400], *a, *b;
    size_t a_bytes, b_bytes;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 24, &a, &a_bytes));
    snprintf(path, sizeof path, "%s/%s", wanted, name);
    wt_ok(ctx, wf_file_read(ctx, path, 1 << 24, &b, &b_bytes));
    assert_int_equal(a_bytes, b_bytes);
    assert_memory_equal(a, b, a_bytes);
    wf_mem_free(ctx, a);
    wf_mem_free(ctx, b);
}

/* Writes a new adapter for a model. */
static void write_new(wf_ctx *ctx, const char *base, const wf_adapter_options *options,
                      const char *folder, const char *name)
{
    wf_model *m;
    wf_adapter *a;
    wt_ok(ctx, wf_model_open(ctx, base, &m));
    wt_ok(ctx, wf_adapter_new(ctx, &m->config, options, &a));
    wt_ok(ctx, wf_adapter_save(a, ctx, folder, name, fetch_made, a));
    wf_adapter_free(a);
    wf_model_close(m);
}

/* fixtures/lora/NAME-weft is a new adapter that Weft wrote, with the logits that PEFT computed from
 * it. With WEFT_LORA_OUT the test writes these folders there, for make_lora.py. */
static void peft_loads_written_adapters(void **state)
{
    static const struct {
        const char *name, *written;
        bool gguf; /* the base is a GGUF file, with that format's row order */
        wf_adapter_options options;
    } rows[] = {
        {"llama",
         "llama-weft",
         false,
         {.rank = 2, .alpha = 3, .targets = "attention,ffn_down,output"}},
        {"llama", "llama-gguf-weft", true, {.rank = 2, .targets = "attn_q,attn_k"}},
        {"gpt2",
         "gpt2-weft",
         false,
         {.rank = 3, .targets = "attn_qkv,attn_output", .dropout = 0.05, .rslora = true}},
    };
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_scratch_make(&s);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *out = getenv("WEFT_LORA_OUT");
        char base[300], folder[300];
        snprintf(folder, sizeof folder, "%s/%s", out ? out : s.folder, rows[i].written);
        snprintf(base, sizeof base, WT_MODELS_FOLDER "/%s", rows[i].name);
        if (rows[i].gguf) {
            convert(ctx, base, wt_path(&s, "base.gguf"), NULL);
            snprintf(base, sizeof base, "%s", wt_path(&s, "base.gguf"));
        }
        write_new(ctx, base, &rows[i].options, folder, rows[i].name);
        if (out)
            continue;
        fixture f = fixture_read(ctx, rows[i].name, rows[i].written);
        expect_same_file(ctx, folder, f.adapter, "adapter_config.json");
        expect_same_tensors(ctx, folder, f.adapter);
        expect_logits(ctx, &f, "cpu", base, &(wf_lora){.path = folder}, 1);
        fixture_free(&f);
    }
    wt_scratch_remove(&s);
}

/* ---- Merging ---- */

/* The merged file contains W + scale B A, computed in double and rounded once. */
static void merges_exactly(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    wt_scratch_make(&s);
    fixture f = fixture_read(ctx, "gpt2", "gpt2");
    const wf_lora lora = {.path = f.adapter, .scale = 0.5f};
    const wf_convert_options o = {.lora = &lora, .loras = 1};
    convert(ctx, f.r.path, wt_path(&s, "merged.gguf"), &o);
    wf_model *base, *merged;
    wf_adapter *a;
    wt_ok(ctx, wf_model_open(ctx, f.r.path, &base));
    wt_ok(ctx, wf_model_open(ctx, wt_path(&s, "merged.gguf"), &merged));
    wt_ok(ctx, wf_adapter_open(ctx, f.adapter, &base->config, &a));
    int changed = 0;
    for (int i = 0; i < base->weights; i++) {
        const wf_model_weight_info *w = &base->weight[i];
        size_t bytes = wf_type_bytes(w->type, wf_dims_count(&w->shape));
        float *want = malloc(bytes), *got = malloc(bytes);
        wt_ok(ctx, wf_weight_read(ctx, w, want));
        wt_ok(ctx, wf_weight_read(ctx, wf_model_find_weight(merged, w->name), got));
        int at = wf_adapter_find(a, w->name);
        wf_info down, up;
        if (at >= 0) {
            wf_adapter_tensor(a, at, &down);
            wf_adapter_tensor(a, at + 1, &up);
            float *A = malloc(down.bytes), *B = malloc(up.bytes);
            wt_ok(ctx, wf_adapter_read(a, at, A));
            wt_ok(ctx, wf_adapter_read(a, at + 1, B));
            int64_t in = down.dim[1], rank = down.dim[0];
            for (int64_t n = 0; n < w->shape.d[0]; n++)
                for (int64_t k = 0; k < in; k++) {
                    double sum = want[n * in + k];
                    for (int64_t j = 0; j < rank; j++)
                        sum += 0.5 * 3 / sqrt(2.0) * B[n * rank + j] * A[j * in + k];
                    want[n * in + k] = (float)sum;
                    assert_float_equal(got[n * in + k], want[n * in + k], 1e-7);
                }
            changed++;
            free(A);
            free(B);
        } else {
            assert_memory_equal(got, want, bytes);
        }
        free(want);
        free(got);
    }
    assert_int_equal(changed, 4); /* c_attn and mlp.c_proj of two layers */
    wf_adapter_free(a);
    wf_model_close(base);
    wf_model_close(merged);
    fixture_free(&f);
    wt_scratch_remove(&s);
}

/* Merging from a folder or a GGUF file into either format: the merged model gives the logits of
 * base and adapter. */
static void merged_is_base_and_adapter(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    char gguf[300], to[300];
    wt_scratch_make(&s);
    snprintf(gguf, sizeof gguf, "%s", wt_path(&s, "base.gguf"));
    for (int k = 0; k < 4 * NAMES; k++) {
        fixture f = fixture_read(ctx, names[k / 4], names[k / 4]);
        const wf_lora halves[] = {{f.adapter, 0.5f}, {f.adapter, 0.5f}};
        const wf_convert_options o = {.type = "f32", .lora = halves, .loras = 2};
        convert(ctx, f.r.path, gguf, NULL);
        snprintf(to, sizeof to, "%s", wt_path(&s, k % 2 ? "merged.gguf" : "merged"));
        convert(ctx, k / 2 % 2 ? gguf : f.r.path, to, &o);
        expect_logits(ctx, &f, "cpu", to, NULL, 0);
        fixture_free(&f);
    }
    wt_scratch_remove(&s);
}

/* Merges into a quantized base: the result has the requested type, and the base file does not
 * change. */
static void merges_quantized_bases(void **state)
{
    wf_ctx *ctx = *state;
    wt_scratch s;
    char q8[300], plain[300], merged[300], *before, *after;
    size_t before_bytes, after_bytes;
    wt_scratch_make(&s);
    snprintf(q8, sizeof q8, "%s", wt_path(&s, "q8.gguf"));
    snprintf(plain, sizeof plain, "%s", wt_path(&s, "plain.gguf"));
    snprintf(merged, sizeof merged, "%s", wt_path(&s, "merged.gguf"));
    fixture f = fixture_read(ctx, "llama", "llama");
    const wf_lora lora = {.path = f.adapter};
    convert(ctx, f.r.path, q8, &(wf_convert_options){.type = "q8_0"});
    convert(ctx, q8, plain, &(wf_convert_options){.type = "f32"});
    wt_ok(ctx, wf_file_read(ctx, q8, 1 << 24, &before, &before_bytes));

    wf_convert_options o = {.type = "f32", .lora = &lora, .loras = 1};
    convert(ctx, q8, merged, &o);
    float *want = logits_of(ctx, &f, "cpu", plain, &lora, 1);
    float *got = logits_of(ctx, &f, "cpu", merged, NULL, 0);
    double error = wt_relative(got, want, f.count);
    print_message("merged from q8_0 to f32: logits within %.1e\n", error);
    assert_true(error <= LOGITS_BOUND);
    free(got);
    o.type = "q8_0";
    convert(ctx, q8, merged, &o);
    got = logits_of(ctx, &f, "cpu", merged, NULL, 0);
    assert_true(wt_relative(got, want, f.count) <= 3e-2);
    free(got);
    free(want);

    wf_model *m;
    o.type = NULL;
    wt_ok(ctx, wf_model_open(ctx, q8, &m));
    wt_fails(ctx, wf_model_convert(m, ctx, merged, &o), WF_ERR_USAGE, "--type f16");
    wf_model_close(m);
    wt_ok(ctx, wf_file_read(ctx, q8, 1 << 24, &after, &after_bytes));
    assert_int_equal(before_bytes, after_bytes);
    assert_memory_equal(before, after, before_bytes);
    wf_mem_free(ctx, before);
    wf_mem_free(ctx, after);
    fixture_free(&f);
    wt_scratch_remove(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(agrees_with_peft),
        wt_test(adapters_add_up),
        wt_test(on_quantized_bases),
        wt_test(written_adapters_equal_read_ones),
        wt_test(peft_loads_written_adapters),
        wt_test(merges_exactly),
        wt_test(merged_is_base_and_adapter),
        wt_test(merges_quantized_bases),
    };
    return cmocka_run_group_tests_name("adapter", tests, NULL, NULL);
}
