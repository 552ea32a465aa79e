/* SPDX-License-Identifier: MIT */
/*
 * test_check.c - the check device. Its execution orders are legal, varied and reproducible, its
 * results match the cpu in any order, and it refuses broken plans.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/check/check.h"
#include "graph/build.h"
#include "selftest/selftest.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

static wf_plan_exec *plan_of(const wt_run *r)
{
    return (wf_plan_exec *)r->exec;
}

static wf_check *check_of(const wt_run *r)
{
    return plan_of(r)->own;
}

static wt_run open_check(wf_ctx *ctx, uint64_t seed)
{
    char spec[64];
    snprintf(spec, sizeof spec, "check:%llu,2", (unsigned long long)seed);
    return wt_open(ctx, spec);
}

static void compile_training(wt_run *r, const wt_sizes *sizes, uint32_t without, wt_model *m)
{
    wf_graph *g = wt_graph(r->ctx);
    wt_forward(g, sizes, m);
    wt_train(g, m);
    wt_ok(r->ctx,
          wf_compile_with(r->session, g, &(wf_compile_options){.without = without}, &r->exec));
    wf_graph_free(g);
    wt_ok(r->ctx, wt_write_params(r->session, m));
}

/* ---- Same bits ---- */

static void expect_same_states(const wt_run *a, const wt_run *b, int step)
{
    wf_info info;
    for (int i = 0; wf_session_state(a->session, i, &info); i++) {
        void *of_a = malloc(info.bytes), *of_b = malloc(info.bytes);
        wt_ok(a->ctx, wf_session_read(a->session, info.name, of_a, info.bytes));
        wt_ok(b->ctx, wf_session_read(b->session, info.name, of_b, info.bytes));
        if (memcmp(of_a, of_b, info.bytes) != 0)
            fail_msg("state '%s' differs after step %d", info.name, step);
        free(of_a);
        free(of_b);
    }
}

static uint64_t order_hash(const wf_check *c)
{
    uint64_t h = 0;
    for (int i = 0; i < c->graph.steps; i++)
        h = (h ^ (uint64_t)c->order[i]) * UINT64_C(0x9E3779B97F4A7C15) ^ h >> 31;
    return h;
}

/* Returns the number of distinct values. */
static int distinct(const uint64_t *from, int n)
{
    int count = 0;
    for (int i = 0; i < n; i++) {
        bool seen = false;
        for (int k = 0; k < i; k++)
            seen |= from[k] == from[i];
        count += !seen;
    }
    return count;
}

/* Trains on both devices and compares bits. Returns the number of distinct orders. */
static int train_on_both(wf_ctx *ctx, const wt_sizes *sizes, int steps, uint32_t without)
{
    wt_run cpu = wt_open(ctx, "cpu:1"), check = open_check(ctx, wt_seed());
    wt_model m;
    uint64_t orders[64];
    assert_true(steps <= 64);
    compile_training(&cpu, sizes, 0, &m);
    compile_training(&check, sizes, without, &m);
    for (int step = 1; step <= steps; step++) {
        float result[2][2];
        wt_run *runs[] = {&cpu, &check};
        for (int i = 0; i < 2; i++) {
            wt_ok(ctx, wt_write_inputs(runs[i]->exec, sizes, step));
            wt_run_once(runs[i]);
            wt_read(runs[i], "loss", &result[i][0], sizeof(float));
            wt_read(runs[i], "norm", &result[i][1], sizeof(float));
        }
        assert_true(isfinite(result[0][0]) && isfinite(result[0][1]));
        assert_memory_equal(result[0], result[1], sizeof result[0]);
        expect_same_states(&cpu, &check, step);
        orders[step - 1] = order_hash(check_of(&check));
    }
    wf_run_stats stats;
    wf_exec_stats(check.exec, &stats);
    assert_int_equal(stats.allocations, 0);
    int different = distinct(orders, steps);
    print_message("%d training steps of %d launches: %d different orders, region of %zu bytes\n",
                  steps, check_of(&check)->graph.steps, different,
                  plan_of(&check)->plan->memory.activations);
    wt_close(&cpu);
    wt_close(&check);
    return different;
}

/* Any legal order has the bits of the cpu. Without memory reuse, every step draws another order. */
static void test_training_has_the_bits_of_the_cpu(void **state)
{
    /* memory reuse leaves little choice */
    assert_true(train_on_both(*state, &wt_tiny, 50, 0) > 25);
    assert_int_equal(train_on_both(*state, &wt_tiny, 50, WF_PASS_MEMORY), 50);
}

/* A model so large that the device keeps no copy of the region. */
static void test_large_training(void **state)
{
    const wt_sizes large = {.tokens = 200,
                            .vocab = 500,
                            .width = 64,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_dim = 16,
                            .hidden = 96};
    train_on_both(*state, &large, 2, 0);
    wt_run r = open_check(*state, wt_seed());
    wt_model m;
    compile_training(&r, &large, 0, &m);
    assert_true(plan_of(&r)->plan->memory.activations >= WF_CHECK_SMALL);
    assert_null(check_of(&r)->region_copy);
    assert_non_null(check_of(&r)->ports_copy);
    wt_close(&r);
}

/* The plan's bytes equal the allocated bytes, guards included. */
static void test_memory_is_planned(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = open_check(ctx, 1);
    wf_graph *g = wt_graph(ctx);
    wt_model m;
    wt_forward(g, &wt_tiny, &m);
    wt_train(g, &m);
    wf_memory planned;
    size_t bytes, peak;
    wt_ok(ctx, wf_plan_memory(r.device, g, NULL, &planned));
    wt_compile(&r, g);
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(bytes, planned.states + planned.ports + planned.activations);
    assert_int_equal(peak, bytes);
    wt_close(&r);
}

/* Two executables share a session's region, and compiling the second moves it. */
static void test_a_shared_region(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = open_check(ctx, wt_seed());
    wt_model m;
    wf_graph *g = wt_graph(ctx);
    wt_forward(g, &wt_tiny, &m);
    wf_exec *forward;
    wt_ok(ctx, wf_compile(r.session, g, &forward));
    wt_ok(ctx, wt_write_params(r.session, &m));
    wt_ok(ctx, wt_write_inputs(forward, &wt_tiny, 0));
    wt_ok(ctx, wf_exec_run(forward));
    wt_train(g, &m);
    wt_compile(&r, g);
    wt_ok(ctx, wt_write_inputs(r.exec, &wt_tiny, 1));
    for (int i = 0; i < 5; i++) {
        float before, after;
        wt_ok(ctx, wf_exec_run(forward));
        wt_run_once(&r);
        wt_ok(ctx, wf_exec_read(forward, "loss", &before, sizeof before));
        wt_read(&r, "loss", &after, sizeof after);
        assert_true(isfinite(before) && isfinite(after));
    }
    wf_exec_free(forward);
    wt_close(&r);
}

static void print_failure(void *user, const char *sentence)
{
    int *printed = user;
    if ((*printed)++ < 20)
        print_error("%s\n", sentence);
}

/* Runs the selftest on the check device and compares every result with the cpu's. */
static void test_selftest(void **state)
{
    wf_ctx *ctx = *state;
    int printed = 0, listed = 0;
    for (int op = 0; op < WF_OP_COUNT; op++)
        listed += wf_selftest_cases((wf_op)op);
    wt_run r = open_check(ctx, wt_seed());
    wf_selftest_options options = {.device = "check",
                                   .opened = r.device,
                                   .twin = "cpu:1",
                                   .seed = wt_seed(),
                                   .sample = wt_cases(listed), /* listed or more: all */
                                   .on_failure = print_failure,
                                   .user = &printed};
    wf_selftest_report *report;
    wt_ok(ctx, wf_selftest_run(ctx, &options, &report));
    print_message("%d cases, %d checks, %d failures on %s\n", report->cases, report->checks,
                  report->failures, wf_device_description(r.device));
    assert_int_equal(report->failures, 0);
    assert_int_equal(report->skipped, 0);
    assert_int_equal(report->ops_without_case_count, 0);
    const int wanted = wt_cases(listed);
    assert_in_range(report->cases, wanted < listed ? wanted / 2 : listed,
                    wanted < listed ? wanted * 2 : listed);
    wf_selftest_report_free(report);
    wt_close(&r);
}

/* ---- Orders ---- */

/* An order is legal when every value is intact wherever it is read. The replay tracks which value
 * each 64-byte line of the region and each state holds. */
typedef struct {
    const wf_plan *plan;
    const wf_device *device;
    const wf_value **line;   /* [bytes of the region / 64] */
    const wf_value **states; /* [node] the version that a state node's memory holds */
    bool *done;              /* [node] */
} replay;

/* Returns the value whose memory v shares: skips views that are not steps. */
static const wf_value *root_of(const replay *p, const wf_value *v)
{
    for (;;) {
        bool step = !wf_node_is(v->node, WF_FLAG_VIEW);
        for (int s = 0; s < p->plan->step_count; s++)
            step |= p->plan->steps[s].node == v->node;
        if (step)
            return v;
        v = v->node->in[0];
    }
}

/* Returns whether v's memory still holds v in the replay. */
static bool holds(const replay *p, const wf_value *v)
{
    const wf_place *place = &p->plan->places[v->node->id][v->index];
    if (place->kind == WF_PLACE_STATE)
        return p->states[place->state->id] == v;
    if (place->kind == WF_PLACE_PORT)
        return v->node->op == WF_OP_input || p->done[v->node->id];
    size_t begin = wf_plan_offset(p->plan, p->device, place->block) / 64;
    size_t lines = (wf_type_bytes(v->type, wf_dims_count(&v->shape)) + 63) / 64;
    for (size_t i = 0; i < lines; i++)
        if (p->line[begin + i] != v)
            return false;
    return true;
}

static void put(const replay *p, int block, size_t bytes, const wf_value *v)
{
    size_t begin = wf_plan_offset(p->plan, p->device, block) / 64;
    for (size_t i = 0; i < (bytes + 63) / 64; i++)
        p->line[begin + i] = v;
}

/* Checks that all operands are intact, then records the writes of step s. */
static void replay_step(const replay *p, int s)
{
    const wf_step *step = &p->plan->steps[s];
    const wf_node *n = step->node;
    for (int i = 0; i < n->nin; i++)
        if (!holds(p, root_of(p, n->in[i])))
            fail_msg("operand %d of node %d (%s) is not there", i, n->id, wf_node_def(n)->name);
    if (step->workspace >= 0)
        put(p, step->workspace, step->workspace_bytes, NULL);
    for (int i = 0; i < n->nin && step->workspace >= 0; i++)
        assert_true(holds(p, root_of(p, n->in[i]))); /* the workspace must not overlap an operand */
    for (int k = 0; k < n->nout; k++) {
        const wf_place *place = &p->plan->places[n->id][k];
        if (place->kind == WF_PLACE_STATE)
            p->states[place->state->id] = &n->out[k];
        else if (place->kind == WF_PLACE_REGION)
            put(p, place->block, wf_type_bytes(n->out[k].type, wf_dims_count(&n->out[k].shape)),
                &n->out[k]);
    }
    assert_false(p->done[n->id]);
    p->done[n->id] = true;
}

static void replay_order(const wt_run *r)
{
    const wf_plan *plan = plan_of(r)->plan;
    const wf_graph *g = plan->graph;
    size_t nodes = (size_t)g->node_count;
    replay p = {plan, r->device, calloc(plan->memory.activations / 64 + 1, sizeof *p.line),
                calloc(nodes, sizeof *p.states), calloc(nodes, sizeof *p.done)};
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->op == WF_OP_state)
            p.states[i] = &g->nodes[i]->out[0];
    for (int i = 0; i < plan->step_count; i++)
        replay_step(&p, check_of(r)->order[i]);
    free(p.line);
    free(p.states);
    free(p.done);
}

/* Draws 200 orders of a training step and replays each. */
static void test_orders_are_legal(void **state)
{
    wt_run r = open_check(*state, 1);
    wt_model m;
    compile_training(&r, &wt_tiny, 0, &m);
    for (uint64_t i = 0; i < 200; i++) {
        wf_check_draw(check_of(&r), wt_seed(), i);
        replay_order(&r);
    }
    wt_close(&r);
}

/* Runs eight times and stores a hash of each order. */
static void run_orders(wf_ctx *ctx, uint64_t seed, uint64_t orders[8])
{
    wt_run r = open_check(ctx, seed);
    wt_model m;
    compile_training(&r, &wt_tiny, 0, &m);
    wt_ok(ctx, wt_write_inputs(r.exec, &wt_tiny, 1));
    for (int i = 0; i < 8; i++) {
        wt_run_once(&r);
        orders[i] = order_hash(check_of(&r));
    }
    wt_close(&r);
}

/* Equal seeds draw equal orders; another seed draws others. */
static void test_seeds_repeat_orders(void **state)
{
    uint64_t a[8], b[8], c[8];
    run_orders(*state, wt_seed(), a);
    run_orders(*state, wt_seed(), b);
    run_orders(*state, wt_seed() + 1, c);
    assert_memory_equal(a, b, sizeof a);
    assert_memory_not_equal(a, c, sizeof a);
    assert_true(distinct(a, 8) > 4);
}

/* The device draws all orders of three independent steps. */
static void test_all_orders_are_drawn(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = open_check(ctx, wt_seed());
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, D(3));
    for (int i = 0; i < 3; i++)
        wf_output(g, (char[]){(char)('a' + i), 0}, wf_scale(g, x, 1 + i));
    wt_compile(&r, g);
    wt_write(&r, "x", (float[]){1, 2, 3}, 12);
    uint64_t orders[64];
    for (int i = 0; i < 64; i++) { /* 64 draws miss one of the six orders once in 20000 tests */
        wt_run_once(&r);
        orders[i] = order_hash(check_of(&r));
        wt_expect(&r, "c", {3, 6, 9});
    }
    assert_int_equal(distinct(orders, 64), 6);
    wt_close(&r);
}

static void test_options(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const bad[] = {"check:x",      "check:-1",  "check:1,",
                                      "check:1,0",    "check:1,x", "check:1,2,3",
                                      "check:1,5000", "check:,2",  "check: 1"};
    wf_device *device;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        wt_fails(ctx, wf_device_open(ctx, bad[i], &device), WF_ERR_USAGE, "use check:SEED");
    wt_ok(ctx, wf_device_open(ctx, "check:77,3", &device));
    assert_non_null(strstr(wf_device_description(device), "seed 77, 3 threads"));
    wf_device_close(device);
    uint64_t seeds[4];
    for (int i = 0; i < 4; i++) {
        wt_ok(ctx, wf_device_open(ctx, "check", &device));
        seeds[i] = ((wf_check_device *)device)->seed;
        wf_device_close(device);
    }
    assert_int_equal(distinct(seeds, 4), 4);
}

/* ---- Nearly empty graphs ---- */

static void test_empty_things(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = open_check(ctx, 3);
    wf_buffer *none;
    wt_ok(ctx, wf_buffer_new(r.device, 0, &none));
    wf_buffer_free(none);
    wt_compile(&r, wt_graph(ctx));
    wt_run_once(&r);

    wf_graph *g = wt_graph(ctx); /* no steps */
    wf_input(g, "x", WF_F32, 1, D(3));
    wf_state(g, "s", WF_F32, 1, D(3));
    wt_compile(&r, g);
    wt_run_once(&r);

    g = wt_graph(ctx); /* no bytes */
    wf_value *x = wf_input(g, "x", WF_F32, 1, D(0));
    wf_value *y = wf_scale(g, wf_unary(g, "exp", x), 2);
    wf_output(g, "y", wf_softmax(g, wf_reshape(g, y, 2, D(0, 5))));
    wf_accumulate(g, wf_state(g, "e", WF_F32, 1, D(0)), y, NULL);
    wt_compile(&r, g);
    wt_run_once(&r);
    wt_run_once(&r);
    wt_read(&r, "y", NULL, 0);
    wt_close(&r);
}

/* ---- Broken plans ---- */

/* exp and sin of one sum, their elementwise product, and an update of the state from it. */
static void compile_small(wt_run *r)
{
    wf_graph *g = wt_graph(r->ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, D(40)), *s = wf_state(g, "s", WF_F32, 1, D(40));
    wf_value *a = wf_add(g, x, s);
    wf_value *b = wf_unary(g, "exp", a), *c = wf_unary(g, "sin", a);
    wf_value *d = wf_mul(g, b, c);
    wf_output(g, "d", d);
    wf_output(g, "e", wf_scale(g, a, 3));
    wf_accumulate(g, s, wf_sub(g, b, c), NULL);
    wt_compile(r, g);
    float numbers[40];
    wf_random_normal(1, 1, 0, 1, numbers, 40);
    wt_write(r, "x", numbers, sizeof numbers);
}

static int step_of(const wf_plan *plan, wf_op op)
{
    for (int s = 0; s < plan->step_count; s++)
        if (plan->steps[s].node->op == op)
            return s;
    fail_msg("there is no %s", wf_op_get(op)->name);
    return -1;
}

static wf_place *result_of(const wf_plan *plan, wf_op op)
{
    return &plan->places[plan->steps[step_of(plan, op)].node->id][0];
}

static void refuses(wt_run *r, const char *part)
{
    wt_fails(r->ctx, r->device->ops->prepare_plan(plan_of(r)), WF_ERR_INTERNAL, part);
    assert_non_null(strstr(wf_ctx_message(r->ctx), "invalid plan: "));
}

static void swap_steps(wf_plan *plan, wf_op a, wf_op b)
{
    int i = step_of(plan, a), k = step_of(plan, b);
    wf_step t = plan->steps[i];
    plan->steps[i] = plan->steps[k];
    plan->steps[k] = t;
}

/* Breaks one place, offset or step of a valid plan at a time. The device must refuse each plan. */
static void test_broken_plans(void **state)
{
    wt_run r = open_check(*state, 5);
    compile_small(&r);
    wf_plan *plan = plan_of(&r)->plan;
    wt_ok(r.ctx, r.device->ops->prepare_plan(plan_of(&r)));

    wf_lifetime *block = &plan->blocks[result_of(plan, WF_OP_sin)->block];
    size_t offset = block->offset;
    block->offset = plan->blocks[result_of(plan, WF_OP_exp)->block].offset;
    refuses(&r, "share memory while both are in use");
    block->offset = plan->memory.activations;
    refuses(&r, "is outside the memory of the plan");
    block->offset = offset + 4;
    refuses(&r, "is outside the memory of the plan");
    block->offset = offset;

    int was = result_of(plan, WF_OP_exp)->block;
    /* sin reads the sum, too */
    result_of(plan, WF_OP_exp)->block = result_of(plan, WF_OP_add)->block;
    refuses(&r, "(exp) overwrites a value that node");
    result_of(plan, WF_OP_exp)->block = was;

    swap_steps(plan, WF_OP_exp, WF_OP_mul);
    refuses(&r, "(mul) runs before node");
    swap_steps(plan, WF_OP_exp, WF_OP_mul);

    size_t port = result_of(plan, WF_OP_mul)->offset;
    result_of(plan, WF_OP_mul)->offset = result_of(plan, WF_OP_scale)->offset;
    refuses(&r, "share memory");
    result_of(plan, WF_OP_mul)->offset = port;

    result_of(plan, WF_OP_exp)->first = 1;
    refuses(&r, "is outside its memory");
    result_of(plan, WF_OP_exp)->first = 0;
    result_of(plan, WF_OP_exp)->stride[0] = 2;
    refuses(&r, "is outside its memory");
    result_of(plan, WF_OP_exp)->stride[0] = 1;
    result_of(plan, WF_OP_exp)->kind = WF_PLACE_NONE;
    refuses(&r, "is read, but has no memory");
    result_of(plan, WF_OP_exp)->kind = WF_PLACE_REGION;

    wt_ok(r.ctx, r.device->ops->prepare_plan(plan_of(&r)));
    wt_run_once(&r);
    wt_close(&r);
}

/* The order must not update a state before its old version was read. */
static void test_readers_of_old_versions(void **state)
{
    wt_run r = open_check(*state, 5);
    wf_graph *g = wt_graph(*state);
    wf_value *s = wf_state(g, "s", WF_F32, 1, D(4));
    wf_value *view = wf_slice(g, s, 0, 1, 3);
    wf_output(g, "y", wf_unary(g, "neg", view));
    wf_accumulate(g, s, wf_fill(g, WF_F32, 1, D(4), 1), NULL);
    wt_compile(&r, g);
    for (int i = 0; i < 20; i++) {
        wt_run_once(&r);
        wt_expect(&r, "y", {(float)-i, (float)-i});
    }
    wf_plan *plan = plan_of(&r)->plan;
    swap_steps(plan, WF_OP_fill, WF_OP_neg);
    wt_ok(r.ctx, r.device->ops->prepare_plan(plan_of(&r)));
    swap_steps(plan, WF_OP_accumulate, WF_OP_neg);
    refuses(&r, "(accumulate) overwrites a value that node");
    wt_close(&r);
}

static bool overlap(const wf_lifetime *a, const wf_lifetime *b)
{
    return a->bytes > 0 && b->bytes > 0 && a->offset < (b->offset + b->bytes + 63) / 64 * 64 &&
           b->offset < (a->offset + a->bytes + 63) / 64 * 64;
}

/* Shortens one lifetime at a time. The device must refuse the plan exactly when the new packing
 * puts two live blocks in the same memory. */
static void test_short_lifetimes(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = open_check(ctx, 5);
    wt_model m;
    compile_training(&r, &wt_tiny, 0, &m);
    wf_plan *plan = plan_of(&r)->plan;
    int n = plan->block_count, caught = 0, harmless = 0;
    wf_lifetime *whole = malloc((size_t)n * sizeof *whole);
    memcpy(whole, plan->blocks, (size_t)n * sizeof *whole);
    for (int b = 0; b < n; b++) {
        size_t lower;
        bool wrong = false;
        if (whole[b].end == whole[b].begin || whole[b].bytes == 0)
            continue;
        memcpy(plan->blocks, whole, (size_t)n * sizeof *whole);
        plan->blocks[b].end = whole[b].begin;
        wt_ok(ctx, wf_memory_pack(ctx, plan->blocks, n, 64, &plan->memory.activations, &lower));
        for (int i = 0; i < n; i++)
            for (int k = 0; k < i; k++)
                wrong |= whole[i].begin <= whole[k].end && whole[k].begin <= whole[i].end &&
                         overlap(&plan->blocks[i], &plan->blocks[k]);
        if (wrong)
            refuses(&r, "share memory while both are in use");
        else
            wt_ok(ctx, r.device->ops->prepare_plan(plan_of(&r)));
        *(wrong ? &caught : &harmless) += 1;
    }
    print_message("%d lifetimes made too short: %d plans were wrong, all refused\n",
                  caught + harmless, caught);
    assert_true(caught > 10);
    free(whole);
    wt_close(&r);
}

/* ---- Failing allocations ---- */

/* Opens a device, compiles and runs the graph, and frees everything. */
static wf_status live(wf_ctx *ctx, wf_graph *g)
{
    wf_session *session = NULL;
    wf_exec *exec = NULL;
    wf_device *device = NULL;
    wf_status status = wf_device_open(ctx, "check:1,1", &device);
    if (status == WF_OK)
        status = wf_session_new(device, &session);
    if (status == WF_OK)
        status = wf_compile(session, g, &exec);
    assert_int_equal(exec != NULL, status == WF_OK);
    wf_exec_free(exec);
    wf_session_free(session);
    wf_device_close(device);
    return status;
}

/* Fails each allocation of a compilation and a run in turn; nothing leaks. */
static void test_failing_allocations(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wt_model m;
    wt_forward(g, &wt_tiny, &m);
    wt_train(g, &m);
    uint64_t blocks = wt_live_blocks(ctx), nth = 1;
    for (bool reached = true; reached; nth++) {
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = live(ctx, g);
        reached = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        assert_int_equal(status, reached ? WF_ERR_MEMORY : WF_OK);
        assert_int_equal(wt_live_blocks(ctx), blocks);
    }
    print_message("%d allocations failed\n", (int)nth - 2);
    assert_true(nth > 100);
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_training_has_the_bits_of_the_cpu),
        wt_test(test_large_training),
        wt_test(test_memory_is_planned),
        wt_test(test_a_shared_region),
        wt_test(test_selftest),
        wt_test(test_orders_are_legal),
        wt_test(test_seeds_repeat_orders),
        wt_test(test_all_orders_are_drawn),
        wt_test(test_options),
        wt_test(test_empty_things),
        wt_test(test_broken_plans),
        wt_test(test_readers_of_old_versions),
        wt_test(test_short_lifetimes),
        wt_test(test_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
