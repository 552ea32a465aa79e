/* SPDX-License-Identifier: MIT */
/*
 * test_passes.c - whole models through every pass alone and through all passes.
 *
 * The training step of each model of parity_model.c is compiled without passes and with each. Three
 * steps must produce the same logits, losses, gradients and states: bitwise after recompute,
 * schedule and memory, and within bounds after fold and fuse, which may change the order of sums.
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
#include <time.h>

#include "base/philox.h"
#include "device/plan.h"
#include "graph/build.h"
#include "graph/pass/order.h"
#include "graph/pass/pass.h"
#include "parity_model.h"
#include "support.h"

#define TOKENS 40
#define SEQUENCES 3
#define STEPS 3
#define ALL_PASSES \
    (WF_PASS_FOLD | WF_PASS_FUSE | WF_PASS_RECOMPUTE | WF_PASS_SCHEDULE | WF_PASS_MEMORY)

typedef struct {
    const char *name;
    wf_compile_options options;
    bool exact; /* bitwise equal */
} variant;

static const variant variants[] = {
    {"fold", {.without = ALL_PASSES & ~WF_PASS_FOLD}, false},
    {"fuse", {.without = ALL_PASSES & ~WF_PASS_FUSE}, false},
    {"recompute every block", {.without = ALL_PASSES & ~WF_PASS_RECOMPUTE, .recompute = 1}, true},
    {"recompute two blocks", {.without = ALL_PASSES & ~WF_PASS_RECOMPUTE, .recompute = 2}, true},
    {"schedule", {.without = ALL_PASSES & ~WF_PASS_SCHEDULE}, true},
    {"memory", {.without = ALL_PASSES & ~WF_PASS_MEMORY}, true},
    {"the exact ones", {.without = WF_PASS_FOLD | WF_PASS_FUSE, .recompute = 1}, true},
    {"all", {0}, false},
    {"all, recompute", {.recompute = 1}, false},
};
#define VARIANTS ((int)(sizeof variants / sizeof *variants))

static const char *const devices[] = {"cpu:1", "cpu:2", "check"};

/* ---- One training run ---- */

/* Adam divides a gradient by its own magnitude. With the usual eps, pure rounding noise (always the
 * gradient of GPT-2's key bias, possibly others) makes a full step, and no bound would hold. With
 * this eps a step is nearly linear in such small gradients. */
static const wf_adamw_options gentle = {
    .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1};

static wf_graph *build(wf_ctx *ctx, const pm_config *config, pm_model *model)
{
    wf_graph *g = wt_graph(ctx);
    pm_forward(g, config, TOKENS, SEQUENCES, model);
    pm_gradients(g, model);
    pm_update(g, model, &gentle);
    wf_output(g, "logits", model->logits);
    wf_output(g, "loss", model->loss);
    for (int i = 0; i < model->param_count; i++) {
        char name[PM_MAX_NAME + 8];
        snprintf(name, sizeof name, "grad.%s", model->param[i].name);
        wf_output(g, name, model->param[i].grad);
    }
    wt_ok(ctx, wf_graph_status(g));
    return g;
}

static void write_inputs(wt_run *r, const pm_config *config, uint64_t seed)
{
    int32_t tokens[TOKENS], targets[TOKENS], positions[TOKENS],
        start[SEQUENCES + 1] = {0, 9, 25, 40};
    wf_rng rng;
    wf_rng_init(&rng, seed, 7);
    for (int s = 0, i = 0; s < SEQUENCES; s++)
        for (int k = 0; i < start[s + 1]; i++, k++) {
            tokens[i] = (int32_t)wf_rng_below(&rng, (uint64_t)config->vocab);
            targets[i] = i % 7 == 3 ? -100 : (int32_t)wf_rng_below(&rng, (uint64_t)config->vocab);
            positions[i] = k;
        }
    wt_write(r, "tokens", tokens, sizeof tokens);
    wt_write(r, "targets", targets, sizeof targets);
    wt_write(r, "positions", positions, sizeof positions);
    wt_write(r, "seq_start", start, sizeof start);
    if (config->llama)
        wt_write(r, "inv_freq", (float[]){1, 0.1f, 0.01f, 0.001f}, 16);
    wt_write(r, "lr", &(float){1e-2f}, 4);
}

static void write_states(wt_run *r, uint64_t seed)
{
    wf_info state;
    for (int i = 0; wf_session_state(r->session, i, &state); i++) {
        int64_t n = (int64_t)(state.bytes / 4);
        float *w = malloc(state.bytes);
        uint64_t stream = 0; /* by name, because the order of states may differ */
        for (const char *c = state.name; *c; c++)
            stream = stream * 31 + (unsigned char)*c;
        bool norm = strstr(state.name, "norm") || strstr(state.name, "ln_");
        bool moment = state.name[1] == '.' && strchr("mv", state.name[0]);
        wf_random_normal(seed, stream, norm ? 1 : 0, moment ? 0 : 0.1f, w, n);
        wt_ok(r->ctx, wf_session_write(r->session, state.name, w, state.bytes));
        free(w);
    }
}

/* All results in one array: outputs of the last step, then states, each by name. */
typedef struct {
    int count;
    struct {
        char name[PM_MAX_NAME + 8];
        float *data;
        int64_t n;
    } item[4 * PM_MAX_PARAMS];
} results;

static void add_result(results *out, const wf_info *info)
{
    assert_true(out->count < 4 * PM_MAX_PARAMS);
    snprintf(out->item[out->count].name, sizeof out->item[0].name, "%s", info->name);
    out->item[out->count].data = malloc(info->bytes);
    out->item[out->count++].n = (int64_t)(info->bytes / 4);
}

static results *train(wf_ctx *ctx, const char *device, wf_graph *g, const pm_config *config,
                      const wf_compile_options *options, uint64_t seed, wf_memory *memory)
{
    results *out = calloc(1, sizeof *out);
    wt_run r = wt_open(ctx, device);
    wf_info info;
    wt_ok(ctx, wf_compile_with(r.session, g, options, &r.exec));
    write_inputs(&r, config, seed);
    write_states(&r, seed);
    for (int32_t step = 1; step <= STEPS; step++) {
        wt_write(&r, "step", &step, sizeof step);
        wt_run_once(&r);
    }
    for (int i = 0; wf_exec_output(r.exec, i, &info); i++) {
        add_result(out, &info);
        wt_read(&r, info.name, out->item[out->count - 1].data, info.bytes);
    }
    for (int i = 0; wf_session_state(r.session, i, &info); i++) {
        add_result(out, &info);
        wt_ok(ctx,
              wf_session_read(r.session, info.name, out->item[out->count - 1].data, info.bytes));
    }
    wf_exec_memory(r.exec, memory);
    wt_close(&r);
    return out;
}

static void results_free(results *r)
{
    for (int i = 0; i < r->count; i++)
        free(r->item[i].data);
    free(r);
}

/* Relative to the largest element of each result. */
#define CLOSE 2e-5

static void compare(const results *got, const results *want, bool exact, const char *what)
{
    assert_int_equal(got->count, want->count);
    for (int i = 0; i < want->count; i++) {
        int k = 0;
        while (k < got->count && strcmp(got->item[k].name, want->item[i].name) != 0)
            k++;
        assert_true(k < got->count);
        const float *a = got->item[k].data, *b = want->item[i].data;
        int64_t n = want->item[i].n;
        if (exact && memcmp(a, b, (size_t)n * 4) != 0)
            fail_msg("%s: %s has other bits", what, want->item[i].name);
        double largest = 0, apart = 0;
        bool finite = true;
        for (int64_t e = 0; e < n; e++) {
            finite &= isfinite(a[e]) && isfinite(b[e]);
            largest = fmax(largest, fabs((double)b[e]));
            apart = fmax(apart, fabs((double)a[e] - (double)b[e]));
        }
        if (!finite || apart > CLOSE * largest)
            fail_msg("%s: %s is off by %.3g of %.3g", what, want->item[i].name, apart, largest);
    }
}

/* ---- Tests ---- */

static void test_models(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    const wf_compile_options none = {.without = ALL_PASSES};
    for (int m = 0; m < PM_MODELS; m++) {
        const pm_config *config = &pm_configs[m];
        pm_model model;
        wf_memory plain, memory;
        wf_graph *g = build(ctx, config, &model);
        results *want = train(ctx, "cpu:1", g, config, &none, seed, &plain);
        for (int v = 0; v < VARIANTS; v++)
            for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
                char what[128];
                snprintf(what, sizeof what, "%s with %s on %s, WEFT_SEED=%llu", config->name,
                         variants[v].name, devices[d], (unsigned long long)seed);
                results *got =
                    train(ctx, devices[d], g, config, &variants[v].options, seed, &memory);
                compare(got, want, variants[v].exact, what);
                results_free(got);
                if (d == 0)
                    print_message("%-13s %-22s %7zu bytes of activations, bound %7zu\n",
                                  config->name, variants[v].name, memory.activations,
                                  memory.lower_bound);
            }
        results_free(want);
        wf_graph_free(g);
    }
}

/* Every legal order computes the same bits, before and after the exact passes. */
static void test_orders(void **state)
{
    wf_ctx *ctx = *state;
    uint64_t seed = wt_seed();
    const wf_compile_options none = {.without = ALL_PASSES};
    for (int m = 0; m < 2; m++) {
        const pm_config *config = &pm_configs[m];
        pm_model model;
        wf_memory memory;
        wf_graph *g = build(ctx, config, &model);
        results *want = train(ctx, "cpu:1", g, config, &none, seed, &memory);
        for (uint64_t i = 0; i < 12; i++) {
            const variant *v = &variants[i % 2 == 0 ? 5 : 6];
            char what[128];
            snprintf(what, sizeof what, "%s in order %d with %s, WEFT_SEED=%llu", config->name,
                     (int)i, v->name, (unsigned long long)seed);
            wt_ok(ctx, wf_order_shuffle(g, seed + i));
            results *got =
                train(ctx, i % 3 == 0 ? "check" : "cpu:2", g, config, &v->options, seed, &memory);
            compare(got, want, true, what);
            results_free(got);
        }
        results_free(want);
        wf_graph_free(g);
    }
}

static size_t activations(wf_ctx *ctx, wf_graph *g, wf_compile_options options, wf_report *report)
{
    wf_device *device;
    wf_plan *plan;
    wt_ok(ctx, wf_device_open(ctx, "cpu:1", &device));
    wt_ok(ctx, wf_plan_new(device, g, &options, NULL, report, &plan));
    size_t bytes = plan->memory.activations;
    wf_plan_free(plan);
    wf_device_close(device);
    return bytes;
}

/* A chain of blocks that each keep many values for their gradients. */
static wf_graph *chain(wf_ctx *ctx, int blocks, bool mark_values)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *w = wf_state(g, "w", WF_F32, 2, (int64_t[]){64, 64}), *grad;
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){128, 64});
    for (int i = 0; i < blocks; i++) {
        wf_value *y = wf_linear(g, x, w, NULL), *h = wf_unary(g, "tanh", y);
        if (mark_values) {
            wf_recompute(g, y);
            wf_recompute(g, h);
        }
        x = wf_block(g, wf_unary(g, "sin", wf_binary(g, "add", x, h)));
    }
    wf_value *loss = wf_reduce(g, "mean", wf_binary(g, "mul", x, x), 3, false);
    wt_ok(ctx, wf_grad(g, loss, &w, 1, &grad));
    wf_sgd(g, w, NULL, grad, wf_fill(g, WF_F32, 0, NULL, 0.1), NULL, NULL, NULL);
    wf_output(g, "loss", loss);
    return g;
}

static void test_recompute_saves_memory(void **state)
{
    wf_ctx *ctx = *state;
    wf_report report = {0};
    const uint32_t without = WF_PASS_FOLD | WF_PASS_FUSE;
    wf_graph *g = chain(ctx, 16, false);
    size_t all = activations(ctx, g, (wf_compile_options){.without = without}, NULL);
    size_t one =
        activations(ctx, g, (wf_compile_options){.without = without, .recompute = 1}, NULL);
    size_t four =
        activations(ctx, g, (wf_compile_options){.without = without, .recompute = 4}, &report);
    print_message("16 blocks: %zu bytes; recomputing each %zu, four at a time %zu\n", all, one,
                  four);
    assert_true(one < all * 2 / 3);
    assert_true(four < all / 2);
    assert_true(wf_report_get(&report, "recompute", "nodes recomputed") >= 3 * 16);
    /* The end of the last block is kept, even with fewer blocks than requested. */
    wf_report all_at_once = {0}, more = {0};
    activations(ctx, g, (wf_compile_options){.without = without, .recompute = 16}, &all_at_once);
    activations(ctx, g, (wf_compile_options){.without = without, .recompute = 100}, &more);
    assert_int_equal(wf_report_get(&more, "recompute", "nodes recomputed"),
                     wf_report_get(&all_at_once, "recompute", "nodes recomputed"));
    wf_graph_free(g);

    report = (wf_report){0};
    g = chain(ctx, 16, true); /* only marked values */
    size_t chosen = activations(ctx, g, (wf_compile_options){.without = without}, &report);
    assert_true(chosen < all);
    assert_int_equal(wf_report_get(&report, "recompute", "nodes recomputed"), 2 * 16);
    wf_graph_free(g);
}

/* Returns the activation memory of layers of a linear and `op`, with or without marks on the op's
 * results. *again: the number of recomputed nodes. */
static size_t marked_layers(wf_ctx *ctx, const char *op, bool mark, int64_t *again)
{
    wf_report report = {0};
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){128, 64}), *w[8], *grads[8];
    for (int i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        w[i] = wf_state(g, name, WF_F32, 2, (int64_t[]){64, 64});
        x = wf_op_add(g, op, "", (wf_value *[]){wf_linear(g, x, w[i], NULL)}, 1);
        x = mark ? wf_recompute(g, x) : x;
    }
    wf_value *loss = wf_reduce(g, "mean", wf_binary(g, "mul", x, x), 3, false);
    wt_ok(ctx, wf_grad(g, loss, w, 8, grads));
    wf_output(g, "norm", wf_global_norm(g, grads, 8));
    size_t bytes = activations(ctx, g, (wf_compile_options){0}, &report);
    *again = wf_report_get(&report, "recompute", "nodes recomputed");
    wf_graph_free(g);
    return bytes;
}

/* With all passes, neither statistics that the gradient reads nor a fused op may keep a marked
 * value alive. */
static void test_marked_values_are_not_kept(void **state)
{
    static const char *const ops[] = {"rms_norm", "layer_norm", "gelu", "silu"};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        int64_t again, none;
        size_t kept = marked_layers(*state, ops[i], false, &none);
        size_t marked = marked_layers(*state, ops[i], true, &again);
        print_message("8 layers of %s: %zu bytes, %zu when computed again\n", ops[i], kept, marked);
        assert_int_equal(none, 0);
        assert_true(again >= 7); /* the loss reads the last one immediately */
        assert_true(marked < kept - 4 * 128 * 64 * sizeof(float));
    }
}

/* A recomputed node must not read a state that was updated in between: such a value is kept. */
static void test_recompute_and_states(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wf_value *w = wf_state(g, "w", WF_F32, 1, (int64_t[]){2}), *grad;
    wf_value *x = wf_input(g, "x", WF_F32, 1, (int64_t[]){2});
    wf_value *h = wf_recompute(g, wf_scale(g, wf_reshape(g, w, 2, (int64_t[]){2, 1}), 3));
    wf_value *y = wf_recompute(g, wf_reshape(g, h, 1, (int64_t[]){2}));
    wf_value *loss = wf_reduce(g, "sum", wf_binary(g, "mul", x, y), 1, false);
    wf_assign(g, w, x, NULL);
    wt_ok(ctx, wf_grad(g, loss, &x, 1, &grad)); /* reads y */
    wf_output(g, "grad", grad);
    wt_run r = wt_open(ctx, "cpu:1");
    wt_compile(&r, g);
    wt_set_state(&r, "w", (float[]){1, 2}, 2);
    wt_write(&r, "x", (float[]){7, 8}, 8);
    wt_run_once(&r);
    wt_expect(&r, "grad", {3, 6});
    wt_close(&r);
}

/* A norm whose gain is the sum that it normalizes. Fusing the two would make a node that reads its
 * own result. */
static void test_norm_of_a_sum_by_itself(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, (int64_t[]){2});
    wf_value *sum = wf_binary(g, "add", x, wf_input(g, "y", WF_F32, 1, (int64_t[]){2}));
    wf_output(g, "norm", wf_rms_norm(g, sum, sum, 0));
    wt_run r = wt_open(ctx, "cpu:1");
    wt_compile(&r, g);
    wt_write(&r, "x", (float[]){1, 2}, 8);
    wt_write(&r, "y", (float[]){3, 2}, 8);
    wt_run_once(&r);
    wt_expect(&r, "norm", {4, 4}); /* sum * sum / 4 */
    wt_close(&r);
}

/* A result must not overwrite an operand that is also read through a transposed view of the same
 * memory: elements would be lost before they are read. */
static void test_in_place_beside_a_view(void **state)
{
    enum { N = 6, C = 8 };
    float x[N][N][C], y[N][N][C];
    wf_graph *g = wt_graph(*state);
    wf_value *in = wf_input(g, "x", WF_F32, 3, (int64_t[]){N, N, C}), *h = wf_unary(g, "neg", in);
    wf_value *sum = wf_binary(g, "add", h, wf_permute(g, h, (int64_t[]){1, 0, 2}));
    wf_output(g, "y", wf_unary(g, "neg", sum));
    for (int i = 0; i < N * N * C; i++)
        (&x[0][0][0])[i] = (float)i;
    wt_run r = wt_open(*state, "cpu:1");
    wt_compile(&r, g);
    wt_write(&r, "x", x, sizeof x);
    wt_run_once(&r);
    wt_read(&r, "y", y, sizeof y);
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            for (int c = 0; c < C; c++)
                assert_true(y[i][k][c] == x[i][k][c] + x[k][i][c]);
    wt_close(&r);
}

/* ---- Heads with their loss ---- */

/* How the gradient of a head differs from the gradient of its loss. EQUAL: no difference. FROZEN: dw
 * is not needed. */
typedef enum {
    EQUAL,
    FROZEN,
    FROM_LOSS,
    FROM_LSE,
    TARGETS,
    LSE,
    ATTRIBUTES,
    WEIGHT_TYPE,
    HEADS
} head_kind;

static wf_graph *head(wf_ctx *ctx, head_kind kind)
{
    const wf_attr_cross_entropy attr = {.ignore_index = -100};
    const wf_attr_cross_entropy smooth = {.ignore_index = -100, .label_smoothing = 0.5};
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){2, 4});
    wf_value *t = wf_input(g, "t", WF_I32, 1, (int64_t[]){2});
    wf_value *other = wf_input(g, "other", WF_F32, 1, (int64_t[]){2});
    wf_type type = kind == WEIGHT_TYPE ? WF_BF16 : WF_F32;
    wf_value *w = wf_cast(g, wf_input(g, "w", WF_F32, 2, (int64_t[]){3, 4}), type);
    wf_value *logits = wf_linear(g, x, w, NULL);
    wf_value *loss = wf_node_add(g, WF_OP_cross_entropy, &attr, NULL, (wf_value *[]){logits, t}, 2);
    wf_value *lse = wf_value_output(loss, 1);
    wf_value *in[] = {kind == FROM_LOSS  ? loss
                      : kind == FROM_LSE ? lse
                                         : other,
                      logits, kind == TARGETS ? wf_cast(g, other, WF_I32) : t,
                      kind == LSE ? wf_unary(g, "sin", other) : lse};
    wf_value *d =
        wf_node_add(g, WF_OP_cross_entropy_grad, kind == ATTRIBUTES ? &smooth : &attr, NULL, in, 4);
    wf_output(g, "loss", loss);
    wf_output(g, "dx", wf_matmul(g, d, w, false, false));
    if (kind != FROZEN)
        wf_output(g, "dw", wf_matmul(g, d, x, true, false));
    return g;
}

static void run_head(wf_ctx *ctx, head_kind kind, uint32_t without, float *out)
{
    static const float x[] = {1, -2, 3, 4, 0.5f, 6, -7, 8}, other[] = {1, 2};
    static const float w[] = {1, 0, 0.5f, 0, -1, 1, 0, 0.25f, 0, 0, 1, -1};
    wt_run r = wt_open(ctx, "cpu:1");
    wf_graph *g = head(ctx, kind);
    wt_ok(ctx, wf_compile_with(r.session, g, &(wf_compile_options){.without = without}, &r.exec));
    wf_graph_free(g);
    wt_write(&r, "x", x, sizeof x);
    wt_write(&r, "t", (int32_t[]){2, 0}, 8);
    wt_write(&r, "other", other, sizeof other);
    wt_write(&r, "w", w, sizeof w);
    wt_run_once(&r);
    wt_read(&r, "loss", out, 8);
    wt_read(&r, "dx", out + 2, 32);
    if (kind != FROZEN)
        wt_read(&r, "dw", out + 10, 48);
    wt_close(&r);
}

/* A head is not fused with its loss when the gradient belongs to another loss, or when the loss
 * flows into it. */
static void test_heads_that_stay_apart(void **state)
{
    wf_ctx *ctx = *state;
    for (int kind = EQUAL; kind < HEADS; kind++) {
        float fused[22] = {0}, apart[22] = {0};
        wf_report report = {0};
        wf_graph *g = head(ctx, (head_kind)kind);
        activations(ctx, g, (wf_compile_options){0}, &report);
        wf_graph_free(g);
        assert_int_equal(wf_report_get(&report, "fuse", "head + loss"), kind <= FROZEN);
        run_head(ctx, (head_kind)kind, 0, fused);
        run_head(ctx, (head_kind)kind, WF_PASS_FUSE, apart);
        for (int i = 0; i < 22; i++)
            assert_true(fabsf(fused[i] - apart[i]) <= 1e-5f * (1 + fabsf(apart[i])));
    }
}

/* 16 branches, written so that all are alive at once: the schedule finishes one before it starts
 * the next. */
static void test_schedule_saves_memory(void **state)
{
    wf_ctx *ctx = *state;
    wf_report report = {0};
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, (int64_t[]){4096}), *branch[16], *sum = NULL;
    for (int i = 0; i < 16; i++)
        branch[i] = wf_unary(g, "sin", wf_scale(g, x, i));
    for (int i = 0; i < 16; i++) {
        wf_value *y = wf_reduce(g, "sum", branch[i], 1, false);
        sum = sum ? wf_binary(g, "add", sum, y) : y;
    }
    wf_output(g, "sum", sum);
    size_t as_written =
        activations(ctx, g, (wf_compile_options){.without = WF_PASS_SCHEDULE}, NULL);
    size_t reordered = activations(ctx, g, (wf_compile_options){0}, &report);
    print_message("16 branches: %zu bytes as written, %zu reordered\n", as_written, reordered);
    assert_true(as_written >= 16 * 4096 * 4);
    assert_true(reordered < 3 * 4096 * 4);
    assert_int_equal(wf_report_get(&report, "schedule", "orders changed"), 1);
    wf_graph_free(g);
}

/* 20,000 nodes that could all run first. */
static void test_schedule_of_a_wide_graph(void **state)
{
    wf_ctx *ctx = *state;
    struct timespec begin, end;
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, (int64_t[]){16}), *part[2000], *sums[10];
    for (int i = 0; i < 10; i++) {
        for (int k = 0; k < 2000; k++)
            part[k] = wf_scale(g, x, 2 + 2000 * i + k);
        sums[i] = wf_concat(g, part, 2000, 0);
    }
    wf_output(g, "norm", wf_global_norm(g, sums, 10));
    clock_gettime(CLOCK_MONOTONIC, &begin);
    activations(ctx, g, (wf_compile_options){.without = WF_PASS_MEMORY | WF_PASS_FOLD}, NULL);
    clock_gettime(CLOCK_MONOTONIC, &end);
    print_message("20000 branches: %ld s\n", (long)(end.tv_sec - begin.tv_sec));
    assert_true(end.tv_sec - begin.tv_sec < 30); /* for a busy machine, with sanitizers */
    wf_graph_free(g);
}

/* The bias gradient is fused with the weight gradient, whichever comes first, unless x is not
 * computed yet. */
static void test_weight_and_bias_gradients(void **state)
{
    enum { PRODUCT_FIRST, SUM_FIRST, SUM_BEFORE_X, CASES };
    wf_ctx *ctx = *state;
    for (int kind = 0; kind < CASES; kind++) {
        wf_report report = {0};
        wf_graph *g = wt_graph(ctx);
        wf_value *dy = wf_input(g, "dy", WF_BF16, 2, (int64_t[]){8, 6}), *db = NULL;
        wf_value *x = wf_input(g, "x", WF_BF16, 2, (int64_t[]){8, 4});
        for (int i = 0; i < 2; i++)
            if (i == (kind == PRODUCT_FIRST)) {
                db = wf_cast(g, wf_reduce(g, "sum", dy, WF_AXIS(0), false), WF_F32);
                db = wf_unary(g, "exp", db);
            } else {
                x = kind == SUM_BEFORE_X ? wf_unary(g, "sin", x) : x;
                wf_output(g, "dw", wf_cast(g, wf_matmul(g, dy, x, true, false), WF_F32));
            }
        wf_output(g, "db", db);
        activations(ctx, g, (wf_compile_options){.without = WF_PASS_SCHEDULE}, &report);
        assert_int_equal(wf_report_get(&report, "fuse", "gradient of weight in f32"), 1);
        /* Two inputs, the fused node and exp; else also sin, sum and cast. */
        assert_int_equal(wf_report_get(&report, "fuse", "nodes after"),
                         kind == SUM_BEFORE_X ? 7 : 4);
        wf_graph_free(g);
    }
}

/* The node that computes dy also sums the bias gradient: the gradient of a norm with a residual,
 * for any shape of rows, or a matmul with an activation's slope. Not when the sum is over another
 * output or another axis. */
static void test_row_sums(void **state)
{
    enum { NORM, RESHAPED, PRODUCT, WEIGHT, NARROW, UNREAD, COLUMNS, KEPT, OTHER, TWISTED, CASES };
    wf_ctx *ctx = *state;
    for (int kind = 0; kind < CASES; kind++) {
        wf_report report = {0};
        wf_graph *g = wt_graph(ctx);
        wf_type type = kind == WEIGHT || kind == NARROW || kind == UNREAD ? WF_BF16 : WF_F32;
        bool flat = kind == NORM;
        wf_value *a = flat ? wf_input(g, "a", type, 2, (int64_t[]){8, 6})
                           : wf_input(g, "a", type, 3, (int64_t[]){4, 2, 6});
        wf_value *rstd = wf_input(g, "rstd", WF_F32, flat ? 1 : 2, (int64_t[]){flat ? 8 : 4, 2});
        wf_value *x = wf_reshape(g, a, 2, (int64_t[]){8, 6});
        wf_value *w = wf_input(g, "w", type, 2, (int64_t[]){6, 6});
        wf_value *d = wf_op_add(g, "rms_norm_grad", "", (wf_value *[]){a, a, rstd}, 3);
        d = kind == OTHER ? wf_value_output(d, 1) : wf_binary(g, "add", a, d);
        if (kind == PRODUCT)
            d = wf_gelu_grad(g, wf_matmul(g, x, w, false, false), x);
        else if (kind == TWISTED)
            d = wf_reshape(g, d, 2, (int64_t[]){6, 8});
        else if (kind != OTHER && !flat)
            d = wf_reshape(g, d, 2, (int64_t[]){8, 6});
        wf_value *db =
            wf_reduce(g, "sum", d, kind == COLUMNS ? WF_AXIS(1) : WF_AXIS(0), kind == KEPT);
        if (kind == WEIGHT || kind == UNREAD)
            wf_output(g, "dw", wf_cast(g, wf_matmul(g, d, x, true, false), WF_F32));
        if (kind != UNREAD)
            wf_output(g, "db", kind == WEIGHT ? wf_cast(g, db, WF_F32) : db);
        activations(ctx, g, (wf_compile_options){.without = WF_PASS_SCHEDULE | WF_PASS_FOLD},
                    &report);
        assert_int_equal(wf_report_get(&report, "fuse", "row sums from the producer"),
                         kind < UNREAD);
        wf_graph_free(g);
    }
}

/* Fusion must not undo recomputation's saving: the norm at the start of a block stays separate from
 * the sum at the end of the previous one. */
static void test_recompute_of_fused_blocks(void **state)
{
    wf_ctx *ctx = *state;
    wf_report report = {0};
    wf_graph *g = wt_graph(ctx);
    wf_value *w[2] = {wf_state(g, "up", WF_F32, 2, (int64_t[]){256, 64}),
                      wf_state(g, "down", WF_F32, 2, (int64_t[]){64, 256})};
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){128, 64}), *grad[2];
    for (int i = 0; i < 12; i++) {
        wf_value *h = wf_unary(g, "gelu", wf_linear(g, wf_rms_norm(g, x, NULL, 1e-5), w[0], NULL));
        x = wf_binary(g, "add", x, wf_linear(g, h, w[1], NULL));
        h = wf_unary(g, "gelu", wf_linear(g, wf_rms_norm(g, x, NULL, 1e-5), w[0], NULL));
        x = wf_block(g, wf_binary(g, "add", x, wf_linear(g, h, w[1], NULL)));
    }
    wf_value *loss = wf_reduce(g, "mean", wf_binary(g, "mul", x, x), 3, false);
    wt_ok(ctx, wf_grad(g, loss, w, 2, grad));
    wf_output(g, "a", grad[0]);
    wf_output(g, "b", grad[1]);
    size_t kept = activations(ctx, g, (wf_compile_options){0}, NULL);
    size_t apart =
        activations(ctx, g, (wf_compile_options){.without = WF_PASS_FUSE, .recompute = 1}, NULL);
    size_t fused = activations(ctx, g, (wf_compile_options){.recompute = 1}, &report);
    print_message("12 blocks: %zu bytes; recomputed %zu, fused as well %zu\n", kept, apart, fused);
    assert_int_equal(wf_report_get(&report, "fuse", "residual + rms_norm"), 12);
    assert_true(fused < kept / 3);
    assert_true(fused <= apart + apart / 20);
    wf_graph_free(g);
}

/* Compile time is linear in a chain of views. Measures CPU time, because the machine may be
 * busy. */
static void test_long_chain_of_views(void **state)
{
    wf_ctx *ctx = *state;
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 2, (int64_t[]){4, 3});
    for (int i = 0; i < 20000; i++)
        x = wf_reshape(g, x, 2, i % 2 ? (int64_t[]){4, 3} : (int64_t[]){3, 4});
    wf_output(g, "y", wf_scale(g, x, 2));
    clock_t begin = clock();
    activations(ctx, g, (wf_compile_options){.without = WF_PASS_FOLD}, NULL);
    assert_true(clock() - begin < 10 * (clock_t)CLOCKS_PER_SEC);
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_models),
        wt_test(test_orders),
        wt_test(test_recompute_saves_memory),
        wt_test(test_marked_values_are_not_kept),
        wt_test(test_recompute_and_states),
        wt_test(test_norm_of_a_sum_by_itself),
        wt_test(test_in_place_beside_a_view),
        wt_test(test_heads_that_stay_apart),
        wt_test(test_schedule_saves_memory),
        wt_test(test_schedule_of_a_wide_graph),
        wt_test(test_weight_and_bias_gradients),
        wt_test(test_row_sums),
        wt_test(test_recompute_of_fused_blocks),
        wt_test(test_long_chain_of_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
