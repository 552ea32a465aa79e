/* SPDX-License-Identifier: MIT */
/*
 * test_grad.c - the two passes that build nodes: gradients, checked by hand where several paths
 * meet, and the expansion of every op into core ops.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "graph/build.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

static wf_graph *graph(wf_ctx *ctx)
{
    wf_graph *g;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    return g;
}

/* ---- Gradients ---- */

/* Runs once with x = {1, 2, 3, 4} and w = {0.5, -1, 2, 0.25}, both f32[2,2] and both optional. */
static wt_run run_xw(wf_ctx *ctx, wf_graph *g)
{
    wt_run r = wt_open(ctx, "cpu:1");
    wt_compile(&r, g);
    wf_exec_write(r.exec, "x", (float[]){1, 2, 3, 4}, 16);
    wf_session_write(r.session, "w", (float[]){0.5f, -1, 2, 0.25f}, 16);
    wf_session_write(r.session, "w2", (float[]){0.5f, -1, 2, 0.25f}, 16);
    wt_ok(ctx, wf_exec_run(r.exec));
    return r;
}

/* Gradient of sum(x w^T w2 * x), where w2 is w or a state with the same values. */
static void product_gradient(wf_ctx *ctx, bool tied, float *dw)
{
    wf_graph *g = graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 2)), *grad[2] = {NULL};
    wf_value *w[2] = {wf_state(g, "w", WF_F32, 2, D(2, 2))};
    w[1] = tied ? w[0] : wf_state(g, "w2", WF_F32, 2, D(2, 2));
    wf_value *y = wf_matmul(g, wf_linear(g, x, w[0], NULL), w[1], false, false);
    wf_value *loss = wf_reduce(g, "sum", wf_mul(g, y, x), 3, false);
    wt_ok(ctx, wf_grad(g, loss, w, 2, grad));
    wf_output(g, "dw", tied ? grad[0] : wf_add(g, grad[0], grad[1]));
    wt_run r = run_xw(ctx, g);
    wt_read(&r, "dw", dw, 16);
    wt_close(&r);
}

/* The gradient of a parameter with two uses is the sum of both. */
static void test_tied_weights(void **state)
{
    float tied[4], apart[4];
    product_gradient(*state, true, tied);
    product_gradient(*state, false, apart);
    wt_floats_equal(tied, apart, 4);
    wt_floats_equal(tied, (float[]){-18, -26, 47, 66}, 4); /* 2 w x^T x */
}

/* The same for an embedding that is also the output layer. */
static void test_tied_embedding(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 2)), *w = wf_state(g, "w", WF_F32, 2, D(2, 2));
    wf_value *ids = wf_sub(g, wf_fill(g, WF_I32, 1, D(3), 1), wf_iota(g, 1, D(3), 0)), *grad;
    ids = wf_mul(g, ids, ids);                                /* 1 0 1 */
    wf_value *y = wf_linear(g, wf_embed(g, w, ids), w, NULL); /* e w^T, [3,2] */
    wf_value *loss = wf_reduce(g, "sum", wf_mul(g, y, wf_embed(g, x, ids)), 3, false);
    wt_ok(ctx, wf_grad(g, loss, &w, 1, &grad));
    wf_output(g, "dw", grad);
    wt_run r = run_xw(ctx, g);
    wt_expect(&r, "dw", {17, 0, 36, -4}); /* (m + m^T) w with m = {1, 2; 6, 8} */
    wt_close(&r);
}

/* A value with several readers, and a node that uses an operand twice: d/dx of x x + sin(x) x +
 * x. */
static void test_diamonds(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 2)), *grad[3];
    wf_value *y = wf_add(g, wf_add(g, wf_mul(g, x, x), wf_mul(g, wf_sin(g, x), x)), x);
    wf_value *loss = wf_sum(g, y, 3, false);
    wt_ok(ctx, wf_grad(g, loss, (wf_value *[]){x, loss, x}, 3, grad));
    assert_ptr_equal(grad[0], grad[2]);
    wf_output(g, "dx", grad[0]);
    wf_output(g, "one", grad[1]);
    wt_run r = run_xw(ctx, g);
    float got[4];
    wt_read(&r, "dx", got, sizeof got);
    for (int i = 0; i < 4; i++) {
        double v = i + 1, want = 2 * v + sin(v) + v * cos(v) + 1;
        assert_true(fabs(got[i] - want) < 1e-5);
    }
    wt_expect(&r, "one", {1});
    wt_close(&r);
}

/* The gradient of a value that the loss does not depend on is zero, in its own type and shape. */
static void test_no_connection_is_zero(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 2)), *w = wf_state(g, "w", WF_F32, 2, D(2, 2));
    wf_value *half = wf_input(g, "half", WF_BF16, 1, D(3)), *after = NULL, *grad[4];
    wf_value *whole = wf_cast(g, wf_cast(g, w, WF_I32), WF_F32); /* integers carry no gradient */
    wf_value *loss = wf_sum(g, wf_mul(g, x, whole), 3, false);
    after = wf_scale(g, loss, 2);
    wt_ok(ctx, wf_grad(g, loss, (wf_value *[]){x, w, half, after}, 4, grad));
    assert_int_equal(wf_value_type(grad[2]), WF_BF16);
    assert_int_equal(wf_value_rank(grad[2]), 1);
    assert_int_equal(wf_value_dim(grad[2], 0), 3);
    wf_output(g, "dx", grad[0]);
    wf_output(g, "dw", grad[1]);
    wf_output(g, "dhalf", wf_cast(g, grad[2], WF_F32));
    wf_output(g, "dafter", grad[3]);
    wt_run r = run_xw(ctx, g);
    wt_expect(&r, "dx", {0, -1, 2, 0});
    wt_expect(&r, "dw", {0, 0, 0, 0});
    wt_expect(&r, "dhalf", {0, 0, 0});
    wt_expect(&r, "dafter", {0});
    wt_close(&r);
}

/* Appends two tokens to a cache of three pages and attends to it. */
static wf_value *paged(wf_graph *g, wf_value *q)
{
    wf_value *two = wf_fill(g, WF_I32, 0, NULL, 2);
    wf_value *start = wf_mul(g, wf_iota(g, 1, D(2), 0), two), *positions = wf_iota(g, 1, D(2), 0);
    wf_value *table = wf_fill(g, WF_I32, 2, D(1, 2), 1), *length = wf_fill(g, WF_I32, 1, D(1), 2);
    wf_value *pool = wf_state(g, "pool", WF_F32, 4, D(3, 4, 1, 2));
    pool = wf_kv_append(g, pool, wf_reshape(g, q, 3, D(2, 1, 2)), start, positions, table);
    return wf_attention_paged(g, wf_reshape(g, q, 3, D(2, 1, 2)), pool, pool, start, positions,
                              table, length, NULL);
}

/* A gradient of a gradient: x^3, written as multiplications. */
static void test_second_derivative(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 2)), *first, *second;
    wf_value *cube = wf_mul(g, x, wf_mul(g, x, x));
    wt_ok(ctx, wf_grad(g, wf_sum(g, cube, 3, false), &x, 1, &first));
    wt_ok(ctx, wf_grad(g, wf_sum(g, first, 3, false), &x, 1, &second));
    wf_output(g, "first", first);
    wf_output(g, "second", second);
    wt_run r = run_xw(ctx, g);
    wt_expect(&r, "first", {3, 12, 27, 48});
    wt_expect(&r, "second", {6, 12, 18, 24});
    wt_close(&r);
}

/* The gradient with respect to an updated state does not depend on the state's old value. */
static void test_gradient_of_a_later_version(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 2)), *w = wf_state(g, "w", WF_F32, 2, D(2, 2));
    wf_value *next = wf_assign(g, w, wf_scale(g, x, 2), NULL), *grad;
    wt_ok(ctx, wf_grad(g, wf_sum(g, wf_mul(g, next, next), 3, false), &next, 1, &grad));
    wf_output(g, "dw", grad);
    wt_run r = run_xw(ctx, g);
    wt_expect(&r, "dw", {4, 8, 12, 16});
    wt_close(&r);
}

/* With an update between loss and gradient, the gradient would read the state too late.
 * Verification finds this. */
static void test_gradient_after_an_update(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = graph(ctx);
    wt_run r = wt_open(ctx, "cpu:1");
    wf_value *w = wf_state(g, "w", WF_F32, 2, D(2, 2)), *grad;
    wf_value *loss = wf_sum(g, wf_mul(g, w, w), 3, false);
    wf_assign(g, w, wf_scale(g, w, 2), NULL);
    wf_grad(g, loss, &w, 1, &grad);
    wf_output(g, "dw", grad);
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_GRAPH, "reader-after-writer");
    wf_graph_free(g);
    wt_close(&r);
}

static wf_value *sum_all(wf_graph *g, wf_value *v)
{
    return wf_sum(g, v, (1u << wf_value_rank(v)) - 1, false);
}

/* Builds `loss` and `wrt` from g and x in a new graph, and expects wf_grad to fail. */
#define NO_GRAD(part, loss, wrt)                                                           \
    do {                                                                                   \
        wf_graph *g = graph(ctx);                                                          \
        wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 3)), *grad;                         \
        wt_fails(ctx, wf_grad(g, loss, &(wf_value *){wrt}, 1, &grad), WF_ERR_USAGE, part); \
        assert_int_equal(wf_graph_status(g), WF_ERR_USAGE);                                \
        assert_null(grad);                                                                 \
        wf_graph_free(g);                                                                  \
    } while (0)

/* Losses, values and outputs without a gradient are refused with the reason. */
static void test_ops_without_gradient(void **state)
{
    wf_ctx *ctx = *state;
    NO_GRAD("the loss must be a float scalar", x, x);
    NO_GRAD("the loss must be a float scalar", NULL, x);
    NO_GRAD("the loss must be a float scalar", wf_fill(g, WF_I32, 0, NULL, 1), x);
    NO_GRAD("value 0 is missing", sum_all(g, x), NULL);
    NO_GRAD("value 0 is i32", sum_all(g, x), wf_input(g, "i", WF_I32, 0, NULL));
    NO_GRAD("rms_norm has no gradient through its output 1",
            sum_all(g, wf_value_output(wf_rms_norm(g, x, NULL, 1e-5), 1)), x);
    NO_GRAD("layer_norm has no gradient through its output 2",
            sum_all(g, wf_value_output(wf_layer_norm(g, x, NULL, NULL, 1e-5), 2)), x);
    NO_GRAD("softmax_grad has no gradient",
            sum_all(g, wf_op_add(g, "softmax_grad", "", (wf_value *[]){x, x}, 2)), x);
    NO_GRAD("linear_act has no gradient",
            sum_all(g, wf_op_add(g, "linear_act", "", (wf_value *[]){x, x}, 2)), x);
    NO_GRAD("linear_grad_weight has no gradient",
            sum_all(g, wf_op_add(g, "linear_grad_weight", "", (wf_value *[]){x, x}, 2)), x);
    NO_GRAD("assign has no gradient",
            sum_all(g, wf_assign(g, wf_state(g, "s", WF_F32, 2, D(2, 3)), x, NULL)), x);
    NO_GRAD("rope has no gradient with respect to inv_freq",
            sum_all(g, wf_rope(g, wf_reshape(g, x, 3, D(2, 1, 3)), wf_fill(g, WF_I32, 1, D(2), 0),
                               wf_reshape(g, sum_all(g, x), 1, D(1)), false, 1)),
            x);
    /* the log-sum-exp outputs of attention and cross_entropy */
    NO_GRAD("cross_entropy has no gradient through its output 1",
            sum_all(g, wf_value_output(wf_cross_entropy(g, x, wf_fill(g, WF_I32, 1, D(2), 0), NULL),
                                       1)),
            x);
    NO_GRAD("page pools has no gradient", sum_all(g, paged(g, wf_slice(g, x, 1, 0, 2))), x);
}

/* ---- Expansion ---- */

static int count_op(const wf_graph *g, wf_op op)
{
    int n = 0;
    for (int i = 0; i < g->node_count; i++)
        n += g->nodes[i]->op == op;
    return n;
}

/* Applies the fused ops one after the other: [n, n] -> [n, n]. */
static wf_value *fused(wf_graph *g, wf_value *x)
{
    wf_value *a = wf_op_add(g, "residual_rms_norm", "", (wf_value *[]){x, x}, 2);
    wf_value *in[] = {wf_value_output(a, 0), wf_value_output(a, 1)};
    wf_value *b = wf_op_add(g, "residual_layer_norm", "", in, 2);
    wf_value *c = wf_op_add(g, "linear_act", "act=2", (wf_value *[]){wf_value_output(b, 1), x}, 2);
    wf_value *d =
        wf_op_add(g, "residual_layer_norm_grad", "",
                  (wf_value *[]){c, x, wf_value_output(b, 2), wf_value_output(b, 3), x}, 5);
    wf_value *e = wf_op_add(g, "residual_rms_norm_grad", "",
                            (wf_value *[]){d, x, wf_value_output(a, 2), x}, 4);
    wf_value *h = wf_op_add(g, "matmul_act_grad", "", (wf_value *[]){e, x, x}, 3);
    return wf_op_add(g, "linear_grad_weight", "", (wf_value *[]){h, x}, 2);
}

/* Builds a model with every op that has an expansion. */
static void build_everything(wf_graph *g, wt_model *m)
{
    static const char *const unary[] = {"neg", "gelu_erf", "silu", "relu", "relu2"};
    wt_forward(g, &wt_tiny, m);
    wf_value *h = wf_softmax(g, m->logits);
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++)
        h = wf_add(g, h, wf_unary(g, unary[i], h));
    m->loss = wf_add(g, m->loss, wf_sum(g, wf_mul(g, h, h), 3, false));
    wt_train(g, m);
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 2)), *one = wf_fill(g, WF_F32, 0, NULL, 1);
    wf_value *w = wf_accumulate(g, wf_state(g, "w", WF_F32, 2, D(2, 2)), x, NULL);
    wf_value *velocity = wf_state(g, "velocity", WF_F32, 2, D(2, 2));
    w = wf_sgd(g, w, velocity, x, one, NULL, NULL, &(wf_sgd_options){0.9, 0.1, true});
    wf_lion(g, w, wf_state(g, "moment", WF_F32, 2, D(2, 2)), x, one, NULL, NULL, NULL);
    wf_output(g, "paged", paged(g, fused(g, x)));
    wf_output(g, "merged", wt_merged(g, x));
}

/* Returns loss, gradient norm and paged attention after two steps. */
static void two_steps(wf_ctx *ctx, wf_graph *g, const wt_model *m, float out[6])
{
    wt_run r = wt_open(ctx, "cpu:1");
    wt_compile(&r, g);
    wt_ok(ctx, wt_write_params(r.session, m));
    wt_write(&r, "x", (float[]){1, 2, 3, 4}, 16);
    for (int32_t step = 1; step <= 2; step++) {
        wt_ok(ctx, wt_write_inputs(r.exec, &m->size, step));
        wt_ok(ctx, wf_exec_run(r.exec));
    }
    wt_read(&r, "loss", out, 4);
    wt_read(&r, "norm", out + 1, 4);
    wt_read(&r, "paged", out + 2, 16);
    wt_close(&r);
}

/* The expanded model has only core ops and computes the same; fails when a new op is missing
 * here. */
static void test_expansion_leaves_core_ops(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = graph(ctx), *core;
    wt_model m;
    build_everything(g, &m);
    wt_ok(ctx, wf_graph_verify(g));
    wt_ok(ctx, wf_pass_expand(g, NULL, NULL, &core));
    for (int i = 0; i < WF_OP_COUNT; i++) {
        const char *name = wf_op_get((wf_op)i)->name;
        if (!wf_op_is_core((wf_op)i) && count_op(g, (wf_op)i) == 0)
            fail_msg("%s has an expansion but is not in the model", name);
        if (!wf_op_is_core((wf_op)i) && count_op(core, (wf_op)i) > 0)
            fail_msg("%s was not expanded", name);
    }
    /* two dropouts forward and the same two backward, on their streams */
    int uses[2] = {0};
    for (int i = 0; i < core->node_count; i++)
        if (core->nodes[i]->op == WF_OP_uniform)
            uses[((const wf_attr_uniform *)core->nodes[i]->attr)->stream]++;
    assert_int_equal(count_op(g, WF_OP_dropout), 4);
    assert_true(uses[0] == 2 && uses[1] == 2);
    assert_int_equal(core->streams, g->streams);
    assert_int_equal(core->output_count, g->output_count);

    float whole[6], expanded[6];
    two_steps(ctx, g, &m, whole);
    two_steps(ctx, core, &m, expanded);
    for (int i = 0; i < 6; i++)
        if (!(fabsf(whole[i] - expanded[i]) <= 1e-4f * fabsf(whole[i])))
            fail_msg("number %d: %.9g, expanded %.9g", i, whole[i], expanded[i]);
}

static bool is_softmax(const wf_node *n, void *user)
{
    return n->op == *(wf_op *)user;
}

/* The expansion keeps the requested ops, and compiling keeps all ops that the device has. */
static void test_expansion_keeps_what_it_should(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = graph(ctx), *out;
    wf_op kept = WF_OP_softmax;
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 2));
    wf_output(g, "y", wf_softmax(g, wf_unary(g, "silu", x)));
    wt_ok(ctx, wf_pass_expand(g, is_softmax, &kept, &out));
    assert_int_equal(count_op(out, WF_OP_softmax), 1);
    assert_int_equal(count_op(out, WF_OP_silu), 0);
    wf_graph_free(out);
    wt_compile(&r, g);
    wf_op_stats stats[3];
    assert_true(wf_exec_op_stats(r.exec, 0, &stats[0]) && wf_exec_op_stats(r.exec, 1, &stats[1]));
    assert_false(wf_exec_op_stats(r.exec, 2, &stats[2]));
    assert_string_equal(stats[0].op, "silu");
    assert_string_equal(stats[1].op, "softmax");
    wt_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_tied_weights),
        wt_test(test_tied_embedding),
        wt_test(test_diamonds),
        wt_test(test_no_connection_is_zero),
        wt_test(test_second_derivative),
        wt_test(test_gradient_of_a_later_version),
        wt_test(test_gradient_after_an_update),
        wt_test(test_ops_without_gradient),
        wt_test(test_expansion_leaves_core_ops),
        wt_test(test_expansion_keeps_what_it_should),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
