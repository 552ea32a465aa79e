/* SPDX-License-Identifier: MIT */
/*
 * test_cost.c - compares predicted FLOPs and bytes with figures computed by hand, and those of a
 * training step with the 6 N rule.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "graph/build.h"
#include "graph/cost.h"
#include "model/example.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

static void expect(const wf_value *v, uint64_t flops, uint64_t read, uint64_t written)
{
    wf_cost c;
    assert_non_null(v);
    wf_node_cost(v->node, &c);
    if (c.flops != flops || c.bytes_read != read || c.bytes_written != written)
        fail_msg("%s: %llu FLOPs, %llu bytes read, %llu written; wanted %llu, %llu, %llu",
                 wf_node_def(v->node)->name, (unsigned long long)c.flops,
                 (unsigned long long)c.bytes_read, (unsigned long long)c.bytes_written,
                 (unsigned long long)flops, (unsigned long long)read, (unsigned long long)written);
}

static void test_plain_ops(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(6, 10)), *h = wf_input(g, "h", WF_BF16, 1, D(10));
    wf_value *w = wf_state(g, "w", WF_F32, 2, D(7, 10)), *b = wf_state(g, "b", WF_F32, 1, D(7));
    expect(x, 0, 0, 0);
    expect(w, 0, 0, 0);
    expect(wf_reshape(g, x, 1, D(60)), 0, 0, 0);
    expect(wf_exp(g, x), 60, 240, 240);
    expect(wf_exp(g, h), 10, 20, 20);
    expect(wf_mul(g, x, x), 60, 240, 240); /* counts the operand once */
    expect(wf_add(g, x, wf_input(g, "y", WF_F32, 1, D(10))), 60, 280, 240);
    expect(wf_lt(g, x, wf_scale(g, x, 2)), 60, 480, 60);
    expect(wf_cast(g, x, WF_F16), 0, 240, 120);
    expect(wf_sum(g, x, WF_AXIS(1), false), 60, 240, 24);
    expect(wf_global_norm(g, (wf_value *[]){x, w}, 2), 2 * 130, 520, 4);
    expect(wf_linear(g, x, w, NULL), 2 * 6 * 7 * 10, 240 + 280, 6 * 7 * 4);
    expect(wf_linear(g, x, w, b), 2 * 6 * 7 * 10 + 6 * 7, 240 + 280 + 28, 6 * 7 * 4);
    expect(wf_matmul(g, x, x, true, false), 2 * 10 * 10 * 6, 240, 400);
    expect(wf_matmul(g, x, w, false, true), 2 * 6 * 7 * 10, 520, 6 * 7 * 4);
    expect(wf_rms_norm(g, x, NULL, 1e-5), 4 * 60, 240, 240 + 24);
    expect(wf_glu(g, x, x, WF_GLU_SILU), 3 * 60, 240, 240);
    wf_graph_free(g);
}

static void test_rows_and_updates(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *ids = wf_input(g, "ids", WF_I32, 1, D(5)), *x = wf_input(g, "x", WF_F32, 2, D(5, 8));
    wf_value *table = wf_state(g, "table", WF_F32, 2, D(1000, 8)), *p[3];
    expect(wf_embed(g, table, ids), 0, 20 + 160, 160);
    expect(wf_gather_rows(g, table, ids), 0, 20 + 160, 160);
    expect(wf_scatter_add_rows(g, table, ids, x), 40, 32000 + 20 + 160, 32000);
    expect(wf_cross_entropy(g, x, ids, NULL), 160, 160 + 20, 40);
    for (int i = 0; i < 3; i++)
        p[i] = wf_state(g, (char[]){"pmv"[i], 0}, WF_F32, 2, D(5, 8));
    wf_value *one = wf_fill(g, WF_F32, 0, NULL, 1), *step = wf_fill(g, WF_I32, 0, NULL, 1);
    expect(one, 0, 0, 4);
    /* lr and scale are the same value; apply is a separate u8 */
    expect(wf_adamw(g, p[0], p[1], p[2], x, one, step, one, NULL, NULL), 16 * 40,
           4 * 160 + 4 + 4 + 1, 3 * 160);
    wf_value *s = wf_assign(g, wf_state(g, "s", WF_F32, 2, D(5, 8)), x, NULL);
    expect(s, 0, 160, 160);
    expect(wf_accumulate(g, s, x, NULL), 40, 320, 160);
    wf_graph_free(g);
}

/* 2 sequences of 8 tokens, 4 query heads of 16 over 2 key heads. */
static void test_attention(void **state)
{
    const uint64_t pair = 2 * 4 * (16 + 16), q_bytes = 16 * 4 * 16 * 4, kv_bytes = q_bytes / 2;
    const uint64_t data = 3 * 4 + 16 * 4, lse = 16 * 4 * 4;
    wf_graph *g = wt_graph(*state);
    wf_value *q = wf_input(g, "q", WF_F32, 3, D(16, 4, 16)), *grad[3];
    wf_value *k = wf_input(g, "k", WF_F32, 3, D(16, 2, 16));
    wf_value *v = wf_input(g, "v", WF_F32, 3, D(16, 2, 16));
    wf_value *start = wf_input(g, "start", WF_I32, 1, D(3));
    wf_value *positions = wf_input(g, "positions", WF_I32, 1, D(16));
    const wf_attention_options all = {.bidirectional = true}, near = {.window = 3};
    const uint64_t read = q_bytes + 2 * kv_bytes + data, written = q_bytes + lse;
    wf_value *o = wf_attention(g, q, k, v, start, positions, NULL);
    expect(o, 2 * (8 * 9 / 2) * pair, read, written);
    expect(wf_attention(g, q, k, v, start, positions, &all), 2 * 64 * pair, read, written);
    expect(wf_attention(g, q, k, v, start, positions, &near), 2 * (1 + 2 + 6 * 3) * pair, read,
           written);
    wt_ok(*state, wf_grad(g, wf_sum(g, o, 7, false), (wf_value *[]){q, k, v}, 3, grad));
    expect(grad[0], 2 * (8 * 9 / 2) * pair * 5 / 2, read + written + q_bytes,
           q_bytes + 2 * kv_bytes);

    /* the same queries over 2 * 5 of 100 pages, 4 rows each */
    wf_value *pool[2], *table = wf_input(g, "table", WF_I32, 2, D(2, 5));
    for (int i = 0; i < 2; i++) {
        pool[i] = wf_state(g, i ? "pool_v" : "pool_k", WF_F32, 4, D(100, 4, 2, 16));
        pool[i] = wf_kv_append(g, pool[i], k, start, positions, table);
        expect(pool[i], 0, kv_bytes + data + 40, kv_bytes);
    }
    wf_value *lengths = wf_input(g, "lengths", WF_I32, 1, D(2));
    expect(wf_attention_paged(g, q, pool[0], pool[1], start, positions, table, lengths, NULL),
           16 * 20 * pair, q_bytes + 2 * (2 * 5 * 4 * 2 * 16 * 4) + data + 40 + 8, written);
    wf_graph_free(g);
}

/* Costs saturate instead of overflowing. */
static void test_saturation(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = wf_input(g, "x", WF_U8, 2, D((int64_t)1 << 29, (int64_t)1 << 29));
    wf_value *y = wf_input(g, "y", WF_F32, 2, D((int64_t)1 << 28, (int64_t)1 << 28));
    wf_cost c, sum = {UINT64_MAX - 5, 0, UINT64_MAX};
    wf_node_cost(wf_matmul(g, y, y, false, false)->node, &c);
    assert_int_equal(c.flops, UINT64_MAX);
    wf_node_cost(wf_copy(g, x)->node, &c);
    assert_int_equal(c.bytes_read, (uint64_t)1 << 58);
    wf_cost_add(&sum, &(wf_cost){6, 6, 6});
    assert_true(sum.flops == UINT64_MAX && sum.bytes_read == 6 && sum.bytes_written == UINT64_MAX);
    wf_graph_free(g);
}

/* 6 FLOPs per parameter and token, without the position embedding, which is not multiplied.
 * Attention adds 2 * 2 * C per pair and layer forward, and 2.5 times that backward. */
static void test_training_step(void **state)
{
    wf_graph *g;
    const double B = 2, T = 1024, C = 768;
    double attention = 3.5 * 12 * B * (T * (T + 1) / 2) * 4 * C;
    double wanted = 6 * (124439808 - T * C) * B * T + attention;
    wf_cost sum = {0}, c;
    wt_ok(*state, wf_example_build(*state, "gpt2-124M", &(wf_example_options){.batch = 2}, &g));
    for (int i = 0; i < g->node_count; i++) {
        wf_node_cost(g->nodes[i], &c);
        if (!wf_node_is(g->nodes[i], WF_FLAG_UPDATE))
            wf_cost_add(&sum, &c);
    }
    print_message("%.4f of 6 P N + attention\n", (double)sum.flops / wanted);
    assert_true(fabs((double)sum.flops / wanted - 1) < 0.02);
    assert_true(sum.bytes_read > sum.bytes_written);
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_plain_ops),  wt_test(test_rows_and_updates), wt_test(test_attention),
        wt_test(test_saturation), wt_test(test_training_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
