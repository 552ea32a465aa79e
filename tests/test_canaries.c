/* SPDX-License-Identifier: MIT */
/*
 * test_canaries.c - runs deliberately broken kernels on the check device. A write outside the
 * kernel's outputs fails the run with a message. A read of unwritten memory yields NaN.
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
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

static wf_plan_exec *plan_of(const wt_run *r)
{
    return (wf_plan_exec *)r->exec;
}

static const wf_launch *launch_of(const wt_run *r, wf_op op)
{
    const wf_plan *plan = plan_of(r)->plan;
    for (int s = 0; s < plan->step_count; s++)
        if (plan->steps[s].node->op == op)
            return &plan_of(r)->steps[s].launch;
    fail_msg("there is no %s", wf_op_get(op)->name);
    return NULL;
}

/* ---- Kernels ---- */

typedef enum {
    GOOD,
    BEFORE_OUTPUT,
    AFTER_OUTPUT,
    BEFORE_WORKSPACE,
    AFTER_WORKSPACE,
    TO_OPERAND,
    TO_NEIGHBOUR,   /* a value that the step does not use */
    TO_OUTSIDE,     /* past the end of the region */
    TO_NOTHING,     /* unused memory of the region */
    READ_WORKSPACE, /* reads the workspace before writing it */
    READ_OLD,       /* reads an operand of an earlier step whose memory was freed */
    SKIP            /* leaves the last element unwritten */
} mischief;

/* Which op misbehaves, and how. */
static struct {
    mischief kind;
    wf_op op;
    unsigned char *neighbour, *outside;
    float *freed;
} plot;

static void flip(void *at)
{
    *(unsigned char *)at ^= 1;
}

/* Writes to the wrong place after the kernel's work is done. */
static void do_mischief(const wf_launch *l)
{
    int64_t n = wf_view_count(&l->out[0]);
    float *y = l->out[0].data, *workspace = l->workspace;
    switch (plot.kind) {
    case BEFORE_OUTPUT: flip((char *)l->out[0].data - 1); break;
    case AFTER_OUTPUT: flip(y + n); break;
    case BEFORE_WORKSPACE: flip((char *)l->workspace - 1); break;
    case AFTER_WORKSPACE: flip((char *)l->workspace + 100); break;
    case TO_OPERAND: flip(l->in[l->nin - 1].data); break;
    case TO_NEIGHBOUR: flip(plot.neighbour); break;
    case TO_OUTSIDE: flip(plot.outside); break;
    case TO_NOTHING: flip(plot.freed); break;
    case READ_WORKSPACE: y[0] = workspace[0]; break;
    case READ_OLD: y[0] = *plot.freed; break;
    case GOOD:
    case SKIP: break;
    }
}

/* Computes x / 2 instead of the sine, then misbehaves if it is this op's turn. */
static wf_status launch_sin(const wf_launch *l)
{
    bool plotting = plot.op == WF_OP_sin;
    int64_t n = wf_view_count(&l->out[0]), end = plotting && plot.kind == SKIP ? n - 1 : n;
    float *y = l->out[0].data;
    const float *x = l->in[0].data;
    for (int64_t i = 0; i < end; i++)
        y[i] = x[i] / 2;
    if (plotting)
        do_mischief(l);
    memset(l->workspace, 0, 100);
    return WF_OK;
}

static wf_status launch_accumulate(const wf_launch *l)
{
    *(float *)l->out[0].data += 1;
    if (plot.op == WF_OP_accumulate)
        do_mischief(l);
    return WF_OK;
}

static size_t hundred_bytes(const wf_device *device, const wf_node *n)
{
    (void)n, (void)device;
    return 100;
}

static const wf_kernel mischievous[] = {
    {.op = WF_OP_sin,
     .name = "mischief",
     .types = WF_TYPES_FLOAT,
     .workspace = hundred_bytes,
     .launch = launch_sin},
    {.op = WF_OP_accumulate,
     .name = "mischief",
     .types = WF_TYPES_FLOAT,
     .launch = launch_accumulate},
    {0},
};

/* Opens a check device with replaced kernels for sin and accumulate, which still behave. */
static wt_run open_fake(wf_ctx *ctx)
{
    static const wf_kernel *fakes[32];
    char spec[64];
    int n = 0;
    snprintf(spec, sizeof spec, "check:%llu", (unsigned long long)wt_seed());
    wt_run r = wt_open(ctx, spec);
    fakes[n++] = mischievous;
    for (const wf_kernel *const *table = r.device->kernels; *table; table++) {
        assert_true(n < 31);
        fakes[n++] = *table;
    }
    r.device->kernels = fakes;
    memset(&plot, 0, sizeof plot);
    return r;
}

/* ---- Graphs ---- */

/* sin runs between two exp: the first one's result is read later. A large value is dead by then.
 * With `port`, the result of sin is also an output. */
static void compile_chain(wt_run *r, int64_t n, bool port)
{
    wf_graph *g = wt_graph(r->ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, &n), *s = wf_state(g, "s", WF_F32, 1, &n);
    wf_value *k = wf_input(g, "k", WF_F32, 2, D(16, 1));
    wf_value *large = wf_mul(g, wf_reshape(g, x, 2, D(1, n)), k); /* [16, n] */
    wf_value *start = wf_unary(g, "exp", wf_sub(g, x, wf_sum(g, large, 3, false)));
    wf_value *y = wf_unary(g, "sin", wf_unary(g, "sqrt", start));
    if (port)
        wf_output(g, "y", y);
    wf_accumulate(g, s, y, NULL);
    wf_output(g, "z", wf_add(g, start, wf_unary(g, "exp", y)));
    wt_compile(r, g);
    float *numbers = malloc((size_t)n * sizeof *numbers);
    wf_random_normal(1, 1, 0, 1, numbers, n);
    wt_write(r, "x", numbers, (size_t)n * sizeof *numbers);
    wt_write(r, "k", (float[16]){0}, 64);
    free(numbers);
    plot.neighbour = launch_of(r, WF_OP_exp)->out[0].data;
    plot.outside = (unsigned char *)r->session->region->base + r->session->region->bytes + 1000;
    plot.freed = (float *)launch_of(r, WF_OP_mul)->out[0].data + 16 * n - 1;
}

/* ---- Tests ---- */

/* Expects the run to fail with a message that names the op and the error. The next run must
 * succeed. */
static void expect_caught(wt_run *r, wf_op op, mischief kind, const char *sentence)
{
    char who[64];
    snprintf(who, sizeof who, "%s (kernel mischief, node ", wf_op_get(op)->name);
    plot.op = op;
    plot.kind = kind;
    wt_fails(r->ctx, wf_exec_run(r->exec), WF_ERR_INTERNAL, sentence);
    assert_non_null(strstr(wf_ctx_message(r->ctx), who));
    assert_non_null(strstr(wf_ctx_message(r->ctx), " with seed "));
    plot.kind = GOOD;
    wt_run_once(r);
}

/* The result lies in the region or in a port, and the device keeps a copy of a small region
 * only. */
static void test_stray_writes(void **state)
{
    for (int i = 0; i < 4; i++) {
        wt_run r = open_fake(*state);
        compile_chain(&r, i < 2 ? 37 : 1 << 16, i % 2);
        assert_int_equal(((const wf_check *)plan_of(&r)->own)->region_copy != NULL, i < 2);
        wt_run_once(&r);
        expect_caught(&r, WF_OP_sin, BEFORE_OUTPUT, "wrote before its output 0");
        expect_caught(&r, WF_OP_sin, AFTER_OUTPUT, "wrote after its output 0");
        expect_caught(&r, WF_OP_sin, BEFORE_WORKSPACE, "wrote before its workspace");
        expect_caught(&r, WF_OP_sin, AFTER_WORKSPACE, "wrote after its workspace");
        expect_caught(&r, WF_OP_sin, TO_OPERAND, "changed its operand 0");
        expect_caught(&r, WF_OP_accumulate, TO_OPERAND, "changed its operand 1");
        if (i < 2) {
            expect_caught(&r, WF_OP_sin, TO_NEIGHBOUR, "changed a result of node");
            expect_caught(&r, WF_OP_sin, TO_NOTHING, "wrote to unused memory");
        } else { /* detected at the end of the run only */
            plot.kind = TO_NOTHING;
            plot.op = WF_OP_sin;
            wt_fails(r.ctx, wf_exec_run(r.exec), WF_ERR_INTERNAL, "some step wrote to");
        }
        plot.kind = TO_OUTSIDE; /* the device does not repair the guards of buffers */
        wt_fails(r.ctx, wf_exec_run(r.exec), WF_ERR_INTERNAL, "wrote outside the memory");
        wt_close(&r);
    }
}

/* Each state has its own guards. The device does not repair them, so the next run fails too. */
static void test_stray_writes_beside_states(void **state)
{
    for (int i = 0; i < 2; i++) {
        wt_run r = open_fake(*state);
        compile_chain(&r, 37, false);
        plot.op = WF_OP_accumulate;
        plot.kind = i ? AFTER_OUTPUT : BEFORE_OUTPUT;
        for (int again = 0; again < 2; again++) {
            wt_fails(r.ctx, wf_exec_run(r.exec), WF_ERR_INTERNAL,
                     i ? "wrote after its output 0" : "wrote before its output 0");
            plot.kind = GOOD;
        }
        wt_close(&r);
    }
}

/* Unwritten and freed memory reads as NaN. */
static void test_empty_reads(void **state)
{
    static const struct {
        mischief kind;
        int element;
    } cases[] = {{READ_WORKSPACE, 0}, {READ_OLD, 0}, {SKIP, 36}};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        float z[37];
        wt_run r = open_fake(*state);
        compile_chain(&r, 37, i % 2);
        plot.op = WF_OP_sin;
        for (int again = 0; again < 3; again++) {
            /* a run without errors leaves no trace */
            plot.kind = again == 1 ? GOOD : cases[i / 2].kind;
            wt_run_once(&r);
            wt_read(&r, "z", z, sizeof z);
            for (int k = 0; k < 37; k++)
                assert_int_equal(isnan(z[k]) != 0, again != 1 && k == cases[i / 2].element);
        }
        wt_close(&r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_stray_writes),
        wt_test(test_stray_writes_beside_states),
        wt_test(test_empty_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
