/* SPDX-License-Identifier: MIT */
/*
 * test_concat.c - concats whose operands are computed in place inside the result. Checks when
 * the pass does so, and that the bits equal those of a copying concat, on the cpu and in random
 * orders on the check device. The check device must refuse plans with a misplaced part.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "device/executor.h"
#include "graph/build.h"
#include "support.h"

enum { N = 12, H = 2, D = 8, C = H * D };
#define DIMS(...) ((int64_t[]){__VA_ARGS__})

/* Inputs of a case. Gradients of attention can be written with strides. */
typedef struct {
    wf_graph *g;
    wf_value *q, *k, *v, *start, *positions;
} parts;

static wf_value *tokens(wf_graph *g, const char *name)
{
    return wf_input(g, name, WF_F32, 3, DIMS(N, H, D));
}

static parts begin(wf_ctx *ctx)
{
    wf_graph *g = wt_graph(ctx);
    return (parts){g,
                   tokens(g, "q"),
                   tokens(g, "k"),
                   tokens(g, "v"),
                   wf_input(g, "start", WF_I32, 1, DIMS(3)),
                   wf_input(g, "positions", WF_I32, 1, DIMS(N))};
}

/* Computes dq, dk, dv of attention over scaled operands. */
static void gradients(const parts *p, double scale, wf_value *d[3])
{
    wf_value *o = wf_attention(p->g, wf_scale(p->g, p->q, scale), p->k, p->v, p->start,
                               p->positions, &(wf_attention_options){.length = N / 2});
    wf_value *in[] = {o,        o->node->in[0], p->k, p->v,
                      p->start, p->positions,   o,    wf_value_output(o, 1)};
    d[0] = wf_node_add(p->g, WF_OP_attention_grad, o->node->attr, NULL, in, 8);
    d[1] = wf_value_output(d[0], 1);
    d[2] = wf_value_output(d[0], 2);
}

static wf_value *rows(const parts *p, wf_value *x)
{
    return wf_reshape(p->g, x, 2, DIMS(N, C));
}

/* ---- Cases: the values that become outputs ---- */

/* The gradient of slicing [N, 3 C] into q, k and v. */
static wf_value *by_rows(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    for (int i = 0; i < 3; i++)
        d[i] = rows(p, d[i]);
    return wf_unary(p->g, "exp", wf_concat(p->g, d, 3, 1));
}

static wf_value *by_tokens(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    return wf_unary(p->g, "exp", wf_concat(p->g, d, 3, 0));
}

static wf_value *by_heads(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    return wf_unary(p->g, "exp", wf_concat(p->g, d, 2, 1)); /* dv has no reader */
}

static wf_value *by_last(const parts *p)
{
    wf_value *d[3], *in[2];
    gradients(p, 1, d);
    in[0] = d[2];
    in[1] = d[0];
    return wf_unary(p->g, "exp", wf_concat(p->g, in, 2, 2));
}

static wf_value *by_head_rows(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    for (int i = 0; i < 3; i++)
        d[i] = wf_reshape(p->g, d[i], 2, DIMS(N * H, D));
    return wf_unary(p->g, "exp", wf_concat(p->g, d, 3, 1));
}

static wf_value *by_two_views(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    for (int i = 0; i < 3; i++)
        d[i] = rows(p, wf_reshape(p->g, d[i], 3, DIMS(N, 1, C)));
    return wf_unary(p->g, "exp", wf_concat(p->g, d, 3, 1));
}

/* Six parts from two steps, with another step in between. */
static wf_value *of_two(const parts *p)
{
    wf_value *a[3], *b[3], *in[6];
    gradients(p, 1, a);
    gradients(p, 0.5, b);
    for (int i = 0; i < 3; i++) {
        in[2 * i] = rows(p, a[i]);
        in[2 * i + 1] = rows(p, b[i]);
    }
    return wf_unary(p->g, "exp", wf_concat(p->g, in, 6, 1));
}

/* Read several times, directly and as a view. */
static wf_value *read_often(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    for (int i = 0; i < 3; i++)
        d[i] = rows(p, d[i]);
    wf_value *all = wf_concat(p->g, d, 3, 1), *middle = wf_slice(p->g, all, 1, C, 2 * C);
    wf_value *y = wf_add(p->g, wf_unary(p->g, "sin", all), all);
    return wf_mul(p->g, wf_slice(p->g, y, 1, 0, C), wf_unary(p->g, "exp", middle));
}

static wf_value *with_another_reader(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    for (int i = 0; i < 3; i++)
        d[i] = rows(p, d[i]);
    wf_value *all = wf_unary(p->g, "exp", wf_concat(p->g, d, 3, 1));
    return wf_add(p->g, wf_slice(p->g, all, 1, 0, C), d[1]);
}

static wf_value *as_an_output(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    return wf_concat(p->g, d, 3, 0);
}

static wf_value *with_an_input(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    d[1] = p->k;
    return wf_unary(p->g, "exp", wf_concat(p->g, d, 3, 1));
}

static wf_value *one_twice(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    d[1] = d[0];
    return wf_unary(p->g, "exp", wf_concat(p->g, d, 3, 1));
}

/* A row has two tokens, so an element's place is no longer a sum over its own axes. */
static wf_value *across_rows(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    for (int i = 0; i < 3; i++)
        d[i] = wf_reshape(p->g, d[i], 2, DIMS(N / 2, 2 * C));
    return wf_unary(p->g, "exp", wf_concat(p->g, d, 3, 1));
}

static wf_value *transposed(const parts *p)
{
    wf_value *d[3];
    gradients(p, 1, d);
    for (int i = 0; i < 3; i++)
        d[i] = wf_permute(p->g, d[i], DIMS(1, 0, 2));
    return wf_unary(p->g, "exp", wf_concat(p->g, d, 3, 2));
}

static const struct concat_case {
    const char *name;
    wf_value *(*build)(const parts *p);
    int joined;
} cases[] = {
    {"by rows", by_rows, 1},
    {"by tokens", by_tokens, 1},
    {"by heads", by_heads, 1},
    {"by the last axis", by_last, 1},
    {"by rows of heads", by_head_rows, 1},
    {"by two views", by_two_views, 1},
    {"of two steps", of_two, 1},
    {"read often", read_often, 1},
    {"with another reader", with_another_reader, 0},
    {"as an output", as_an_output, 0},
    {"with an input", with_an_input, 0},
    {"one value twice", one_twice, 0},
    {"across rows", across_rows, 0},
    {"transposed", transposed, 0},
};
#define CASES (sizeof cases / sizeof *cases)

/* ---- Running ---- */

static void write_inputs(wt_run *r)
{
    static const char *const names[] = {"q", "k", "v"};
    float x[N * C];
    int32_t positions[N];
    for (uint64_t i = 0; i < 3; i++) {
        wf_random_normal(7, i, 0, 1, x, N * C);
        wt_write(r, names[i], x, sizeof x);
    }
    for (int i = 0; i < N; i++)
        positions[i] = i % (N / 2);
    wt_write(r, "positions", positions, sizeof positions);
    wt_write(r, "start", (int32_t[]){0, N / 2, N}, 3 * sizeof(int32_t));
}

static wf_graph *build(wf_ctx *ctx, const struct concat_case *c)
{
    parts p = begin(ctx);
    wt_ok(ctx, wf_output(p.g, "y", c->build(&p)));
    return p.g;
}

/* Runs several times. The first run of all sets `want`; the others must have its bits. */
static void run(wf_ctx *ctx, const char *device, const struct concat_case *c, uint32_t without,
                int runs, float *want, bool first)
{
    wt_run r = wt_open(ctx, device);
    wf_graph *g = build(ctx, c);
    wf_compile_options options = {.without = WF_PASS_FOLD | WF_PASS_FUSE | without};
    size_t bytes = wf_value_bytes(g->outputs[0].value);
    wt_ok(ctx, wf_compile_with(r.session, g, &options, &r.exec));
    wf_graph_free(g);
    write_inputs(&r);
    for (int i = 0; i < runs; i++) {
        float got[6 * N * C];
        wt_run_once(&r);
        wt_read(&r, "y", got, bytes);
        if (first && i == 0)
            memcpy(want, got, bytes);
        else if (memcmp(want, got, bytes) != 0)
            fail_msg("%s on %s: other bits than with copies", c->name, device);
    }
    wt_close(&r);
}

static int concats_made(const wf_plan *plan)
{
    int n = 0;
    for (int i = 0; i < plan->step_count; i++)
        n += plan->steps[i].node->op == WF_OP_concat;
    return n;
}

/* Expects the pass to merge the concat exactly when the case says so. */
static void look_at_plan(wf_ctx *ctx, const struct concat_case *c)
{
    wf_device *device;
    wf_plan *plan;
    wf_report report = {0};
    wf_graph *g = build(ctx, c);
    const wf_compile_options options = {.without = WF_PASS_FOLD};
    wt_ok(ctx, wf_device_open(ctx, "cpu:1", &device));
    wt_ok(ctx, wf_plan_new(device, g, &options, NULL, &report, &plan));
    if (wf_report_get(&report, "memory", "concats made in place") != c->joined ||
        concats_made(plan) != 1 - c->joined)
        fail_msg("%s: %d concats are steps", c->name, concats_made(plan));
    wf_plan_free(plan);
    wf_graph_free(g);
    wf_device_close(device);
}

/* Each case is planned as expected, and has the bits of the copying concat on every device. */
static void test_results(void **state)
{
    float want[6 * N * C];
    for (size_t i = 0; i < CASES; i++) {
        look_at_plan(*state, &cases[i]);
        run(*state, "cpu:1", &cases[i], WF_PASS_MEMORY, 1, want, true);
        run(*state, "cpu:1", &cases[i], 0, 2, want, false);
        run(*state, "cpu:2", &cases[i], 0, 2, want, false);
        run(*state, "check", &cases[i], 0, 20, want, false);
    }
}

/* The gradient of a tensor that is sliced into three, as wf_grad builds it. */
static void test_gradient_of_slices(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wf_plan *plan;
    wf_report report = {0};
    parts p = begin(ctx);
    wf_value *x = wf_input(p.g, "x", WF_F32, 2, DIMS(N, C)), *of[3], *dw;
    wf_value *w = wf_state(p.g, "w", WF_F32, 2, DIMS(3 * C, C));
    wf_value *qkv = wf_linear(p.g, x, w, NULL);
    for (int i = 0; i < 3; i++)
        of[i] = wf_reshape(p.g, wf_slice(p.g, qkv, 1, i * C, (i + 1) * C), 3, DIMS(N, H, D));
    wf_value *o = wf_attention(p.g, of[0], of[1], of[2], p.start, p.positions, NULL);
    wt_ok(ctx, wf_grad(p.g, wf_reduce(p.g, "sum", o, 7, false), &w, 1, &dw));
    wt_ok(ctx, wf_output(p.g, "dw", dw));
    wt_ok(ctx, wf_device_open(ctx, "cpu:1", &device));
    wt_ok(ctx, wf_plan_new(device, p.g, NULL, NULL, &report, &plan));
    assert_int_equal(wf_report_get(&report, "fold", "sum of pads"), 1);
    assert_int_equal(wf_report_get(&report, "memory", "concats made in place"), 1);
    for (int i = 0; i < plan->step_count; i++)
        assert_true(plan->steps[i].node->op != WF_OP_pad && plan->steps[i].node->op != WF_OP_add);
    wf_plan_free(plan);
    wf_graph_free(p.g);
    wf_device_close(device);
}

/* ---- Broken plans ---- */

static void refuses(wt_run *r, const char *part)
{
    wf_plan_exec *e = (wf_plan_exec *)r->exec;
    wt_fails(r->ctx, r->device->ops->prepare_plan(e), WF_ERR_INTERNAL, part);
}

/* Moves one part of a concat at a time. The check device must refuse each plan. */
static void test_parts_elsewhere(void **state)
{
    wt_run r = wt_open(*state, "check:1");
    wf_graph *g = build(*state, &cases[0]);
    wt_ok(r.ctx, wf_compile_with(r.session, g, NULL, &r.exec));
    wf_graph_free(g);
    wf_plan *plan = ((wf_plan_exec *)r.exec)->plan;
    const wf_node *concat = NULL, *grad = NULL;
    int last = -1;
    for (int i = 0; i < plan->graph->node_count; i++)
        if (plan->graph->nodes[i]->op == WF_OP_concat)
            concat = plan->graph->nodes[i];
    for (int i = 0; i < plan->step_count; i++)
        if (plan->steps[i].node->op == WF_OP_attention_grad) {
            grad = plan->steps[i].node;
            last = i;
        }
    assert_true(concat && grad);
    wf_place *part = &plan->places[concat->in[1]->node->id][0];
    part->first++;
    refuses(&r, "(concat) is computed by no step");
    part->first--;
    part->stride[0]--;
    refuses(&r, "(concat) is computed by no step");
    part->stride[0]++;
    part->block++;
    refuses(&r, "(concat) is computed by no step");
    part->block--;
    plan->places[grad->id][2].first += C; /* past the end of the result */
    refuses(&r, "is outside its memory");
    plan->places[grad->id][2].first -= C;
    wf_step t = plan->steps[last]; /* runs exp before the gradient */
    plan->steps[last] = plan->steps[last + 1];
    plan->steps[last + 1] = t;
    refuses(&r, "(exp) runs before node");
    plan->steps[last + 1] = plan->steps[last];
    plan->steps[last] = t;
    wt_ok(r.ctx, r.device->ops->prepare_plan((wf_plan_exec *)r.exec));
    write_inputs(&r);
    wt_run_once(&r);
    wt_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_results),
        wt_test(test_gradient_of_slices),
        wt_test(test_parts_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
