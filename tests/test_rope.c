/* SPDX-License-Identifier: MIT */
/*
 * test_rope.c - rope's angles at small and large positions against long double, forward and
 * gradient: the cpu's kernels, the expansion into core ops on the cpu, and the expansion compiled
 * by a plugin.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>

#include "base/philox.h"
#include "graph/pass/pass.h"
#include "pjrt_support.h"
#include "support.h"

/* Of D elements the first 2 * PAIRS are rotated. */
enum { N = 96, H = 2, PAIRS = 29, D = 2 * PAIRS + 3, COUNT = N * H * D };

typedef struct {
    const char *name;
    bool interleaved;
    double magnitude;
    double base, factor; /* frequencies are base^(-i/PAIRS) / factor; base 0: random, 0.001 to 4 */
} variant;

static const variant variants[] = {
    {"halves", false, 1, 10000, 1},      {"interleaved", true, 1, 500000, 1},
    {"scaled", false, 1.2, 1000000, 32}, {"fast", true, 1, 10, 1. / 256},
    {"random", false, 0.75, 0, 1},
};

/* The largest position, and the error bound for a rotated element of x in [-1, 1]. */
static const struct {
    int32_t most;
    double bound;
} ranges[] = {
    {0, 0},          {1, 1e-6},       {300, 1e-6},       {1 << 17, 1e-6},
    {1 << 20, 1e-6}, {1 << 24, 1e-6}, {INT32_MAX, 5e-6},
};

typedef struct {
    const variant *v;
    int32_t positions[N];
    float inv_freq[PAIRS], x[COUNT], w[COUNT];
} problem;

static double uniform(wf_rng *rng, double lo, double hi)
{
    return lo + (hi - lo) * wf_rng_u32(rng) * 0x1p-32;
}

static void fill_problem(problem *p, wf_rng *rng, const variant *v, int32_t most)
{
    p->v = v;
    for (int i = 0; i < N; i++)
        p->positions[i] = (int32_t)wf_rng_below(rng, (uint64_t)most + 1);
    p->positions[0] = most;
    p->positions[1] = -most;
    for (int i = 0; i < PAIRS; i++)
        p->inv_freq[i] = (float)(v->base > 0 ? pow(v->base, -(double)i / PAIRS) / v->factor
                                             : uniform(rng, 0.001, 4));
    for (int i = 0; i < COUNT; i++) {
        p->x[i] = (float)uniform(rng, -1, 1);
        p->w[i] = (float)uniform(rng, -1, 1);
    }
}

static wf_graph *build(wf_ctx *ctx, const variant *v)
{
    wf_graph *g = wt_graph(ctx);
    const int64_t dims[] = {N, H, D};
    wf_value *x = wf_input(g, "x", WF_F32, 3, dims), *w = wf_input(g, "w", WF_F32, 3, dims), *dx;
    wf_value *positions = wf_input(g, "positions", WF_I32, 1, (int64_t[]){N});
    wf_value *inv_freq = wf_input(g, "inv_freq", WF_F32, 1, (int64_t[]){PAIRS});
    wf_value *y = wf_rope(g, x, positions, inv_freq, v->interleaved, v->magnitude);
    wf_value *loss = wf_reduce(g, "sum", wf_binary(g, "mul", y, w), 7, false);
    wt_ok(ctx, wf_grad(g, loss, &x, 1, &dx));
    wf_output(g, "y", y);
    wf_output(g, "dx", dx);
    return g;
}

/* The largest error against x rotated by direction * position * inv_freq. The angle has 55 bits. */
static long double worst_error(const problem *p, const float *x, const float *got, int direction)
{
    long double worst = 0;
    for (int row = 0; row < N * H; row++) {
        const float *in = x + row * D, *out = got + row * D;
        for (int i = 0; i < PAIRS; i++) {
            int a = p->v->interleaved ? 2 * i : i, b = p->v->interleaved ? a + 1 : a + PAIRS;
            long double angle = (long double)p->positions[row / H] * p->inv_freq[i];
            long double c = p->v->magnitude * cosl(angle);
            long double s = p->v->magnitude * sinl(angle) * direction;
            worst = fmaxl(worst, fabsl(out[a] - (in[a] * c - in[b] * s)));
            worst = fmaxl(worst, fabsl(out[b] - (in[a] * s + in[b] * c)));
        }
        for (int i = 2 * PAIRS; i < D; i++)
            assert_true(out[i] == in[i]);
    }
    return worst;
}

static void check_ranges(wf_ctx *ctx, const char *device, bool expanded)
{
    static problem p;
    static float y[COUNT], dx[COUNT];
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 7);
    wt_run r = wt_open(ctx, device);
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
        wf_graph *g = build(ctx, &variants[v]);
        if (expanded) {
            wf_graph *core;
            wt_ok(ctx, wf_pass_expand(g, NULL, NULL, &core));
            wf_graph_free(g);
            g = core;
        }
        wt_compile(&r, g);
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
            fill_problem(&p, &rng, &variants[v], ranges[i].most);
            if (p.inv_freq[0] * (double)ranges[i].most > 0x1p34)
                continue; /* angles that are inexact even in f64 */
            wt_write(&r, "x", p.x, sizeof p.x);
            wt_write(&r, "w", p.w, sizeof p.w);
            wt_write(&r, "positions", p.positions, sizeof p.positions);
            wt_write(&r, "inv_freq", p.inv_freq, sizeof p.inv_freq);
            wt_run_once(&r);
            wt_read(&r, "y", y, sizeof y);
            wt_read(&r, "dx", dx, sizeof dx);
            long double forward = worst_error(&p, p.x, y, 1), back = worst_error(&p, p.w, dx, -1);
            /* a rotation by 0 is exact, except for the magnitude */
            long double bound = ranges[i].bound + 1e-6 * (p.v->magnitude != 1);
            if (!(forward <= bound) || !(back <= bound))
                fail_msg(
                    "%s%s, %s, positions to %d: off by %.3Lg, gradient by %.3Lg, allowed %.3Lg",
                    device, expanded ? ", expanded" : "", variants[v].name, ranges[i].most, forward,
                    back, bound);
        }
    }
    wt_close(&r);
}

static void test_kernels(void **state)
{
    check_ranges(*state, "cpu:2", false);
}

static void test_expansion(void **state)
{
    check_ranges(*state, "cpu:2", true);
}

static void test_plugin(void **state)
{
    const char *spec = wt_real_plugin();
    if (!spec)
        skip();
    check_ranges(*state, spec, false);
}

/* Non-finite frequencies must not reach the results as angles. */
static void test_frequencies_that_are_not_numbers(void **state)
{
    static problem p;
    static float y[COUNT];
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 8);
    fill_problem(&p, &rng, &variants[0], 1000);
    p.inv_freq[3] = NAN;
    p.inv_freq[5] = INFINITY;
    for (int expanded = 0; expanded < 2; expanded++) {
        wt_run r = wt_open(*state, "cpu");
        wf_graph *g = build(*state, &variants[0]), *core;
        if (expanded) {
            wt_ok(*state, wf_pass_expand(g, NULL, NULL, &core));
            wf_graph_free(g);
            g = core;
        }
        wt_compile(&r, g);
        wt_write(&r, "x", p.x, sizeof p.x);
        wt_write(&r, "w", p.w, sizeof p.w);
        wt_write(&r, "positions", p.positions, sizeof p.positions);
        wt_write(&r, "inv_freq", p.inv_freq, sizeof p.inv_freq);
        wt_run_once(&r);
        wt_read(&r, "y", y, sizeof y);
        for (int i = 0; i < COUNT; i++) {
            int e = i % D;
            bool bad = e < 2 * PAIRS && (e % PAIRS == 3 || e % PAIRS == 5);
            assert_true(isnan(y[i]) == bad);
        }
        wt_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_kernels),
        wt_test(test_expansion),
        wt_test(test_plugin),
        wt_test(test_frequencies_that_are_not_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
