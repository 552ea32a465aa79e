/* SPDX-License-Identifier: MIT */
/*
 * test_random_graph.c - the random graph generator itself: its graphs contain every op, stay
 * finite, are reproducible, remain legal with steps left out, shrink to the failing part, and are
 * smooth on request.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/philox.h"
#include "random_graph.h"
#include "selftest/number.h"
#include "support.h"

static wf_graph *build(wf_ctx *ctx, const rg_recipe *recipe)
{
    wf_graph *g;
    wt_ok(ctx, rg_build(ctx, recipe, &g));
    return g;
}

/* Ops that no step generates. */
static bool is_left_out(wf_op op)
{
    static const wf_op fused[] = {
        WF_OP_residual_rms_norm,        WF_OP_residual_layer_norm, WF_OP_residual_rms_norm_grad,
        WF_OP_residual_layer_norm_grad, WF_OP_linear_act,          WF_OP_matmul_act_grad,
        WF_OP_linear_grad_weight,       WF_OP_head_loss,           WF_OP_adamw_many,
        WF_OP_accumulate_many,          WF_OP_state_copy};
    for (size_t i = 0; i < sizeof fused / sizeof *fused; i++)
        if (op == fused[i])
            return true; /* only passes create these */
    return op == WF_OP_kv_append;
}

static void test_every_op(void **state)
{
    enum { ROUNDS = 400 };
    int seen[WF_OP_COUNT] = {0}, marks[4] = {0}, backward = 0, nodes = 0, steps = 0;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t seed = wt_seed() + round;
        rg_options options = {.nodes = 100, .grad = seed % 2 == 0};
        rg_recipe recipe = rg_recipe_make(seed, &options);
        wf_graph *g = build(*state, &recipe);
        for (int i = 0; i < g->node_count; i++) {
            seen[g->nodes[i]->op]++;
            marks[g->nodes[i]->out[0].marks & 3]++;
            backward += g->nodes[i]->backward;
        }
        nodes += options.grad ? 0 : g->node_count;
        steps += options.grad ? 0 : recipe.step_count;
        wf_graph_free(g);
    }
    for (int op = 0; op < WF_OP_COUNT; op++)
        if ((seen[op] == 0) != is_left_out(op))
            fail_msg("%d graphs have %d nodes of %s", ROUNDS, seen[op], wf_op_get(op)->name);
    print_message("%.2f nodes a step, and %d backward nodes\n", (double)nodes / steps, backward);
    assert_true(backward > 20 * ROUNDS / 2 && marks[WF_MARK_BLOCK] > 100 &&
                marks[WF_MARK_RECOMPUTE] > 100);
    assert_true(nodes > 0.8 * 100 * ROUNDS / 2 && nodes < 1.2 * 100 * ROUNDS / 2);
}

/* Graphs are legal with any steps left out, and equal each time. */
static void test_thinned(void **state)
{
    for (uint64_t round = 0; round < 200; round++) {
        uint64_t seed = wt_seed() + round;
        rg_options options = {.nodes = 150, .grad = true, .smooth = seed % 2 == 0};
        rg_recipe recipe = rg_recipe_make(seed, &options);
        wf_rng rng;
        wf_rng_init(&rng, seed, UINT64_MAX);
        uint64_t share = 1 + wf_rng_below(&rng, 10);
        for (int i = 0; i < recipe.step_count; i++)
            recipe.off[i] = wf_rng_below(&rng, 10) < share;
        wf_graph *g = build(*state, &recipe), *same = build(*state, &recipe);
        assert_int_equal(g->node_count, same->node_count);
        for (int i = 0; i < g->node_count; i++)
            assert_true(g->nodes[i]->op == same->nodes[i]->op &&
                        wf_dims_equal(&g->nodes[i]->out[0].shape, &same->nodes[i]->out[0].shape));
        wf_graph_free(g);
        wf_graph_free(same);
    }
}

static bool is_finite(const rg_results *r, const char **name)
{
    for (int i = 0; i < r->count; i++) {
        const rg_item *item = &r->item[i];
        for (int64_t k = 0; k < item->count; k++)
            if (!isfinite(wf_number_load(item->type, r->data + item->offset, k))) {
                *name = item->name;
                return false;
            }
    }
    return true;
}

typedef struct {
    wf_ctx *ctx;
    bool infinite; /* whether the last case ran with non-finite values */
} finite_case;

static bool is_not_finite(const rg_recipe *recipe, void *user)
{
    finite_case *c = user;
    rg_results results = {0};
    wf_graph *g;
    const char *name;
    bool ok = rg_build(c->ctx, recipe, &g) == WF_OK &&
              rg_run(c->ctx, "cpu:1", g, recipe, 3, rg_compile, NULL, &results) == WF_OK;
    c->infinite = ok && !is_finite(&results, &name);
    rg_results_free(&results);
    wf_graph_free(g);
    return !ok || c->infinite;
}

static void test_finite(void **state)
{
    finite_case c = {*state, false};
    for (uint64_t round = 0; round < 150; round++) {
        uint64_t seed = wt_seed() + round;
        rg_options options = {
            .nodes = 150, .grad = seed % 3 > 0, .smooth = seed % 2 == 0, .all = seed % 5 == 0};
        rg_recipe recipe = rg_recipe_make(seed, &options);
        if (is_not_finite(&recipe, &c))
            rg_report(*state, &recipe, "a graph does not run, or not with finite numbers",
                      is_not_finite, &c);
    }
}

/* ---- Smooth graphs ---- */

/* The largest change of a result, relative to its largest magnitude or 1, when f32 sources change
 * by 1e-6. */
static double response(wf_ctx *ctx, rg_recipe *recipe)
{
    rg_results results[2];
    for (int i = 0; i < 2; i++) {
        recipe->options.nudge = i * 1e-6;
        wf_graph *g = build(ctx, recipe);
        wt_ok(ctx, rg_run(ctx, "cpu:1", g, recipe, 2, rg_compile, NULL, &results[i]));
        wf_graph_free(g);
    }
    rg_verdict v = rg_compare_close(&results[1], &results[0], 1e-6, 1);
    rg_results_free(&results[0]);
    rg_results_free(&results[1]);
    return v.error;
}

static bool is_rough(const rg_recipe *recipe, void *user)
{
    rg_recipe copy = *recipe;
    return response(user, &copy) > 300;
}

static void test_smooth(void **state)
{
    double worst = 0, sum = 0;
    for (uint64_t round = 0; round < 100; round++) {
        uint64_t seed = wt_seed() + round;
        rg_options options = {
            .nodes = 150, .grad = seed % 2 == 0, .smooth = true, .only = WF_TYPE_BIT(WF_F32)};
        rg_recipe recipe = rg_recipe_make(seed, &options);
        double r = response(*state, &recipe);
        if (r > 300)
            rg_report(*state, &recipe, "a smooth graph is not", is_rough, *state);
        worst = r > worst ? r : worst;
        sum += r;
    }
    print_message("results move %.1f times as far as sources on average, %.0f at worst\n",
                  sum / 100, worst);
}

/* ---- Shrinking ---- */

static int count_ops(const wf_graph *g, wf_op op)
{
    int n = 0;
    for (int i = 0; i < g->node_count; i++)
        n += g->nodes[i]->op == op;
    return n;
}

/* A case "fails" when its graph contains both ops. */
typedef struct {
    wf_ctx *ctx;
    wf_op a, b;
} pair;

static bool has_pair(const rg_recipe *recipe, void *user)
{
    const pair *p = user;
    wf_graph *g = build(p->ctx, recipe);
    bool both = count_ops(g, p->a) > 0 && count_ops(g, p->b) > 0;
    wf_graph_free(g);
    return both;
}

static int steps_left(const rg_recipe *recipe)
{
    int n = 0;
    for (int i = 0; i < recipe->step_count; i++)
        n += !recipe->off[i];
    return n;
}

static void test_shrink(void **state)
{
    static const wf_op pairs[][2] = {{WF_OP_scatter_add_rows, WF_OP_softmax},
                                     {WF_OP_attention, WF_OP_assign},
                                     {WF_OP_adamw, WF_OP_slice},
                                     {WF_OP_attention_grad, WF_OP_glu}};
    int shrunk[4] = {0}, steps[4] = {0}, nodes = 0, tries = 0, count = 0;
    for (uint64_t round = 0; round < 60; round++) {
        uint64_t seed = wt_seed() + round;
        int kind = (int)(seed % 4);
        pair p = {*state, pairs[kind][0], pairs[kind][1]};
        rg_options options = {.nodes = 300, .grad = kind == 3};
        rg_recipe recipe = rg_recipe_make(seed, &options);
        if (!has_pair(&recipe, &p))
            continue;
        tries += rg_shrink(&recipe, has_pair, &p);
        assert_true(has_pair(&recipe, &p));
        for (int i = 0; i < recipe.step_count; i++) /* every remaining step is needed */
            if (!recipe.off[i]) {
                recipe.off[i] = true;
                assert_false(has_pair(&recipe, &p));
                recipe.off[i] = false;
            }
        wf_graph *g = build(*state, &recipe);
        steps[kind] += steps_left(&recipe);
        for (int i = 0; i < recipe.step_count; i++)
            assert_true(recipe.quiet[i] || recipe.off[i]);
        nodes += g->node_count;
        shrunk[kind]++;
        count++;
        wf_graph_free(g);
    }
    for (int i = 0; i < 4; i++)
        print_message("%s and %s: %d graphs, %d steps left\n", wf_op_get(pairs[i][0])->name,
                      wf_op_get(pairs[i][1])->name, shrunk[i], steps[i]);
    assert_true(shrunk[0] > 0 && shrunk[1] > 0 && shrunk[2] > 0);
    assert_true(steps[0] <= 2.5 * shrunk[0] && steps[1] <= 2.5 * shrunk[1]);
    print_message("%d graphs of 300 nodes shrank to %.1f nodes in %.0f tries\n", count,
                  (double)nodes / count, (double)tries / count);
    assert_true((double)nodes / count < 60 && (double)tries / count < 250);
}

/* A numeric failure found by running: one output is wrong, and shrinking leaves only its step and
 * that step's operands. */
typedef struct {
    wf_ctx *ctx;
    char name[32];
} wrong_case;

static bool has_wrong_output(const rg_recipe *recipe, void *user)
{
    wrong_case *c = user;
    rg_results good = {0}, bad = {0};
    wf_graph *g = build(c->ctx, recipe);
    wt_ok(c->ctx, rg_run(c->ctx, "cpu:1", g, recipe, 1, rg_compile, NULL, &good));
    wt_ok(c->ctx, rg_run(c->ctx, "cpu:1", g, recipe, 1, rg_compile, NULL, &bad));
    wf_graph_free(g);
    assert_false(rg_compare_bits(&bad, &good).failed);
    assert_false(rg_compare_close(&bad, &good, 1e-6, 1).failed);
    const rg_item *item = rg_find(&bad, c->name, false);
    bool found = item && item->bytes > 0;
    if (found) {
        bad.data[item->offset + item->bytes - 1] ^= 0x40; /* an exponent bit of the last element */
        rg_verdict bits = rg_compare_bits(&bad, &good);
        rg_verdict close = rg_compare_close(&bad, &good, 1e-3, 0.01);
        assert_true(bits.failed && close.failed);
        assert_string_equal(bits.name, c->name);
        assert_int_equal(close.index, item->count - 1);
    }
    rg_results_free(&good);
    rg_results_free(&bad);
    return found;
}

static void test_shrink_runs(void **state)
{
    int steps = 0, count = 0;
    for (uint64_t round = 0; round < 10; round++) {
        wrong_case c = {.ctx = *state};
        rg_recipe recipe = rg_recipe_make(wt_seed() + round, &(rg_options){.nodes = 100});
        wf_graph *g = build(*state, &recipe);
        int step = -1;
        for (int i = g->output_count - 1; i >= 0 && step < 0; i--)
            if (wf_value_count(g->outputs[i].value) > 0 &&
                sscanf(g->outputs[i].name, "s%d.", &step) == 1)
                snprintf(c.name, sizeof c.name, "%s", g->outputs[i].name);
        wf_graph_free(g);
        if (step < 0)
            continue;
        assert_true(has_wrong_output(&recipe, &c));
        rg_shrink(&recipe, has_wrong_output, &c);
        assert_true(!recipe.off[step] && !recipe.quiet[step]);
        assert_true(steps_left(&recipe) <= 10);
        steps += steps_left(&recipe);
        count++;
    }
    assert_true(steps <= 4 * count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_every_op), wt_test(test_thinned), wt_test(test_finite),
        wt_test(test_smooth),   wt_test(test_shrink),  wt_test(test_shrink_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
