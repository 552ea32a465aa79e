/* SPDX-License-Identifier: MIT */
/*
 * test_pieces.c - matmuls on many threads: with any number of pieces every element has the bits of
 * one thread, also when the pieces do not divide rows and columns evenly.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"

typedef struct {
    int64_t batch, m, n, k;
    bool transposed; /* a is stored transposed, as [k, m] */
    wf_type type;
} product;

/* Returns y [batch, m, n] in f32; caller frees. */
static float *multiply(wf_ctx *ctx, const char *device, const product *p, const float *a,
                       const float *b)
{
    wt_run r = wt_open(ctx, device);
    wf_graph *g = wt_graph(ctx);
    int64_t left[3] = {p->batch, p->transposed ? p->k : p->m, p->transposed ? p->m : p->k};
    int64_t right[3] = {p->batch, p->n, p->k};
    size_t bytes = (size_t)(p->batch * p->m * p->n) * sizeof(float);
    wf_value *x = wf_cast(g, wf_input(g, "a", WF_F32, 3, left), p->type);
    wf_value *w = wf_cast(g, wf_input(g, "b", WF_F32, 3, right), p->type);
    wt_ok(ctx, wf_output(g, "y", wf_cast(g, wf_matmul(g, x, w, p->transposed, true), WF_F32)));
    wt_compile(&r, g);
    wt_write(&r, "a", a, (size_t)(p->batch * p->m * p->k) * sizeof *a);
    wt_write(&r, "b", b, (size_t)(p->batch * p->n * p->k) * sizeof *b);
    wt_run_once(&r);
    float *y = malloc(bytes);
    assert_non_null(y);
    wt_read(&r, "y", y, bytes);
    wt_close(&r);
    return y;
}

static void test_any_number_of_threads(void **state)
{
    static const product products[] = {
        {1, 130, 1100, 160, false, WF_F32}, {1, 33, 2050, 320, true, WF_F32},
        {1, 1030, 70, 300, false, WF_BF16}, {1, 257, 513, 160, true, WF_BF16},
        {1, 1100, 130, 160, true, WF_F16},  {3, 97, 301, 260, false, WF_F32},
        {20, 61, 129, 140, false, WF_F32},  {1, 24, 4200, 200, false, WF_F32},
    };
    static const int threads[] = {2, 3, 7, 16, 33};
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        const product *p = &products[i];
        size_t as = (size_t)(p->batch * p->m * p->k), bs = (size_t)(p->batch * p->n * p->k);
        float *a = malloc(as * sizeof *a), *b = malloc(bs * sizeof *b);
        assert_true(a && b);
        wf_random_normal(wt_seed(), 2 * i, 0, 1, a, (int64_t)as);
        wf_random_normal(wt_seed(), 2 * i + 1, 0, 1, b, (int64_t)bs);
        float *want = multiply(ctx, "cpu:1", p, a, b);
        for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
            char device[16];
            snprintf(device, sizeof device, "cpu:%d", threads[t]);
            float *got = multiply(ctx, device, p, a, b);
            assert_memory_equal(got, want, (size_t)(p->batch * p->m * p->n) * sizeof *got);
            free(got);
        }
        free(want);
        free(a);
        free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_any_number_of_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
