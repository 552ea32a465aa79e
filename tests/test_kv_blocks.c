/* SPDX-License-Identifier: MIT */
/*
 * test_kv_blocks.c - quantized page pools on the cpu: kv_append writes the blocks of wf_quantize, bit
 * for bit, and attention over pools of q8_0 has the bits of attention over their values in f32.
 *
 * Any seed must pass. Vector kernels of another instruction set are tested with WEFT_CPU.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "graph/build.h"
#include "graph/quant/block.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

#define QUANTIZED(A, NAME, ...) WF_##NAME,
static const wf_type types[] = {WF_QUANT_TABLE(QUANTIZED, 0)};
static const wf_type floats[] = {WF_F32, WF_F16, WF_BF16};

/* Uniform in [low, high]. */
static int64_t pick(wf_rng *r, int64_t low, int64_t high)
{
    return low + wf_rng_u32(r) % (uint32_t)(high - low + 1);
}

/* ---- kv_append ---- */

enum { TOKENS = 5, HEADS = 3, PAGES = 3, PAGE = 4 };

/* Blocks of ordinary numbers; of ties between two integers; of tiny numbers, whose scale is a
 * subnormal f16 or 0; of any bits, with NaN and infinities. */
static void fill(wf_rng *r, float *x, int64_t n)
{
    for (int64_t b = 0; b < n; b += 32) {
        const int64_t kind = pick(r, 0, 4);
        const float scale = kind == 2 ? 0x1p-23f : kind == 3 ? 0x1p-130f : 3;
        for (int64_t i = b; i < b + 32; i++) {
            const uint32_t bits = wf_rng_u32(r);
            x[i] = scale * (2 * wf_u32_to_unit(bits) - 1);
            if (kind == 1) /* the largest is 127, so the scale is 1 */
                x[i] = i == b ? 127 : 0.5f * (float)(bits % 509) - 127;
            else if (kind == 4 && bits % 3 == 0)
                x[i] = bits % 2 ? NAN : bits % 4 ? -INFINITY : 1e30f;
        }
    }
}

/* Appends TOKENS tokens of one sequence from position 6 on; its pages are 2, 0, 1. */
static void append(wf_ctx *ctx, const char *device, wf_type type, wf_type from, int64_t d,
                   const void *x, size_t x_size, uint8_t *pool, size_t size)
{
    wf_graph *g = wt_graph(ctx);
    int32_t positions[TOKENS];
    for (int32_t i = 0; i < TOKENS; i++)
        positions[i] = 6 + i;
    wf_kv_append(g, wf_state(g, "pool", type, 4, D(PAGES, PAGE, HEADS, d)),
                 wf_input(g, "x", from, 3, D(TOKENS, HEADS, d)),
                 wf_input(g, "start", WF_I32, 1, D(2)),
                 wf_input(g, "positions", WF_I32, 1, D(TOKENS)),
                 wf_input(g, "table", WF_I32, 2, D(1, PAGES)));
    wt_run r = wt_open(ctx, device);
    wt_compile(&r, g);
    wt_ok(ctx, wf_session_write(r.session, "pool", pool, size));
    wt_write(&r, "x", x, x_size);
    wt_write(&r, "start", (int32_t[]){0, TOKENS}, 2 * sizeof(int32_t));
    wt_write(&r, "positions", positions, sizeof positions);
    wt_write(&r, "table", (int32_t[]){2, 0, 1}, PAGES * sizeof(int32_t));
    wt_run_once(&r);
    wt_ok(ctx, wf_session_read(r.session, "pool", pool, size));
    wt_close(&r);
}

static void appended_blocks_are_those_of_quantize(void **state)
{
    wf_ctx *ctx = *state;
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 1);
    for (int i = 0; i < wt_cases(120); i++) {
        /* Every other case is q8_0, which has vector kernels. */
        const wf_type type = i % 2 ? types[pick(&r, 0, WF_BLOCK_TYPES - 1)] : WF_Q8_0;
        const wf_type from = floats[pick(&r, 0, 2)];
        const int64_t d = pick(&r, 1, 3) * wf_type_get(type)->block, n = TOKENS * HEADS * d;
        const size_t row = wf_type_bytes(type, HEADS * d), size = PAGES * PAGE * row;
        const size_t x_size = wf_type_bytes(from, n);
        float *wide = malloc((size_t)n * sizeof *wide);
        uint8_t *x = malloc(x_size), *got = malloc(size), *want = malloc(size);
        fill(&r, wide, n);
        wf_convert_from_f32(from, wide, x, n);
        wf_convert_to_f32(from, x, wide, n);
        memset(got, 0x55, size);
        memcpy(want, got, size);
        for (int t = 0; t < TOKENS; t++) {
            const int position = 6 + t, page = (int[]){2, 0, 1}[position / PAGE];
            wf_quantize(type, wide + t * HEADS * d, NULL,
                        want + (size_t)(page * PAGE + position % PAGE) * row, HEADS, d);
        }
        append(ctx, i % 3 ? "cpu:2" : "check", type, from, d, x, x_size, got, size);
        if (memcmp(got, want, size) != 0)
            fail_msg("case %d: %s from %s, rows of %lld", i, wf_type_name(type), wf_type_name(from),
                     (long long)d);
        free(wide);
        free(x);
        free(got);
        free(want);
    }
}

/* The stored values are within half a step of the scale, and NaN and infinities are finite. */
static void q8_0_is_near(void **state)
{
    (void)state;
    float x[64], y[64];
    uint8_t blocks[68];
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 2);
    for (int i = 0; i < wt_cases(1000); i++) {
        fill(&r, x, 64);
        wf_quantize(WF_Q8_0, x, NULL, blocks, 1, 64);
        wf_convert_to_f32(WF_Q8_0, blocks, y, 64);
        for (int k = 0; k < 64; k++) {
            float most = 0;
            for (int j = k / 32 * 32; j < k / 32 * 32 + 32; j++)
                most = fmaxf(most, isnan(x[j]) ? 0 : fminf(fabsf(x[j]), 65504));
            const float near = isnan(x[k]) ? 0 : fmaxf(fminf(x[k], 65504), -65504);
            assert_true(isfinite(y[k]));
            /* The scale is an f16: its own error adds up to 127 steps of 2^-11 of it. */
            assert_true(fabsf(y[k] - near) <= most / 127 * 0.57f + 0x1p-21f);
        }
    }
}

/* ---- attention ---- */

enum { MOST = 700 };

typedef struct {
    int64_t tokens, heads, kv_heads, d, dv, page, pages;
    int32_t length;
    wf_type pool;
} problem;

/* o [tokens, heads, dv], then lse. Page i of the sequence is page i of the pool. */
static void attend(wf_ctx *ctx, const problem *p, const float *q, const void *k, const void *v,
                   float *o)
{
    wf_graph *g = wt_graph(ctx);
    const int64_t n = p->tokens, keys = p->pages * p->page * p->kv_heads;
    int32_t positions[MOST], table[MOST];
    for (int32_t i = 0; i < n; i++)
        positions[i] = p->length - (int32_t)n + i;
    for (int32_t i = 0; i < p->pages; i++)
        table[i] = i;
    wf_value *y = wf_attention_paged(
        g, wf_input(g, "q", WF_F32, 3, D(n, p->heads, p->d)),
        wf_input(g, "k", p->pool, 4, D(p->pages, p->page, p->kv_heads, p->d)),
        wf_input(g, "v", p->pool, 4, D(p->pages, p->page, p->kv_heads, p->dv)),
        wf_input(g, "start", WF_I32, 1, D(2)), wf_input(g, "positions", WF_I32, 1, D(n)),
        wf_input(g, "table", WF_I32, 2, D(1, p->pages)), wf_input(g, "lengths", WF_I32, 1, D(1)),
        NULL);
    wf_output(g, "o", y);
    wf_output(g, "lse", wf_value_output(y, 1));
    wt_run r = wt_open(ctx, "cpu:2");
    wt_compile(&r, g);
    wt_write(&r, "q", q, (size_t)(n * p->heads * p->d) * sizeof *q);
    wt_write(&r, "k", k, wf_type_bytes(p->pool, keys * p->d));
    wt_write(&r, "v", v, wf_type_bytes(p->pool, keys * p->dv));
    wt_write(&r, "start", (int32_t[]){0, (int32_t)n}, 2 * sizeof(int32_t));
    wt_write(&r, "positions", positions, (size_t)n * sizeof *positions);
    wt_write(&r, "table", table, (size_t)p->pages * sizeof *table);
    wt_write(&r, "lengths", &p->length, sizeof p->length);
    wt_run_once(&r);
    wt_read(&r, "o", o, (size_t)(n * p->heads * p->dv) * sizeof *o);
    wt_read(&r, "lse", o + n * p->heads * p->dv, (size_t)(n * p->heads) * sizeof *o);
    wt_close(&r);
}

static float *noise(wf_rng *r, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = 2 * wf_u32_to_unit(wf_rng_u32(r)) - 1;
    return x;
}

/* Returns n elements as blocks, and replaces x by their values. */
static void *quantized(float *x, int64_t n)
{
    void *blocks = malloc(wf_type_bytes(WF_Q8_0, n));
    wf_quantize(WF_Q8_0, x, NULL, blocks, 1, n);
    wf_convert_to_f32(WF_Q8_0, blocks, x, n);
    return blocks;
}

static void attention_reads_the_values(void **state)
{
    wf_ctx *ctx = *state;
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 3);
    for (int i = 0; i < wt_cases(60); i++) {
        problem p = {.tokens = pick(&r, 0, 2) ? pick(&r, 1, 3) : pick(&r, 1, 60),
                     .kv_heads = pick(&r, 1, 3),
                     .d = 32 * pick(&r, 1, 5),
                     .dv = 32 * pick(&r, 1, 5),
                     .page = pick(&r, 0, 1) ? 16 : pick(&r, 1, 40),
                     .pool = WF_Q8_0};
        p.heads = p.kv_heads * pick(&r, 1, 9);
        p.length = (int32_t)pick(&r, p.tokens, MOST);
        p.pages = (p.length + p.page - 1) / p.page;
        const int64_t keys = p.pages * p.page * p.kv_heads, n = p.tokens * p.heads;
        const size_t size = (size_t)(n * (p.dv + 1)) * sizeof(float);
        float *q = noise(&r, n * p.d), *k = noise(&r, keys * p.d), *v = noise(&r, keys * p.dv);
        float *got = malloc(size), *want = malloc(size);
        void *k_blocks = quantized(k, keys * p.d), *v_blocks = quantized(v, keys * p.dv);
        attend(ctx, &p, q, k_blocks, v_blocks, got);
        p.pool = WF_F32;
        attend(ctx, &p, q, k, v, want);
        if (memcmp(got, want, size) != 0)
            fail_msg("case %d: %lld tokens, %lld/%lld heads of %lld and %lld, page %lld, %d keys",
                     i, (long long)p.tokens, (long long)p.heads, (long long)p.kv_heads,
                     (long long)p.d, (long long)p.dv, (long long)p.page, p.length);
        void *all[] = {q, k, v, got, want, k_blocks, v_blocks};
        for (size_t j = 0; j < sizeof all / sizeof *all; j++)
            free(all[j]);
    }
}

/* ---- Refusals ---- */

static void rows_are_whole_blocks(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    assert_null(wf_state(g, "pool", WF_Q8_0, 4, D(2, 16, 1, 40)));
    wt_fails(ctx, wf_graph_status(g), WF_ERR_USAGE,
             "the last axis has length 40; q8_0 needs a multiple of 32");
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(appended_blocks_are_those_of_quantize),
        wt_test(q8_0_is_near),
        wt_test(attention_reads_the_values),
        wt_test(rows_are_whole_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
