/* SPDX-License-Identifier: MIT */
/*
 * test_exec.c - results of executables: views and updates of one state, outputs of all kinds, empty
 * values, failing runs, and bitwise reproducible runs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "device/device.h"
#include "graph/build.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})
#define F(...) ((float[]){__VA_ARGS__})

/* Returns how often kernels of an op ran. */
static uint64_t launches(const wf_exec *exec, const char *op)
{
    wf_op_stats stats;
    uint64_t n = 0;
    for (int i = 0; wf_exec_op_stats(exec, i, &stats); i++)
        n += strcmp(stats.op, op) == 0 ? stats.launches : 0;
    return n;
}

static uint64_t bytes_copied(const wf_exec *exec)
{
    wf_run_stats stats;
    wf_exec_stats(exec, &stats);
    return stats.bytes_copied;
}

/* Runs a test with kernels that take strides, and with kernels that do not. */
static void with_both(wf_ctx *ctx, void (*test)(wt_run *r))
{
    for (int dense = 0; dense < 2; dense++) {
        wt_run r = wt_open(ctx, "cpu:1");
        if (dense)
            wt_make_dense(&r);
        test(&r);
        wt_close(&r);
    }
}

/* ---- Which nodes run ---- */

/* Nodes that no output or update needs are not launched. */
static void test_dead_nodes_do_not_run(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, D(4)), *s = wf_state(g, "s", WF_F32, 1, D(4));
    wf_value *dead = wf_exp(g, x);
    for (int i = 0; i < 5; i++)
        dead = wf_exp(g, wf_reshape(g, dead, 2, D(2, 2)));
    wf_output(g, "y", wf_tanh(g, wf_tanh(g, x)));
    wf_assign(g, s, wf_sin(g, x), NULL); /* an update is always live */
    wt_compile(&r, g);
    wt_write(&r, "x", F(0, 0, 0, 0), 16);
    for (int i = 0; i < 3; i++)
        wt_run_once(&r);
    assert_int_equal(launches(r.exec, "exp"), 0);
    assert_int_equal(launches(r.exec, "reshape"), 0);
    assert_int_equal(launches(r.exec, "tanh"), 6); /* two nodes, three runs */
    assert_int_equal(launches(r.exec, "sin"), 3);
    assert_int_equal(launches(r.exec, "assign"), 3);
    wf_op_stats stats;
    assert_false(wf_exec_op_stats(r.exec, 3, &stats));
    assert_false(wf_exec_op_stats(r.exec, -1, &stats));

    wt_compile(&r, wt_graph(ctx)); /* an empty graph */
    wt_run_once(&r);
    assert_false(wf_exec_op_stats(r.exec, 0, &stats));
    wt_close(&r);
}

/* An output of an input, state, view or update has the value at the point where it was named. */
static void test_outputs_of_all_kinds(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 2)), *s = wf_state(g, "s", WF_F32, 2, D(2, 2));
    wf_value *t = wf_permute(g, s, D(1, 0));
    wf_output(g, "input", x);
    wf_output(g, "state", s);
    wf_output(g, "view", t);
    wf_output(g, "view again", t);
    wf_value *next = wf_accumulate(g, s, x, NULL);
    wf_output(g, "update", next);
    wf_output(g, "view of update", wf_slice(g, next, 1, 1, 2));
    wt_compile(&r, g);
    wt_set_state(&r, "s", F(1, 2, 3, 4), 4);
    wt_write(&r, "x", F(10, 10, 10, 10), 16);
    for (float plus = 0; plus < 30; plus += 10) {
        wt_run_once(&r);
        wt_expect(&r, "input", {10, 10, 10, 10});
        wt_expect(&r, "state", {1 + plus, 2 + plus, 3 + plus, 4 + plus});
        wt_expect(&r, "view", {1 + plus, 3 + plus, 2 + plus, 4 + plus});
        wt_expect(&r, "view again", {1 + plus, 3 + plus, 2 + plus, 4 + plus});
        wt_expect(&r, "update", {11 + plus, 12 + plus, 13 + plus, 14 + plus});
        wt_expect(&r, "view of update", {12 + plus, 14 + plus});
    }
    wt_close(&r);
}

/* ---- Views ---- */

/* Names views of x as outputs: a box, its transpose, a flattened slice and a mixed permutation. */
static void name_views(wf_graph *g, wf_value *x, const char *const *name)
{
    wf_value *v = wf_slice(g, wf_slice(g, x, 0, 1, 3), 1, 1, 3);
    wf_output(g, name[0], wf_scale(g, v, 1));
    v = wf_permute(g, v, D(1, 0));
    wf_output(g, name[1], wf_scale(g, v, 1));
    v = wf_slice(g, wf_reshape(g, v, 3, D(1, 4, 1)), 1, 1, 4); /* needs a copy */
    wf_output(g, name[2], wf_scale(g, v, 1));
    v = wf_permute(g, wf_reshape(g, x, 6, D(1, 3, 1, 2, 2, 1)), D(0, 3, 2, 1, 4, 5));
    wf_output(g, name[3], wf_scale(g, wf_reshape(g, v, 2, D(2, 6)), 1));
}

static void views_of_sources(wt_run *r)
{
    static const char *const names[2][4] = {{"box", "transposed", "flat", "mixed"},
                                            {"box'", "transposed'", "flat'", "mixed'"}};
    wf_graph *g = wt_graph(r->ctx);
    name_views(g, wf_input(g, "x", WF_F32, 2, D(3, 4)), names[0]);
    name_views(g, wf_state(g, "x", WF_F32, 2, D(3, 4)), names[1]);
    wt_compile(r, g);
    float numbers[12];
    for (int i = 0; i < 12; i++)
        numbers[i] = (float)i;
    wt_write(r, "x", numbers, sizeof numbers);
    wt_set_state(r, "x", numbers, 12);
    for (int i = 0; i < 2; i++) {
        wt_run_once(r);
        wt_expect(r, names[i][0], {5, 6, 9, 10});
        wt_expect(r, names[i][1], {5, 9, 6, 10});
        wt_expect(r, names[i][2], {9, 6, 10});
        wt_expect(r, names[i][3], {0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11});
    }
}

static void test_views_of_sources(void **state)
{
    with_both(*state, views_of_sources);
}

/* Counts copied bytes: views that share memory cost nothing. */
static void test_copied_bytes(void **state)
{
    wf_ctx *ctx = *state;
    for (int dense = 0; dense < 2; dense++) {
        wt_run r = wt_open(ctx, "cpu:1");
        if (dense)
            wt_make_dense(&r);
        wf_graph *g = wt_graph(ctx);
        wf_value *x = wf_input(g, "x", WF_F32, 2, D(4, 6));
        wf_value *shared = wf_slice(g, wf_reshape(g, x, 3, D(4, 2, 3)), 0, 1, 3); /* dense */
        wf_value *columns = wf_slice(g, x, 1, 0, 2);                              /* 32 bytes */
        wf_output(g, "a", wf_exp(g, shared));
        wf_output(g, "b", wf_exp(g, columns));
        /* no kernel takes this order: copies 96 bytes */
        wf_output(g, "c", wf_exp(g, wf_permute(g, x, D(1, 0))));
        wf_output(g, "d", x); /* copies 96 bytes */
        /* merged, split, added and dropped axes, down to a scalar: all share memory */
        wf_output(g, "e", wf_exp(g, wf_reshape(g, x, 2, D(1, 24))));
        wf_output(g, "f", wf_exp(g, wf_reshape(g, x, 6, D(2, 2, 1, 6, 1, 1))));
        wf_output(g, "g", wf_exp(g, wf_reshape(g, columns, 3, D(4, 2, 1))));
        wf_value *row = wf_reshape(g, wf_slice(g, x, 0, 3, 4), 1, D(6));
        wf_output(g, "h", wf_exp(g, wf_reshape(g, wf_slice(g, row, 0, 5, 6), 0, NULL)));
        wt_compile(&r, g);
        wt_write(&r, "x", (float[24]){0}, 96);
        wt_run_once(&r);
        wt_run_once(&r);
        assert_int_equal(bytes_copied(r.exec), 2 * (96 + 96 + (dense ? 32 : 0)));
        assert_int_equal(launches(r.exec, "slice"), dense ? 2 : 0);
        assert_int_equal(launches(r.exec, "permute"), 2);
        assert_int_equal(launches(r.exec, "reshape"), 0);
        wt_close(&r);
    }
}

static wf_status launch_nothing(const wf_launch *l)
{
    (void)l;
    return WF_OK;
}

/* Views of quantized blocks share memory, because they never split a block. */
static void test_views_of_blocks(void **state)
{
    wf_ctx *ctx = *state;
#define KERNEL(name)                                                                \
    {                                                                               \
        .op = WF_OP_##name, .types = ~0u, .strided = true, .launch = launch_nothing \
    }
    static const wf_kernel rows[] = {KERNEL(linear), {0}};
#undef KERNEL
    static const wf_kernel *const table[] = {rows, NULL};
    wt_run r = wt_open(ctx, "cpu:1");
    r.device->kernels = table;
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, D(32)), *w = wf_state(g, "w", WF_Q8_0, 1, D(160));
    w = wf_reshape(g, w, 2, D(5, 32));
    wf_output(g, "all", wf_linear(g, x, w, NULL));
    wt_compile(&r, g);
    wf_op_stats stats;
    assert_false(wf_exec_op_stats(r.exec, 1, &stats));
    g = wt_graph(ctx);
    x = wf_input(g, "x", WF_F32, 1, D(32)), w = wf_state(g, "w", WF_Q8_0, 1, D(160));
    w = wf_slice(g, wf_reshape(g, w, 2, D(5, 32)), 0, 1, 3);
    wf_output(g, "some", wf_linear(g, x, w, NULL));
    wt_compile(&r, g);
    assert_true(wf_exec_op_stats(r.exec, 0, &stats));
    assert_string_equal(stats.op, "linear");
    assert_false(wf_exec_op_stats(r.exec, 1, &stats));
    wt_close(&r);
}

/* ---- Updates ---- */

/* Each update reads a view of the state that it overwrites. */
static void update_by_own_view(wt_run *r)
{
    wf_graph *g = wt_graph(r->ctx);
    wf_value *w = wf_state(g, "w", WF_F32, 2, D(3, 3)), *s = wf_state(g, "s", WF_F32, 1, D(4));
    wf_value *u = wf_state(g, "u", WF_F32, 2, D(2, 2));
    wf_assign(g, w, wf_permute(g, w, D(1, 0)), NULL);
    wf_value *halves[] = {wf_slice(g, s, 0, 2, 4), wf_slice(g, s, 0, 0, 2)};
    s = wf_accumulate(g, s, wf_concat(g, halves, 2, 0), NULL);
    wf_value *transposed =
        wf_reshape(g, wf_permute(g, wf_reshape(g, u, 2, D(2, 2)), D(1, 0)), 1, D(4));
    wf_accumulate(g, u, wf_reshape(g, transposed, 2, D(2, 2)), NULL);
    wf_assign(g, s, s, NULL); /* assigns itself */
    /* kernels could read permuted rows in place, but the update overwrites them */
    wf_value *t = wf_state(g, "t", WF_F32, 3, D(2, 2, 2));
    wf_assign(g, t, wf_permute(g, t, D(1, 0, 2)), NULL);
    wf_value *pool = wf_state(g, "pool", WF_F32, 4, D(2, 2, 1, 1)); /* exchanges its pages */
    wf_value *start = wf_mul(g, wf_iota(g, 1, D(2), 0), wf_fill(g, WF_I32, 0, NULL, 4));
    wf_value *table = wf_sub(g, wf_fill(g, WF_I32, 2, D(1, 2), 1), wf_iota(g, 2, D(1, 2), 1));
    wf_kv_append(g, pool, wf_reshape(g, pool, 3, D(4, 1, 1)), start, wf_iota(g, 1, D(4), 0), table);
    wt_compile(r, g);
    wt_set_state(r, "w", F(1, 2, 3, 4, 5, 6, 7, 8, 9), 9);
    wt_set_state(r, "s", F(1, 2, 3, 4), 4);
    wt_set_state(r, "u", F(1, 2, 3, 4), 4);
    wt_set_state(r, "t", F(1, 2, 3, 4, 5, 6, 7, 8), 8);
    wt_set_state(r, "pool", F(1, 2, 3, 4), 4);
    wt_run_once(r);
    wt_expect_state(r, "t", F(1, 2, 5, 6, 3, 4, 7, 8), 8);
    wt_expect_state(r, "pool", F(3, 4, 1, 2), 4);
    wt_expect_state(r, "w", F(1, 4, 7, 2, 5, 8, 3, 6, 9), 9);
    wt_expect_state(r, "s", F(4, 6, 4, 6), 4);
    wt_expect_state(r, "u", F(2, 5, 5, 8), 4);
    wt_run_once(r);
    wt_expect_state(r, "w", F(1, 2, 3, 4, 5, 6, 7, 8, 9), 9);
}

static void test_update_by_own_view(void **state)
{
    with_both(*state, update_by_own_view);
}

/* AdamW whose gradient is one of the states that it updates reads the old values. */
static void test_update_by_own_state(void **state)
{
    wf_ctx *ctx = *state;
    for (int which = 0; which < 3; which++) {
        float result[2][12];
        for (int copied = 0; copied < 2; copied++) {
            wt_run r = wt_open(ctx, "cpu:1");
            wf_graph *g = wt_graph(ctx);
            wf_value *s[3];
            for (int i = 0; i < 3; i++)
                s[i] = wf_state(g, (char[]){(char)('p' + i), 0}, WF_F32, 1, D(4));
            wf_value *grad = copied ? wf_scale(g, s[which], 1) : s[which];
            wf_value *lr = wf_fill(g, WF_F32, 0, NULL, 0.5), *one = wf_fill(g, WF_I32, 0, NULL, 1);
            wf_adamw(g, s[0], s[1], s[2], grad, lr, one, NULL, NULL, NULL);
            wt_compile(&r, g);
            for (int i = 0; i < 3; i++)
                wt_set_state(&r, (char[]){(char)('p' + i), 0}, F(1, 2 + (float)i, 3, 4), 4);
            wt_run_once(&r);
            for (int i = 0; i < 3; i++)
                wt_ok(ctx, wf_session_read(r.session, (char[]){(char)('p' + i), 0},
                                           result[copied] + 4 * i, 16));
            wt_close(&r);
        }
        wt_floats_equal(result[0], result[1], 12);
    }
}

/* Each reader sees the version that it names, also through views and after several updates. */
static void versions(wt_run *r)
{
    wf_graph *g = wt_graph(r->ctx);
    wf_value *w = wf_state(g, "w", WF_F32, 2, D(2, 2)), *before = wf_permute(g, w, D(1, 0));
    wf_output(g, "0", wf_scale(g, before, 1));
    w = wf_accumulate(g, w, wf_fill(g, WF_F32, 2, D(2, 2), 1), NULL);
    wf_output(g, "1", wf_scale(g, wf_permute(g, w, D(1, 0)), 1));
    /* of version 1, read after version 3 */
    wf_value *kept = wf_scale(g, wf_slice(g, w, 0, 1, 2), 1);
    w = wf_accumulate(g, w, w, NULL);
    w = wf_accumulate(g, w, wf_slice(g, wf_concat(g, (wf_value *[]){w, w}, 2, 0), 0, 1, 3), NULL);
    wf_output(g, "3", w);
    wf_output(g, "kept", wf_add(g, kept, wf_slice(g, w, 0, 0, 1)));
    wt_compile(r, g);
    wt_set_state(r, "w", F(1, 2, 3, 4), 4);
    wt_run_once(r);
    wt_expect(r, "0", {1, 3, 2, 4});
    wt_expect(r, "1", {2, 4, 3, 5});
    wt_expect(r, "3", {12, 16, 12, 16});
    wt_expect(r, "kept", {16, 21});
    wt_expect_state(r, "w", F(12, 16, 12, 16), 4);
    wt_run_once(r);
    wt_expect(r, "0", {12, 12, 16, 16});
}

static void test_versions(void **state)
{
    with_both(*state, versions);
}

/* apply == 0 keeps every bit, including a NaN's payload. */
static void test_predicated_updates(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    wf_value *apply = wf_input(g, "apply", WF_U8, 0, NULL), *x = wf_fill(g, WF_F32, 1, D(3), 5);
    wf_value *lr = wf_fill(g, WF_F32, 0, NULL, 1), *step = wf_fill(g, WF_I32, 0, NULL, 1), *s[5];
    for (int i = 0; i < 5; i++)
        s[i] = wf_state(g, (char[]){(char)('a' + i), 0}, WF_F32, 1, D(3));
    wf_value *twice = wf_assign(g, s[0], x, apply);
    wf_accumulate(g, twice, x, apply);
    wf_adamw(g, s[1], s[2], s[3], x, lr, step, NULL, apply, NULL);
    wf_sgd(g, s[4], NULL, x, lr, NULL, apply, NULL);
    wt_compile(&r, g);
    const uint32_t odd[3] = {0x7fc12345, 0x80000000, 0x00000001};
    uint32_t got[3];
    for (int on = 0; on < 2; on++) {
        for (int i = 0; i < 5; i++)
            wt_ok(ctx, wf_session_write(r.session, (char[]){(char)('a' + i), 0}, odd, 12));
        wt_write(&r, "apply", &(uint8_t){on ? 255 : 0}, 1);
        wt_run_once(&r);
        for (int i = 0; i < 5; i++) {
            wt_ok(ctx, wf_session_read(r.session, (char[]){(char)('a' + i), 0}, got, 12));
            assert_int_equal(memcmp(got, odd, 12) == 0, !on);
        }
    }
    wt_expect_state(&r, "a", F(10, 10, 10), 3);
    wt_close(&r);
}

/* ---- Empty and invalid data ---- */

static void empty_values(wt_run *r)
{
    wf_graph *g = wt_graph(r->ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(0, 3)), *s = wf_state(g, "s", WF_F32, 2, D(0, 3));
    wf_value *w = wf_state(g, "w", WF_F32, 2, D(2, 3)), *grad;
    wf_value *y = wf_permute(g, wf_slice(g, wf_add(g, x, s), 1, 1, 3), D(1, 0)); /* [2, 0] */
    wf_output(g, "sum", wf_sum(g, y, 2, false));
    wf_output(g, "product", wf_matmul(g, x, x, true, false)); /* [3, 3], summed over zero rows */
    wf_output(g, "linear", wf_linear(g, x, w, NULL));
    wf_output(g, "padded", wf_pad(g, x, 0, 1, 0));
    wf_output(g, "flat", wf_reshape(g, y, 1, D(-1)));
    wf_output(g, "rows", wf_embed(g, w, wf_iota(g, 1, D(0), 0)));
    wf_value *loss = wf_sum(g, wf_softmax(g, wf_linear(g, x, w, NULL)), 3, false);
    assert_int_equal(wf_grad(g, loss, &w, 1, &grad), WF_OK);
    wf_output(g, "dw", grad);
    wf_assign(g, s, wf_scale(g, x, 2), NULL);
    wt_compile(r, g);
    wt_write(r, "x", NULL, 0);
    wt_ok(r->ctx, wf_session_write(r->session, "s", NULL, 0));
    wt_run_once(r);
    wt_expect(r, "sum", {0, 0});
    wt_expect(r, "product", {0, 0, 0, 0, 0, 0, 0, 0, 0});
    wt_expect(r, "padded", {0, 0, 0});
    wt_expect(r, "dw", {0, 0, 0, 0, 0, 0});
    wt_read(r, "linear", NULL, 0);
    wt_read(r, "flat", NULL, 0);
    wt_read(r, "rows", NULL, 0);
}

static void test_empty_values(void **state)
{
    with_both(*state, empty_values);
}

/* With zero tokens the loss is NaN, the gradients are 0, and no parameter becomes NaN. */
static void test_an_empty_batch(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:2");
    wf_graph *g = wt_graph(ctx);
    wt_model m;
    wt_sizes size = wt_tiny;
    size.tokens = 0;
    wt_forward(g, &size, &m);
    wt_train(g, &m);
    wt_compile(&r, g);
    wt_ok(ctx, wt_write_params(r.session, &m));
    wt_ok(ctx, wt_write_inputs(r.exec, &size, 1));
    wt_run_once(&r);
    float loss, norm, table[7 * 8];
    wt_read(&r, "loss", &loss, sizeof loss);
    wt_read(&r, "norm", &norm, sizeof norm);
    assert_true(isnan(loss) && norm == 0);
    wt_ok(ctx, wf_session_read(r.session, "table", table, sizeof table));
    for (int i = 0; i < 7 * 8; i++)
        assert_true(isfinite(table[i]));
    wt_close(&r);
}

/* An id out of range fails the run with a message. The next run is not affected. */
static void test_failing_runs(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:2");
    wf_graph *g = wt_graph(ctx);
    wf_value *table = wf_state(g, "table", WF_F32, 2, D(3, 2)),
             *ids = wf_input(g, "ids", WF_I32, 1, D(2));
    wf_output(g, "rows", wf_embed(g, table, ids));
    wf_accumulate(g, table, wf_fill(g, WF_F32, 2, D(3, 2), 1), NULL);
    wt_compile(&r, g);
    static const int32_t bad[][2] = {{0, 3}, {-1, 0}, {INT32_MAX, 1}, {INT32_MIN, 1}};
    float rows[4];
    wt_write(&r, "ids", bad[0], 8);
    wt_fails(ctx, wf_exec_run(r.exec), WF_ERR_DEVICE, "embed: index 3 at [1]");
    wt_fails(ctx, wf_exec_read(r.exec, "rows", rows, 16), WF_ERR_DEVICE, "the last run failed");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        wt_write(&r, "ids", bad[i], 8);
        wt_fails(ctx, wf_exec_run(r.exec), WF_ERR_DEVICE, "embed: index ");
    }
    wf_run_stats stats;
    wf_exec_stats(r.exec, &stats);
    assert_int_equal(stats.runs, 0);
    wt_expect_state(&r, "table", F(0, 0, 0, 0, 0, 0), 6); /* later steps did not run */
    wt_write(&r, "ids", (int32_t[]){2, 0}, 8);
    wt_run_once(&r);
    wt_run_once(&r);
    wt_expect(&r, "rows", {1, 1, 1, 1});
    wt_write(&r, "ids", bad[0], 8);
    wt_fails(ctx, wf_exec_run(r.exec), WF_ERR_DEVICE, "embed: index 3 at [1]");
    wt_fails(ctx, wf_exec_read(r.exec, "rows", rows, 16), WF_ERR_DEVICE, "the last run failed");
    wt_write(&r, "ids", (int32_t[]){2, 0}, 8);
    wt_run_once(&r);
    wt_expect(&r, "rows", {2, 2, 2, 2});
    wt_close(&r);
}

/* ---- Reproducible runs ---- */

/* Norms, a softmax and their gradients over enough rows for several threads. */
static wf_value *wide(wf_graph *g)
{
    wf_value *key = wf_fill(g, WF_I32, 1, D(3), 7), *grad[2];
    wf_value *x = wf_uniform(g, key, 2, D(500, 130)), *gamma = wf_uniform(g, key, 1, D(130));
    wf_value *y = wf_layer_norm(g, wf_softmax(g, wf_scale(g, x, 4)), gamma, NULL, 1e-5);
    y = wf_rms_norm(g, wf_add(g, y, x), gamma, 1e-5);
    wf_value *norm = wf_global_norm(g, (wf_value *[]){y, gamma}, 2);
    wf_grad(g, norm, (wf_value *[]){gamma, x}, 2, grad);
    wf_value *rows = wf_argmax(g, y, 1);
    wf_value *scattered = wf_scatter_add_rows(g, wf_fill(g, WF_F32, 2, D(130, 130), 0), rows, y);
    wf_value *sums[] = {grad[0], wf_sum(g, grad[1], 1, false), wf_sum(g, scattered, 1, false)};
    return wf_concat(g, sums, 3, 0);
}

/* Adds the bits of x to the hash. Fails at a NaN or infinity, which would hide differences. */
static void hash_floats(uint64_t *hash, const float *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits;
        assert_true(isfinite(x[i]));
        memcpy(&bits, &x[i], sizeof bits);
        *hash = (*hash ^ bits) * 0x100000001b3u;
    }
}

/* Runs two training steps and returns a hash of all outputs and states. */
static uint64_t train(wf_ctx *ctx, const char *device, const wt_sizes *size)
{
    wt_run r = wt_open(ctx, device);
    wf_graph *g = wt_graph(ctx);
    wt_model m;
    wt_forward(g, size, &m);
    wf_output(g, "wide", wide(g));
    wt_train(g, &m);
    wt_compile(&r, g);
    wt_ok(ctx, wt_write_params(r.session, &m));
    for (int32_t step = 1; step <= 2; step++) {
        wt_ok(ctx, wt_write_inputs(r.exec, size, step));
        wt_run_once(&r);
    }
    uint64_t hash = 0xcbf29ce484222325u;
    static float numbers[100000];
    wt_read(&r, "wide", numbers, 3 * 130 * 4);
    hash_floats(&hash, numbers, 3 * 130);
    for (int i = 0; i < m.count; i++) {
        assert_true(m.elements[i] <= 100000);
        wt_ok(ctx, wf_session_read(r.session, m.name[i], numbers, 4 * (size_t)m.elements[i]));
        hash_floats(&hash, numbers, m.elements[i]);
    }
    wf_run_stats stats;
    wf_exec_stats(r.exec, &stats);
    assert_int_equal(stats.allocations, 0);
    wt_close(&r);
    return hash;
}

/* Two training steps have the same bits with 1, 2 and 3 threads. */
static void test_bits_do_not_depend_on_threads(void **state)
{
    const wt_sizes size = {.tokens = 150,
                           .vocab = 331,
                           .width = 64,
                           .heads = 4,
                           .kv_heads = 2,
                           .head_dim = 16,
                           .hidden = 96};
    uint64_t once = train(*state, "cpu:1", &size);
    assert_true(once == train(*state, "cpu:1", &size));
    assert_true(once == train(*state, "cpu:2", &size));
    assert_true(once == train(*state, "cpu:3", &size));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_dead_nodes_do_not_run),
        wt_test(test_outputs_of_all_kinds),
        wt_test(test_views_of_sources),
        wt_test(test_copied_bytes),
        wt_test(test_views_of_blocks),
        wt_test(test_update_by_own_view),
        wt_test(test_update_by_own_state),
        wt_test(test_versions),
        wt_test(test_predicated_updates),
        wt_test(test_empty_values),
        wt_test(test_an_empty_batch),
        wt_test(test_failing_runs),
        wt_test(test_bits_do_not_depend_on_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
