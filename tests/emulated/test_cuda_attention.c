/* SPDX-License-Identifier: MIT */
/*
 * test_cuda_attention.c - tiled attention on an emulated GPU: a NaN in a key or query outside of
 * the window does not reach a result, even when its tile also holds visible keys.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "graph/build.h"
#include "support.h"

/* Blocks have 128 queries, or 64 keys; this window makes tiles start at any offset. */
enum { N = 384, WIDTH = 64, WINDOW = 100, BAD_VALUE = 270, BAD_QUERY = 300 };

#define D(...) ((int64_t[]){__VA_ARGS__})

static const uint16_t not_a_number = 0x7FC0; /* bf16 */

/* A state of ones, with one row of NaN unless its index is negative. */
static wf_value *operand(wf_graph *g, const char *name)
{
    return wf_state(g, name, WF_BF16, 3, D(N, 1, WIDTH));
}

static void fill(wt_run *r, const char *name, int bad)
{
    static uint16_t data[N][WIDTH];
    for (int i = 0; i < N; i++)
        for (int c = 0; c < WIDTH; c++)
            data[i][c] = i == bad ? not_a_number : 0x3F80;
    wt_ok(r->ctx, wf_session_write(r->session, name, data, sizeof data));
}

static wf_value *starts(wf_graph *g)
{
    return wf_mul(g, wf_iota(g, 1, D(2), 0), wf_fill(g, WF_I32, 0, NULL, N));
}

/* Checks f32 results: rows [0, finite) are finite, and row `bad` is NaN. */
static void expect_rows(wt_run *r, const char *name, int finite, int bad)
{
    static float y[N][WIDTH];
    wt_read(r, name, y, sizeof y);
    for (int i = 0; i < finite; i++)
        for (int c = 0; c < WIDTH; c++)
            if (!isfinite(y[i][c]))
                fail_msg("%s[%d][%d] is %g", name, i, c, (double)y[i][c]);
    assert_true(isnan(y[bad][0]));
}

static void test_values_that_no_query_sees(void **state)
{
    wf_ctx *ctx = *state;
    const wf_attention_options options = {.window = WINDOW};
    wt_run r = wt_open(ctx, "cuda");
    wf_graph *g = wt_graph(ctx);
    wf_value *o = wf_attention(g, operand(g, "q"), operand(g, "k"), operand(g, "v"), starts(g),
                               wf_iota(g, 1, D(N), 0), &options);
    wf_output(g, "o", wf_cast(g, o, WF_F32));
    wt_compile(&r, g);
    fill(&r, "q", -1);
    fill(&r, "k", -1);
    fill(&r, "v", BAD_VALUE);
    wt_run_once(&r);
    expect_rows(&r, "o", 256, BAD_VALUE);
    wt_close(&r);
}

static void test_gradients_of_what_is_not_seen(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const names[] = {"dq", "dk", "dv"};
    wt_run r = wt_open(ctx, "cuda");
    wf_graph *g = wt_graph(ctx);
    wf_value *in[] = {operand(g, "do"), operand(g, "q"),
                      operand(g, "k"),  operand(g, "v"),
                      starts(g),        wf_iota(g, 1, D(N), 0),
                      operand(g, "o"),  wf_state(g, "lse", WF_F32, 2, D(N, 1))};
    wf_value *d = wf_op_add(g, "attention_grad", "window=100", in, 8);
    for (int i = 0; i < 3; i++)
        wf_output(g, names[i], wf_cast(g, wf_value_output(d, i), WF_F32));
    wt_compile(&r, g);
    fill(&r, "q", -1);
    fill(&r, "k", -1);
    fill(&r, "o", -1);
    fill(&r, "v", BAD_VALUE);
    fill(&r, "do", BAD_QUERY);
    wt_run_once(&r);
    expect_rows(&r, "dq", 256, BAD_VALUE);
    expect_rows(&r, "dk", 192, BAD_QUERY);
    expect_rows(&r, "dv", 192, BAD_QUERY);
    wt_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_values_that_no_query_sees),
        wt_test(test_gradients_of_what_is_not_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
