/* SPDX-License-Identifier: MIT */
/*
 * test_lower.c - graphs as StableHLO text. test_pjrt.c runs the text with a plugin; this file
 * checks properties that need no plugin.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "graph/lower/stablehlo.h"
#include "support.h"

static wf_graph *new_graph(wf_ctx *ctx)
{
    wf_graph *g;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    return g;
}

static wf_hlo_program lower(wf_graph *g)
{
    wf_hlo_program p;
    wt_ok(g->ctx, wf_graph_status(g));
    wt_ok(g->ctx, wf_lower_stablehlo(g, &p));
    assert_int_equal(strlen(p.text), p.bytes);
    return p;
}

static void contains(const wf_hlo_program *p, const char *part)
{
    if (!strstr(p->text, part))
        fail_msg("\"%s\" is not in:\n%s", part, p->text);
}

static void lacks(const wf_hlo_program *p, const char *part)
{
    if (strstr(p->text, part))
        fail_msg("\"%s\" is in:\n%s", part, p->text);
}

/* Every core op except the sources can be lowered; the others expand into core ops. */
static void test_table(void **state)
{
    (void)state;
    for (int op = 0; op < WF_OP_COUNT; op++) {
        bool source = (wf_op_get((wf_op)op)->flags & WF_FLAG_SOURCE) != 0;
        if (wf_op_is_core((wf_op)op) && wf_stablehlo_has((wf_op)op) == source)
            fail_msg("%s", wf_op_get((wf_op)op)->name);
    }
}

/* Arguments are states, then inputs. Results are outputs, then changed states, each in graph
 * order. */
static void test_signature(void **state)
{
    wf_graph *g = new_graph(*state);
    int64_t n = 2;
    wf_value *x = wf_input(g, "x", WF_F32, 1, &n), *a = wf_state(g, "a", WF_F32, 1, &n);
    wf_value *b = wf_state(g, "b", WF_BF16, 1, &n), *apply = wf_input(g, "apply", WF_U8, 0, NULL);
    wf_output(g, "old", a);
    wf_assign(g, b, x, apply);
    wf_value *next = wf_assign(g, a, wf_binary(g, "add", a, x), NULL);
    wf_assign(g, next, wf_scale(g, next, 2), NULL);
    wf_output(g, "sum", wf_binary(g, "add", x, x));
    wf_hlo_program p = lower(g);
    static const char *const args[] = {"a", "b", "x", "apply"};
    assert_int_equal(p.arg_count, 4);
    for (int i = 0; i < 4; i++)
        assert_string_equal(p.args[i].source->name, args[i]);
    assert_int_equal(p.result_count, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(p.results[i].output, i < 2 ? i : -1);
    assert_string_equal(p.results[2].source->name, "a");
    assert_int_equal(p.results[2].value->version, 2);
    assert_string_equal(p.results[3].source->name, "b");
    contains(&p, "@main(%0: tensor<2xf32> {tf.aliasing_output = 2 : i32}, "
                 "%1: tensor<2xbf16> {tf.aliasing_output = 3 : i32}, %2: tensor<2xf32>, "
                 "%3: tensor<ui8>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>, "
                 "tensor<2xbf16>)");
    wf_hlo_program_free(&p);
    wf_graph_free(g);
}

/* Empty values are neither arguments nor results, and dead nodes are left out. */
static void test_left_out(void **state)
{
    wf_graph *g = new_graph(*state);
    wf_value *x = wf_input(g, "x", WF_F32, 1, (int64_t[]){3});
    wf_value *unused = wf_input(g, "unused", WF_F32, 1, (int64_t[]){3});
    wf_value *empty = wf_input(g, "empty", WF_F32, 2, (int64_t[]){0, 3});
    wf_unary(g, "exp", unused);
    wf_output(g, "empty", wf_unary(g, "tanh", empty));
    wf_output(g, "sums", wf_binary(g, "add", x, wf_reduce(g, "sum", empty, 1, false)));
    wf_hlo_program p = lower(g);
    assert_int_equal(p.arg_count, 1);
    assert_string_equal(p.args[0].source->name, "x");
    assert_int_equal(p.result_count, 1);
    contains(&p, "value = dense<> : tensor<0x3xf32>");
    lacks(&p, "exponential");
    lacks(&p, "tanh");
    wf_hlo_program_free(&p);
    wf_graph_free(g);
}

/* Constants are exact: floats are written as bits, and integers saturate. */
static void test_constants(void **state)
{
    static const struct {
        wf_type type;
        double value;
        const char *text;
    } cases[] = {
        {WF_F32, 1, "dense<0x3F800000> : tensor<2xf32>"},
        {WF_F32, -INFINITY, "dense<0xFF800000> : tensor<2xf32>"},
        {WF_F16, 65504, "dense<0x7BFF> : tensor<2xf16>"},
        {WF_BF16, -2, "dense<0xC000> : tensor<2xbf16>"},
        {WF_E4M3, 448, "dense<0x7E> : tensor<2xf8E4M3FN>"},
        {WF_E5M2, 1, "dense<0x3C> : tensor<2xf8E5M2>"},
        {WF_I32, -3e10, "dense<-2147483648> : tensor<2xi32>"},
        {WF_I8, -1.9, "dense<-1> : tensor<2xi8>"},
        {WF_U8, 300, "dense<255> : tensor<2xui8>"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        wf_graph *g = new_graph(*state);
        wf_output(g, "y", wf_fill(g, cases[i].type, 1, (int64_t[]){2}, cases[i].value));
        wf_hlo_program p = lower(g);
        contains(&p, cases[i].text);
        wf_hlo_program_free(&p);
        wf_graph_free(g);
    }
}

/* Ops that need expansion and quantized operands are refused. */
static void test_refuses(void **state)
{
    wf_hlo_program p;
    wf_graph *g = new_graph(*state);
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){1, 32});
    wf_output(g, "y", wf_unary(g, "gelu", x));
    wt_fails(*state, wf_lower_stablehlo(g, &p), WF_ERR_UNSUPPORTED, "gelu(f32[1,32]");
    assert_null(p.text);
    wf_graph_free(g);
    g = new_graph(*state);
    x = wf_input(g, "x", WF_F32, 2, (int64_t[]){1, 32});
    wf_value *w = wf_input(g, "w", WF_Q8_0, 2, (int64_t[]){1, 32});
    wf_output(g, "y", wf_matmul(g, x, w, false, true));
    wt_ok(*state, wf_graph_status(g));
    /* A quantized operand is lowered as f32: the device decodes its blocks on the way in. */
    wt_ok(*state, wf_lower_stablehlo(g, &p));
    assert_non_null(strstr(p.text, "tensor<1x32xf32>"));
    assert_null(strstr(p.text, "q8_0"));
    wf_hlo_program_free(&p);
    wf_graph_free(g);
}

/* Fails each allocation while lowering a training step. Lowering twice gives the same text. */
static void test_no_memory(void **state)
{
    wf_graph *g = new_graph(*state), *core;
    wf_hlo_program p, again;
    wt_model m;
    wt_forward(g, &wt_tiny, &m);
    wt_train(g, &m);
    wt_ok(*state, wf_pass_expand(g, NULL, NULL, &core));
    uint64_t live = wt_live_blocks(*state);
    int n = 0;
    wf_status status;
    do {
        wf_ctx_fail_allocation(*state, (uint64_t)++n);
        status = wf_lower_stablehlo(core, &p);
        wf_ctx_fail_allocation(*state, 0);
        if (status != WF_OK) {
            assert_int_equal(status, WF_ERR_MEMORY);
            assert_int_equal(wt_live_blocks(*state), live);
        }
    } while (status != WF_OK);
    assert_true(n > 4);
    wt_ok(*state, wf_lower_stablehlo(core, &again));
    assert_string_equal(p.text, again.text);
    wf_hlo_program_free(&again);
    wf_hlo_program_free(&p);
    wf_graph_free(core);
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_table),     wt_test(test_signature), wt_test(test_left_out),
        wt_test(test_constants), wt_test(test_refuses),   wt_test(test_no_memory),
    };
    return cmocka_run_group_tests_name("lower", tests, NULL, NULL);
}
