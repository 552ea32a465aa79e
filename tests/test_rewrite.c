/* SPDX-License-Identifier: MIT */
/* test_rewrite.c - the tools that passes use: lists of uses, rewriting in place, pruning,
 * reordering. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "graph/build.h"
#include "graph/pass/pass.h"
#include "graph/pass/rewrite.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

static wf_value *input(wf_graph *g, const char *name)
{
    return wf_input(g, name, WF_F32, 1, D(4));
}

/* Compares the ops in order, written as "input neg add". */
static void expect_ops(const wf_graph *g, const char *wanted)
{
    char text[512] = "";
    for (int i = 0; i < g->node_count; i++) {
        assert_int_equal(g->nodes[i]->id, i);
        strcat(strcat(text, i ? " " : ""), wf_node_def(g->nodes[i])->name);
    }
    assert_string_equal(text, wanted);
}

/* ---- Uses ---- */

static void test_uses(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = input(g, "x"), *n = wf_neg(g, x), *y = wf_mul(g, n, n), *t = wf_top_k(g, y, 2);
    wf_value *index = wf_value_output(t, 1), *z = wf_add(g, t, t);
    wt_ok(*state, wf_output(g, "z", z));
    wt_ok(*state, wf_output(g, "again", z));
    wt_ok(*state, wf_output(g, "n", n));
    wf_uses u;
    wt_ok(*state, wf_uses_new(g, &u));

    assert_int_equal(wf_uses_count(&u, x), 1);
    assert_ptr_equal(wf_uses_of(&u, x)->node, n->node);
    assert_false(wf_uses_is_output(&u, x));
    assert_int_equal(wf_uses_count(&u, n), 3); /* twice by mul, once as an output */
    assert_true(wf_uses_is_output(&u, n));
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(wf_uses_of(&u, n)[i].node, y->node);
        assert_int_equal(wf_uses_of(&u, n)[i].operand, i);
    }
    assert_int_equal(wf_uses_of(&u, n)[2].operand, 2); /* the index of the output */
    assert_int_equal(wf_uses_count(&u, t), 2);
    assert_int_equal(wf_uses_count(&u, index), 0);
    assert_false(wf_uses_is_output(&u, index));
    assert_int_equal(wf_uses_count(&u, z), 2);
    wf_uses_free(&u);

    wf_graph *empty = wt_graph(*state);
    wt_ok(*state, wf_uses_new(empty, &u));
    wf_uses_free(&u);
    wf_graph_free(empty);
    wf_graph_free(g);
}

/* ---- Rewriting ---- */

static void test_places(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = input(g, "x"), *a = wf_exp(g, x), *b = wf_log(g, a), *c = wf_sin(g, b);
    wt_ok(*state, wf_output(g, "c", c));
    wf_rewrite r;
    wt_ok(*state, wf_rewrite_begin(g, &r));
    wf_cos(g, c); /* no place was set: at the end */
    wf_rewrite_before(&r, c->node);
    wf_value *late = wf_neg(g, b);
    wf_rewrite_before(&r, b->node); /* nothing is inserted here */
    wf_rewrite_before(&r, a->node);
    wf_value *early = wf_sqrt(g, x);
    wf_rewrite_before(&r, c->node);
    wf_value *later = wf_add(g, late, early);
    wf_rewrite_before(&r, NULL);
    wf_tanh(g, c);
    assert_int_equal(r.changes, 0);
    wt_ok(*state, wf_rewrite_end(&r, WF_OK));
    (void)later;
    expect_ops(g, "input sqrt exp log neg add sin cos tanh");
    wt_ok(*state, wf_graph_verify(g));
    wf_graph_free(g);
}

static void test_replace_chain(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = input(g, "x"), *a = wf_exp(g, x), *b = wf_log(g, a), *c = wf_sin(g, b);
    wf_value *y = wf_add(g, c, b);
    wt_ok(*state, wf_output(g, "c", c));
    wt_ok(*state, wf_output(g, "y", y));
    wf_block(g, b);
    wf_recompute(g, c);
    wf_rewrite r;
    wt_ok(*state, wf_rewrite_begin(g, &r));
    wf_rewrite_before(&r, b->node);
    wf_value *fresh = wf_neg(g, a);
    wf_rewrite_replace(&r, b, fresh); /* c reads b, so c and its readers read fresh */
    wf_rewrite_replace(&r, c, b);
    assert_ptr_equal(wf_rewrite_now(&r, c), fresh);
    assert_ptr_equal(wf_rewrite_now(&r, x), x);
    assert_ptr_equal(wf_rewrite_now(&r, fresh), fresh);
    assert_null(wf_rewrite_now(&r, NULL));
    wf_rewrite_before(&r, y->node);
    wf_value *reader = wf_cos(g, c); /* added later, and still redirected */
    wf_rewrite_replace(&r, y, NULL); /* a builder failed: the graph holds the error */
    assert_int_equal(r.changes, 2);
    wt_ok(*state, wf_rewrite_end(&r, WF_OK));

    expect_ops(g, "input exp neg log sin cos add");
    assert_ptr_equal(y->node->in[0], fresh);
    assert_ptr_equal(y->node->in[1], fresh);
    assert_ptr_equal(reader->node->in[0], fresh);
    assert_ptr_equal(c->node->in[0], fresh);
    assert_ptr_equal(g->outputs[0].value, fresh);
    assert_ptr_equal(g->outputs[1].value, y);
    assert_int_equal(b->marks, WF_MARK_BLOCK);
    /* Marks of b and, through b, of c. */
    assert_int_equal(fresh->marks, WF_MARK_BLOCK | WF_MARK_RECOMPUTE);
    assert_true(wf_graph_has(g, b) && wf_graph_has(g, c)); /* handles stay valid */
    wt_ok(*state, wf_graph_verify(g));
    wf_graph_free(g);
}

static void test_drop(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = input(g, "x"), *a = wf_exp(g, x), *b = wf_log(g, a);
    wt_ok(*state, wf_output(g, "b", b));
    wf_rewrite r;
    wt_ok(*state, wf_rewrite_begin(g, &r));
    wf_rewrite_before(&r, b->node);
    wf_rewrite_replace(&r, b, wf_neg(g, x));
    wf_rewrite_drop(&r, b->node);
    wf_rewrite_drop(&r, a->node);
    assert_int_equal(r.changes, 3);
    wt_ok(*state, wf_rewrite_end(&r, WF_OK));
    expect_ops(g, "input neg");
    wt_ok(*state, wf_graph_verify(g));
    wf_graph_free(g);
}

/* More spans than the initial capacity. */
static void test_many_places(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = input(g, "x"), *v = x;
    for (int i = 0; i < 100; i++)
        v = wf_neg(g, v);
    wt_ok(*state, wf_output(g, "v", v));
    wf_rewrite r;
    wt_ok(*state, wf_rewrite_begin(g, &r));
    for (int i = r.count - 1; i > 0; i--) {
        wf_node *n = g->nodes[i];
        wf_rewrite_before(&r, n);
        wf_rewrite_replace(&r, &n->out[0], wf_exp(g, n->in[0]));
    }
    wt_ok(*state, wf_rewrite_end(&r, WF_OK));
    wt_ok(*state, wf_graph_verify(g));
    assert_int_equal(g->node_count, 201);
    for (int i = 1; i <= 100; i++) {
        assert_int_equal(g->nodes[2 * i - 1]->op, WF_OP_exp);
        assert_int_equal(g->nodes[2 * i]->op, WF_OP_neg);
    }
    int dropped;
    wt_ok(*state, wf_graph_prune(g, &dropped));
    assert_int_equal(dropped, 100);
    wt_ok(*state, wf_graph_verify(g));
    wf_graph_free(g);
}

static void test_failed_rewrite(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = input(g, "x");
    wf_rewrite r;
    wt_ok(*state, wf_rewrite_begin(g, &r));
    assert_null(wf_add(g, x, wf_input(g, "y", WF_F32, 1, D(3))));
    wt_fails(*state, wf_rewrite_end(&r, WF_OK), WF_ERR_USAGE, "must be equal or 1");
    assert_int_equal(wf_graph_status(g), WF_ERR_USAGE);
    wf_graph_free(g);
}

/* ---- Prune, reorder, copy ---- */

static void test_prune(void **state)
{
    wf_graph *g = wt_graph(*state);
    wf_value *x = input(g, "x"), *s = wf_state(g, "s", WF_F32, 1, D(4));
    wf_value *a = wf_exp(g, x), *unread = wf_log(g, a);
    wf_input(g, "unused", WF_F32, 0, NULL);
    wf_value *t = wf_top_k(g, x, 4);
    wf_accumulate(g, s, a, NULL); /* an update is kept, and so are its operands */
    wt_ok(*state, wf_output(g, "index", wf_value_output(t, 1)));
    wf_neg(g, unread);
    int dropped;
    wt_ok(*state, wf_graph_prune(g, &dropped));
    assert_int_equal(dropped, 2);
    expect_ops(g, "input state exp input top_k accumulate");
    wt_ok(*state, wf_graph_prune(g, &dropped));
    assert_int_equal(dropped, 0);
    wt_ok(*state, wf_graph_verify(g));
    wf_graph_free(g);
}

static void test_reorder(void **state)
{
    wf_graph *g = wt_graph(*state), *copy;
    wf_value *x = input(g, "x"), *a = wf_exp(g, x), *b = wf_log(g, x);
    wt_ok(*state, wf_output(g, "y", wf_add(g, a, b)));
    wt_ok(*state, wf_graph_copy(g, &copy));
    wt_ok(*state, wf_graph_reorder(g, (int[]){0, 2, 1, 3}));
    expect_ops(g, "input log exp add");
    expect_ops(copy, "input exp log add");
    wt_ok(*state, wf_graph_verify(g));
    wt_ok(*state, wf_graph_reorder(g, (int[]){1, 0, 2, 3}));
    wt_fails(*state, wf_graph_verify(g), WF_ERR_GRAPH, "wrong-order");
    wf_graph_free(g);
    wf_graph_free(copy);
}

/* ---- Reports ---- */

static void test_report(void **state)
{
    (void)state;
    wf_report report = {0};
    wf_report_add(NULL, "fold", "copy", 1);
    wf_report_add(&report, "fold", "copy", 1);
    wf_report_add(&report, "fuse", "copy", 5);
    wf_report_add(&report, "fold", "copy", 2);
    assert_int_equal(wf_report_get(&report, "fold", "copy"), 3);
    assert_int_equal(wf_report_get(&report, "fuse", "copy"), 5);
    assert_int_equal(wf_report_get(&report, "fold", "silu"), 0);
    assert_int_equal(report.count, 2);
    assert_string_equal(wf_pass_get(0)->name, "fold");
    assert_null(wf_pass_get(-1));
    assert_null(wf_pass_get(100));
}

/* ---- Allocation failures ---- */

static wf_status rewrite_some(wf_graph *g)
{
    wf_rewrite r;
    int dropped;
    WF_TRY(wf_rewrite_begin(g, &r));
    for (int i = 1; i < r.count; i++) {
        wf_rewrite_before(&r, g->nodes[i]);
        wf_rewrite_replace(&r, &g->nodes[i]->out[0], wf_exp(g, g->nodes[i]->in[0]));
    }
    WF_TRY(wf_rewrite_end(&r, WF_OK));
    return wf_graph_prune(g, &dropped);
}

static void test_faults(void **state)
{
    wf_ctx *ctx = *state;
    bool reached = true;
    int failures = 0;
    for (uint64_t nth = 1; reached; nth++) {
        wf_graph *g = wt_graph(ctx);
        wf_value *v = input(g, "x");
        for (int i = 0; i < 40; i++)
            v = wf_neg(g, v);
        wt_ok(ctx, wf_output(g, "v", v));
        uint64_t blocks = wt_live_blocks(ctx);
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = rewrite_some(g);
        reached = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        if (reached) {
            failures++;
            wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
            assert_true(wt_live_blocks(ctx) <= blocks + 1); /* a chunk of the arena */
        } else {
            wt_ok(ctx, status);
            assert_int_equal(g->node_count, 41);
        }
        wf_graph_free(g);
    }
    assert_true(failures >= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_uses),   wt_test(test_places),      wt_test(test_replace_chain),
        wt_test(test_drop),   wt_test(test_many_places), wt_test(test_failed_rewrite),
        wt_test(test_prune),  wt_test(test_reorder),     wt_test(test_report),
        wt_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
