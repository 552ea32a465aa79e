/* SPDX-License-Identifier: MIT */
/*
 * test_quant_ops.c - graphs over quantized states: results are bitwise equal to those over the
 * dequantized values, bytes are written and read unchanged, and unsupported ops are refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "graph/cost.h"
#include "support.h"

#define DIMS(...)                                                          \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) \
    {                                                                      \
        __VA_ARGS__                                                        \
    }

#define QUANTIZED(A, NAME, ...) WF_##NAME,
static const wf_type types[] = {WF_QUANT_TABLE(QUANTIZED, 0)};

enum { N = 137, K = 512, MOST = 150 };

/* A weight [N, K] in blocks, and its dequantized values. */
typedef struct {
    wf_type type;
    size_t size;
    uint8_t bytes[N * K * 2];
    float wide[N * K];
} weight;

static weight *make_weight(wf_ctx *ctx, wf_type type)
{
    static weight w;
    w.type = type;
    w.size = wf_type_bytes(type, N * K);
    wf_random_normal(21, (uint64_t)type, 0, 0.1f, w.wide, N * K);
    wt_ok(ctx, wf_type_from_f32(ctx, type, w.wide, w.bytes, N * K));
    wt_ok(ctx, wf_type_to_f32(ctx, type, w.bytes, w.wide, N * K));
    return &w;
}

/* Compiles a graph with a state w, either blocks or (wide) their dequantized values. Runs it on the
 * inputs that it has, of x [rows, K], ids i32[rows] and targets i32[rows], and reads its output
 * y. */
static void run(wf_ctx *ctx, const char *device, wf_graph *g, const weight *w, bool wide,
                wf_type x_type, int64_t rows, void *y, size_t bytes)
{
    static float x[MOST * K];
    static uint8_t narrow[MOST * K * 4];
    int32_t ids[MOST];
    wt_run r = wt_open(ctx, device);
    wt_compile(&r, g);
    wt_ok(ctx, wf_session_write(r.session, "w", wide ? (const void *)w->wide : w->bytes,
                                wide ? sizeof w->wide : w->size));
    wf_random_normal(22, 0, 0, 1, x, rows * K);
    wt_ok(ctx, wf_type_from_f32(ctx, x_type, x, narrow, rows * K));
    for (int i = 0; i < rows; i++)
        ids[i] = i * 31 % N;
    wf_info info;
    for (int i = 0; wf_exec_input(r.exec, i, &info); i++)
        wt_write(&r, info.name, info.type == WF_I32 ? (void *)ids : narrow, info.bytes);
    wt_run_once(&r);
    wt_read(&r, "y", y, bytes);
    wt_close(&r);
}

static wf_value *weight_state(wf_graph *g, const weight *w, bool wide)
{
    return wf_state(g, "w", wide ? WF_F32 : w->type, DIMS(N, K));
}

/* ---- Matmuls ---- */

static wf_graph *linear_graph(wf_ctx *ctx, const weight *w, bool wide, wf_type type, int64_t rows)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", type, DIMS(rows, K));
    wf_output(g, "y", wf_linear(g, x, weight_state(g, w, wide), NULL));
    return g;
}

static void test_linear(void **state)
{
    static const int64_t rows[] = {1, 2, 3, 140};
    static const wf_type floats[] = {WF_F32, WF_F16, WF_BF16};
    static float want[MOST * N], got[MOST * N];
    for (int t = 0; t < WF_BLOCK_TYPES; t++) {
        const weight *w = make_weight(*state, types[t]);
        for (int i = 0; i < 4; i++)
            for (int f = 0; f < 3; f++) {
                size_t bytes = wf_type_bytes(floats[f], rows[i] * N);
                run(*state, "cpu:2", linear_graph(*state, w, true, floats[f], rows[i]), w, true,
                    floats[f], rows[i], want, bytes);
                run(*state, i % 2 ? "check" : "cpu:2",
                    linear_graph(*state, w, false, floats[f], rows[i]), w, false, floats[f],
                    rows[i], got, bytes);
                assert_memory_equal(got, want, bytes);
            }
    }
}

/* The gradient of a sum of squares through a linear, an activation and rows of the same table:
 * everything that LoRA on a frozen model needs. */
static wf_graph *gradient_graph(wf_ctx *ctx, const weight *w, bool wide, int64_t rows)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, DIMS(rows, K)), *table = weight_state(g, w, wide), *dx;
    wf_value *ids = wf_input(g, "ids", WF_I32, DIMS(rows));
    wf_value *all = wf_binary(g, "add", x, wf_embed(g, table, ids));
    wf_value *y = wf_unary(g, "silu", wf_linear(g, all, table, NULL));
    wf_value *loss = wf_reduce(g, "sum", wf_binary(g, "mul", y, y), 3, false);
    wt_ok(ctx, wf_grad(g, loss, &x, 1, &dx));
    wf_output(g, "y", dx);
    return g;
}

static void test_gradient(void **state)
{
    static float want[MOST * K], got[MOST * K];
    for (int t = 0; t < WF_BLOCK_TYPES; t++) {
        const weight *w = make_weight(*state, types[t]);
        for (int64_t rows = 1; rows < 140; rows += 67) {
            size_t bytes = (size_t)(rows * K) * sizeof *got;
            run(*state, "cpu:1", gradient_graph(*state, w, true, rows), w, true, WF_F32, rows, want,
                bytes);
            run(*state, "check", gradient_graph(*state, w, false, rows), w, false, WF_F32, rows,
                got, bytes);
            assert_memory_equal(got, want, bytes);
        }
    }
}

/* The head of a model with frozen weights. */
static wf_graph *head_graph(wf_ctx *ctx, const weight *w, bool wide, int64_t rows)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, DIMS(rows, K)), *dx;
    wf_value *targets = wf_input(g, "targets", WF_I32, DIMS(rows));
    wf_value *logits = wf_linear(g, x, weight_state(g, w, wide), NULL);
    wf_value *loss = wf_reduce(g, "sum", wf_cross_entropy(g, logits, targets, NULL), 1, false);
    wt_ok(ctx, wf_grad(g, loss, &x, 1, &dx));
    wf_output(g, "y", wf_copy(g, dx));
    wf_output(g, "loss", loss);
    return g;
}

static bool has_op(wf_ctx *ctx, wf_graph *g, const char *op)
{
    wt_run r = wt_open(ctx, "cpu:1");
    wt_compile(&r, g);
    wt_ok(ctx, WF_OK);
    float x[3 * K] = {0};
    int32_t ids[3] = {0};
    wf_op_stats stats;
    bool found = false;
    wt_write(&r, "x", x, sizeof x);
    wt_write(&r, "targets", ids, sizeof ids);
    wt_run_once(&r);
    for (int i = 0; wf_exec_op_stats(r.exec, i, &stats); i++)
        found |= strcmp(stats.op, op) == 0;
    wt_close(&r);
    return found;
}

static void test_head(void **state)
{
    static float want[MOST * K], got[MOST * K];
    for (int t = 0; t < WF_BLOCK_TYPES; t++) {
        const weight *w = make_weight(*state, types[t]);
        run(*state, "cpu:1", head_graph(*state, w, true, 9), w, true, WF_F32, 9, want,
            9 * K * sizeof *got);
        run(*state, "cpu:2", head_graph(*state, w, false, 9), w, false, WF_F32, 9, got,
            9 * K * sizeof *got);
        assert_memory_equal(got, want, 9 * K * sizeof *got);
        assert_true(has_op(*state, head_graph(*state, w, false, 3), "head_loss"));
    }
}

/* ---- Views: rows, and whole blocks of rows ---- */

static wf_graph *view_graph(wf_ctx *ctx, const weight *w, bool wide)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *all = weight_state(g, w, wide), *x = wf_input(g, "x", WF_F32, DIMS(3, K));
    wf_value *some = wf_slice(g, all, 0, 5, 133);
    wf_value *right = wf_slice(g, some, 1, 256, 512);
    wf_value *y = wf_linear(g, wf_slice(g, x, 1, 0, 256), right, NULL);
    wf_value *pairs =
        wf_permute(g, wf_reshape(g, some, 3, (int64_t[]){64, 2, K}), (int64_t[]){1, 0, 2});
    wf_value *odd = wf_reshape(g, wf_slice(g, pairs, 0, 1, 2), 2, (int64_t[]){64, K});
    wf_value *z = wf_linear(g, x, odd, NULL);
    wf_output(g, "y", wf_concat(g, (wf_value *[]){y, z}, 2, 1));
    return g;
}

static void test_views(void **state)
{
    float want[3 * 192], got[3 * 192];
    for (int t = 0; t < WF_BLOCK_TYPES; t++) {
        const weight *w = make_weight(*state, types[t]);
        run(*state, "cpu:1", view_graph(*state, w, true), w, true, WF_F32, 3, want, sizeof want);
        run(*state, "check", view_graph(*state, w, false), w, false, WF_F32, 3, got, sizeof got);
        assert_memory_equal(got, want, sizeof want);
        wt_run r = wt_open(*state, "cpu:1");
        wt_compile(&r, view_graph(*state, w, false));
        wf_run_stats stats;
        wf_exec_stats(r.exec, &stats);
        assert_int_equal(stats.bytes_copied, 0); /* weights are read without a copy */
        wt_close(&r);
    }
}

/* ---- States ---- */

static void test_states(void **state)
{
    wf_ctx *ctx = *state;
    static uint8_t back[N * K * 2], file[N * K * 2 + 64];
    static float want[3 * N], got[3 * N];
    for (int t = 0; t < WF_BLOCK_TYPES; t++) {
        const weight *w = make_weight(ctx, types[t]);
        char path[] = "/tmp/weft-quant-XXXXXX";
        int fd = mkstemp(path);
        assert_true(fd >= 0);
        memcpy(file + 34, w->bytes, w->size);
        assert_int_equal(write(fd, file, w->size + 34), w->size + 34);
        close(fd);

        wf_graph *g = linear_graph(ctx, w, false, WF_F32, 3);
        wt_run r = wt_open(ctx, "cpu:1");
        wf_memory plan, memory;
        wt_ok(ctx, wf_plan_memory(r.device, g, NULL, &plan));
        assert_int_equal(plan.states, w->size);
        wt_compile(&r, g);
        wf_exec_memory(r.exec, &memory);
        assert_int_equal(memory.states, w->size);
        wt_ok(ctx, wf_session_write(r.session, "w", w->bytes, w->size));
        wt_ok(ctx, wf_session_read(r.session, "w", back, w->size));
        assert_memory_equal(back, w->bytes, w->size);
        wt_close(&r);
        run(ctx, "cpu:1", linear_graph(ctx, w, false, WF_F32, 3), w, false, WF_F32, 3, want,
            sizeof want);

        r = wt_open(ctx, "cpu:2");
        wt_fails(ctx, wf_session_map(r.session, "w", types[t], DIMS(N, K), path, 33), WF_ERR_FORMAT,
                 "not a multiple of 2");
        wt_ok(ctx, wf_session_map(r.session, "w", types[t], DIMS(N, K), path, 34));
        wt_compile(&r, linear_graph(ctx, w, false, WF_F32, 3));
        static float x[3 * K];
        wf_random_normal(22, 0, 0, 1, x, 3 * K);
        wt_write(&r, "x", x, sizeof x);
        wt_run_once(&r);
        wt_read(&r, "y", got, sizeof got);
        assert_memory_equal(got, want, sizeof want);
        wt_close(&r);
        unlink(path);
    }
}

static void test_text_and_cost(void **state)
{
    wf_ctx *ctx = *state;
    for (int t = 0; t < WF_BLOCK_TYPES; t++) {
        const weight *w = make_weight(ctx, types[t]);
        wf_graph *g = gradient_graph(ctx, w, false, 4), *read;
        char *text, *again;
        size_t bytes;
        wt_ok(ctx, wf_graph_text(g, &text, &bytes));
        wt_ok(ctx, wf_graph_parse(ctx, text, bytes, &read));
        wt_ok(ctx, wf_graph_text(read, &again, NULL));
        assert_string_equal(text, again);
        wf_text_free(ctx, text);
        wf_text_free(ctx, again);
        wf_graph_free(read);
        for (int i = 0; i < g->node_count; i++) {
            const wf_node *n = g->nodes[i];
            wf_cost cost;
            wf_node_cost(n, &cost);
            size_t x = wf_type_bytes(WF_F32, 4 * K);
            if (n->op == WF_OP_linear)
                assert_int_equal(cost.bytes_read, w->size + x);
            if (n->op == WF_OP_embed)
                assert_int_equal(cost.bytes_read, wf_type_bytes(types[t], 4 * K) + 16);
        }
        wf_graph_free(g);
    }
}

/* ---- Refusals ---- */

static void refuse(wf_ctx *ctx, wf_graph *g, const char *part)
{
    wt_fails(ctx, wf_graph_status(g), WF_ERR_USAGE, part);
    wf_graph_free(g);
}

static void test_refusals(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wf_state(g, "w", WF_Q4_K, DIMS(4, 128));
    refuse(ctx, g, "needs a multiple of 256");

    g = wt_graph(ctx);
    wf_slice(g, wf_state(g, "w", WF_Q4_0, DIMS(4, 128)), 1, 16, 48);
    refuse(ctx, g, "whole blocks of 32");

    g = wt_graph(ctx);
    wf_permute(g, wf_state(g, "w", WF_Q8_0, DIMS(64, 128)), (int64_t[]){1, 0});
    refuse(ctx, g, "must stay last");

    g = wt_graph(ctx);
    wf_cast(g, wf_state(g, "w", WF_F32, DIMS(64, 128)), WF_Q8_0);
    refuse(ctx, g, "must be a plain type");

    g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, DIMS(2, 128)),
             *w = wf_state(g, "w", WF_Q4_1, DIMS(4, 128));
    wf_value *loss = wf_reduce(g, "sum", wf_linear(g, x, w, NULL), 3, false), *dw;
    wt_fails(ctx, wf_grad(g, loss, &w, 1, &dw), WF_ERR_USAGE, "is q4_1, so it has no gradient");
    wf_graph_free(g);

    wt_run r = wt_open(ctx, "cpu:1");
    wt_fails(ctx, wf_session_pack(r.session, "w", WF_Q4_0, DIMS(2, 8, 64)), WF_ERR_UNSUPPORTED,
             "cannot pack");
    g = wt_graph(ctx); /* the message names the op, its types and the device */
    wf_output(g, "y", wf_unary(g, "neg", wf_input(g, "x", WF_F32, DIMS(2, 32))));
    wf_output(g, "z",
              wf_linear(g, wf_input(g, "v", WF_F32, DIMS(2, 32)),
                        wf_state(g, "e", WF_E4M3, DIMS(8, 32)), NULL));
    wt_fails(ctx, wf_compile(r.session, g, &r.exec), WF_ERR_UNSUPPORTED,
             "device cpu has no kernel for matmul(f32[2,32], e4m3[8,32];");
    wf_graph_free(g);
    wt_close(&r);
}

/* A weight whose plain type differs from x's. */
static void test_mixed(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, DIMS(1, 4));
    wf_output(g, "y", wf_linear(g, x, wf_state(g, "w", WF_BF16, DIMS(2, 4)), NULL));
    wt_run r = wt_open(ctx, "cpu:1");
    wt_compile(&r, g);
    uint16_t w[8];
    wt_ok(ctx, wf_type_from_f32(ctx, WF_BF16, (float[]){1, 2, 3, 4, 5, 6, 7, 8}, w, 8));
    wt_ok(ctx, wf_session_write(r.session, "w", w, sizeof w));
    wt_write(&r, "x", (float[]){1, 10, 100, 1000}, 16);
    wt_run_once(&r);
    wt_expect(&r, "y", {4321, 8765});
    wt_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_linear), wt_test(test_gradient), wt_test(test_head),
        wt_test(test_views),  wt_test(test_states),   wt_test(test_text_and_cost),
        wt_test(test_mixed),  wt_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
