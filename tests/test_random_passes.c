/* SPDX-License-Identifier: MIT */
/*
 * test_random_passes.c - random graphs through every pass alone and through all passes.
 *
 * Each graph runs without passes as the reference, and then with passes, in random legal orders, on
 * the cpu and the check device. Results must be bitwise equal after recompute, schedule and memory,
 * and close after fold and fuse. A failing graph is shrunk to a minimal one.
 *
 * WEFT_RANDOM_GRAPHS=N tries N graphs of each kind instead of the default number.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "graph/pass/order.h"
#include "graph/pass/pass.h"
#include "random_graph.h"
#include "support.h"

#define ALL_PASSES \
    (WF_PASS_FOLD | WF_PASS_FUSE | WF_PASS_RECOMPUTE | WF_PASS_SCHEDULE | WF_PASS_MEMORY)

typedef struct {
    const char *name;
    wf_compile_options options;
    wf_type compute; /* type of the precision pass; 0: not run */
} variant;

static const variant exact[] = {
    {"recompute", {.without = ALL_PASSES & ~WF_PASS_RECOMPUTE, .recompute = 1}, 0},
    {"schedule", {.without = ALL_PASSES & ~WF_PASS_SCHEDULE}, 0},
    {"memory", {.without = ALL_PASSES & ~WF_PASS_MEMORY}, 0},
    {"recompute, schedule, memory", {.without = WF_PASS_FOLD | WF_PASS_FUSE, .recompute = 2}, 0},
};
static const variant close[] = {
    {"fold", {.without = ALL_PASSES & ~WF_PASS_FOLD}, 0},
    {"fuse", {.without = ALL_PASSES & ~WF_PASS_FUSE}, 0},
    {"all passes", {.recompute = 1}, 0},
};
static const variant narrow[] = {
    {"precision bf16", {.without = ALL_PASSES}, WF_BF16},
    {"precision bf16 and all passes", {.recompute = 1}, WF_BF16},
    {"precision f16 and all passes", {0}, WF_F16},
};
#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* Effect of another order of sums: f32 roundoffs, amplified through up to a few hundred nodes. The
 * generator limits the amplification of a graph to about 16 (test_random_graph.c). */
#define CLOSE 2e-5
#define FLOOR 1e-3
#define NARROW 0.1
/*
 * CLOSE * FLOOR is 2e-8, a third of the roundoff u = 6e-8 of a term of size 1. An output whose terms
 * cancel exceeds it: the elements x of a layer norm have sum 0, but rounding them leaves a sum of up
 * to about u * sum |x|. A fixed floor for this would hide errors of all small outputs, and sums of
 * absolute terms, carried through all nodes, would be far too large. So a graph that exceeds the
 * bound runs NUDGED times more without passes, its sources and the result of every node changed by
 * up to 2, 4, 6 or 8 u. An output may differ by four times its largest change there. Each run draws
 * other changes: a single draw can have little effect on an output by chance. Changes of sources
 * alone would not do: a sum minus the same sum is exactly 0 until fold reorders one of them.
 */
enum { NUDGED = 16 };
#define NUDGE 1.2e-7

typedef struct {
    wf_ctx *ctx;
    const variant *variants;
    int count;
    bool bits;
    double close, worst; /* bound, and the largest error seen, relative to it */
    int nudged;          /* graphs whose roundoff was measured */
} passes_case;

static wf_status run_variant(const passes_case *c, const rg_recipe *recipe, const variant *v, int i,
                             rg_results *out)
{
    static const char *const devices[] = {"check", "cpu:2", "cpu:1"};
    wf_graph *g;
    WF_TRY(rg_build(c->ctx, recipe, &g));
    wf_status status = v->compute ? wf_precision(g, v->compute) : WF_OK;
    if (status == WF_OK && recipe->options.nudge != 0)
        status = rg_nudge_nodes(g);
    if (status == WF_OK && i % 2 == 1) /* from another initial order */
        status = wf_order_shuffle(g, recipe->seed + (uint64_t)i);
    if (status == WF_OK)
        status = rg_run(c->ctx, devices[i % LENGTH(devices)], g, recipe, 2, rg_compile,
                        (void *)&v->options, out);
    wf_graph_free(g);
    return status;
}

/* Compares again, with the roundoff of the graph without passes as an allowed difference. */
static wf_status compare_nudged(passes_case *c, const rg_recipe *recipe, const variant *none,
                                const rg_results *got, const rg_results *want, rg_verdict *verdict)
{
    rg_results nudged[NUDGED] = {0};
    wf_status status = WF_OK;
    for (int i = 0; i < NUDGED && status == WF_OK; i++) {
        rg_recipe changed = *recipe;
        changed.options.nudge = NUDGE * (1 + i % 4);
        changed.options.draw = (uint64_t)i;
        status = run_variant(c, &changed, none, 2, &nudged[i]);
    }
    if (status == WF_OK)
        *verdict = rg_compare_nudged(got, want, c->close, FLOOR, nudged, NUDGED);
    for (int i = 0; i < NUDGED; i++)
        rg_results_free(&nudged[i]);
    c->nudged++;
    return status;
}

static bool passes_fail(const rg_recipe *recipe, void *user)
{
    passes_case *c = user;
    const variant none = {"no pass", {.without = ALL_PASSES}, 0};
    rg_results want = {0};
    wf_ctx_clear(c->ctx);
    bool fails = run_variant(c, recipe, &none, 2, &want) != WF_OK;
    for (int i = 0; i < c->count && !fails; i++) {
        rg_results got = {0};
        const variant *v = &c->variants[i];
        int device = (int)((recipe->seed + (uint64_t)i) % 6);
        fails = run_variant(c, recipe, v, device, &got) != WF_OK;
        rg_verdict verdict = {0};
        if (!fails)
            verdict = c->bits ? rg_compare_bits(&got, &want)
                              : rg_compare_close(&got, &want, c->close, FLOOR);
        if (verdict.failed && !c->bits)
            fails = compare_nudged(c, recipe, &none, &got, &want, &verdict) != WF_OK;
        c->worst = verdict.error > c->worst ? verdict.error : c->worst;
        if (verdict.failed) {
            wf_fail(c->ctx, WF_ERR_INTERNAL, "after %s: element %lld of %s is %.9g, not %.9g",
                    v->name, (long long)verdict.index, verdict.name, verdict.got, verdict.wanted);
            fails = true;
        }
        rg_results_free(&got);
    }
    rg_results_free(&want);
    return fails;
}

static int graphs(int usual)
{
    const char *text = getenv("WEFT_RANDOM_GRAPHS");
    return text ? atoi(text) : wt_cases(usual);
}

static void try_graphs(passes_case *c, int count, bool smooth)
{
    size_t nodes = 0;
    for (int i = 0; i < count; i++) {
        uint64_t seed = wt_seed() + (uint64_t)i;
        rg_options options = {.nodes = seed % 16 == 0 ? 300 : 20 + (int)(seed * 7 % 60),
                              .grad = seed % 3 != 0,
                              .smooth = smooth,
                              .only = smooth ? WF_TYPE_BIT(WF_F32) : 0};
        rg_recipe recipe = rg_recipe_make(seed, &options);
        if (passes_fail(&recipe, c))
            rg_report(c->ctx, &recipe, wf_ctx_message(c->ctx), passes_fail, c);
        nodes += (size_t)options.nodes;
    }
    print_message("%d graphs, about %zu nodes, errors up to %.3f of their bound, %d nudged\n",
                  count, nodes, c->worst, c->nudged);
}

static void test_exact_passes(void **state)
{
    passes_case c = {*state, exact, LENGTH(exact), true, 0, 0, 0};
    try_graphs(&c, graphs(1200), false);
}

static void test_close_passes(void **state)
{
    passes_case c = {*state, close, LENGTH(close), false, CLOSE, 0, 0};
    try_graphs(&c, graphs(1200), true);
}

/* Roundoffs of a narrow type can grow without bound through a whole graph when values cancel. A few
 * graphs may therefore be far off here; test_precision.c has bounds for each op and for models. */
static void test_precision(void **state)
{
    passes_case c = {*state, narrow, LENGTH(narrow), false, NARROW, 0, 0};
    int off = 0, count = graphs(400);
    for (int i = 0; i < count; i++) {
        uint64_t seed = wt_seed() + (uint64_t)i;
        rg_options options = {
            .nodes = 20 + (int)(seed * 7 % 60), .smooth = true, .only = WF_TYPE_BIT(WF_F32)};
        rg_recipe recipe = rg_recipe_make(seed, &options);
        off += passes_fail(&recipe, &c);
    }
    print_message("%d of %d graphs are off by more than %g\n", off, count, NARROW);
    assert_true(off <= 2 + count / 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_exact_passes),
        wt_test(test_close_passes),
        wt_test(test_precision),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
