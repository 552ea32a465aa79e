/* SPDX-License-Identifier: MIT */
/*
 * test_attention.c - properties of attention on the cpu: masked keys have no effect, whatever they
 * hold, and the bits depend neither on the thread count nor on other rows of the run.
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

#define D(...) ((int64_t[]){__VA_ARGS__})

enum { N = 150, H = 4, HK = 2, WIDTH = 24, Q = N * H * WIDTH, K = N * HK * WIDTH };

typedef struct {
    float q[Q], k[K], v[K], g[Q];
    int32_t start[3], positions[N];
    float o[Q], dq[Q], dk[K], dv[K];
} problem;

static problem first, second;

static float noise(uint32_t *state)
{
    *state = *state * 1664525 + 1013904223;
    return (float)(*state >> 8) / (1 << 23) - 1;
}

static void fill(float *x, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++)
        x[i] = noise(&seed);
}

/* Two sequences of 70 and 75 rows. Rows 145 to 149 belong to no sequence. */
static void make(problem *p)
{
    fill(p->q, Q, 1);
    fill(p->k, K, 2);
    fill(p->v, K, 3);
    fill(p->g, Q, 4);
    memcpy(p->start, (int32_t[]){0, 70, 145}, sizeof p->start);
    for (int i = 0; i < N; i++)
        p->positions[i] = i < 70 ? i : i - 70;
}

/* Computes o and the gradients of sum(o * g) for the first n rows only. */
static void attend(wf_ctx *ctx, const char *device, problem *p, int64_t n)
{
    wt_run r = wt_open(ctx, device);
    wf_graph *g = wt_graph(ctx);
    wf_value *in[8] = {
        wf_input(g, "g", WF_F32, 3, D(n, H, WIDTH)),  wf_input(g, "q", WF_F32, 3, D(n, H, WIDTH)),
        wf_input(g, "k", WF_F32, 3, D(n, HK, WIDTH)), wf_input(g, "v", WF_F32, 3, D(n, HK, WIDTH)),
        wf_input(g, "start", WF_I32, 1, D(3)),        wf_input(g, "positions", WF_I32, 1, D(n))};
    in[6] = wf_attention(g, in[1], in[2], in[3], in[4], in[5], NULL);
    in[7] = wf_value_output(in[6], 1);
    wf_value *dq = wf_node_add(g, WF_OP_attention_grad, in[6]->node->attr, NULL, in, 8);
    wf_output(g, "o", in[6]);
    wf_output(g, "dq", dq);
    wf_output(g, "dk", wf_value_output(dq, 1));
    wf_output(g, "dv", wf_value_output(dq, 2));
    wt_compile(&r, g);
    size_t query = (size_t)n * H * WIDTH * sizeof(float),
           key = (size_t)n * HK * WIDTH * sizeof(float);
    wt_write(&r, "g", p->g, query);
    wt_write(&r, "q", p->q, query);
    wt_write(&r, "k", p->k, key);
    wt_write(&r, "v", p->v, key);
    wt_write(&r, "start", p->start, sizeof p->start);
    wt_write(&r, "positions", p->positions, (size_t)n * sizeof *p->positions);
    wt_run_once(&r);
    wt_read(&r, "o", p->o, query);
    wt_read(&r, "dq", p->dq, query);
    wt_read(&r, "dk", p->dk, key);
    wt_read(&r, "dv", p->dv, key);
    wt_close(&r);
}

/* Expects rows [0, n) of both problems to have equal bits. */
static void expect_same(int64_t n)
{
    size_t query = (size_t)n * H * WIDTH * sizeof(float),
           key = (size_t)n * HK * WIDTH * sizeof(float);
    assert_memory_equal(first.o, second.o, query);
    assert_memory_equal(first.dq, second.dq, query);
    assert_memory_equal(first.dk, second.dk, key);
    assert_memory_equal(first.dv, second.dv, key);
}

/* The bits must not depend on how heads and rows are split among threads. */
static void test_threads(void **state)
{
    make(&first);
    make(&second);
    attend(*state, "cpu:1", &first, N);
    attend(*state, "cpu:3", &second, N);
    expect_same(N);
    attend(*state, "cpu:16", &second, N); /* more threads than sequences times heads */
    expect_same(N);
}

/* Running the first sequence alone gives the same bits. */
static void test_other_rows(void **state)
{
    make(&first);
    make(&second);
    second.start[2] = 70;
    attend(*state, "cpu:2", &first, N);
    attend(*state, "cpu:2", &second, 70);
    expect_same(70);
}

/* Writes NaN and infinity to rows that others must not read: the last row of the first sequence,
 * which only its own query sees, and the rows of no sequence. */
static void test_unseen(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    make(&first);
    make(&second);
    attend(*state, "cpu:2", &first, N);
    for (int i = 0; i < K; i++)
        if (i / (HK * WIDTH) == 69 || i / (HK * WIDTH) >= 145) {
            second.k[i] = bad[i % 3];
            second.v[i] = bad[i % 3];
        }
    attend(*state, "cpu:2", &second, N);
    assert_true(isnan(second.o[69 * H * WIDTH]));
    for (int i = 0; i < Q; i++)
        if (i / (H * WIDTH) != 69) {
            assert_true(memcmp(&first.o[i], &second.o[i], sizeof(float)) == 0);
            assert_true(memcmp(&first.dq[i], &second.dq[i], sizeof(float)) == 0);
        }
    for (int i = 70 * HK * WIDTH; i < K; i++)
        assert_true(first.dk[i] == second.dk[i] && first.dv[i] == second.dv[i]);
}

/* A NaN query with a NaN gradient does not affect later keys. */
static void test_bad_query(void **state)
{
    make(&first);
    make(&second);
    attend(*state, "cpu:2", &first, N);
    for (int i = 0; i < H * WIDTH; i++) {
        second.q[10 * H * WIDTH + i] = NAN;
        second.g[10 * H * WIDTH + i] = INFINITY;
    }
    attend(*state, "cpu:2", &second, N);
    assert_true(isnan(second.dk[10 * HK * WIDTH]));
    for (int i = 11 * HK * WIDTH; i < K; i++)
        assert_true(first.dk[i] == second.dk[i] && first.dv[i] == second.dv[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_threads),
        wt_test(test_other_rows),
        wt_test(test_unseen),
        wt_test(test_bad_query),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
