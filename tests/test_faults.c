/* SPDX-License-Identifier: MIT */
/*
 * test_faults.c - fails every allocation of every stage in turn, from opening a device to expanding
 * a graph. The stage must then return WF_ERR_MEMORY, leak nothing, and leave its inputs usable.
 *
 * Nodes are allocated from large chunks, so failing allocations alone would hit few of them. Tests
 * of builders and rules therefore start with a partly filled chunk, and try all amounts of room.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "graph/build.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

/* ---- Failing each allocation in turn ---- */

/* Does something and undoes it: the context has as many blocks afterwards as before. */
typedef wf_status stage_fn(wf_ctx *ctx, void *arg);

/* Runs fn and fails its nth allocation. Returns whether fn made that many. */
static bool fails_at(wf_ctx *ctx, uint64_t nth, stage_fn *fn, void *arg)
{
    uint64_t blocks = wt_live_blocks(ctx);
    wf_ctx_clear(ctx);
    wf_ctx_fail_allocation(ctx, nth);
    wf_status status = fn(ctx, arg);
    bool reached = ctx->fail_in_calls == 0;
    wf_ctx_fail_allocation(ctx, 0);
    if (wt_live_blocks(ctx) != blocks)
        fail_msg("allocation %d failed and %d blocks were left", (int)nth,
                 (int)(wt_live_blocks(ctx) - blocks));
    if (reached)
        wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
    else
        wt_ok(ctx, status);
    return reached;
}

/* Fails each allocation of fn in turn. Returns how many there are. */
static int sweep(wf_ctx *ctx, stage_fn *fn, void *arg)
{
    uint64_t nth = 1;
    while (fails_at(ctx, nth, fn, arg))
        nth++;
    return (int)nth - 1;
}

/* ---- Devices, sessions, the host level ---- */

static wf_status open_and_close(wf_ctx *ctx, void *arg)
{
    wf_device *device = NULL;
    wf_session *session = NULL;
    (void)arg;
    wf_status status = wf_device_open(ctx, "cpu:2", &device);
    if (status == WF_OK)
        status = wf_session_new(device, &session);
    assert_int_equal(session != NULL, status == WF_OK);
    wf_session_free(session);
    wf_device_close(device);
    return status;
}

static wf_status call_op(wf_ctx *ctx, void *device)
{
    float x[] = {1, 2, 3, 4}, y[4] = {0};
    wf_tensor in[2] = {{WF_F32, 2, {2, 2}, x}, {WF_F32, 2, {2, 2}, x}}, out = {.data = y};
    (void)ctx;
    wf_status status = wf_call_op(device, "matmul", "transpose_a=1", in, 2, &out, 1);
    assert_true(status != WF_OK || y[0] == 10);
    return status;
}

static wf_status call_update(wf_ctx *ctx, void *device)
{
    float x[] = {1, 2, 3, 4}, y[4] = {0};
    wf_tensor in[2] = {{WF_F32, 1, {4}, x}, {WF_F32, 1, {4}, x}}, out = {.data = y};
    (void)ctx;
    wf_status status = wf_call_op(device, "accumulate", NULL, in, 2, &out, 1);
    assert_true(status != WF_OK || y[3] == 8);
    return status;
}

typedef struct {
    wf_device *device;
    wf_graph *g;
} call_job;

static wf_status call_graph(wf_ctx *ctx, void *arg)
{
    const call_job *job = arg;
    float x = 3, y = 0, s = 1;
    wf_array in[] = {{"x", &x, 4}, {"s", &s, 4}}, out[] = {{"y", &y, 4}, {"s", &s, 4}};
    (void)ctx;
    wf_status status = wf_call(job->device, job->g, in, 2, out, 2);
    assert_true(status == WF_OK ? y == 6 && s == 4 : y == 0 && s == 1);
    return status;
}

static void test_devices_and_calls(void **state)
{
    wf_ctx *ctx = *state;
    call_job job;
    assert_true(sweep(ctx, open_and_close, NULL) >= 3);
    wt_ok(ctx, wf_device_open(ctx, "cpu:1", &job.device));
    assert_true(sweep(ctx, call_op, job.device) > 20);
    assert_true(sweep(ctx, call_update, job.device) > 20);
    wt_ok(ctx, wf_graph_new(ctx, &job.g));
    wf_value *x = wf_input(job.g, "x", WF_F32, 0, NULL);
    wf_output(job.g, "y", wf_scale(job.g, x, 2));
    wf_accumulate(job.g, wf_state(job.g, "s", WF_F32, 0, NULL), x, NULL);
    assert_true(sweep(ctx, call_graph, &job) > 20);
    wf_graph_free(job.g);
    wf_device_close(job.device);
}

/* ---- Building ---- */

#define STEP 128 /* increment of the room, in bytes: smaller than a node */

/* Leaves this many bytes in the arena's current chunk. */
static void leave_room(wf_ctx *ctx, wf_arena *arena, size_t room)
{
    const size_t chunk = WF_ARENA_CHUNK - 32, piece = 1024; /* 32: header of a chunk */
    wf_mem_stats before, now;
    wf_ctx_mem_stats(ctx, &before);
    do {
        assert_non_null(wf_arena_alloc(arena, piece));
        wf_ctx_mem_stats(ctx, &now);
    } while (now.calls == before.calls);
    assert_true(room <= chunk - piece);
    for (size_t fill = chunk - piece - room; fill > 0;) {
        size_t bytes = fill < piece ? fill : piece;
        assert_non_null(wf_arena_alloc(arena, bytes));
        fill -= bytes;
    }
    wf_ctx_mem_stats(ctx, &before);
    assert_int_equal(before.calls, now.calls);
}

/* A graph that failed to allocate refuses further nodes. */
static wf_status check_built(wf_ctx *ctx, wf_graph *g)
{
    wf_status status = wf_graph_status(g);
    if (status != WF_OK) {
        int nodes = g->node_count;
        wf_value *x = wf_fill(g, WF_F32, 0, NULL, 1);
        assert_null(x);
        assert_null(wf_scale(g, x, 2));
        assert_int_equal(wf_output(g, "late", x), status);
        assert_int_equal(g->node_count, nodes);
        wt_fails(ctx, wf_graph_verify(g), WF_ERR_MEMORY, "out of memory");
    }
    return status;
}

/* Builds a model, its gradients and its updates in a graph with some room. */
static wf_status build_model(wf_ctx *ctx, void *arg)
{
    uint64_t nth = ctx->fail_in_calls;
    wf_graph *g = NULL;
    wt_model m;
    if (*(size_t *)arg > 0)
        wf_ctx_fail_allocation(ctx, 0); /* not yet */
    wf_status status = wf_graph_new(ctx, &g);
    if (status == WF_OK) {
        if (*(size_t *)arg > 0) {
            leave_room(ctx, &g->arena, *(size_t *)arg);
            wf_ctx_fail_allocation(ctx, nth);
        }
        wt_forward(g, &wt_tiny, &m);
        wt_train(g, &m);
        status = check_built(ctx, g);
    }
    wf_graph_free(g);
    return status;
}

/* Names an input as output, which needs a copy node, a list entry and the name. */
static wf_status name_output(wf_ctx *ctx, void *arg)
{
    uint64_t nth = ctx->fail_in_calls;
    wf_graph *g;
    wf_ctx_fail_allocation(ctx, 0);
    wt_ok(ctx, wf_graph_new(ctx, &g));
    wf_value *x = wf_input(g, "x", WF_F32, 0, NULL);
    leave_room(ctx, &g->arena, *(size_t *)arg);
    wf_ctx_fail_allocation(ctx, nth);
    wf_status status = wf_output(g, "y", x);
    assert_int_equal(g->output_count, status == WF_OK);
    assert_int_equal(check_built(ctx, g), status);
    wf_graph_free(g);
    return status;
}

static void test_building(void **state)
{
    int points = 0;
    for (size_t room = 0; room < 1024; room += 16)
        points += sweep(*state, name_output, &room);
    for (size_t room = 0; room < WF_ARENA_CHUNK - 2048; room += STEP)
        points += sweep(*state, build_model, &room);
    print_message("building: %d failures\n", points);
    assert_true(points > 1000);
}

/* Only wf_grad runs out of memory. */
static wf_status build_gradient(wf_ctx *ctx, void *arg)
{
    uint64_t nth = ctx->fail_in_calls;
    wf_graph *g;
    wt_model m;
    wf_ctx_fail_allocation(ctx, 0);
    wt_ok(ctx, wf_graph_new(ctx, &g));
    wt_forward(g, &wt_tiny, &m);
    leave_room(ctx, &g->arena, *(size_t *)arg);
    wf_ctx_fail_allocation(ctx, nth);
    wf_status status = wf_grad(g, m.loss, m.param, m.count, m.grad);
    for (int i = 0; i < m.count; i++)
        assert_int_equal(m.grad[i] != NULL, status == WF_OK);
    assert_int_equal(check_built(ctx, g), status);
    wf_graph_free(g);
    return status;
}

static void test_gradients(void **state)
{
    int points = 0;
    for (size_t room = 0; room < WF_ARENA_CHUNK - 2048; room += STEP)
        points += sweep(*state, build_gradient, &room);
    print_message("gradients: %d failures\n", points);
    assert_true(points > 500);
}

/* ---- Expansion ---- */

typedef struct {
    const wf_node *node; /* node to expand */
    size_t room;
} rule_job;

/* Expands one node in a new graph, on operands like the node's. */
static wf_status expand_one(wf_ctx *ctx, void *arg)
{
    const rule_job *job = arg;
    const wf_node *n = job->node;
    uint64_t nth = ctx->fail_in_calls;
    wf_graph *g;
    wf_value *in[64], *out[WF_MAX_OUT] = {NULL};
    assert_true(n->nin <= 64);
    wf_ctx_fail_allocation(ctx, 0);
    wt_ok(ctx, wf_graph_new(ctx, &g));
    for (int i = 0; i < n->nin; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        in[i] = wf_state(g, name, n->in[i]->type, (int)n->in[i]->shape.n, n->in[i]->shape.d);
    }
    leave_room(ctx, &g->arena, job->room);
    wf_ctx_fail_allocation(ctx, nth);
    wf_status status = wf_node_def(n)->expand(g, n, in, out);
    if (status == WF_OK)
        status = wf_graph_status(g);
    for (int i = 0; i < n->nout && status == WF_OK; i++)
        assert_true(out[i] && wf_dims_equal(&out[i]->shape, &n->out[i].shape));
    wf_graph_free(g);
    return status;
}

/* Builds every op with an expansion that wt_train lacks, and both kinds of attention. */
static void build_rest(wf_graph *g)
{
    static const char *const unary[] = {"neg", "gelu_erf", "silu", "relu", "relu2"};
    wf_value *x = wf_input(g, "x", WF_F32, 3, D(4, 2, 2)), *one = wf_fill(g, WF_F32, 0, NULL, 1);
    wf_value *y = x, *grad;
    for (size_t i = 0; i < sizeof unary / sizeof *unary; i++)
        y = wf_unary(g, unary[i], y);
    wf_grad(g, wf_sum(g, wf_softmax(g, y), 7, false), &x, 1, &grad);
    wf_value *start = wf_iota(g, 1, D(3), 0), *positions = wf_iota(g, 1, D(4), 0);
    wf_value *table = wf_iota(g, 2, D(2, 3), 1), *lengths = wf_iota(g, 1, D(2), 0);
    wf_value *pool = wf_state(g, "pool", WF_F32, 4, D(5, 2, 1, 2));
    wf_attention_paged(g, x, pool, pool, start, positions, table, lengths,
                       &(wf_attention_options){.window = 2, .softcap = 5});
    wf_value *p = wf_state(g, "rest", WF_F32, 3, D(4, 2, 2)),
             *v = wf_state(g, "velocity", WF_F32, 3, D(4, 2, 2));
    p = wf_accumulate(g, p, x, NULL);
    p = wf_sgd(g, p, v, x, one, NULL, NULL, &(wf_sgd_options){0.9, 0.1, true});
    wf_lion(g, p, wf_state(g, "moment", WF_F32, 3, D(4, 2, 2)), x, one, NULL, NULL, NULL);
    wf_cross_entropy(
        g, x, wf_fill(g, WF_I32, 2, D(4, 2), 1),
        &(wf_cross_entropy_options){.label_smoothing = 0.1, .z_loss = 1, .softcap = 9});
    wt_merged(g, wf_slice(g, wf_reshape(g, x, 2, D(4, 4)), 1, 0, 2));
}

/* Builds the fused ops, which have no builder function. */
static void build_fused(wf_graph *g)
{
    wf_attr_norm norm = {.eps = 1e-5};
    wf_attr_linear_act act = {.act = WF_ACT_SILU};
    wf_attr_matmul_act_grad slope = {.act = WF_ACT_GELU};
    wf_value *x = wf_input(g, "fused x", WF_F32, 2, D(3, 3));
    wf_value *v = wf_input(g, "fused v", WF_F32, 1, D(3)), *in[] = {x, x, v, v};
    wf_node_add(g, WF_OP_residual_rms_norm, &norm, NULL, in, 3);
    wf_node_add(g, WF_OP_residual_layer_norm, &norm, NULL, in, 4);
    wf_node_add(g, WF_OP_linear_act, &act, NULL, in, 3);
    wf_node_add(g, WF_OP_residual_rms_norm_grad, &norm, NULL, (wf_value *[]){x, x, v, x}, 4);
    wf_node_add(g, WF_OP_residual_layer_norm_grad, &norm, NULL, (wf_value *[]){x, x, v, v, x, v},
                6);
    wf_node_add(g, WF_OP_matmul_act_grad, &slope, NULL, (wf_value *[]){x, x, x}, 3);
    wf_node_add(g, WF_OP_linear_grad_weight, NULL, NULL, in, 2);
}

/* Runs the expansion of every op out of memory at each of its nodes. */
static void test_expansion_rules(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g;
    wt_model m;
    int points = 0;
    bool seen[WF_OP_COUNT] = {false};
    wt_ok(ctx, wf_graph_new(ctx, &g));
    wt_forward(g, &wt_tiny, &m);
    wt_train(g, &m);
    build_rest(g);
    build_fused(g);
    wt_ok(ctx, wf_graph_status(g));
    for (int i = 0; i < g->node_count; i++) {
        const wf_node *n = g->nodes[i];
        rule_job job = {.node = n};
        /* one of each op, but linear with and without bias, and both kinds of attention */
        bool known = seen[n->op] && !(n->op == WF_OP_linear && n->nin == 3) && n->nin != 7;
        seen[n->op] = true;
        if (known || wf_op_is_core(n->op))
            continue;
        int failed = 1;
        for (job.room = 0; failed > 0 && job.room < WF_ARENA_CHUNK - 2048; job.room += 2 * STEP)
            points += failed = sweep(ctx, expand_one, &job);
    }
    for (int i = 0; i < WF_OP_COUNT; i++)
        if (!seen[i] && !wf_op_is_core((wf_op)i))
            fail_msg("the expansion of %s was not tried", wf_op_get((wf_op)i)->name);
    wf_graph_free(g);
    print_message("expansion rules: %d failures\n", points);
    assert_true(points > 300);
}

static wf_status expand_graph(wf_ctx *ctx, void *arg)
{
    wf_graph *core = NULL;
    (void)ctx;
    wf_status status = wf_pass_expand(arg, NULL, NULL, &core);
    assert_int_equal(core != NULL, status == WF_OK);
    wf_graph_free(core);
    return status;
}

/* Tests the pass on a graph that takes several rounds. */
static void test_expansion(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g;
    wt_ok(ctx, wf_graph_new(ctx, &g));
    wf_value *x = wf_input(g, "x", WF_F32, 2, D(2, 3)), *w = wf_state(g, "w", WF_F32, 2, D(3, 3));
    wf_value *y = wf_rms_norm(g, wf_glu(g, wf_linear(g, x, w, NULL), x, WF_GLU_SILU), NULL, 1e-5);
    wf_value *loss = wf_reduce(g, "mean", y, 3, false), *grad;
    wt_ok(ctx, wf_grad(g, loss, &w, 1, &grad));
    wf_output(g, "dw", grad);
    int points = sweep(ctx, expand_graph, g);
    wf_graph_free(g);
    print_message("expansion: %d failures\n", points);
    assert_true(points > 100);
}

/* ---- Compiling and running ---- */

typedef struct {
    wf_session *session;
    wf_graph *g;
} compile_job;

static wf_status compile(wf_ctx *ctx, void *arg)
{
    const compile_job *job = arg;
    wf_exec *exec = NULL;
    (void)ctx;
    wf_status status = wf_compile(job->session, job->g, &exec);
    assert_int_equal(exec != NULL, status == WF_OK);
    wf_exec_free(exec);
    return status;
}

/* Compiles and frees in a new session. */
static wf_status compile_anew(wf_ctx *ctx, void *arg)
{
    const call_job *job = arg;
    compile_job inner = {.g = job->g};
    wf_status status = wf_session_new(job->device, &inner.session);
    if (status == WF_OK)
        status = compile(ctx, &inner);
    wf_session_free(inner.session);
    return status;
}

/* Returns the loss after a run. step 0: the graph has no training step. */
static float loss_of(wf_ctx *ctx, wf_session *session, wf_graph *g, const wt_model *m, int32_t step)
{
    wf_exec *exec;
    wf_mem_stats before, after;
    float loss;
    wt_ok(ctx, wf_compile(session, g, &exec));
    wf_ctx_mem_stats(ctx, &before);
    wt_ok(ctx, wt_write_params(session, m));
    wt_ok(ctx, wt_write_inputs(exec, &m->size, step));
    wt_ok(ctx, wf_exec_run(exec));
    wt_ok(ctx, wf_exec_read(exec, "loss", &loss, sizeof loss));
    wf_ctx_mem_stats(ctx, &after);
    assert_int_equal(after.calls, before.calls); /* running allocates nothing, so it cannot fail */
    wf_exec_free(exec);
    return loss;
}

static void test_compiling(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    call_job job = {.device = r.device};
    wt_model m;
    wt_ok(ctx, wf_graph_new(ctx, &job.g));
    wt_forward(job.g, &wt_tiny, &m);
    int points = sweep(ctx, compile_anew, &job); /* creates the states */
    float before = loss_of(ctx, r.session, job.g, &m, 0);
    points += sweep(ctx, compile, &(compile_job){r.session, job.g}); /* uses existing states */
    assert_true(before == loss_of(ctx, r.session, job.g, &m, 0));
    wt_train(job.g, &m);
    points += sweep(ctx, compile_anew, &job);
    assert_true(loss_of(ctx, r.session, job.g, &m, 1) > 0);
    wf_graph_free(job.g);
    wt_close(&r);
    print_message("compiling: %d failures\n", points);
    assert_true(points > 300);
}

/* Long input names shift the end of a chunk through everything that a plan and an executable
 * allocate. */
static void test_compiling_with_long_names(void **state)
{
    wf_ctx *ctx = *state;
    static char names[4][16001];
    int points = 0;
    wt_run r = wt_open(ctx, "cpu:1");
    for (int length = 12000; length < 16000; length += 100) {
        compile_job job = {.session = r.session};
        wf_value *in[4];
        wt_ok(ctx, wf_graph_new(ctx, &job.g));
        for (int i = 0; i < 4; i++) {
            memset(names[i], 'a' + i, 16000);
            names[i][i == 0 ? length : 16000] = 0;
            in[i] = wf_input(job.g, names[i], WF_F32, 2, D(2, 2));
        }
        for (int i = 0; i < 4; i++)
            wf_output(job.g, (char[]){(char)('a' + i), 0}, wf_softmax(job.g, in[i]));
        /* allocations for the session remain, so make them before the sweep */
        wt_ok(ctx, compile(ctx, &job));
        points += sweep(ctx, compile, &job);
        wf_graph_free(job.g);
    }
    wt_close(&r);
    print_message("compiling with long names: %d failures\n", points);
    assert_true(points > 500);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_devices_and_calls),         wt_test(test_building),  wt_test(test_gradients),
        wt_test(test_expansion_rules),           wt_test(test_expansion), wt_test(test_compiling),
        wt_test(test_compiling_with_long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
