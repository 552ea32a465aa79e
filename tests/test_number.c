/* SPDX-License-Identifier: MIT */
/* test_number.c - random numbers and narrow floats of src/base: known answers, distributions, and
 * exhaustive or random rounding against the definition. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/half.h"
#include "base/philox.h"

/* ---- philox.h ------------------------------------------------------------------------------ */

/* The kat_vectors of the Random123 distribution. */
static void test_philox_known_answers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], out[4];
    } known[] = {
        {{0}, {0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        uint32_t out[4];
        wf_philox4x32(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].out, sizeof out);
    }
    assert_true(wf_u32_to_unit(0) == 0.0f);
    assert_true(wf_u32_to_unit(0xff) == 0.0f);
    assert_true(wf_u32_to_unit(0x80000000u) == 0.5f);
    assert_true(wf_u32_to_unit(UINT32_MAX) == 1.0f - 0x1p-24f);
}

static void test_rng_sequence(void **state)
{
    (void)state;
    const uint64_t seed = UINT64_C(0x0123456789abcdef), stream = UINT64_C(0xfedcba9876543210);
    wf_rng r;
    wf_rng_init(&r, seed, stream);
    for (uint32_t block = 0; block < 3; block++) {
        uint32_t out[4];
        wf_philox4x32((uint32_t[]){block, 0, 0x76543210u, 0xfedcba98u},
                      (uint32_t[]){0x89abcdefu, 0x01234567u}, out);
        for (int i = 0; i < 4; i++)
            assert_int_equal(wf_rng_u32(&r), out[i]);
    }

    wf_rng carry; /* block 2^32 - 1 is followed by block 2^32 */
    wf_rng_init(&carry, 5, 0);
    carry.counter[0] = UINT32_MAX;
    for (int i = 0; i < 4; i++)
        wf_rng_u32(&carry);
    uint32_t out[4];
    wf_philox4x32((uint32_t[]){0, 1, 0, 0}, (uint32_t[]){5, 0}, out);
    assert_int_equal(wf_rng_u32(&carry), out[0]);
}

/* The generator is deterministic: these bounds fail only when the code changes. */
static void test_rng_distributions(void **state)
{
    (void)state;
    enum { N = 100000 };
    wf_rng r;
    wf_rng_init(&r, 42, 7);

    int bins[10] = {0};
    for (int i = 0; i < N; i++)
        bins[wf_rng_below(&r, 10)]++;
    double chi2 = 0;
    for (int i = 0; i < 10; i++)
        chi2 += (bins[i] - N / 10.0) * (bins[i] - N / 10.0) / (N / 10.0);
    assert_true(chi2 < 27.9); /* 9 degrees of freedom, p = 0.001 */

    int low = 0; /* a plain remainder would put half of them below 2^62, not a third */
    for (int i = 0; i < N; i++) {
        uint64_t x = wf_rng_below(&r, UINT64_C(3) << 62);
        assert_true(x < UINT64_C(3) << 62);
        low += x < UINT64_C(1) << 62;
    }
    assert_true(fabs(low / (double)N - 1 / 3.0) < 0.01);
    assert_int_equal(wf_rng_below(&r, 1), 0);

    double sum = 0, squares = 0, least = 1, most = 0;
    for (int i = 0; i < N; i++) {
        double u = wf_rng_unit(&r);
        sum += u;
        least = fmin(least, u);
        most = fmax(most, u);
    }
    assert_true(least >= 0 && least < 1e-3 && most < 1 && most > 1 - 1e-3);
    assert_true(fabs(sum / N - 0.5) < 0.005);

    double fourth = 0;
    sum = 0;
    for (int i = 0; i < N; i++) {
        double z = wf_rng_normal(&r);
        assert_true(isfinite(z));
        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
    }
    assert_true(fabs(sum / N) < 0.015);
    assert_true(fabs(squares / N - 1) < 0.02);
    assert_true(fabs(fourth / N - 3) < 0.15);
}

/* ---- half.h -------------------------------------------------------------------------------- */

#define WRAP(name, type)                       \
    static uint32_t to_##name(float f)         \
    {                                          \
        return wf_f32_to_##name(f);            \
    }                                          \
    static float from_##name(uint32_t code)    \
    {                                          \
        return wf_##name##_to_f32((type)code); \
    }
WRAP(f16, uint16_t)
WRAP(bf16, uint16_t)
WRAP(e5m2, uint8_t)
WRAP(e4m3, uint8_t)

typedef struct {
    const char *name;
    int e, m;
    uint32_t top; /* the largest finite magnitude code */
    uint32_t inf; /* 0: no infinity; the format saturates */
    uint32_t (*to)(float);
    float (*from)(uint32_t);
} format;

static const format formats[] = {
    {"f16", 5, 10, 0x7BFF, 0x7C00, to_f16, from_f16},
    {"bf16", 8, 7, 0x7F7F, 0x7F80, to_bf16, from_bf16},
    {"e5m2", 5, 2, 0x7B, 0x7C, to_e5m2, from_e5m2},
    {"e4m3", 4, 3, 0x7E, 0, to_e4m3, from_e4m3},
};
enum { FORMATS = sizeof formats / sizeof *formats };

/* Value by definition: mantissa times a power of two. Codes past `top` continue the sequence. */
static double code_value(const format *f, uint32_t code)
{
    int exponent = (int)(code >> f->m), bias = (1 << (f->e - 1)) - 1;
    double fraction = code & ((1u << f->m) - 1);
    if (exponent == 0)
        return ldexp(fraction, 1 - bias - f->m);
    return ldexp(fraction + (1u << f->m), exponent - bias - f->m);
}

/* Finds the nearest code by binary search over all values, in double, which is exact here. */
static uint32_t nearest_code(const format *f, float x)
{
    double a = fabs((double)x);
    uint32_t sign = signbit(x) ? 1u << (f->e + f->m) : 0;
    if (!f->inf && isinf(x))
        return sign | (f->top + 1);
    uint32_t low = 0, high = f->top + 1; /* value(low) <= a < value(high), except at the ends */
    while (high - low > 1) {
        uint32_t mid = (low + high) / 2;
        if (code_value(f, mid) <= a)
            low = mid;
        else
            high = mid;
    }
    double below = a - code_value(f, low), above = code_value(f, high) - a;
    uint32_t code = below < above || (below == above && low % 2 == 0) ? low : high;
    return sign | (code > f->top && !f->inf ? f->top : code);
}

static void test_half_every_code(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        uint32_t sign = 1u << (f->e + f->m);
        for (uint32_t code = 0; code < 2 * sign; code++) {
            uint32_t magnitude = code & (sign - 1);
            float x = f->from(code);
            if (magnitude <= f->top)
                assert_true(fabs((double)x) == code_value(f, magnitude));
            else if (magnitude == f->inf)
                assert_true(isinf(x));
            else
                assert_true(isnan(x));
            assert_int_equal(signbit(x) != 0, code >= sign);
            assert_int_equal(f->to(x), code);
        }
    }
}

static void check_rounding(const format *f, float x)
{
    uint32_t expected = nearest_code(f, x), got = f->to(x);
    if (got != expected)
        fail_msg("%s: %a gives %x, not %x", f->name, (double)x, got, expected);
}

static void test_half_rounding(void **state)
{
    (void)state;
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (uint32_t code = 0; code <= f->top; code++) {
            float mid = (float)((code_value(f, code) + code_value(f, code + 1)) / 2);
            for (int sign = -1; sign <= 1; sign += 2) {
                check_rounding(f, (float)sign * mid);
                check_rounding(f, (float)sign * nextafterf(mid, 0));
                check_rounding(f, (float)sign * nextafterf(mid, INFINITY));
            }
        }
        wf_rng r;
        wf_rng_init(&r, 2024, (uint64_t)i);
        for (int k = 0; k < 300000; k++) {
            float x = wf_bits_f32(wf_rng_u32(&r));
            if (!isnan(x))
                check_rounding(f, x);
            /* and a value near the range of the narrow formats */
            check_rounding(f, (float)ldexp(wf_rng_unit(&r) - 0.5, (int)wf_rng_below(&r, 46) - 27));
        }
        for (uint32_t low = 0; low < 1000; low++) /* subnormal f32 */
            check_rounding(f, wf_bits_f32(low));
    }
}

static void test_half_edges(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7F800001, 0x7FFFFFFF, 0x7FC00000, 0xFF800001, 0xFFC12345};
    for (int i = 0; i < FORMATS; i++) {
        const format *f = &formats[i];
        for (size_t k = 0; k < sizeof nans / sizeof *nans; k++) {
            float back = f->from(f->to(wf_bits_f32(nans[k])));
            assert_true(isnan(back));
            assert_int_equal(signbit(back) != 0, nans[k] >> 31);
        }
        assert_true(f->inf ? isinf(f->from(f->to(-INFINITY))) : isnan(f->from(f->to(-INFINITY))));
    }
    assert_int_equal(wf_f32_to_f16(65519.0f), 0x7BFF);
    assert_int_equal(wf_f32_to_f16(65520.0f), 0x7C00);
    assert_int_equal(wf_f32_to_f16(1.0f), 0x3C00);
    assert_int_equal(wf_f32_to_bf16(-1.0f), 0xBF80);
    assert_int_equal(wf_f32_to_bf16(FLT_MAX), 0x7F80);
    assert_int_equal(wf_f32_to_e5m2(61439.0f), 0x7B);
    assert_int_equal(wf_f32_to_e5m2(-61440.0f), 0xFC);
    assert_int_equal(wf_f32_to_e4m3(1.0f), 0x38);
    assert_int_equal(wf_f32_to_e4m3(1e30f), 0x7E);
    assert_int_equal(wf_f32_to_e4m3(-465.0f), 0xFE);
    assert_int_equal(wf_f32_to_e4m3(INFINITY), 0x7F);
    assert_true(wf_e4m3_to_f32(0x7E) == 448.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers), cmocka_unit_test(test_rng_sequence),
        cmocka_unit_test(test_rng_distributions),    cmocka_unit_test(test_half_every_code),
        cmocka_unit_test(test_half_rounding),        cmocka_unit_test(test_half_edges),
    };
    return cmocka_run_group_tests_name("number", tests, NULL, NULL);
}
