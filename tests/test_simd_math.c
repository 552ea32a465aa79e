/* SPDX-License-Identifier: MIT */
/* test_simd_math.c - the functions of vector kernels against double precision, for every
 * instruction set of this machine. The bounds are those stated in src/device/cpu/simd/math.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/philox.h"
#include "device/cpu/cpu.h"

/* ---- The exact values ---- */

#define SQRT_8_OVER_PI 1.59576912160573071176

static double negated(double x)
{
    return -x;
}

static double rsqrt(double x)
{
    return 1 / sqrt(x);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double gelu_input(double x)
{
    return SQRT_8_OVER_PI * (x + 0.044715 * x * x * x);
}

static double gelu(double x)
{
    return sigmoid(gelu_input(x)) * x;
}

static double normal(double x)
{
    return 0.5 * erfc(-x * 0.70710678118654752440);
}

static double gelu_erf(double x)
{
    return normal(x) * x;
}

static double silu(double x)
{
    return sigmoid(x) * x;
}

static double relu(double x)
{
    return x < 0 ? 0 : x;
}

static double relu2(double x)
{
    return relu(x) * relu(x);
}

/* Past 50 the second term of the slope is 0; the formula would compute 0 times infinity. */
static double silu_slope(double x)
{
    double more = fabs(x) < 200 ? x * sigmoid(x) * sigmoid(-x) : 0;
    return sigmoid(x) + more;
}

static double gelu_slope(double x)
{
    double u = gelu_input(x), du = SQRT_8_OVER_PI * (1 + 3 * 0.044715 * x * x);
    double more = fabs(x) < 50 ? x * sigmoid(u) * sigmoid(-u) * du : 0;
    return sigmoid(u) + more;
}

static double gelu_erf_slope(double x)
{
    double more = fabs(x) < 50 ? x * 0.39894228040143267794 * exp(-0.5 * x * x) : 0;
    return normal(x) + more;
}

/* ---- The bounds ---- */

typedef struct {
    const char *name;
    double (*exact)(double x);
    double ulp;      /* of the exact value, or of the smallest normal if that is larger */
    double absolute; /* plus this */
} promise;

static const promise promises[] = {
    {"neg", negated, 0, 0},
    {"exp", exp, 1.5, 0},
    {"log", log, 1, 0},
    {"sqrt", sqrt, 0.5, 0},
    {"rsqrt", rsqrt, 1.5, 0},
    {"tanh", tanh, 1.5, 0},
    {"sigmoid", sigmoid, 3, 0},
    {"erf", erf, 1.5, 0},
    {"gelu", gelu, 3, 0}, /* times 1 + |u|, see bound_at */
    {"gelu_erf", gelu_erf, 8, 0},
    {"silu", silu, 4, 0},
    {"relu", relu, 0, 0},
    {"relu2", relu2, 0.5, 0},
    {"silu_slope", silu_slope, 0, 0x1p-18},
    {"gelu_slope", gelu_slope, 0, 0x1p-18},
    {"gelu_erf_slope", gelu_erf_slope, 0, 0x1p-18},
};

static const promise *promise_of(const char *name)
{
    for (size_t i = 0; i < sizeof promises / sizeof *promises; i++)
        if (strcmp(promises[i].name, name) == 0)
            return &promises[i];
    fail_msg("%s has no row in test_simd_math.c", name);
    return NULL;
}

static double ulp_of(double y)
{
    int exponent;
    if (fabs(y) < 0x1p-126)
        return 0x1p-149;
    frexp(y, &exponent);
    return ldexp(1, exponent - 24);
}

static double bound_at(const promise *p, double x, double y)
{
    double ulps = p->ulp;
    if (p->exact == gelu && x < 0)
        ulps *= 1 + fabs(gelu_input(x));
    bool gated = p->exact == gelu || p->exact == gelu_erf || p->exact == silu;
    double lost = gated && fabs(y) < fabs(x) * 0x1p-125 ? fabs(x) * 0x1p-149 : 0;
    return ulps * ulp_of(y) + p->absolute + lost;
}

/* NaN maps to NaN and infinity to infinity; a result near overflow may become infinite. */
static bool keeps(const promise *p, float x, float got)
{
    double y = p->exact((double)x);
    if (isnan(y) || isnan(got))
        return isnan(y) && isnan(got);
    if (isinf(got) || fabs(y) > FLT_MAX)
        return (float)y == got || (isinf(got) && fabs(y) > FLT_MAX * (1 - 0x1p-20) &&
                                   signbit(got) == signbit((float)y));
    return fabs((double)got - y) <= bound_at(p, (double)x, y);
}

/* ---- Inputs ---- */

static void check(const char *isa, const wf_cpu_function *f, const float *x, int64_t n)
{
    const promise *p = promise_of(f->name);
    float y[1024];
    assert_true(n <= 1024);
    f->apply(x, y, n);
    for (int64_t i = 0; i < n; i++)
        if (!keeps(p, x[i], y[i]))
            fail_msg("%s, %s: f(%a) is %a, but exactly %a", isa, f->name, (double)x[i],
                     (double)y[i], p->exact((double)x[i]));
}

typedef void number_fn(const char *isa, const wf_cpu_function *f);

static void for_each_function(number_fn *fn)
{
    const wf_cpu_isa *isa;
    const char *name;
    for (int i = 0; (isa = wf_cpu_isa_at(i, &name)); i++)
        for (const wf_cpu_function *f = isa->functions; f && f->name; f++)
            fn(name, f);
}

static void check_special(const char *isa, const wf_cpu_function *f)
{
    static const float special[] = {
        0.0f,      -0.0f,    INFINITY, -INFINITY, NAN,        -NAN,      0x1p-149f, -0x1p-149f,
        0x1p-127f, FLT_MIN,  -FLT_MIN, FLT_MAX,   -FLT_MAX,   1.0f,      -1.0f,     0.625f,
        0.927734f, 4.0f,     -4.0f,    15.0f,     -15.0f,     88.722f,   88.723f,   -87.3f,
        -103.97f,  -104.0f,  1e4f,     -1e4f,     0x1.6ap-1f, 0x1.6ap0f, 1e20f,     -1e20f,
        -0.7517f,  -1.2785f, 1e-20f,   -1e-20f,   3e-39f,
    };
    check(isa, f, special, sizeof special / sizeof *special);
}

/* Steps through all floats, from a random start. */
static uint64_t seed;

static void check_all_ranges(const char *isa, const wf_cpu_function *f)
{
    enum { STEP = 8191 };
    float x[1024];
    for (uint64_t bits = seed % STEP; bits <= UINT32_MAX;) {
        int64_t n = 0;
        for (; n < 1024 && bits <= UINT32_MAX; bits += STEP) {
            uint32_t b = (uint32_t)bits;
            memcpy(&x[n++], &b, sizeof b);
        }
        check(isa, f, x, n);
    }
}

/* Where results are neither 0 nor saturated. */
static void check_middle(const char *isa, const wf_cpu_function *f)
{
    float x[1024];
    wf_rng r;
    wf_rng_init(&r, seed, 1);
    for (int round = 0; round < 256; round++) {
        const float scale = round % 2 ? 4 : 24;
        for (int i = 0; i < 1024; i++)
            x[i] = (2 * wf_u32_to_unit(wf_rng_u32(&r)) - 1) * scale;
        check(isa, f, x, 1024);
    }
}

/* Lanes after the last element stay unchanged, and a value has the same result in every lane. */
static void check_ends(const char *isa, const wf_cpu_function *f)
{
    for (int n = 0; n < 50; n++) {
        float x[64], y[64];
        for (int i = 0; i < 64; i++) {
            x[i] = 0.7f;
            y[i] = 77;
        }
        f->apply(x, y, n);
        for (int i = 0; i < 64; i++)
            if (memcmp(&y[i], i < n ? &y[0] : &(float){77}, sizeof y[i]) != 0)
                fail_msg("%s, %s: element %d of %d is %a", isa, f->name, i, n, (double)y[i]);
    }
}

static void test_special(void **state)
{
    (void)state;
    for_each_function(check_special);
}

static void test_all_ranges(void **state)
{
    (void)state;
    for_each_function(check_all_ranges);
}

static void test_middle(void **state)
{
    (void)state;
    for_each_function(check_middle);
}

static void test_ends(void **state)
{
    (void)state;
    for_each_function(check_ends);
}

int main(void)
{
    const char *given = getenv("WEFT_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("WEFT_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_special),
        cmocka_unit_test(test_all_ranges),
        cmocka_unit_test(test_middle),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
