/* SPDX-License-Identifier: MIT */
/*
 * test_quant.c - quantization of single blocks. Dequantized values have ggml's bits; quantization
 * has no larger error than ggml's quantizers, for any input.
 *
 * The ggml references were recorded from its C code (ggml-quants.c of llama.cpp, August 2026, gcc
 * -O2) on the blocks and values that this file generates: hashes of dequantize_row_*, and the
 * smaller error of quantize_row_*_ref and quantize_* without an importance matrix, and the error of
 * quantize_* with one. The Python package
 * gguf 0.19 dequantizes these blocks to the same bits.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/hash.h"
#include "base/philox.h"
#include "graph/quant/block.h"
#include "selftest/number.h"
#include "support.h"

/* Type t of weft_quant.def. */
static wf_type type_at(int t)
{
    return (wf_type)(WF_BLOCK_FIRST + t);
}

/* ---- Dequantization ---- */

enum { BLOCKS = 64 };

/* Scales of random blocks: any below 2, or one of `extreme`. */
enum { RANDOM_SCALES, EXTREME_SCALES, SCALE_KINDS };

/* Zeros, the smallest and largest subnormal numbers, the smallest and largest normal ones. */
static const uint16_t extreme[] = {0,     0x8000, 1,      0x8001, 0x3FF,  0x83FF,
                                   0x400, 0x8400, 0x7BFF, 0xFBFF, 0x7BFE, 0x3C00};

/* Per type: the offsets of the f16 scales in a block, and hashes of ggml's values for random
 * blocks. */
static const struct {
    int scale[2];
    uint64_t bits[SCALE_KINDS];
} ggml[WF_TYPE_COUNT] = {
    [WF_Q8_0] = {{0, 0}, {0xcf73ed9823866354u, 0xa9544c693fe42736u}},
    [WF_Q4_0] = {{0, 0}, {0x521db66094a14b0eu, 0x2a2f1aed1bc7fbcdu}},
    [WF_Q4_1] = {{0, 2}, {0x150e3ad27ce92e7eu, 0xdffdd04c8dcbefc0u}},
    [WF_Q4_K] = {{0, 2}, {0xb2321d4eb9163e0eu, 0xddc4c594da7d7386u}},
    [WF_Q6_K] = {{208, 208}, {0xd3e0c6d18f156619u, 0x1a8b8727723f2d1du}},
    [WF_Q5_0] = {{0, 0}, {0xaad590cf54839401u, 0x65c868992af4e2ceu}},
    [WF_Q5_K] = {{0, 2}, {0x33235993c0321ffeu, 0x045ff9ff8fd6f7afu}},
    [WF_Q5_1] = {{0, 2}, {0xdaf9aed18b5be4c2u, 0xcedea0530d69bfd2u}},
    [WF_Q3_K] = {{108, 108}, {0x680dd5d70f24ed7au, 0x1339c970108c46d3u}},
    [WF_Q2_K] = {{80, 82}, {0x05f99eec8efd6323u, 0xbf93a3ab960a31d1u}},
    [WF_IQ4_NL] = {{0, 0}, {0x64f0f60d11144de7u, 0x90053a06e3e4af3du}},
    [WF_IQ4_XS] = {{0, 0}, {0xfc2847136d86b1f6u, 0xea6e964317565750u}},
};

/* Random blocks with finite scales. */
static void random_blocks(int which, int kind, uint8_t *bytes)
{
    enum { MANY = sizeof extreme / sizeof *extreme };
    const int *scale = ggml[type_at(which)].scale;
    const int size = wf_type_get(type_at(which))->block_bytes;
    wf_rng r;
    wf_rng_init(&r, 77, (uint64_t)which);
    for (int i = 0; i < BLOCKS * size; i++)
        bytes[i] = (uint8_t)wf_rng_u32(&r);
    for (int i = 0; i < BLOCKS; i++)
        for (int k = 0; k < 2; k++) {
            uint8_t *at = bytes + i * size + scale[k];
            uint16_t code = extreme[(i * (k ? 5 : 1) + i / MANY) % MANY];
            at[1] &= 0xBF;
            if (kind == EXTREME_SCALES) {
                at[0] = (uint8_t)code;
                at[1] = (uint8_t)(code >> 8);
            }
        }
}

static void check_decoded(wf_ctx *ctx, int t, int kind)
{
    static uint8_t bytes[BLOCKS * 512];
    static float x[BLOCKS * 256], part[BLOCKS * 256];
    const wf_type_info *info = wf_type_get(type_at(t));
    int64_t n = BLOCKS * info->block, step = wf_block_part(type_at(t));
    random_blocks(t, kind, bytes);
    wt_ok(ctx, wf_type_to_f32(ctx, type_at(t), bytes, x, n));
    for (int64_t i = 0; i < n; i++)
        assert_true(x[i] == (float)wf_number_of_block(type_at(t), bytes, i));
    assert_int_equal(wf_hash_fnv1a(WF_FNV1A, x, (size_t)n * sizeof *x),
                     ggml[type_at(t)].bits[kind]);
    for (int64_t i = 0; i < n; i += 8) { /* the definition that devices compile */
        wf_block_decode8(type_at(t), bytes + i / info->block * info->block_bytes,
                         (int)(i % info->block / 8), part);
        assert_memory_equal(part, x + i, 8 * sizeof *x);
    }
    for (int64_t i = 0; i + 3 * step <= n; i += step) { /* from any offset within a block */
        wf_block_decode(type_at(t), bytes, i, 3 * step, part);
        assert_memory_equal(part, x + i, (size_t)(3 * step) * sizeof *x);
    }
}

static void test_decoded_bits(void **state)
{
    for (int t = 0; t < WF_BLOCK_TYPES; t++)
        for (int kind = 0; kind < SCALE_KINDS; kind++) {
            if (!ggml[type_at(t)].bits[kind])
                fail_msg("no bits of ggml were recorded for %s", wf_type_name(type_at(t)));
            check_decoded(*state, t, kind);
        }
}

/* f16 also has a vectorized conversion. */
static void test_halves(void **state)
{
    static uint16_t codes[65536];
    static float x[65536];
    for (int i = 0; i < 65536; i++)
        codes[i] = (uint16_t)i;
    wt_ok(*state, wf_type_to_f32(*state, WF_F16, codes, x, 65536));
    for (int i = 0; i < 65536; i++)
        assert_int_equal(wf_f32_bits(x[i]), wf_f32_bits(wf_f16_to_f32(codes[i])));
}

/* ---- Quantization ---- */

enum { ROWS = 64, COLUMNS = 1024, COUNT = ROWS * COLUMNS };

static float numbers[COUNT], back[COUNT], drawn[4][COUNT];
static uint8_t stored[COUNT * 2];

/* Distributions. 0: normal; 1: Student's t with 3 degrees of freedom; 2: ramps with an offset; 3:
 * some columns 20 times larger than the others. */
static void make_numbers(int kind, uint64_t seed)
{
    for (int k = 0; k < 4; k++)
        wf_random_normal(seed, (uint64_t)k, 0, 1, drawn[k], COUNT);
    for (int i = 0; i < COUNT; i++) {
        float z = drawn[0][i], a = drawn[1][i], b = drawn[2][i], c = drawn[3][i];
        int column = i % COLUMNS;
        numbers[i] = kind == 0   ? 0.02f * z
                     : kind == 1 ? 0.02f * z / sqrtf((a * a + b * b + c * c) / 3)
                     : kind == 2 ? 0.05f * (float)(column % 97) / 97 + 0.03f + 0.004f * z
                                 : (column % 37 == 5 ? 0.4f : 0.02f) * z;
    }
}

typedef struct {
    double plain;    /* root mean square */
    double weighted; /* by x^2 for q6_K, else by |x| and the root mean square of 32 values */
} errors;

static errors measure(wf_type type)
{
    double sum = 0, weighted = 0, weights = 0;
    int group = type == WF_Q6_K ? 16 : 32;
    for (int g = 0; g < COUNT; g += group) {
        double squares = 0;
        for (int i = g; i < g + group; i++)
            squares += (double)numbers[i] * numbers[i];
        for (int i = g; i < g + group; i++) {
            double x = numbers[i], e = back[i] - x;
            double w = type == WF_Q6_K ? x * x : sqrt(squares / group) + fabs(x);
            sum += e * e;
            weighted += w * e * e;
            weights += w;
        }
    }
    return (errors){sqrt(sum / COUNT), sqrt(weighted / weights)};
}

static const struct {
    wf_type type;
    int kind;
    uint64_t seed;
    double plain, weighted; /* ggml's errors */
    double importance;      /* with an importance matrix: sum of squares, weighed by it */
} recorded[] = {
    {WF_Q8_0, 0, 1000, 1.073695617e-04, 1.073070884e-04, 7.179201918e-04},
    {WF_Q8_0, 1, 1001, 2.934896660e-04, 3.635719924e-04, 5.598906381e-03},
    {WF_Q8_0, 2, 1002, 1.694296038e-04, 1.699353537e-04, 1.873350315e-03},
    {WF_Q8_0, 3, 1003, 8.070680508e-04, 1.019094297e-03, 4.482319966e-02},
    {WF_Q4_0, 0, 1000, 1.725223133e-03, 1.742361413e-03, 1.437200255e-01},
    {WF_Q4_0, 1, 1001, 4.453909005e-03, 5.355437349e-03, 1.053734888e+00},
    {WF_Q4_0, 2, 1002, 2.681468622e-03, 2.691862046e-03, 3.231324195e-01},
    {WF_Q4_0, 3, 1003, 1.066669805e-02, 1.311407649e-02, 7.333066140e+00},
    {WF_Q4_1, 0, 1000, 1.571446825e-03, 1.552911148e-03, 9.418078057e-02},
    {WF_Q4_1, 1, 1001, 3.428036761e-03, 3.889759224e-03, 4.675631172e-01},
    {WF_Q4_1, 2, 1002, 7.121691262e-04, 6.742879260e-04, 8.887846524e-02},
    {WF_Q4_1, 3, 1003, 7.424766246e-03, 9.280970685e-03, 2.473416335e+00},
    {WF_Q4_K, 0, 1000, 1.430823330e-03, 1.421322960e-03, 9.730805792e-02},
    {WF_Q4_K, 1, 1001, 3.204578682e-03, 3.655300570e-03, 5.005989645e-01},
    {WF_Q4_K, 2, 1002, 1.312010213e-03, 1.318163240e-03, 9.193973003e-02},
    {WF_Q4_K, 3, 1003, 6.831760925e-03, 8.450709639e-03, 2.662555516e+00},
    {WF_Q6_K, 0, 1000, 3.577993632e-04, 3.079360815e-04, 6.234977172e-03},
    {WF_Q6_K, 1, 1001, 8.800502673e-04, 7.348382965e-04, 4.003007125e-02},
    {WF_Q6_K, 2, 1002, 5.353476336e-04, 5.538776083e-04, 1.521379410e-02},
    {WF_Q6_K, 3, 1003, 2.278589649e-03, 1.326199435e-03, 3.450375860e-01},
    {WF_Q5_0, 0, 1000, 8.587691558e-04, 8.613583129e-04, 3.547289370e-02},
    {WF_Q5_0, 1, 1001, 2.304919014e-03, 2.821465531e-03, 2.948884506e-01},
    {WF_Q5_0, 2, 1002, 1.342733085e-03, 1.347245060e-03, 8.060219705e-02},
    {WF_Q5_0, 3, 1003, 6.274782424e-03, 7.952071233e-03, 2.543879367e+00},
    {WF_Q5_K, 0, 1000, 7.240730412e-04, 7.242576178e-04, 2.553585946e-02},
    {WF_Q5_K, 1, 1001, 1.627531800e-03, 1.876216206e-03, 1.406429468e-01},
    {WF_Q5_K, 2, 1002, 6.528024263e-04, 6.570827298e-04, 2.316947373e-02},
    {WF_Q5_K, 3, 1003, 3.474791164e-03, 4.340375305e-03, 7.304949503e-01},
    {WF_Q5_1, 0, 1000, 7.617277415e-04, 7.531215727e-04, 2.201325185e-02},
    {WF_Q5_1, 1, 1001, 1.669481980e-03, 1.900707680e-03, 1.141567162e-01},
    {WF_Q5_1, 2, 1002, 3.448819535e-04, 3.266247660e-04, 2.053099507e-02},
    {WF_Q5_1, 3, 1003, 3.586151430e-03, 4.459650431e-03, 6.008413749e-01},
    {WF_Q3_K, 0, 1000, 3.028967440e-03, 3.027425322e-03, 4.193159509e-01},
    {WF_Q3_K, 1, 1001, 6.527705826e-03, 7.443900892e-03, 2.068987626e+00},
    {WF_Q3_K, 2, 1002, 4.754167312e-03, 4.800143001e-03, 8.534535296e-01},
    {WF_Q3_K, 3, 1003, 1.035200726e-02, 1.211604719e-02, 7.254108189e+00},
    {WF_Q2_K, 0, 1000, 5.981962562e-03, 5.823038115e-03, 1.247334456e+00},
    {WF_Q2_K, 1, 1001, 1.207812991e-02, 1.277194902e-02, 4.861785188e+00},
    {WF_Q2_K, 2, 1002, 4.806236122e-03, 4.878070837e-03, 1.311063912e+00},
    {WF_Q2_K, 3, 1003, 1.581595694e-02, 1.693437631e-02, 1.398026634e+01},
    {WF_IQ4_NL, 0, 1000, 1.528920783e-03, 1.609424259e-03, 1.179615142e-01},
    {WF_IQ4_NL, 1, 1001, 3.575434965e-03, 4.384894701e-03, 6.337023402e-01},
    {WF_IQ4_NL, 2, 1002, 3.128585635e-03, 3.208585637e-03, 5.464281188e-01},
    {WF_IQ4_NL, 3, 1003, 8.591828634e-03, 1.071544014e-02, 4.377013797e+00},
    {WF_IQ4_XS, 0, 1000, 1.541180708e-03, 1.627310667e-03, 1.206891412e-01},
    {WF_IQ4_XS, 1, 1001, 3.618374546e-03, 4.452967942e-03, 6.638977419e-01},
    {WF_IQ4_XS, 2, 1002, 3.159085698e-03, 3.242075946e-03, 5.641287722e-01},
    {WF_IQ4_XS, 3, 1003, 8.668934218e-03, 1.092672994e-02, 4.496425182e+00},
};

static void quantize(wf_type type, const float *importance)
{
    wf_quantize(type, numbers, importance, stored, ROWS, COLUMNS);
    wf_convert_to_f32(type, stored, back, COUNT);
}

/* Squared error, weighted by the importance of each column. */
static double weighed_error(const float *importance)
{
    double sum = 0;
    for (int i = 0; i < COUNT; i++)
        sum += importance[i % COLUMNS] * pow(back[i] - numbers[i], 2);
    return sum;
}

static void test_errors(void **state)
{
    static float importance[COLUMNS];
    (void)state;
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        wf_type type = recorded[i].type;
        make_numbers(recorded[i].kind, recorded[i].seed);
        for (int c = 0; c < COLUMNS; c++)
            importance[c] = drawn[1][c] * drawn[1][c];
        quantize(type, NULL);
        errors e = measure(type);
        double plain = e.plain / recorded[i].plain, weighted = e.weighted / recorded[i].weighted;
        quantize(type, importance);
        double weighed = sqrt(weighed_error(importance) / recorded[i].importance);
        print_message("%s, numbers %d: error %.4f of ggml's, weighted %.4f, with importance %.4f\n",
                      wf_type_name(type), recorded[i].kind, plain, weighted, weighed);
        assert_true(plain <= 1.00001);
        assert_true(weighted <= 1.00001 || wf_type_get(type)->block < 256);
        assert_true(weighed <= 1.00001);
    }
}

static void test_importance(void **state)
{
    (void)state;
    static float importance[COLUMNS], nothing[COLUMNS];
    make_numbers(1, 3);
    for (int c = 0; c < COLUMNS; c++)
        importance[c] = drawn[1][c] * drawn[1][c] * 1e-12f;
    for (int t = 1; t < WF_BLOCK_TYPES; t++) { /* q8_0 has no search */
        quantize(type_at(t), NULL);
        double without = weighed_error(importance);
        uint64_t bits = wf_hash_fnv1a(WF_FNV1A, stored, sizeof stored);
        quantize(type_at(t), importance);
        double with = weighed_error(importance);
        print_message("%s: with importance %.3f of the error\n", wf_type_name(type_at(t)),
                      sqrt(with / without));
        assert_true(with < 0.97 * without);
        quantize(type_at(t), nothing); /* all-zero importance equals uniform importance */
        assert_int_equal(wf_hash_fnv1a(WF_FNV1A, stored, sizeof stored), bits);
    }
}

/* Rows are independent, and blocks do not depend on the previous contents of their memory. */
static void test_rows(void **state)
{
    static uint8_t one[COLUMNS * 2];
    make_numbers(0, 4);
    for (int t = 0; t < WF_BLOCK_TYPES; t++) {
        size_t bytes = wf_type_bytes(type_at(t), COLUMNS);
        memset(stored, 0, sizeof stored);
        quantize(type_at(t), NULL);
        for (int r = 0; r < ROWS; r += 7) {
            memset(one, 0xA5, sizeof one);
            wt_ok(*state,
                  wf_type_from_f32(*state, type_at(t), numbers + r * COLUMNS, one, COLUMNS));
            assert_memory_equal(one, stored + (size_t)r * bytes, bytes);
        }
    }
}

/* ---- Inputs that are hard on the search ---- */

static void through(wf_type type, float *x, int64_t n)
{
    wf_quantize(type, x, NULL, stored, 1, n);
    wf_convert_to_f32(type, stored, x, n);
}

static void test_zeros(void **state)
{
    (void)state;
    for (int t = 0; t < WF_BLOCK_TYPES; t++) {
        float x[512] = {0};
        through(type_at(t), x, 512);
        for (int i = 0; i < 512; i++)
            assert_true(x[i] == 0);
        for (int i = 0; i < 512; i++)
            /* Zeros beside one value stay 0, except for types with an offset. */
            x[i] = i == 300 ? 1.f : -0.f;
        through(type_at(t), x, 512);
        for (int i = 0; i < 512; i++)
            assert_true(fabsf(x[i] - (i == 300)) < 0.01f);
    }
}

static void test_constants(void **state)
{
    (void)state;
    static const float values[] = {1, -1, 0.1f, -0.1f, 1e-3f, 3e-6f, -1e-7f, 1000, -65504};
    for (int t = 0; t < WF_BLOCK_TYPES; t++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            float x[256];
            for (int i = 0; i < 256; i++)
                x[i] = values[v];
            through(type_at(t), x, 256);
            /* A scale near the smallest f16 is off by up to half of it. Of the multiples of a
             * scale iq4_xs has fewer than the others. */
            float bound = (type_at(t) == WF_IQ4_XS ? 0.02f : 0.005f) * fabsf(values[v]);
            bound += 127 * 0x1p-25f;
            for (int i = 0; i < 256; i++)
                if (fabsf(x[i] - values[v]) > bound)
                    fail_msg("%s: %g came back as %g", wf_type_name(type_at(t)), values[v], x[i]);
        }
}

/* NaN quantizes like 0, and infinity like the largest f16. */
static void test_not_finite(void **state)
{
    (void)state;
    uint8_t want[1024];
    float x[512], y[512];
    for (int t = 0; t < WF_BLOCK_TYPES; t++) {
        wf_random_normal(5, 0, 0, 1, x, 512);
        memcpy(y, x, sizeof x);
        const float bad[] = {NAN, INFINITY, -INFINITY, 1e30f, -NAN};
        const float good[] = {0, 65504, -65504, 65504, 0};
        for (int i = 0; i < 5; i++) {
            x[40 * i] = bad[i];
            y[40 * i] = good[i];
        }
        wf_quantize(type_at(t), y, NULL, want, 1, 512);
        wf_quantize(type_at(t), x, NULL, stored, 1, 512);
        assert_memory_equal(stored, want, wf_type_bytes(type_at(t), 512));
        wf_convert_to_f32(type_at(t), stored, x, 512);
        for (int i = 0; i < 512; i++)
            assert_true(isfinite(x[i]));
        for (int i = 0; i < 512; i++)
            x[i] = i % 2 ? NAN : i % 4 ? -INFINITY : INFINITY;
        through(type_at(t), x, 512);
        for (int i = 0; i < 512; i++)
            /* iq4 has the levels -104 and 113 for two elements of one size: up to 4% too large */
            assert_true(isfinite(x[i]) && fabsf(x[i]) <= 1.05f * 65504);
    }
}

/* Arbitrary input bits produce finite values only. */
static void test_any_bits(void **state)
{
    (void)state;
    uint64_t seed = wt_seed();
    wf_rng r;
    wf_rng_init(&r, seed, 0);
    for (int turn = 0; turn < 200; turn++)
        for (int t = 0; t < WF_BLOCK_TYPES; t++) {
            uint32_t bits[256];
            float x[256];
            for (int i = 0; i < 256; i++)
                bits[i] = wf_rng_u32(&r);
            memcpy(x, bits, sizeof x);
            through(type_at(t), x, 256);
            for (int i = 0; i < 256; i++)
                assert_true(isfinite(x[i]));
        }
}

static void test_refusals(void **state)
{
    wf_ctx *ctx = *state;
    float x[256] = {0};
    wt_fails(ctx, wf_type_from_f32(ctx, WF_Q4_K, x, stored, 128), WF_ERR_USAGE,
             "q4_K needs a multiple of its block size 256");
    wt_fails(ctx, wf_type_to_f32(ctx, WF_Q8_0, stored, x, 33), WF_ERR_USAGE, "block size 32");
    wt_fails(ctx, wf_type_to_f32(ctx, WF_TYPE_NONE, stored, x, 32), WF_ERR_USAGE, "none");
    wt_fails(ctx, wf_type_to_f32(ctx, WF_Q4_0, stored, x, -32), WF_ERR_USAGE, "-32 elements");
    wt_ok(ctx, wf_type_from_f32(ctx, WF_Q6_K, x, stored, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_decoded_bits), wt_test(test_halves),     wt_test(test_errors),
        wt_test(test_importance),   wt_test(test_rows),       wt_test(test_zeros),
        wt_test(test_constants),    wt_test(test_not_finite), wt_test(test_any_bits),
        wt_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
