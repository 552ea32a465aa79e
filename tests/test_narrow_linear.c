/* SPDX-License-Identifier: MIT */
/*
 * test_narrow_linear.c - linear by f16 and bf16 weights whose activations may be rounded
 * (WF_MARK_ROUNDED), on the device that WEFT_NARROW_DEVICE names (default cpu): results against
 * sums in double, and a row's bits alone and in a batch.
 *
 * Activations have 8 significant bits, so no rounding changes them and the bound is tight. Rows of
 * large values exceed f16.
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

#include "base/philox.h"
#include "device/device.h"
#include "device/executor.h"
#include "graph/type.h"
#include "support.h"

enum { MOST_X = 40 * 9216, MOST_W = 70 * 9216, MOST_Y = 40 * 70 };

typedef struct {
    wf_type x_type, w_type;
    bool bias;
    int64_t m, n, k;
    float x[MOST_X], w[MOST_W], b[70];
    uint16_t x_bits[MOST_X], w_bits[MOST_W];
} problem;

static const char *device_name(void)
{
    const char *name = getenv("WEFT_NARROW_DEVICE");
    return name ? name : "cpu";
}

static int64_t between(wf_rng *r, int64_t least, int64_t most)
{
    return least + (int64_t)wf_rng_below(r, (uint64_t)(most - least + 1));
}

/* Fills with integers of 8 bits, scaled by powers of two. */
static void draw(wf_rng *r, float *to, int64_t count, int exponent)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = ldexpf((float)((int)(wf_rng_u32(r) % 511) - 255),
                       exponent - 8 - (int)(wf_rng_u32(r) % 4));
}

static void draw_problem(wf_ctx *ctx, wf_rng *r, problem *p)
{
    p->w_type = wf_rng_u32(r) % 2 ? WF_BF16 : WF_F16;
    p->x_type = wf_rng_u32(r) % 4 ? WF_F32 : p->w_type;
    p->bias = wf_rng_u32(r) % 3 == 0;
    p->m = between(r, 1, wf_rng_u32(r) % 2 ? 16 : 40);
    p->n = between(r, 1, 70);
    p->k = 16 * between(r, 1, wf_rng_u32(r) % 4 ? 40 : 576);
    draw(r, p->w, p->n * p->k, 0);
    draw(r, p->b, p->n, 0);
    for (int64_t i = 0; i < p->m; i++) /* some rows have values up to 2^20 */
        draw(r, p->x + i * p->k, p->k, p->x_type == WF_F32 && wf_rng_u32(r) % 4 == 0 ? 20 : 1);
    wt_ok(ctx, wf_type_from_f32(ctx, p->w_type, p->w, p->w_bits, p->n * p->k));
    if (p->x_type != WF_F32)
        wt_ok(ctx, wf_type_from_f32(ctx, p->x_type, p->x, p->x_bits, p->m * p->k));
}

static wf_graph *graph_of(wf_ctx *ctx, const problem *p, int64_t m)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", p->x_type, 2, (int64_t[]){m, p->k});
    wf_value *w = wf_state(g, "w", p->w_type, 2, (int64_t[]){p->n, p->k});
    wf_value *b = p->bias ? wf_state(g, "b", WF_F32, 1, &p->n) : NULL;
    wt_ok(ctx, wf_output(g, "y", wf_cast(g, wf_linear(g, x, w, b), WF_F32)));
    return g;
}

static void open(wf_ctx *ctx, const problem *p, wt_run *r)
{
    *r = wt_open(ctx, device_name());
    wt_compile(r, graph_of(ctx, p, p->m)); /* creates the states */
    wt_ok(ctx, wf_session_write(r->session, "w", p->w_bits, (size_t)(p->n * p->k) * 2));
    if (p->bias)
        wt_ok(ctx, wf_session_write(r->session, "b", p->b, (size_t)p->n * sizeof *p->b));
    wf_session_round(r->session, "w");
}

/* Returns the kernel of the matmul; "" on devices without kernels. */
static const char *kernel_of(const wt_run *r)
{
    wf_op_stats s;
    for (int i = 0; wf_exec_op_stats(r->exec, i, &s); i++)
        if (strcmp(s.op, "linear") == 0)
            return s.kernel;
    return "";
}

/* Multiplies rows [first, first + m) of x. */
static void multiply(wt_run *r, const problem *p, int64_t first, int64_t m, float *y)
{
    const char *expected = getenv("WEFT_NARROW_KERNEL");
    const bool wide = p->x_type == WF_F32;
    const size_t each = wide ? sizeof *p->x : sizeof *p->x_bits;
    const void *from = wide ? (const void *)(p->x + first * p->k) : p->x_bits + first * p->k;
    wt_compile(r, graph_of(r->ctx, p, m));
    wt_write(r, "x", from, (size_t)(m * p->k) * each);
    memset(y, 0xff, (size_t)(m * p->n) * sizeof *y);
    wt_run_once(r);
    if (expected) /* the kernel for weights that are states */
        assert_string_equal(kernel_of(r), expected);
    wt_read(r, "y", y, (size_t)(m * p->n) * sizeof *y);
}

static void check(const problem *p, const float *y)
{
    const double unit = p->x_type == WF_F32 ? 0 : p->w_type == WF_F16 ? 0x1p-11 : 0x1p-8;
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = p->bias ? p->b[j] : 0, size = fabs(sum);
            for (int64_t k = 0; k < p->k; k++) {
                const double term = (double)p->x[i * p->k + k] * p->w[j * p->k + k];
                sum += term;
                size += fabs(term);
            }
            const double got = y[i * p->n + j], bound = size * 0x1p-20 + fabs(sum) * unit;
            if (!(fabs(got - sum) <= bound)) /* NaN fails */
                fail_msg("%s x [%d, %d] by %s w [%d, %d]: y[%d][%d] is %g, not %g (bound %g)",
                         wf_type_name(p->x_type), (int)p->m, (int)p->k, wf_type_name(p->w_type),
                         (int)p->n, (int)p->k, (int)i, (int)j, got, sum, bound);
        }
}

static void test_random(void **state)
{
    wf_ctx *ctx = *state;
    static problem p;
    static float y[MOST_Y], alone[MOST_Y]; /* too large for a stack */
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 0);
    for (int i = 0, cases = wt_cases(40); i < cases; i++) {
        wt_run run;
        draw_problem(ctx, &r, &p);
        open(ctx, &p, &run);
        multiply(&run, &p, 0, p.m, y);
        check(&p, y);
        /* A library's kernels promise no equal bits. */
        const bool exact = strcmp(kernel_of(&run), "cublaslt") != 0 && kernel_of(&run)[0];
        const int64_t row = between(&r, 0, p.m - 1);
        multiply(&run, &p, row, 1, alone);
        if (exact && p.m <= 16)
            assert_memory_equal(alone, y + row * p.n, (size_t)p.n * sizeof *y);
        wt_close(&run);
    }
}

/* A value that f16 cannot hold is infinite or NaN in the input only. */
static void test_infinity(void **state)
{
    wf_ctx *ctx = *state;
    static problem p = {.x_type = WF_F32, .w_type = WF_F16, .m = 3, .n = 9, .k = 64};
    wf_rng r;
    float y[3 * 9];
    wt_run run;
    wf_rng_init(&r, wt_seed(), 1);
    draw(&r, p.w, p.n * p.k, 0);
    draw(&r, p.x, p.m * p.k, 0);
    for (int64_t j = 0; j < p.n; j++)
        p.w[j * p.k + 5] = 1; /* infinity times zero is NaN */
    wt_ok(ctx, wf_type_from_f32(ctx, p.w_type, p.w, p.w_bits, p.n * p.k));
    p.x[p.k + 5] = INFINITY;
    p.x[2 * p.k + 5] = NAN;
    open(ctx, &p, &run);
    multiply(&run, &p, 0, p.m, y);
    for (int64_t j = 0; j < p.n; j++) {
        assert_true(isfinite(y[j]));
        assert_true(isinf(y[p.n + j]) && y[p.n + j] > 0);
        assert_true(isnan(y[2 * p.n + j]));
    }
    wt_close(&run);
}

/* Weights that are no whole states: a slice of columns or of rows, at odd offsets, and a sum. */
static void test_other_weights(void **state)
{
    enum { M = 5, N = 11, K = 48, WIDE = 67 };
    wf_ctx *ctx = *state;
    wf_rng r;
    static float x[M * K], w[(N + 1) * WIDE], y[3][M * N];
    uint16_t bits[(N + 1) * WIDE];
    wt_run run = wt_open(ctx, device_name());
    wf_graph *g = wt_graph(ctx);
    wf_rng_init(&r, wt_seed(), 2);
    draw(&r, x, M * K, 0);
    draw(&r, w, (N + 1) * WIDE, 0);
    wt_ok(ctx, wf_type_from_f32(ctx, WF_BF16, w, bits, (N + 1) * WIDE));
    wf_value *in = wf_cast(g, wf_input(g, "x", WF_F32, 2, (int64_t[]){M, K}), WF_BF16);
    wf_value *all = wf_state(g, "w", WF_BF16, 2, (int64_t[]){N + 1, WIDE});
    wf_value *columns = wf_slice(g, all, 1, 3, 3 + K), *rows = wf_slice(g, columns, 0, 1, N + 1);
    wf_value *doubled = wf_binary(g, "add", rows, rows);
    wf_value *weight[] = {rows, doubled, wf_reshape(g, doubled, 2, (int64_t[]){N, K})};
    const char *const names[] = {"rows", "doubled", "reshaped"};
    for (int i = 0; i < 3; i++)
        wt_ok(ctx, wf_output(g, names[i], wf_cast(g, wf_linear(g, in, weight[i], NULL), WF_F32)));
    wt_compile(&run, g);
    wt_ok(ctx, wf_session_write(run.session, "w", bits, sizeof bits));
    wt_write(&run, "x", x, sizeof x);
    wt_run_once(&run);
    for (int i = 0; i < 3; i++) {
        wt_read(&run, names[i], y[i], sizeof y[i]);
        for (int m = 0; m < M; m++)
            for (int n = 0; n < N; n++) {
                double sum = 0, size = 0;
                for (int k = 0; k < K; k++) {
                    const double term = (double)x[m * K + k] * w[(n + 1) * WIDE + 3 + k];
                    sum += i > 0 ? 2 * term : term;
                    size += fabs(2 * term);
                }
                const double error = fabs(y[i][m * N + n] - sum);
                assert_true(error <= size * 0x1p-20 + fabs(sum) * 0x1p-8);
            }
    }
    wt_close(&run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_random),
        wt_test(test_infinity),
        wt_test(test_other_weights),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
