/* SPDX-License-Identifier: MIT */
/* test_sample_picks.c - picks against recordings; the faults and the memory of samplers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "base/philox.h"
#include "infer/sample.h"
#include "support.h"

static wf_sampler_scratch *scratch;

static int set_up(void **state)
{
    wt_setup(state);
    wt_ok(*state, wf_sampler_scratch_new(*state, 1000, &scratch));
    return 0;
}

static int tear_down(void **state)
{
    wf_sampler_scratch_free(scratch);
    return wt_teardown(state);
}

#define sample_test(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

static wf_sampler *make(wf_ctx *ctx, int64_t vocab, wf_sampling how)
{
    wf_sampler *s;
    wt_ok(ctx, wf_sampler_new(ctx, vocab, &how, &s));
    return s;
}

static int32_t pick(wf_ctx *ctx, wf_sampler *s, const float *logits)
{
    int32_t id = -1;
    wt_ok(ctx, wf_sampler_report(s, wf_sampler_pick(s, scratch, logits, &id)));
    return id;
}

static const wf_likely *filter(wf_ctx *ctx, const wf_sampler *s, const float *logits)
{
    const wf_likely *kept;
    wt_ok(ctx, wf_sampler_report(s, wf_sampler_filter(s, scratch, logits, &kept)));
    return kept;
}

static void accept(wf_ctx *ctx, wf_sampler *s, int32_t id)
{
    wt_ok(ctx, wf_sampler_accept(s, id));
}

/* ---- Against recordings ---- */

static uint64_t hash_of(uint64_t hash, const void *word)
{
    uint32_t bits;
    memcpy(&bits, word, sizeof bits);
    return (hash ^ bits) * 0x100000001B3u;
}

/* Returns a hash of all picks of a sequence, and of their candidates and weights. The logits are
 * integers / 256, the same on every machine. */
static uint64_t hash_of_picks(wf_ctx *ctx, const wf_sampling *how)
{
    enum { VOCAB = 1000, PICKS = 300 };
    float logits[VOCAB];
    uint64_t hash = 0xCBF29CE484222325u;
    wf_rng rng;
    wf_rng_init(&rng, 20, 26);
    wf_sampler *s = make(ctx, VOCAB, *how);
    for (int i = 0; i < PICKS; i++) {
        for (int k = 0; k < VOCAB; k++)
            logits[k] = (float)(int32_t)wf_rng_below(&rng, k % 50 ? 1024 : 2560) / 256 - 2;
        const wf_likely *kept = filter(ctx, s, logits);
        for (size_t k = 0; k < kept->n; k++)
            hash = hash_of(hash_of(hash, &kept->id[k]), &kept->value[k]);
        int32_t id = pick(ctx, s, logits);
        hash = hash_of(hash, &id);
        accept(ctx, s, id);
        accept(ctx, s, (int32_t)wf_rng_below(&rng, 100));
    }
    wf_sampler_free(s);
    return hash;
}

/* The same seed gives the same text in every version of Weft. */
static void test_recorded(void **state)
{
    static const wf_logit_bias bias[] = {{50, 2}, {100, -INFINITY}, {7, 10}, {7, -4.5f}};
    static const struct {
        uint64_t hash;
        wf_sampling how;
    } cases[] = {
        {0xDC330B98D53D4E75, {.temperature = 0}},
        {0x9602AB5221F6D120, {.temperature = 1, .seed = 1}},
        {0x1947FA8270017DD2,
         {.temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.05, .seed = 2}},
        {0xE779E3D7AC9D5E81, {.temperature = 0.8, .bias = bias, .biases = 4, .seed = 3}},
        {0x9810AA39924399D5, {.repeat_penalty = 1.3}},
        {0x8A2DEFA2D308B957, {.temperature = 1, .top_p = 0.9, .repeat_penalty = 1.1, .seed = 4}},
        {0xC5E5F0D14587F1BE,
         {.temperature = 0.7,
          .top_k = 20,
          .repeat_penalty = 1.05,
          .frequency_penalty = 0.2,
          .presence_penalty = -0.1,
          .penalty_last = -1,
          .seed = 5}},
        {0xDBCD70468EF03DB6,
         {.temperature = 1,
          .frequency_penalty = 0.3,
          .penalty_last = 200,
          .bias = bias,
          .biases = 4,
          .seed = 6}},
        {0x3A2BA33832517577,
         {.temperature = 2,
          .top_k = 100,
          .top_p = 0.8,
          .min_p = 0.2,
          .repeat_penalty = 1.5,
          .penalty_last = -1,
          .samplers = "top_k;penalties;min_p;temperature;top_p",
          .seed = 7}},
        {0xC9151CF93C41159B,
         {.temperature = 0.9,
          .top_p = 0.99,
          .presence_penalty = 1,
          .penalty_last = 7,
          .samplers = "top_p;temperature;penalties;penalties",
          .seed = 8}},
        {0x001C818A3B44E5DC,
         {.temperature = 1,
          .min_p = 0.01,
          .repeat_penalty = 0.8,
          .penalty_last = 1,
          .samplers = "min_p;penalties;top_k;temperature",
          .seed = 9}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t got = hash_of_picks(*state, &cases[i].how);
        if (got != cases[i].hash)
            fail_msg("case %zu: hash 0x%016llX, not 0x%016llX", i, (unsigned long long)got,
                     (unsigned long long)cases[i].hash);
    }
}

/* ---- Faults ---- */

/* A pick does not touch the context; the sentence is made from the fault later. */
static void test_faults(void **state)
{
    static const float with_nan[3] = {1, 2, NAN}, nothing[3] = {-INFINITY, -INFINITY, -INFINITY};
    static const wf_logit_bias bias = {1, 1};
    char text[WF_SAMPLER_FAULT_TEXT];
    int32_t id = 7;
    wf_sampler *s = make(*state, 3, (wf_sampling){.temperature = 1});
    wf_sampler_fault fault = wf_sampler_pick(s, scratch, with_nan, &id);
    assert_int_equal(fault.kind, WF_FAULT_LOGIT);
    assert_string_equal(wf_sampler_fault_text(s, fault, text, sizeof text),
                        "the model's logit of token 2 is nan; look for bad weights with "
                        "--check-tensors, or for bad kernels with --device check");
    assert_string_equal(wf_sampler_fault_text(s, fault, text, 10), "the model");
    fault = wf_sampler_pick(s, scratch, nothing, &id);
    assert_string_equal(wf_sampler_fault_text(s, fault, text, sizeof text),
                        "no token can follow: all logits are -inf");
    wf_sampler_free(s);
    s = make(*state, 3, (wf_sampling){.temperature = 1, .bias = &bias, .biases = 1});
    fault = wf_sampler_pick(s, scratch, nothing, &id);
    assert_string_equal(wf_sampler_fault_text(s, fault, text, sizeof text),
                        "no token can follow: all logits are -inf after the biases; remove some");
    assert_string_equal(wf_ctx_message(*state), "");
    assert_int_equal(id, 7);
    wf_sampler_free(s);
}

/* ---- Memory ---- */

/* A failed allocation leaves the sampler as it was, and its picks the same. */
static void test_failing_memory(void **state)
{
    wf_ctx *ctx = *state;
    static const float logits[200] = {[150] = 2, [50] = 3, [3] = 2.5f};
    const wf_sampling how = {.temperature = 0.5, .frequency_penalty = 1, .penalty_last = 150};
    wf_sampler *s = make(ctx, 200, how), *other = make(ctx, 200, how);
    int failures = 0;
    for (int32_t i = 0; i < 400; i++) {
        int32_t id = i % 2 ? i % 200 : pick(ctx, s, logits);
        wf_status status = WF_ERR_MEMORY;
        for (uint64_t n = 1; status != WF_OK; n++) {
            wf_ctx_fail_allocation(ctx, n);
            status = wf_sampler_accept(s, id);
            wf_ctx_fail_allocation(ctx, 0);
            assert_true(status == WF_OK || status == WF_ERR_MEMORY);
            failures += status != WF_OK;
        }
        assert_true(i % 2 || id == pick(ctx, other, logits));
        accept(ctx, other, id);
    }
    assert_true(failures > 5);
    wf_sampler_free(s);
    wf_sampler_free(other);
}

static void test_memory(void **state)
{
    wf_ctx *ctx = *state;
    static const float logits[3] = {1, 2, 3};
    wf_logit_bias bias[2] = {{0, 0.5f}, {2, -10}};
    wf_sampling how = {.frequency_penalty = 1, .bias = bias, .biases = 2};
    uint64_t n = 1, blocks = wt_live_blocks(ctx);
    for (wf_status status = WF_ERR_MEMORY; status != WF_OK; n++) {
        wf_sampler *s = NULL;
        wf_sampler_scratch *x = NULL;
        wf_ctx_fail_allocation(ctx, n);
        status = wf_sampler_new(ctx, 3, &how, &s);
        if (status == WF_OK)
            status = wf_sampler_scratch_new(ctx, 3, &x);
        wf_ctx_fail_allocation(ctx, 0);
        assert_true(status == WF_OK || (status == WF_ERR_MEMORY && !x));
        wf_sampler_free(s);
        wf_sampler_scratch_free(x);
        assert_int_equal(wt_live_blocks(ctx), blocks);
    }
    assert_true(n > 6);

    wf_sampler *s = make(ctx, 3, how);
    memset(bias, 0xff, sizeof bias); /* the sampler has its own copy */
    for (int i = 0; i < 200; i++) {
        wf_mem_stats before, after;
        wf_ctx_mem_stats(ctx, &before);
        int32_t id = pick(ctx, s, logits);
        wf_ctx_mem_stats(ctx, &after);
        assert_int_equal(after.calls, before.calls);
        assert_true(i > 0 || id == 1);
        accept(ctx, s, id);
    }
    wf_sampler_free(s);
    wf_sampler_free(NULL);
    wf_sampler_scratch_free(NULL);
}

/* Neither the vocabulary nor the window decides a sampler's size, but the tokens in the window. */
static void test_small(void **state)
{
    wf_ctx *ctx = *state;
    wf_mem_stats before, after;
    wf_ctx_mem_stats(ctx, &before);
    wf_sampler *s =
        make(ctx, INT32_MAX, (wf_sampling){.repeat_penalty = 2, .penalty_last = WF_PENALTY_MAX});
    wf_ctx_mem_stats(ctx, &after);
    assert_true(after.live_bytes - before.live_bytes < 512);
    for (int32_t i = 0; i < 1000; i++)
        accept(ctx, s, INT32_MAX - 1 - i * 7);
    wf_ctx_mem_stats(ctx, &after);
    assert_true(after.live_bytes - before.live_bytes < 40000);
    wf_sampler_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        sample_test(test_recorded), sample_test(test_faults), sample_test(test_failing_memory),
        sample_test(test_memory),   sample_test(test_small),
    };
    return cmocka_run_group_tests_name("sample_picks", tests, NULL, NULL);
}
