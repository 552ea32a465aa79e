/* SPDX-License-Identifier: MIT */
/*
 * test_copies.c - low-precision copies of parameters. Checks which casts become reads of a copy,
 * that a copy equals its state after any kind of write, and that the copies are planned and freed.
 *
 * WEFT_COPIES_DEVICE names a device other than the cpu.
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

#include "device/plan.h"
#include "graph/build.h"
#include "support.h"

#define N 35 /* elements of a parameter; not a multiple of a vector */

static const char *device_under_test(void)
{
    const char *given = getenv("WEFT_COPIES_DEVICE");
    return given ? given : "cpu";
}

/* Rounds x to bf16, to nearest even. */
static float narrow(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* ---- Graphs ---- */

typedef struct {
    wf_graph *g;
    wf_value *p, *cast, *update;
} step;

/* Adds a parameter, an output that reads it as -p in `type`, and its update. */
static void add_parameter(step *s, const char *name, wf_type type, wf_value *lr, wf_value *count,
                          wf_value *apply)
{
    char of[3][24];
    for (int i = 0; i < 3; i++)
        snprintf(of[i], sizeof of[i], "%s.%s", (const char *[]){"m", "v", "y"}[i], name);
    s->p = wf_state(s->g, name, WF_F32, 2, (int64_t[]){5, 7});
    wf_value *m = wf_state_like(s->g, of[0], s->p), *v = wf_state_like(s->g, of[1], s->p);
    s->cast = wf_cast(s->g, s->p, type);
    wf_output(s->g, of[2], wf_cast(s->g, wf_unary(s->g, "neg", s->cast), WF_F32));
    wf_value *grad = wf_unary(s->g, "sin", s->p);
    s->update = wf_adamw(s->g, s->p, m, v, grad, lr, count, NULL, apply, NULL);
}

static step make_step(wf_ctx *ctx, int parameters, wf_type type)
{
    step s = {.g = wt_graph(ctx)};
    wf_value *lr = wf_input(s.g, "lr", WF_F32, 0, NULL);
    wf_value *count = wf_input(s.g, "step", WF_I32, 0, NULL);
    wf_value *apply = wf_input(s.g, "apply", WF_U8, 0, NULL);
    for (int i = 0; i < parameters; i++) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        add_parameter(&s, name, type, lr, count, apply);
    }
    return s;
}

static int count_op(const wf_graph *g, wf_op op)
{
    int n = 0;
    for (int i = 0; i < g->node_count; i++)
        n += g->nodes[i]->op == op;
    return n;
}

/* Plans the graph and returns its number of copies. Also checks that the resulting graph can be
 * written and read as text. */
static int copies_in_plan(wf_ctx *ctx, wf_graph *g, const wf_compile_options *options,
                          wf_memory *memory)
{
    wf_device *device;
    wf_plan *plan;
    wf_graph *again;
    char *text;
    size_t bytes;
    wt_ok(ctx, wf_device_open(ctx, device_under_test(), &device));
    wt_ok(ctx, wf_plan_new(device, g, options, NULL, NULL, &plan));
    wt_ok(ctx, wf_graph_verify(plan->graph));
    wt_ok(ctx, wf_graph_text(plan->graph, &text, &bytes));
    wt_ok(ctx, wf_graph_parse(ctx, text, bytes, &again));
    int copies = count_op(plan->graph, WF_OP_state_copy);
    assert_int_equal(count_op(again, WF_OP_state_copy), copies);
    *memory = plan->memory;
    wf_text_free(ctx, text);
    wf_graph_free(again);
    wf_plan_free(plan);
    wf_device_close(device);
    return copies;
}

/* ---- The pass ---- */

/* Each parameter that is read in a narrow type gets one copy; with recomputation it gets none. */
static void test_casts_become_copies(void **state)
{
    wf_ctx *ctx = *state;
    const wf_compile_options plain = {.without = WF_PASS_FUSE}, recompute = {.recompute = 1};
    for (int i = 0; i < 4; i++) {
        int parameters = (int[]){1, 2, 24, 55}[i];
        step s = make_step(ctx, parameters, i % 2 ? WF_F16 : WF_BF16);
        wf_memory with, without;
        assert_int_equal(copies_in_plan(ctx, s.g, NULL, &with), parameters);
        assert_int_equal(copies_in_plan(ctx, s.g, &plain, &without), 0);
        assert_int_equal(with.states, without.states + (size_t)parameters * N * 2);
        assert_int_equal(copies_in_plan(ctx, s.g, &recompute, &with), 0);
        wf_graph_free(s.g);
    }
}

static void expect_none(wf_ctx *ctx, wf_graph *g)
{
    wf_memory memory;
    wt_ok(ctx, wf_graph_status(g));
    assert_int_equal(copies_in_plan(ctx, g, NULL, &memory), 0);
    wf_graph_free(g);
}

/* Casts that must stay. */
static void test_casts_that_stay(void **state)
{
    wf_ctx *ctx = *state;
    step s = make_step(ctx, 1, WF_BF16); /* the updated value is read, too */
    wf_value *after = wf_cast(s.g, s.update, WF_BF16);
    wf_output(s.g, "later", wf_binary(s.g, "mul", after, s.cast));
    expect_none(ctx, s.g);
    s = make_step(ctx, 1, WF_BF16); /* the same through views */
    after = wf_reshape(s.g, wf_cast(s.g, s.update, WF_BF16), 1, (int64_t[]){N});
    wf_value *flat = wf_reshape(s.g, s.cast, 1, (int64_t[]){N});
    wf_output(s.g, "later", wf_binary(s.g, "mul", after, flat));
    expect_none(ctx, s.g);
    s = make_step(ctx, 1, WF_BF16); /* an output has its own memory */
    wf_output(s.g, "cast", s.cast);
    expect_none(ctx, s.g);
    s = make_step(ctx, 1, WF_F32); /* no cast */
    expect_none(ctx, s.g);
    s.g = wt_graph(ctx); /* a cast of an input, not of a state */
    wf_value *x = wf_input(s.g, "x", WF_F32, 1, (int64_t[]){N});
    wf_output(s.g, "y", wf_unary(s.g, "neg", wf_cast(s.g, x, WF_BF16)));
    expect_none(ctx, s.g);
}

/* ---- Sessions ---- */

typedef struct {
    wt_run r;
    float p[N]; /* expected value of p0 */
    int32_t steps;
} trainer;

static void compile_step(trainer *t)
{
    step s = make_step(t->r.ctx, 3, WF_BF16);
    wt_compile(&t->r, s.g);
}

/* Runs a step and checks that it read the current parameter. */
static void run_step(trainer *t, uint8_t apply)
{
    float lr = 0.1f, y[N];
    t->steps++;
    wt_write(&t->r, "lr", &lr, sizeof lr);
    wt_write(&t->r, "step", &t->steps, sizeof t->steps);
    wt_write(&t->r, "apply", &apply, sizeof apply);
    wt_run_once(&t->r);
    wt_read(&t->r, "y.p0", y, sizeof y);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == -narrow(t->p[i]));
    float before[N];
    memcpy(before, t->p, sizeof before);
    wt_ok(t->r.ctx, wf_session_read(t->r.session, "p0", t->p, sizeof t->p));
    assert_int_equal(memcmp(before, t->p, sizeof before) == 0, apply == 0);
}

static void set_parameter(trainer *t, float scale)
{
    for (int i = 0; i < N; i++)
        t->p[i] = scale * cosf((float)i + scale);
    wt_ok(t->r.ctx, wf_session_write(t->r.session, "p0", t->p, sizeof t->p));
}

static void set_element(trainer *t, int at, float value)
{
    t->p[at] = value;
    wt_ok(t->r.ctx,
          wf_session_write_at(t->r.session, "p0", (size_t)at * sizeof value, &value, sizeof value));
}

/* Changes the parameter in another executable, which has no copies. */
static void change_elsewhere(trainer *t)
{
    wf_exec *exec;
    wf_graph *g = wt_graph(t->r.ctx);
    wf_value *p = wf_state(g, "p0", WF_F32, 2, (int64_t[]){5, 7});
    wf_accumulate(g, p, wf_fill(g, WF_F32, 2, (int64_t[]){5, 7}, 0.3), NULL);
    wt_ok(t->r.ctx, wf_compile(t->r.session, g, &exec));
    wf_graph_free(g);
    wt_ok(t->r.ctx, wf_exec_run(exec));
    wf_exec_free(exec);
    wt_ok(t->r.ctx, wf_session_read(t->r.session, "p0", t->p, sizeof t->p));
}

/* A step reads the current parameter after updates, skipped updates, host writes and updates
 * elsewhere. */
static void test_copies_are_equal(void **state)
{
    trainer t = {.r = wt_open(*state, device_under_test())};
    wf_info info;
    wf_run_stats stats;
    compile_step(&t);
    run_step(&t, 0); /* states start as zeros */
    set_parameter(&t, 2);
    for (int i = 0; i < 3; i++)
        run_step(&t, 1);
    set_parameter(&t, 3);
    run_step(&t, 1);
    run_step(&t, 0);
    set_element(&t, 3, 7);
    run_step(&t, 1);
    change_elsewhere(&t);
    run_step(&t, 0);
    change_elsewhere(&t);
    run_step(&t, 1);
    run_step(&t, 1);
    wf_exec_stats(t.r.exec, &stats);
    assert_int_equal(stats.allocations, 0);
    compile_step(&t); /* frees the copies of the previous executable */
    run_step(&t, 1);
    int states = 0;
    while (wf_session_state(t.r.session, states, &info)) {
        assert_int_equal(info.type, WF_F32);
        states++;
    }
    assert_int_equal(states, 9);
    wt_close(&t.r);
}

/* Two executables share a copy and only one writes it. A third reads a copy in another type. */
static void test_copies_are_shared(void **state)
{
    static const char text[] = "weft-graph 1\n"
                               "%0 = state(\"p0\") type=f32 dims=[5,7]\n"
                               "%1 = state_copy(\"p0\") type=bf16 dims=[5,7]\n"
                               "%2 = cast(%1) type=f32\n"
                               "output \"y\" = %2\n"
                               "end\n";
    trainer t = {.r = wt_open(*state, device_under_test())};
    wf_exec *reader[2];
    wf_graph *g;
    wf_memory memory, more;
    compile_step(&t);
    wf_exec_memory(t.r.exec, &memory);
    assert_int_equal(memory.states, 9 * N * 4 + 3 * N * 2);
    for (int i = 0; i < 2; i++) {
        char copy[sizeof text];
        memcpy(copy, text, sizeof text);
        if (i == 1)
            memcpy(strstr(copy, "bf16"), "f16 ", 4);
        wt_ok(t.r.ctx, wf_graph_parse(t.r.ctx, copy, strlen(copy), &g));
        wt_ok(t.r.ctx, wf_compile(t.r.session, g, &reader[i]));
        wf_graph_free(g);
    }
    wf_exec_memory(reader[0], &more);
    assert_int_equal(more.states, memory.states + N * 2); /* the f16 copy */
    for (int i = 0; i < 4; i++) {
        float y[2][N];
        if (i % 2 == 0)
            set_parameter(&t, (float)i + 1);
        for (int k = 0; k < 2; k++) {
            wt_ok(t.r.ctx, wf_exec_run(reader[k]));
            wt_ok(t.r.ctx, wf_exec_read(reader[k], "y", y[k], sizeof y[k]));
        }
        for (int k = 0; k < N; k++) {
            assert_true(y[0][k] == narrow(t.p[k]));
            assert_true(fabsf(y[1][k] - t.p[k]) <= fabsf(t.p[k]) / 2048);
        }
        run_step(&t, 1);
    }
    wf_exec_free(reader[1]);
    wf_exec_free(reader[0]);
    wf_exec_memory(t.r.exec, &more);
    assert_int_equal(more.states, memory.states);
    size_t bytes = t.r.device->bytes;
    wf_exec_free(t.r.exec);
    t.r.exec = NULL;
    assert_true(t.r.device->bytes + 3 * N * 2 <= bytes);
    wt_close(&t.r);
}

/* Fails every allocation of a compilation in turn. Copies that other executables in the session
 * read stay valid. */
static void test_memory_runs_out(void **state)
{
    trainer t = {.r = wt_open(*state, device_under_test())};
    bool reached = true;
    compile_step(&t);
    set_parameter(&t, 2);
    run_step(&t, 1);
    size_t bytes = t.r.device->bytes;
    for (uint64_t nth = 1; reached; nth++) {
        step s = make_step(t.r.ctx, 5, nth % 2 ? WF_F16 : WF_BF16);
        uint64_t blocks = wt_live_blocks(t.r.ctx);
        wf_exec *exec;
        wf_ctx_fail_allocation(t.r.ctx, nth);
        wf_status status = wf_compile(t.r.session, s.g, &exec);
        reached = t.r.ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(t.r.ctx, 0);
        if (reached) {
            wt_fails(t.r.ctx, status, WF_ERR_MEMORY, "out of memory");
            assert_int_equal(t.r.device->bytes, bytes);
            assert_true(wt_live_blocks(t.r.ctx) <= blocks + 1); /* the table of states may grow */
        }
        wf_exec_free(exec);
        wf_graph_free(s.g);
        run_step(&t, (uint8_t)(nth % 2));
    }
    wt_close(&t.r);
}

/* A copy needs an f32 state of the same name and shape. */
static void test_empty_copies(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const states[] = {
        "%0 = state(\"p0\") type=f32 dims=[5,7]\n", "%0 = state(\"p\") type=bf16 dims=[5,7]\n",
        "%0 = state(\"p\") type=f32 dims=[7,5]\n", "%0 = input(\"p\") type=f32 dims=[5,7]\n"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        char text[512];
        wf_graph *g;
        snprintf(text, sizeof text,
                 "weft-graph 1\n%s%%1 = state_copy(\"p\") type=bf16 dims=[5,7]\nend\n", states[i]);
        wt_fails(ctx, wf_graph_parse(ctx, text, strlen(text), &g), WF_ERR_GRAPH, "copies 'p'");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_casts_become_copies), wt_test(test_casts_that_stay),
        wt_test(test_copies_are_equal),    wt_test(test_copies_are_shared),
        wt_test(test_memory_runs_out),     wt_test(test_empty_copies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
