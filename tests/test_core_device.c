/* SPDX-License-Identifier: MIT */
/*
 * test_core_device.c - a device needs kernels for core ops only. test_parity trains whole models on
 * such a device. This file tests its kernel table, which ops are expanded, the planned cost, and
 * errors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>

#include "core_device.h"
#include "device/plan.h"
#include "graph/build.h"
#include "selftest/selftest.h"
#include "support.h"

#define ROWS 4
#define COLUMNS 6

static wf_graph *softmax_graph(wf_ctx *ctx)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){ROWS, COLUMNS});
    wf_output(g, "y", wf_softmax(g, x));
    return g;
}

static wf_plan *plan_on(wf_ctx *ctx, wf_device *device, wf_report *report)
{
    wf_graph *g = softmax_graph(ctx);
    wf_plan *plan;
    wt_ok(ctx, wf_plan_new(device, g, NULL, NULL, report, &plan));
    wf_graph_free(g);
    return plan;
}

/* The kernel table has all core ops except sources, and no other op. */
static void test_table(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wt_ok(ctx, wt_device_open(ctx, "core", &device));
    for (int op = 0; op < WF_OP_COUNT; op++) {
        bool source = (wf_op_get((wf_op)op)->flags & WF_FLAG_SOURCE) != 0;
        bool has = wf_kernel_types(device->kernels, (wf_op)op) != 0;
        assert_int_equal(has, wf_op_is_core((wf_op)op) && !source);
    }
    wf_device_close(device);
}

static void test_expansion(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wf_report report = {0};
    wt_ok(ctx, wt_device_open(ctx, "core", &device));
    wf_plan *plan = plan_on(ctx, device, &report);
    const wf_expansion *e = &plan->expansions[WF_OP_softmax];
    assert_int_equal(e->nodes, 1);
    assert_true(e->launches >= 4); /* max, sub, exp, sum, div */
    assert_true(e->after.flops >= e->before.flops);
    assert_true(e->after.bytes_read > e->before.bytes_read);
    assert_int_equal(wf_report_get(&report, "expand", "nodes before"), 2);
    for (int i = 0; i < plan->graph->node_count; i++)
        assert_true(wf_op_is_core(plan->graph->nodes[i]->op));
    wf_plan_free(plan);
    wf_device_close(device);
}

/* An op with a matching kernel is not expanded, unless the caller forces it. */
static void test_forced(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wt_ok(ctx, wf_device_open(ctx, "cpu", &device));
    wf_plan *plan = plan_on(ctx, device, NULL);
    assert_int_equal(plan->step_count, 1);
    for (int op = 0; op < WF_OP_COUNT; op++)
        assert_int_equal(plan->expansions[op].nodes, 0);
    wf_plan_free(plan);
    wt_fails(ctx, wf_device_force_expansion(device, WF_OP_exp), WF_ERR_USAGE,
             "exp is a core op and has no expansion");
    wt_ok(ctx, wf_device_force_expansion(device, WF_OP_softmax));
    plan = plan_on(ctx, device, NULL);
    assert_true(plan->step_count > 1);
    assert_int_equal(plan->expansions[WF_OP_softmax].nodes, 1);
    wf_plan_free(plan);
    wf_device_close(device);
}

static void test_result(void **state)
{
    wf_ctx *ctx = *state;
    float x[ROWS * COLUMNS], y[2][ROWS * COLUMNS];
    static const char *const names[] = {"cpu", "core"};
    for (int i = 0; i < ROWS * COLUMNS; i++)
        x[i] = (float)(i * i % 7) - 3;
    for (int d = 0; d < 2; d++) {
        wf_device *device;
        wf_graph *g = softmax_graph(ctx);
        const wf_array in = {"x", x, sizeof x}, out = {"y", y[d], sizeof y[d]};
        wt_ok(ctx, wt_device_open(ctx, names[d], &device));
        wt_ok(ctx, wf_call(device, g, &in, 1, &out, 1));
        wf_graph_free(g);
        wf_device_close(device);
    }
    for (int i = 0; i < ROWS * COLUMNS; i++)
        assert_true(fabsf(y[0][i] - y[1][i]) <= 1e-6f);
}

/* A device without a kernel for a core op fails when the graph is compiled. */
static void test_missing_core_op(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wf_session *session;
    wf_exec *exec;
    wf_memory memory;
    wf_graph *g = softmax_graph(ctx);
    wt_ok(ctx, wt_device_open(ctx, "core:exp", &device));
    wt_ok(ctx, wf_session_new(device, &session));
    wt_fails(ctx, wf_compile(session, g, &exec), WF_ERR_UNSUPPORTED,
             "device core has no kernel for exp(f32[4,6]), a core op, which cannot be expanded");
    assert_null(exec);
    wt_fails(ctx, wf_plan_memory(device, g, NULL, &memory), WF_ERR_UNSUPPORTED,
             "device core has no kernel for exp(f32[4,6])");
    wf_graph_free(g);
    wf_session_free(session);
    wf_device_close(device);
}

static void print_failure(void *user, const char *sentence)
{
    (void)user;
    print_error("%s\n", sentence);
}

/* Runs a sample of the selftest: all ops, forward and gradient. */
static void test_selftest(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wf_selftest_report *report;
    wt_ok(ctx, wt_device_open(ctx, "core", &device));
    const wf_selftest_options o = {.device = "core",
                                   .opened = device,
                                   .seed = wt_seed(),
                                   .sample = 150,
                                   .on_failure = print_failure};
    wt_ok(ctx, wf_selftest_run(ctx, &o, &report));
    assert_int_equal(report->ops, WF_OP_COUNT);
    assert_int_equal(report->failures, 0);
    wf_selftest_report_free(report);
    wf_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_table),  wt_test(test_expansion),       wt_test(test_forced),
        wt_test(test_result), wt_test(test_missing_core_op), wt_test(test_selftest),
    };
    return cmocka_run_group_tests_name("core device", tests, NULL, NULL);
}
