/* SPDX-License-Identifier: MIT */
/*
 * test_adapter_train.c - initial values of adapters, and their gradients through weights of several
 * types.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "graph/graph.h"
#include "model/adapter.h"
#include "model/model.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

enum { TOKENS = 12, MOST = 64 };

/* Loss and gradients of an adapter, compiled in a session that holds the weights. */
typedef struct {
    wt_run r;
    wf_model *m;
    wf_adapter *a;
    int states;
    wf_info state[MOST];
    float *value[MOST], *grad[MOST];
} bench;

/* Builds the training graph of the model with the adapter applied. `random` adds the dropout
 * key. */
static wf_value *build(wf_graph *g, bench *b, bool random)
{
    const wf_build_options o = {.form = WF_FORM_TRAIN,
                                .tokens = TOKENS,
                                .sequences = 1,
                                .type = wf_model_weight_type,
                                .user = b->m,
                                .random = random,
                                .adapt = wf_adapter_apply,
                                .adapt_user = b->a};
    wf_value *logits = wf_model_graph(g, &b->m->config, &o, NULL);
    wf_value *targets = wf_input(g, "targets", WF_I32, 1, (int64_t[]){TOKENS});
    wf_value *losses = wf_cross_entropy(g, logits, targets, NULL);
    wt_ok(b->r.ctx, wf_output(g, "losses", losses));
    return wf_reduce(g, "sum", losses, WF_AXIS(0), false);
}

/* Finds the adapter's states, in the order of wf_adapter_tensor. */
static void find_states(const bench *b, wf_graph *g, wf_value **out)
{
    for (int i = 0; i < b->states; i++) {
        out[i] = NULL;
        for (int k = 0; k < g->node_count; k++)
            if (g->nodes[k]->op == WF_OP_state && strcmp(g->nodes[k]->name, b->state[i].name) == 0)
                out[i] = &g->nodes[k]->out[0];
        assert_non_null(out[i]);
    }
}

static void write_all(bench *b)
{
    static const int32_t key[3] = {1, 2, 3};
    int32_t tokens[TOKENS], targets[TOKENS], positions[TOKENS], ends[2] = {0, TOKENS};
    for (int i = 0; i < TOKENS; i++) {
        tokens[i] = 3 + 17 * i;
        targets[i] = 3 + 17 * (i + 1);
        positions[i] = i;
    }
    wt_write(&b->r, "tokens", tokens, sizeof tokens);
    wt_write(&b->r, "targets", targets, sizeof targets);
    wt_write(&b->r, "positions", positions, sizeof positions);
    wt_write(&b->r, "seq_start", ends, sizeof ends);
    wf_info info;
    for (int i = 0; wf_exec_input(b->r.exec, i, &info); i++)
        if (strcmp(info.name, "key") == 0)
            wt_write(&b->r, "key", key, sizeof key);
    for (int i = 0; i < b->m->weights; i++) {
        const wf_model_weight_info *w = &b->m->weight[i];
        size_t bytes = wf_type_bytes(w->type, wf_dims_count(&w->shape));
        void *data = malloc(bytes);
        wt_ok(b->r.ctx, wf_weight_read(b->r.ctx, w, data));
        wt_ok(b->r.ctx, wf_session_write(b->r.session, w->name, data, bytes));
        free(data);
    }
}

static void write_state(bench *b, int i)
{
    wt_ok(b->r.ctx,
          wf_session_write(b->r.session, b->state[i].name, b->value[i], b->state[i].bytes));
}

/* Opens a bench with A at its initial values, and B random when `moved`, else zeros. */
static bench bench_open(wf_ctx *ctx, const char *path, const wf_adapter_options *o, bool moved)
{
    bench b = {.r = wt_open(ctx, "cpu")};
    wt_ok(ctx, wf_model_open(ctx, path, &b.m));
    wt_ok(ctx, wf_adapter_new(ctx, &b.m->config, o, &b.a));
    for (; wf_adapter_tensor(b.a, b.states, &b.state[b.states]); b.states++) {
        int i = b.states;
        assert_true(i < MOST);
        b.value[i] = malloc(b.state[i].bytes);
        b.grad[i] = malloc(b.state[i].bytes);
        wf_adapter_init(b.a, 11, i, b.value[i]);
        if (moved && i % 2)
            wf_random_normal(12, (uint64_t)i, 0, 0.1f, b.value[i],
                             (int64_t)(b.state[i].bytes / sizeof(float)));
    }
    return b;
}

static void bench_close(bench *b)
{
    for (int i = 0; i < b->states; i++) {
        free(b->value[i]);
        free(b->grad[i]);
    }
    wt_close(&b->r);
    wf_adapter_free(b->a);
    wf_model_close(b->m);
}

/* Runs once and returns the sum of the losses. */
static double loss_of(bench *b)
{
    float losses[TOKENS];
    double sum = 0;
    wt_run_once(&b->r);
    wt_read(&b->r, "losses", losses, sizeof losses);
    for (int i = 0; i < TOKENS; i++)
        sum += losses[i];
    return sum;
}

/* ---- Gradients ---- */

/* Compares one state's gradient with the slope of the loss along the gradient plus a random
 * direction. */
static void compare_slope(bench *b, int i, const char *what)
{
    int64_t n = (int64_t)(b->state[i].bytes / sizeof(float));
    float *at = b->value[i], *moved = malloc(b->state[i].bytes), *d = malloc(b->state[i].bytes);
    double length = 0, random = 0, want = 0, side[2];
    wf_random_normal(wt_seed(), (uint64_t)i, 0, 1, d, n);
    for (int64_t k = 0; k < n; k++) {
        length += (double)b->grad[i][k] * b->grad[i][k];
        random += (double)d[k] * d[k];
    }
    assert_true(length > 0);
    for (int64_t k = 0; k < n; k++) {
        d[k] = (float)(b->grad[i][k] / sqrt(length) + d[k] / sqrt(random));
        want += (double)d[k] * b->grad[i][k];
    }
    const double step = 4e-3;
    for (int s = 0; s < 2; s++) {
        for (int64_t k = 0; k < n; k++)
            moved[k] = at[k] + (float)(s ? -step : step) * d[k];
        b->value[i] = moved;
        write_state(b, i);
        side[s] = loss_of(b);
    }
    b->value[i] = at;
    write_state(b, i);
    double got = (side[0] - side[1]) / (2 * step);
    if (fabs(got - want) > 1e-2 * fabs(want) + 2e-3)
        fail_msg("%s, %s: slope %g, gradient says %g", what, b->state[i].name, got, want);
    free(moved);
    free(d);
}

#define TYPE_NAME(A, NAME, name, ...) #name,
static const char *const types[] = {"f32", WF_QUANT_TABLE(TYPE_NAME, )};
enum { TYPES = sizeof types / sizeof *types };

/* Gradients flow through plain and quantized weights into the adapter. Rows of the model have whole
 * blocks of every type. */
static void gradients(void **state)
{
    wf_ctx *ctx = *state;
    const int cases = wt_cases(TYPES);
    wt_scratch s;
    wt_scratch_make(&s);
    for (int c = 0; c < cases; c++) {
        const int t = (int)((wt_seed() + (uint64_t)c) % TYPES);
        wf_model *m;
        const wf_convert_options o = {.type = types[t], .pure = true};
        wt_ok(ctx, wf_model_open(ctx, WT_MODELS_FOLDER "/llama", &m));
        wt_ok(ctx, wf_model_convert(m, ctx, wt_path(&s, "base.gguf"), &o));
        wf_model_close(m);
        bench b = bench_open(ctx, wt_path(&s, "base.gguf"),
                             &(wf_adapter_options){.rank = 3, .targets = "all,output"}, true);
        assert_int_equal(b.states, 16);
        wf_graph *g = wt_graph(ctx);
        wf_value *loss = build(g, &b, false), *param[MOST], *grad[MOST];
        find_states(&b, g, param);
        wt_ok(ctx, wf_grad(g, loss, param, b.states, grad));
        for (int i = 0; i < b.states; i++)
            wt_ok(ctx, wf_output(g, b.state[i].name, grad[i]));
        wt_compile(&b.r, g);
        write_all(&b);
        for (int i = 0; i < b.states; i++)
            write_state(&b, i);
        loss_of(&b);
        for (int i = 0; i < b.states; i++)
            wt_read(&b.r, b.state[i].name, b.grad[i], b.state[i].bytes);
        for (int i = 0; i < b.states; i++)
            compare_slope(&b, i, types[t]);
        bench_close(&b);
    }
    wt_scratch_remove(&s);
}

/* Training steps reduce the loss and keep every bit of the base weights. */
static void weights_stay(void **state)
{
    wf_ctx *ctx = *state;
    bench b = bench_open(ctx, WT_MODELS_FOLDER "/gpt2",
                         &(wf_adapter_options){.rank = 4, .targets = "attention"}, false);
    wf_graph *g = wt_graph(ctx);
    wf_value *loss = build(g, &b, false), *param[MOST], *grad[MOST];
    wf_value *lr = wf_fill(g, WF_F32, 0, NULL, 0.01);
    find_states(&b, g, param);
    wt_ok(ctx, wf_grad(g, loss, param, b.states, grad));
    for (int i = 0; i < b.states; i++)
        wf_sgd(g, param[i], NULL, grad[i], lr, NULL, NULL, NULL);
    wt_compile(&b.r, g);
    write_all(&b);
    for (int i = 0; i < b.states; i++)
        write_state(&b, i);
    double first = loss_of(&b), last = first;
    for (int i = 0; i < 20; i++)
        last = loss_of(&b);
    print_message("loss %.3f, then %.3f\n", first, last);
    assert_true(last < 0.9 * first);
    for (int i = 0; i < b.m->weights; i++) {
        const wf_model_weight_info *w = &b.m->weight[i];
        size_t bytes = wf_type_bytes(w->type, wf_dims_count(&w->shape));
        void *was = malloc(bytes), *is = malloc(bytes);
        wt_ok(ctx, wf_weight_read(ctx, w, was));
        wt_ok(ctx, wf_session_read(b.r.session, w->name, is, bytes));
        assert_memory_equal(was, is, bytes);
        free(was);
        free(is);
    }
    bench_close(&b);
}

/* ---- Initial values ---- */

static double loss_with(wf_ctx *ctx, const wf_adapter_options *o, bool moved, bool random)
{
    bench b = bench_open(ctx, WT_MODELS_FOLDER "/qwen3", o, moved);
    wf_graph *g = wt_graph(ctx);
    build(g, &b, random);
    wt_compile(&b.r, g);
    write_all(&b);
    for (int i = 0; i < b.states; i++)
        write_state(&b, i);
    double loss = loss_of(&b);
    bench_close(&b);
    return loss;
}

/* A new adapter of any rank does not change the loss. Dropout needs the random key. */
static void starts_as_zero(void **state)
{
    wf_ctx *ctx = *state;
    const wf_adapter_options small = {.rank = 1}, large = {.rank = 40, .targets = "mlp"};
    const wf_adapter_options drops = {.rank = 1, .dropout = 0.5};
    double loss = loss_with(ctx, &small, false, false), moved = loss_with(ctx, &small, true, false);
    assert_true(loss_with(ctx, &large, false, false) == loss);
    assert_true(moved != loss);
    assert_true(loss_with(ctx, &drops, true, false) == moved);
    assert_true(loss_with(ctx, &small, true, true) == moved);
    assert_true(loss_with(ctx, &drops, true, true) != moved);
}

/* A starts uniform within 1 / sqrt(columns) and B as zeros, and a seed always gives the same
 * values. */
static void starts_equal(void **state)
{
    wf_ctx *ctx = *state;
    wf_model *m;
    wf_adapter *a;
    wf_info info;
    float x[64], y[64];
    wt_ok(ctx, wf_model_open(ctx, WT_MODELS_FOLDER "/gpt2", &m));
    wt_ok(ctx, wf_adapter_new(ctx, &m->config, &(wf_adapter_options){.rank = 1}, &a));
    for (int i = 0; wf_adapter_tensor(a, i, &info); i++) {
        size_t count = info.bytes / sizeof(float);
        float *one = malloc(info.bytes), *two = malloc(info.bytes);
        wf_adapter_init(a, 5, i, one);
        wf_adapter_init(a, 5, i, two);
        assert_memory_equal(one, two, info.bytes);
        double bound = i % 2 ? 0 : 1 / sqrt((double)info.dim[1]), largest = 0;
        for (size_t k = 0; k < count; k++)
            largest = fmax(largest, fabs(one[k]));
        assert_true(largest <= bound && largest >= 0.9 * bound);
        wf_adapter_init(a, 6, i, two);
        assert_true(i % 2 || memcmp(one, two, info.bytes) != 0);
        free(one);
        free(two);
    }
    /* the first values are the same on every machine */
    wf_adapter_init(a, 5, 0, x);
    wf_rng rng;
    wf_rng_init(&rng, 5, 0);
    for (int i = 0; i < 64; i++)
        y[i] = (float)(0.125 * (2 * wf_rng_unit(&rng) - 1));
    assert_memory_equal(x, y, sizeof x);
    wf_adapter_free(a);
    wf_model_close(m);
}

/* ---- Targets ---- */

/* The model's dropout applies to embeddings and residual branches, not to the adapter's output. */
static void dropout_of_the_model(void **state)
{
    wf_ctx *ctx = *state;
    wf_model *m;
    wf_adapter *a;
    wf_graph *g;
    int64_t drops = 0;
    wt_ok(ctx, wf_model_open(ctx, WT_MODELS_FOLDER "/llama", &m));
    wt_ok(ctx, wf_adapter_new(ctx, &m->config, NULL, &a));
    wt_ok(ctx, wf_graph_new(ctx, &g));
    const wf_build_options o = {.form = WF_FORM_TRAIN,
                                .tokens = TOKENS,
                                .sequences = 1,
                                .dropout = 0.1,
                                .random = true,
                                .adapt = wf_adapter_apply,
                                .adapt_user = a};
    wf_model_graph(g, &m->config, &o, NULL);
    wt_ok(ctx, wf_graph_status(g));
    for (int i = 0; i < g->node_count; i++)
        drops += g->nodes[i]->op == WF_OP_dropout;
    assert_int_equal(drops, 1 + 2 * m->config.layers);
    wf_graph_free(g);
    wf_adapter_free(a);
    wf_model_close(m);
}

static int count_states(wf_ctx *ctx, const char *model, const char *targets)
{
    char path[128];
    wf_model *m;
    wf_adapter *a;
    wf_info info;
    int n = 0;
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", model);
    wt_ok(ctx, wf_model_open(ctx, path, &m));
    wt_ok(ctx, wf_adapter_new(ctx, &m->config, &(wf_adapter_options){.targets = targets}, &a));
    while (wf_adapter_tensor(a, n, &info))
        n++;
    wf_adapter_free(a);
    wf_model_close(m);
    return n;
}

/* --lora-targets accepts groups, GGUF names and Hugging Face names, and refuses anything else. */
static void targets(void **state)
{
    static const struct {
        const char *model, *targets;
        int linears;
    } rows[] = {
        {"qwen3", NULL, 14},           {"qwen3", "", 14},
        {"qwen3", "all", 14},          {"qwen3", "attention", 8},
        {"qwen3", "mlp", 6},           {"qwen3", "attn_q,attn_v", 4},
        {"qwen3", "q_proj,v_proj", 4}, {"qwen3", "attn_q,q_proj", 2},
        {"qwen3", "blk.1.attn_q", 1},  {"qwen3", "self_attn.o_proj,output", 3},
        {"qwen3", "lm_head", 1},       {"qwen3", "all-linear,lm_head", 15},
        {"gpt2", "c_proj", 4},         {"gpt2", "attn.c_proj", 2},
        {"gpt2", "attention", 4},      {"gpt2", "all", 8},
    };
    static const char *const bad[] = {"q",          "attn_", "attn_q,", ",attn_q", "attn_q, attn_v",
                                      "token_embd", "blk"};
    wf_ctx *ctx = *state;
    wf_model *m;
    wf_adapter *a;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(count_states(ctx, rows[i].model, rows[i].targets), 2 * rows[i].linears);
    wt_ok(ctx, wf_model_open(ctx, WT_MODELS_FOLDER "/qwen3", &m));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        wt_fails(ctx, wf_adapter_new(ctx, &m->config, &(wf_adapter_options){.targets = bad[i]}, &a),
                 WF_ERR_USAGE,
                 "its linears are attn_q, attn_k, attn_v, attn_output, ffn_gate, ffn_up, ffn_down, "
                 "output, and");
    wt_fails(ctx, wf_adapter_new(ctx, &m->config, &(wf_adapter_options){.rank = -1}, &a),
             WF_ERR_USAGE, "rank -1");
    wt_fails(ctx, wf_adapter_new(ctx, &m->config, &(wf_adapter_options){.dropout = 1}, &a),
             WF_ERR_USAGE, "dropout of 1");
    wt_fails(ctx, wf_adapter_new(ctx, &m->config, &(wf_adapter_options){.alpha = NAN}, &a),
             WF_ERR_USAGE, "not a finite number");
    wf_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(gradients),    wt_test(weights_stay), wt_test(starts_as_zero),
        wt_test(starts_equal), wt_test(targets),      wt_test(dropout_of_the_model),
    };
    return cmocka_run_group_tests_name("adapter_train", tests, NULL, NULL);
}
