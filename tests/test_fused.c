/* SPDX-License-Identifier: MIT */
/*
 * test_fused.c - fused ops have the bits of the separate ops for random shapes, types and views,
 * whichever outputs are read, on one thread and on two. Fused gradients compute the separate ops in
 * f32 and round once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/philox.h"
#include "graph/build.h"
#include "support.h"

#define ROUNDS 120
#define MAX_OPERANDS 6
#define MAX_RESULTS 4

/* A graph with a fused node and the nodes that it replaces, and their input data. */
typedef struct {
    wf_ctx *ctx;
    wf_graph *g;
    wf_rng rng;
    float scale; /* of the data; sometimes so large that sums overflow f16 */
    struct {
        void *bytes;
        size_t size;
    } given[MAX_OPERANDS];
    int operands;
    wf_value *fused[MAX_RESULTS], *plain[MAX_RESULTS];
    int results;
} pair;

static int64_t draw(pair *p, int64_t n)
{
    return (int64_t)wf_rng_below(&p->rng, (uint64_t)n);
}

static int64_t one_of(pair *p, const int64_t *from, int64_t n)
{
    return from[draw(p, n)];
}
#define ONE_OF(p, ...)                        \
    one_of(p, (const int64_t[]){__VA_ARGS__}, \
           (int64_t)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

static wf_type draw_type(pair *p)
{
    return (wf_type)ONE_OF(p, WF_F32, WF_F16, WF_BF16);
}

/* Adds an input with random data, which the pair keeps. */
static wf_value *input(pair *p, wf_type type, const wf_dims *shape)
{
    char name[16];
    int64_t count = wf_dims_count(shape);
    float *numbers = malloc((size_t)count * sizeof *numbers + 1);
    size_t size = wf_type_bytes(type, count);
    assert_true(p->operands < MAX_OPERANDS);
    void *bytes = p->given[p->operands].bytes = malloc(size + 1);
    p->given[p->operands].size = size;
    assert_true(numbers && bytes);
    wf_random_normal(wf_rng_u64(&p->rng), 0, 0, p->scale, numbers, count);
    wf_convert_from_f32(type, numbers, bytes, count);
    free(numbers);
    snprintf(name, sizeof name, "x%d", p->operands++);
    return wf_input(p->g, name, type, (int)shape->n, shape->d);
}

/* Returns an operand of this shape: an input, or a strided view of one. */
static wf_value *operand(pair *p, wf_type type, wf_dims shape)
{
    wf_dims whole = shape;
    int axis = (int)draw(p, shape.n);
    int64_t before = draw(p, 3), order[WF_MAX_RANK] = {1, 0, 2};
    switch (draw(p, 3)) {
    case 0: /* sliced */
        whole.d[axis] += before + 1;
        return wf_slice(p->g, input(p, type, &whole), axis, before, before + shape.d[axis]);
    case 1: /* permuted, except for the last axis */
        if (shape.n < 3)
            break;
        whole.d[0] = shape.d[1];
        whole.d[1] = shape.d[0];
        return wf_permute(p->g, input(p, type, &whole), order);
    default: break;
    }
    return input(p, type, &shape);
}

/* Draws up to two leading axes, before a given last one. */
static wf_dims draw_rows(pair *p, int64_t last)
{
    wf_dims shape = {draw(p, 4), {0}};
    shape.n = shape.n > 2 ? 2 : shape.n;
    for (int i = 0; i < shape.n; i++)
        shape.d[i] = shape.n == 1 ? ONE_OF(p, 0, 1, 2, 3, 5, 130, 300) : ONE_OF(p, 1, 2, 3, 17);
    shape.d[shape.n++] = last;
    return shape;
}

/* ---- The forms ---- */

static void take_outputs(wf_value **to, wf_value *first)
{
    for (int i = 0; first && i < first->node->nout; i++)
        to[i] = &first->node->out[i];
}

/* Residual add followed by a layer norm (`centered`) or an RMS norm. */
static void make_residual(pair *p, bool centered)
{
    int64_t length = ONE_OF(p, 1, 2, 7, 33, 64, 259);
    wf_type type = draw_type(p), other = draw(p, 3) == 0 ? draw_type(p) : type;
    wf_dims shape = draw_rows(p, length), row = {1, {length}};
    wf_attr_norm attr = {.eps = 1e-5};
    wf_value *in[4] = {operand(p, type, shape), operand(p, type, shape)};
    int nin = 2;
    for (int64_t params = draw(p, centered ? 3 : 2); params > 0; params--)
        in[nin++] = operand(p, other, row);

    wf_op op = centered ? WF_OP_residual_layer_norm : WF_OP_residual_rms_norm;
    p->results = centered ? 4 : 3;
    take_outputs(p->fused, wf_node_add(p->g, op, &attr, NULL, in, nin));
    p->plain[0] = wf_add(p->g, in[0], in[1]);
    take_outputs(&p->plain[1], centered ? wf_layer_norm(p->g, p->plain[0], in[2], in[3], attr.eps)
                                        : wf_rms_norm(p->g, p->plain[0], in[2], attr.eps));
}

static void make_residual_rms_norm(pair *p)
{
    make_residual(p, false);
}

static void make_residual_layer_norm(pair *p)
{
    make_residual(p, true);
}

static void make_linear_act(pair *p)
{
    static const char *const names[] = {"gelu", "gelu_erf", "silu", "relu", "relu2"};
    int64_t k = ONE_OF(p, 0, 1, 7, 64, 257, 300), n = ONE_OF(p, 0, 1, 9, 130, 140);
    wf_type type = draw_type(p), other = draw(p, 3) == 0 ? draw_type(p) : type;
    wf_attr_linear_act attr = {.act = draw(p, WF_ACT_COUNT)};
    wf_value *in[3] = {operand(p, type, draw_rows(p, k)), operand(p, other, (wf_dims){2, {n, k}})};
    int nin = 2;
    if (draw(p, 2))
        in[nin++] = operand(p, draw_type(p), (wf_dims){1, {n}});
    p->results = 2;
    take_outputs(p->fused, wf_node_add(p->g, WF_OP_linear_act, &attr, NULL, in, nin));
    p->plain[1] = wf_linear(p->g, in[0], in[1], in[2]);
    p->plain[0] = wf_unary(p->g, names[attr.act], p->plain[1]);
}

static wf_value *f32(pair *p, wf_value *x)
{
    return wf_cast(p->g, x, WF_F32);
}

/* Returns the sum of x's rows, in f32. */
static wf_value *rows_added(pair *p, wf_value *x)
{
    return wf_reduce(p->g, "sum", f32(p, wf_flatten_rows(p->g, x)), WF_AXIS(0), false);
}

/* The statistics are random values. */
static void make_residual_grad(pair *p, bool centered)
{
    int64_t length = ONE_OF(p, 1, 2, 7, 33, 64, 259);
    wf_type type = draw_type(p), other = draw(p, 3) == 0 ? draw_type(p) : type;
    wf_dims shape = draw_rows(p, length), row = {1, {length}}, leading = {shape.n - 1, {0}};
    memcpy(leading.d, shape.d, (size_t)leading.n * sizeof *leading.d);
    wf_attr_norm attr = {.eps = 1e-5};
    wf_value *in[6] = {operand(p, type, shape), operand(p, type, shape)}, *of[5];
    int nin = 2;
    for (int i = 0; i < (centered ? 2 : 1); i++)
        in[nin++] = input(p, WF_F32, &leading);
    of[0] = f32(p, in[0]);
    of[1] = f32(p, in[1]);
    memcpy(of + 2, in + 2, (size_t)(nin - 2) * sizeof *of);
    int dsum = nin++;
    in[dsum] = operand(p, type, shape);
    if (draw(p, 2))
        of[dsum] = in[nin++] = operand(p, other, row);

    p->results = centered ? 4 : 3;
    take_outputs(
        p->fused,
        wf_node_add(p->g, centered ? WF_OP_residual_layer_norm_grad : WF_OP_residual_rms_norm_grad,
                    &attr, NULL, in, nin));
    take_outputs(p->plain, wf_node_add(p->g, centered ? WF_OP_layer_norm_grad : WF_OP_rms_norm_grad,
                                       &attr, NULL, of, nin - 1));
    p->plain[0] = wf_add(p->g, p->plain[0], f32(p, in[dsum]));
    for (int i = 0; i < p->results - 1; i++)
        p->plain[i] = wf_cast(p->g, p->plain[i], p->fused[i]->type);
    p->plain[p->results - 1] = rows_added(p, p->plain[0]);
}

static void make_residual_rms_norm_grad(pair *p)
{
    make_residual_grad(p, false);
}

static void make_residual_layer_norm_grad(pair *p)
{
    make_residual_grad(p, true);
}

/* Leaves out bf16: its matmul may use another kernel than f32, with other bits. */
static wf_type draw_product_type(pair *p)
{
    return (wf_type)ONE_OF(p, WF_F32, WF_F16);
}

static void make_matmul_act_grad(pair *p)
{
    int64_t m = ONE_OF(p, 0, 1, 3, 130), n = ONE_OF(p, 0, 1, 7, 64, 300), k = ONE_OF(p, 1, 9, 140);
    wf_type type = draw_product_type(p);
    wf_attr_matmul_act_grad attr = {.act = WF_ACT_GELU};
    wf_value *in[] = {operand(p, type, (wf_dims){2, {m, n}}),
                      operand(p, type, (wf_dims){2, {n, k}}),
                      operand(p, type, (wf_dims){2, {m, k}})};
    p->results = 2;
    take_outputs(p->fused, wf_node_add(p->g, WF_OP_matmul_act_grad, &attr, NULL, in, 3));
    wf_value *product = wf_matmul(p->g, f32(p, in[0]), in[1], false, false);
    p->plain[0] = wf_cast(p->g, wf_gelu_grad(p->g, product, f32(p, in[2])), type);
    p->plain[1] = rows_added(p, p->plain[0]);
}

static void make_linear_grad_weight(pair *p)
{
    int64_t m = ONE_OF(p, 0, 1, 3, 300), n = ONE_OF(p, 0, 1, 7, 64, 300), k = ONE_OF(p, 0, 9, 140);
    wf_type type = draw_product_type(p);
    wf_value *in[] = {operand(p, type, (wf_dims){2, {m, n}}),
                      operand(p, type, (wf_dims){2, {m, k}})};
    p->results = 2;
    take_outputs(p->fused, wf_node_add(p->g, WF_OP_linear_grad_weight, NULL, NULL, in, 2));
    p->plain[0] = wf_matmul(p->g, f32(p, in[0]), f32(p, in[1]), true, false);
    p->plain[1] = rows_added(p, in[0]);
}

/* ---- Comparing ---- */

/* Expects an output such as "p0" to have the bits in *want; the first call sets *want. */
static void expect(pair *p, wt_run *r, char kind, int i, void **want)
{
    char name[16];
    size_t size = wf_type_bytes(p->plain[i]->type, wf_value_count(p->plain[i]));
    void *got = malloc(size + 1);
    assert_non_null(got);
    snprintf(name, sizeof name, "%c%d", kind, i);
    wt_read(r, name, got, size);
    if (!*want) {
        *want = got;
        return;
    }
    if (memcmp(got, *want, size) != 0) {
        char call[256];
        size_t len = 0;
        const wf_node *n = p->fused[0]->node;
        wf_call_print(wf_node_def(n), n->in, n->nin, n->attr, call, sizeof call, &len);
        fail_msg("%s: output %d has other bits than the separate ops", call, i);
    }
    free(got);
}

/* Runs a graph on the pair's data and compares the outputs in `mask`: p0, ... of the separate ops
 * and f0, ... of the fused one. */
static void run(pair *p, wf_graph *g, const char *device, int64_t mask, void **want)
{
    wt_run r = wt_open(p->ctx, device);
    const wf_compile_options as_written = {.without = WF_PASS_FOLD | WF_PASS_FUSE};
    wt_ok(p->ctx, wf_compile_with(r.session, g, &as_written, &r.exec));
    for (int i = 0; i < p->operands; i++) {
        char name[16];
        snprintf(name, sizeof name, "x%d", i);
        wt_write(&r, name, p->given[i].bytes, p->given[i].size);
    }
    wt_run_once(&r);
    for (int i = 0; i < p->results; i++)
        if (mask & 1 << i) {
            expect(p, &r, 'p', i, &want[i]);
            expect(p, &r, 'f', i, &want[i]);
        }
    wt_close(&r);
}

static void name_outputs(pair *p, int64_t mask)
{
    for (int i = 0; i < p->results; i++) {
        char name[16];
        if (!(mask & 1 << i))
            continue;
        snprintf(name, sizeof name, "p%d", i);
        wt_ok(p->ctx, wf_output(p->g, name, p->plain[i]));
        snprintf(name, sizeof name, "f%d", i);
        wt_ok(p->ctx, wf_output(p->g, name, p->fused[i]));
    }
}

static bool is_not(const wf_node *n, void *op)
{
    return n->op != *(const wf_op *)op;
}

/* Runs one random case: the fused op and its expansion, with a random subset of outputs. */
static void one_round(wf_ctx *ctx, void (*make)(pair *), uint64_t stream)
{
    static const float scales[] = {1, 1, 0.1f, 200};
    pair p = {.ctx = ctx, .g = wt_graph(ctx)};
    void *want[MAX_RESULTS] = {NULL};
    wf_graph *expanded;
    wf_rng_init(&p.rng, wt_seed(), stream);
    p.scale = scales[draw(&p, 4)];
    make(&p);
    wt_ok(ctx, p.g->status);
    int64_t mask = 1 + draw(&p, (1 << p.results) - 1);
    name_outputs(&p, mask);
    wt_ok(ctx, wf_pass_expand(p.g, is_not, &p.fused[0]->node->op, &expanded));
    run(&p, p.g, "cpu:1", mask, want);
    run(&p, p.g, "cpu:2", mask, want);
    run(&p, expanded, "cpu:2", mask, want);
    for (int i = 0; i < p.operands; i++)
        free(p.given[i].bytes);
    for (int i = 0; i < p.results; i++)
        free(want[i]);
    wf_graph_free(expanded);
    wf_graph_free(p.g);
}

static void test_residual_rms_norm(void **state)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        one_round(*state, make_residual_rms_norm, i);
}

static void test_residual_layer_norm(void **state)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        one_round(*state, make_residual_layer_norm, 1000 + i);
}

static void test_linear_act(void **state)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        one_round(*state, make_linear_act, 2000 + i);
}

static void test_residual_rms_norm_grad(void **state)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        one_round(*state, make_residual_rms_norm_grad, 3000 + i);
}

static void test_residual_layer_norm_grad(void **state)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        one_round(*state, make_residual_layer_norm_grad, 4000 + i);
}

static void test_matmul_act_grad(void **state)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        one_round(*state, make_matmul_act_grad, 5000 + i);
}

static void test_linear_grad_weight(void **state)
{
    for (uint64_t i = 0; i < ROUNDS; i++)
        one_round(*state, make_linear_grad_weight, 6000 + i);
}

/* ---- Memory of unread outputs ---- */

/* Returns the bytes of ports and activations without the workspace, when one output is read. */
static uint64_t region(wf_ctx *ctx, wf_op op, int output)
{
    wf_memory memory;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = wt_graph(ctx);
    wf_value *in[] = {wf_input(g, "a", WF_F32, 2, (int64_t[]){64, 64}),
                      wf_input(g, "b", WF_F32, 2, (int64_t[]){64, 64})};
    wf_attr_norm norm = {.eps = 1e-5};
    wf_attr_linear_act act = {.act = WF_ACT_GELU};
    const void *attr = op == WF_OP_linear_act ? (const void *)&act : &norm;
    wf_value *v = wf_node_add(g, op, attr, NULL, in, 2);
    wf_output(g, "y", wf_value_output(v, output));
    wt_compile(&r, g);
    wf_exec_memory(r.exec, &memory);
    wt_close(&r);
    return memory.ports + memory.activations - memory.workspace;
}

/* Memory for two operands and one result: the sum and the activation's input are not stored. */
static void test_unread_outputs_are_not_stored(void **state)
{
    assert_int_equal(region(*state, WF_OP_residual_rms_norm, 1), 3 * 64 * 64 * sizeof(float));
    assert_int_equal(region(*state, WF_OP_residual_layer_norm, 1), 3 * 64 * 64 * sizeof(float));
    assert_int_equal(region(*state, WF_OP_linear_act, 0), 3 * 64 * 64 * sizeof(float));
}

/* wf_act_find is the inverse of wf_act_op. */
static void test_activations_are_numbered(void **state)
{
    (void)state;
    for (int i = 0; i < WF_ACT_COUNT; i++)
        assert_int_equal(wf_act_find(wf_act_op(i)), i);
    assert_int_equal(wf_act_find(WF_OP_tanh), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_residual_rms_norm),
        wt_test(test_residual_layer_norm),
        wt_test(test_linear_act),
        wt_test(test_residual_rms_norm_grad),
        wt_test(test_residual_layer_norm_grad),
        wt_test(test_matmul_act_grad),
        wt_test(test_linear_grad_weight),
        wt_test(test_unread_outputs_are_not_stored),
        wt_test(test_activations_are_numbered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
