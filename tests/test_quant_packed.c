/* SPDX-License-Identifier: MIT */
/*
 * test_quant_packed.c - quantized weights that the device packed: reads return the original bytes,
 * and matmuls are correct up to the rounding of activations to 15 bits. A row of a matmul has the
 * same bits alone, in a batch, and with any number of threads. Matmuls by unpacked q8_0 and q6_K,
 * where rounding is allowed, have the bits of packed ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "graph/quant/block.h"
#include "support.h"

enum { MOST_N = 520, MOST_K = 768, MOST_M = 300 };

/* The types with panels. */
#define PANEL_GENERIC(NAME)
#define PANEL_PACKED(NAME) WF_##NAME,
#define PANEL_DIRECT(NAME) WF_##NAME,
#define PANEL(A, NAME, n, w, block, bytes, gguf, file, mix, stand_in, kernels, doc) \
    PANEL_##kernels(NAME)
static const wf_type types[] = {WF_QUANT_TABLE(PANEL, 0)};
enum { TYPES = sizeof types / sizeof *types };

/* One matmul x [m, k] w^T [n, k] + bias: operands and result. */
typedef struct {
    wf_type type, x_type;
    int64_t m, n, k;
    bool bias, act;
    uint8_t blocks[MOST_N * MOST_K * 2];
    float wide[MOST_N * MOST_K]; /* the dequantized weight */
    float x[MOST_M * MOST_K];    /* rounded to x_type */
    float b[MOST_N];
    float y[MOST_M * MOST_N];
} product;

static void fill(wf_ctx *ctx, product *p, uint64_t seed)
{
    static uint8_t narrow[MOST_M * MOST_K * 4];
    wf_random_normal(seed, 1, 0, 1, p->wide, p->n * p->k);
    wf_random_normal(seed, 2, 0, 1, p->x, p->m * p->k);
    wf_random_normal(seed, 3, 0, 1, p->b, p->n);
    for (int64_t i = 0; i < p->m * p->k; i++) /* rows and blocks of very different magnitudes */
        p->x[i] *= ldexpf(1, (int)(i / 32 * 7 % 13) - 6);
    wt_ok(ctx, wf_type_from_f32(ctx, p->type, p->wide, p->blocks, p->n * p->k));
    wt_ok(ctx, wf_type_to_f32(ctx, p->type, p->blocks, p->wide, p->n * p->k));
    wt_ok(ctx, wf_type_from_f32(ctx, p->x_type, p->x, narrow, p->m * p->k));
    wt_ok(ctx, wf_type_to_f32(ctx, p->x_type, narrow, p->x, p->m * p->k));
}

static wf_graph *graph_of(wf_ctx *ctx, const product *p, int64_t rows)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", p->x_type, 2, (int64_t[]){rows, p->k});
    wf_value *w = wf_state(g, "w", p->type, 2, (int64_t[]){p->n, p->k});
    wf_value *b = p->bias ? wf_input(g, "b", WF_F32, 1, &p->n) : NULL;
    if (b && p->x_type != WF_F32)
        b = wf_cast(g, b, p->x_type);
    wf_value *y = wf_linear(g, x, w, b);
    if (p->act)
        y = wf_unary(g, "relu", y); /* the device fuses it with the matmul */
    wt_ok(ctx, wf_output(g, "y", p->x_type == WF_F32 ? y : wf_cast(g, y, WF_F32)));
    return g;
}

/* Opens a session with w packed. Returns false when the device does not pack blocks. */
static bool open_packed(wf_ctx *ctx, const char *device, const product *p, wt_run *r)
{
    static uint8_t back[sizeof p->blocks];
    size_t bytes = wf_type_bytes(p->type, p->n * p->k);
    wf_dims shape = {2, {p->n, p->k}};
    *r = wt_open(ctx, device);
    if (r->device->ops->packed_bytes(r->device, p->type, &shape) == 0) {
        wt_close(r);
        return false;
    }
    wt_ok(ctx, wf_session_pack(r->session, "w", p->type, 2, shape.d));
    wt_ok(ctx, wf_session_write(r->session, "w", p->blocks, bytes));
    wt_ok(ctx, wf_session_read(r->session, "w", back, bytes));
    assert_memory_equal(back, p->blocks, bytes);
    return true;
}

/* Multiplies rows [first, first + rows) of x alone. */
static void multiply(wf_ctx *ctx, wt_run *r, const product *p, int64_t first, int64_t rows,
                     float *y)
{
    static uint8_t narrow[MOST_M * MOST_K * 4];
    wt_compile(r, graph_of(ctx, p, rows));
    wt_ok(ctx, wf_type_from_f32(ctx, p->x_type, p->x + first * p->k, narrow, rows * p->k));
    wt_write(r, "x", narrow, wf_type_bytes(p->x_type, rows * p->k));
    if (p->bias)
        wt_write(r, "b", p->b, (size_t)p->n * sizeof *p->b);
    wt_run_once(r);
    wt_read(r, "y", y, (size_t)(rows * p->n) * sizeof *y);
}

/* The error bound: half a step of each block of 32 activations, f32 sums, and the rounding of the
 * result. */
static double allowed(const product *p, const float *x, const float *w, double bias, double y)
{
    double step = 0, sum = 0,
           narrow = p->x_type == WF_BF16  ? 0x1p-8
                    : p->x_type == WF_F16 ? 0x1p-11
                                          : 0;
    for (int64_t b = 0; b < p->k; b += 32) {
        double most = 0, weights = 0;
        for (int i = 0; i < 32; i++) {
            most = fmax(most, fabs(x[b + i]));
            weights += fabs(w[b + i]);
            sum += fabs((double)x[b + i] * w[b + i]);
        }
        step += most / 16383 * 0.51 * weights;
    }
    return step + sum * 0x1p-20 + (fabs(y) + fabs(bias) + 1) * narrow + 1e-6;
}

static void expect_right(const product *p)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            const float *x = p->x + i * p->k, *w = p->wide + j * p->k;
            double bias = p->bias ? p->b[j] : 0, want = bias;
            for (int64_t k = 0; k < p->k; k++)
                want += (double)x[k] * w[k];
            want = p->act && want < 0 ? 0 : want;
            double off = fabs(p->y[i * p->n + j] - want), may = allowed(p, x, w, bias, want);
            if (!(off <= may))
                fail_msg("%s, %lld x %lld x %lld: [%lld, %lld] is %g, not %g, and may be off by %g",
                         wf_type_name(p->type), (long long)p->m, (long long)p->n, (long long)p->k,
                         (long long)i, (long long)j, p->y[i * p->n + j], want, may);
        }
}

/* Returns whether this run tests case n: all, or every fourth in sanitized builds (wt_cases). */
static bool chosen(int n)
{
    const uint64_t step = wt_cases(4) < 4 ? 4 : 1;
    return (uint64_t)n % step == wt_seed() % step;
}

/* Sizes around those of panels, tiles, small batches and chunks. */
static void test_products(void **state)
{
    static const struct {
        int64_t m, n, k;
        wf_type x;
        bool bias;
    } sizes[] = {
        {1, 1, 256, WF_F32, false},   {1, 70, 768, WF_F32, true},  {2, 16, 256, WF_F32, false},
        {3, 17, 512, WF_F32, true},   {4, 8, 256, WF_F16, false},  {5, 15, 768, WF_BF16, true},
        {7, 31, 256, WF_F32, false},  {8, 33, 512, WF_F32, false}, {9, 33, 512, WF_F32, true},
        {12, 64, 256, WF_F32, false}, {13, 49, 768, WF_F16, true}, {19, 7, 256, WF_F32, false},
        {300, 40, 256, WF_F32, true}, {1, 150, 768, WF_F32, true}, {2, 517, 768, WF_F32, false},
    };
    wf_ctx *ctx = *state;
    static product p;
    uint64_t seed = wt_seed();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int t = 0; t < TYPES; t++) {
            wt_run r;
            if (!chosen((int)i + t))
                continue;
            p.type = types[t];
            p.x_type = sizes[i].x;
            p.m = sizes[i].m;
            p.n = sizes[i].n;
            p.k = sizes[i].k;
            p.bias = sizes[i].bias;
            p.act = i % 3 == 1;
            fill(ctx, &p, seed + i);
            if (!open_packed(ctx, "cpu:2", &p, &r))
                skip();
            multiply(ctx, &r, &p, 0, p.m, p.y);
            expect_right(&p);
            wt_close(&r);
        }
}

static void test_same_bits(void **state)
{
    wf_ctx *ctx = *state;
    static product p;
    static float alone[MOST_M * MOST_N], other[MOST_M * MOST_N];
    for (int run = 0; run < 2 * TYPES; run++) {
        wt_run r;
        if (!chosen(run + run / 2))
            continue;
        p = (product){.type = types[run / 2], .x_type = WF_F32, .m = 40, .n = 45, .k = 512};
        if (run % 2) { /* a small batch, with panels for several threads */
            p.m = 9;
            p.n = 517;
            p.k = 768;
        }
        fill(ctx, &p, wt_seed());
        if (!open_packed(ctx, "cpu:1", &p, &r))
            skip();
        multiply(ctx, &r, &p, 0, p.m, p.y);
        static const int64_t parts[] = {1, 2, 3, 4, 5, 8, 9, 40};
        for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
            for (int64_t first = 0; first < p.m; first += parts[i]) {
                int64_t rows = p.m - first < parts[i] ? p.m - first : parts[i];
                multiply(ctx, &r, &p, first, rows, alone);
                assert_memory_equal(alone, p.y + first * p.n, (size_t)(rows * p.n) * sizeof *alone);
            }
        wt_close(&r);
        static const char *const devices[] = {"cpu:2", "cpu:3", "cpu:7", "check"};
        for (int i = 0; i < 4; i++) {
            assert_true(open_packed(ctx, devices[i], &p, &r));
            multiply(ctx, &r, &p, 0, p.m, other);
            assert_memory_equal(other, p.y, (size_t)(p.m * p.n) * sizeof *other);
            multiply(ctx, &r, &p, 3, 2, other);
            assert_memory_equal(other, p.y + 3 * p.n, (size_t)(2 * p.n) * sizeof *other);
            wt_close(&r);
        }
    }
}

/* Packing loses no bit of any block, also of blocks that no encoder writes. */
static void test_any_bytes(void **state)
{
    wf_ctx *ctx = *state;
    static product p;
    static const int64_t columns[] = {1, 7, 16, 33};
    uint64_t seed = wt_seed();
    for (int run = 0; run < 4 * TYPES; run++) {
        wt_run r;
        p = (product){.type = types[run / 4], .n = columns[run % 4], .k = 768};
        /* The low mantissa bits of random numbers are random bytes. */
        wf_random_normal(seed, (uint64_t)run, 0, 1, p.wide, p.n * p.k);
        for (size_t i = 0; i < wf_type_bytes(p.type, p.n * p.k); i++)
            memcpy(&p.blocks[i], &p.wide[i % (size_t)(p.n * p.k)], 1);
        if (!open_packed(ctx, "cpu:2", &p, &r)) /* compares the bytes */
            skip();
        wt_close(&r);
    }
}

/* ---- Unpacked weights ---- */

static const char *kernel_of(wt_run *r)
{
    wf_op_stats s;
    for (int i = 0; wf_exec_op_stats(r->exec, i, &s); i++)
        if (strncmp(s.op, "linear", 6) == 0)
            return s.kernel;
    return "";
}

/* A session whose w is owned and written, and whose activations may be rounded. */
static wt_run open_direct(wf_ctx *ctx, const char *device, const product *p)
{
    wt_run r = wt_open(ctx, device);
    wt_compile(&r, graph_of(ctx, p, 1)); /* creates the state w */
    wt_ok(ctx, wf_session_write(r.session, "w", p->blocks, wf_type_bytes(p->type, p->n * p->k)));
    multiply(ctx, &r, p, 0, 1, (float[MOST_N]){0});
    assert_null(strstr(kernel_of(&r), "direct"));
    wf_session_round(r.session, "w");
    return r;
}

/* Checks for the bits of packed weights. */
static void expect_same(wf_ctx *ctx, product *p, const char *device)
{
    static float y[MOST_M * MOST_N];
    wt_run packed, direct;
    if (!open_packed(ctx, "cpu:2", p, &packed))
        skip();
    multiply(ctx, &packed, p, 0, p->m, p->y);
    direct = open_direct(ctx, device, p);
    multiply(ctx, &direct, p, 0, p->m, y);
    assert_non_null(strstr(kernel_of(&direct), "direct"));
    assert_memory_equal(y, p->y, (size_t)(p->m * p->n) * sizeof *y);
    multiply(ctx, &direct, p, p->m - 1, 1, y);
    assert_memory_equal(y, p->y + (p->m - 1) * p->n, (size_t)p->n * sizeof *y);
    wt_close(&packed);
    wt_close(&direct);
}

/* Sizes around those of panels, k of one block and of odd numbers of blocks, small and large
 * batches. */
static void test_direct(void **state)
{
    static const int64_t rows[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 40, 300};
    static const int64_t columns[] = {1, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33, 70, 263, 517};
    static const int64_t ks[2][7] = {{32, 64, 96, 256, 288, 544, 768},
                                     {256, 512, 768, 256, 512, 768, 256}};
    static const wf_type floats[] = {WF_F32, WF_F16, WF_BF16};
    static product p;
    int run = 0;
    for (int i = 0; i < 11; i++)
        for (int j = 0; j < (rows[i] < 10 ? 15 : 13); j++, run++) {
            const bool six = (i + j) % 2;
            p = (product){.type = six ? WF_Q6_K : WF_Q8_0,
                          .x_type = floats[run % 3],
                          .bias = run % 2,
                          .act = run % 5 == 1};
            p.m = rows[i];
            p.n = columns[j];
            p.k = ks[six][run % 7];
            fill(*state, &p, wt_seed() + (uint64_t)run);
            expect_same(*state, &p, run % 4 ? "cpu:2" : "check");
        }
}

/* ---- The largest integers ---- */

/* Fills blocks with the largest integers of the type and scales of either sign; d is 1, minima are
 * 0. */
static void fill_blocks(wf_type type, void *blocks, int64_t count)
{
    const uint16_t one = 0x3c00;
    const size_t bytes = wf_type_bytes(type, wf_type_get(type)->block);
    for (int64_t i = 0; i < count; i++) {
        void *at = (uint8_t *)blocks + (size_t)i * bytes;
        const bool odd = i % 2;
        memset(at, 0xff, bytes);
        switch (type) {
        case WF_Q8_0:
            *(wf_block_q8_0 *)at = (wf_block_q8_0){.d = one};
            memset(((wf_block_q8_0 *)at)->q, -128, 32);
            break;
        case WF_Q4_0: ((wf_block_q4_0 *)at)->d = one; break;
        case WF_Q4_1:
            ((wf_block_q4_1 *)at)->d = one;
            ((wf_block_q4_1 *)at)->m = 0;
            break;
        case WF_Q4_K:
            ((wf_block_q4_k *)at)->d = one;
            ((wf_block_q4_k *)at)->dmin = 0;
            break;
        case WF_Q6_K:
            memset(((wf_block_q6_k *)at)->scales, odd ? 127 : -128, 16);
            ((wf_block_q6_k *)at)->d = one;
            break;
        case WF_Q5_0: /* integer 0 is -16 */
            memset(at, odd ? 0xff : 0, bytes);
            ((wf_block_q5_0 *)at)->d = one;
            break;
        case WF_Q5_1:
            ((wf_block_q5_1 *)at)->d = one;
            ((wf_block_q5_1 *)at)->m = 0;
            break;
        case WF_Q5_K:
            ((wf_block_q5_k *)at)->d = one;
            ((wf_block_q5_k *)at)->dmin = 0;
            break;
        case WF_Q3_K: /* scales of 31, or of -32 by integers of -4 */
            memset(at, odd ? 0xff : 0, bytes);
            ((wf_block_q3_k *)at)->d = one;
            break;
        case WF_Q2_K:
            ((wf_block_q2_k *)at)->d = one;
            ((wf_block_q2_k *)at)->dmin = 0;
            break;
        case WF_IQ4_NL: /* level 0 is -127 */
            memset(at, odd ? 0xff : 0, bytes);
            ((wf_block_iq4_nl *)at)->d = one;
            break;
        case WF_IQ4_XS:
            memset(at, odd ? 0xff : 0, bytes);
            ((wf_block_iq4_xs *)at)->d = one;
            break;
        default: fail_msg("%s has no largest block", wf_type_name(type));
        }
    }
}

/* Integer sums are largest with the largest weights and activations of one sign. 16383 makes the
 * scale 1; 16256 has the digits 64 and -128, the others have -64 and 127. */
static void test_largest(void **state)
{
    wf_ctx *ctx = *state;
    static product p;
    for (int t = 0; t < TYPES; t++)
        for (int m = 1; m <= 17; m += 8) {
            wt_run r;
            p = (product){.type = types[t], .x_type = WF_F32, .m = m, .n = 70, .k = 512};
            fill_blocks(p.type, p.blocks, p.n * p.k / wf_type_get(p.type)->block);
            wt_ok(ctx, wf_type_to_f32(ctx, p.type, p.blocks, p.wide, p.n * p.k));
            for (int64_t i = 0; i < p.m * p.k; i++)
                p.x[i] = i % 32 == 0 ? 16383 : i / 32 % 2 ? 16256 : -16257;
            if (!open_packed(ctx, "cpu:2", &p, &r))
                skip();
            multiply(ctx, &r, &p, 0, p.m, p.y);
            expect_right(&p);
            wt_close(&r);
            if (p.type == WF_Q8_0 || p.type == WF_Q6_K)
                expect_same(ctx, &p, "cpu:2");
        }
}

/* ---- NaN and infinity ---- */

/* NaN and infinity stay in their row. Zeros, and values too small to represent, produce zeros. */
static void test_odd_numbers(void **state)
{
    wf_ctx *ctx = *state;
    static product p;
    for (int t = 0; t < TYPES; t++)
        for (int many = 0; many < 2; many++) {
            wt_run r;
            p = (product){
                .type = types[t], .x_type = WF_F32, .m = many ? 20 : 5, .n = 33, .k = 256};
            fill(ctx, &p, wt_seed());
            p.x[0 * p.k + 40] = NAN;
            p.x[1 * p.k + 200] = INFINITY;
            for (int64_t i = 0; i < p.k; i++) {
                p.x[2 * p.k + i] = 0;
                p.x[3 * p.k + i] = 0x1p-140f;
                p.x[4 * p.k + i] *= 0x1p100f;
            }
            if (!open_packed(ctx, "cpu:2", &p, &r))
                skip();
            multiply(ctx, &r, &p, 0, p.m, p.y);
            for (int64_t j = 0; j < p.n; j++) {
                assert_true(isnan(p.y[j]) && isnan(p.y[p.n + j]));
                assert_true(p.y[2 * p.n + j] == 0 && fabsf(p.y[3 * p.n + j]) < 0x1p-120f);
                assert_true(isfinite(p.y[4 * p.n + j]));
            }
            for (int64_t i = 5 * p.n; i < p.m * p.n; i++)
                assert_true(isfinite(p.y[i]));
            wt_close(&r);
        }
}

static void test_rows_of_a_table(void **state)
{
    wf_ctx *ctx = *state;
    static product p;
    static float got[50 * MOST_K];
    int32_t ids[50];
    for (int t = 0; t < TYPES; t++) {
        wt_run r;
        p = (product){.type = types[t], .x_type = WF_F32, .m = 1, .n = 61, .k = 512};
        fill(ctx, &p, wt_seed());
        if (!open_packed(ctx, "cpu:2", &p, &r))
            skip();
        for (int i = 0; i < 50; i++)
            ids[i] = i * 37 % 61;
        wf_graph *g = wt_graph(ctx);
        wf_value *w = wf_state(g, "w", p.type, 2, (int64_t[]){p.n, p.k});
        wf_value *id = wf_input(g, "ids", WF_I32, 1, &(int64_t){50});
        wt_ok(ctx, wf_output(g, "y", wf_embed(g, w, id)));
        wt_compile(&r, g);
        wt_write(&r, "ids", ids, sizeof ids);
        wt_run_once(&r);
        wt_read(&r, "y", got, (size_t)(50 * p.k) * sizeof *got);
        for (int i = 0; i < 50; i++)
            assert_memory_equal(got + i * p.k, p.wide + ids[i] * p.k, (size_t)p.k * sizeof *got);
        ids[7] = 61;
        wt_write(&r, "ids", ids, sizeof ids);
        wt_fails(ctx, wf_exec_run(r.exec), WF_ERR_DEVICE, "index 61 at [7] of input 1");
        wt_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_products),        wt_test(test_same_bits), wt_test(test_any_bytes),
        wt_test(test_direct),          wt_test(test_largest),   wt_test(test_odd_numbers),
        wt_test(test_rows_of_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
