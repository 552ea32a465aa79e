/* SPDX-License-Identifier: MIT */
/*
 * test_region.c - several executables over the same states and one activation region: its size,
 * which values survive other runs, reservations that fail, and training in two halves.
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

#include "base/philox.h"
#include "device/device.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

/* ---- Size buckets ---- */

enum { BUCKETS = 3, VOCAB = 23, MOST = 256 };

static const int64_t bucket[BUCKETS] = {16, 64, MOST};

static wt_sizes sizes_of(int b)
{
    return (wt_sizes){.tokens = bucket[b],
                      .vocab = VOCAB,
                      .width = 16,
                      .heads = 2,
                      .kv_heads = 1,
                      .head_dim = 8,
                      .hidden = 24};
}

static wf_graph *build_bucket(wf_ctx *ctx, int b, wt_model *m)
{
    const wt_sizes size = sizes_of(b);
    wf_graph *g = wt_graph(ctx);
    wt_forward(g, &size, m);
    wf_output(g, "logits", m->logits);
    return g;
}

static wf_exec *compile_bucket(wf_ctx *ctx, wf_session *session, int b)
{
    wt_model m;
    wf_exec *exec;
    wf_graph *g = build_bucket(ctx, b, &m);
    wt_ok(ctx, wf_compile(session, g, &exec));
    wf_graph_free(g);
    return exec;
}

static void write_params(wf_ctx *ctx, wf_session *session)
{
    wt_model m;
    wf_graph *g = build_bucket(ctx, 0, &m);
    wt_ok(ctx, wt_write_params(session, &m));
    wf_graph_free(g);
}

static void write_inputs(wf_ctx *ctx, wf_exec *exec, int b, int step)
{
    const wt_sizes size = sizes_of(b);
    int32_t key[3] = {17, 4, step}; /* dropout key */
    wt_ok(ctx, wt_write_inputs(exec, &size, 0));
    wt_ok(ctx, wf_exec_write(exec, "key", key, sizeof key));
}

typedef struct {
    float logits[MOST * VOCAB];
} logits;

static logits read_logits(wf_ctx *ctx, wf_exec *exec, int b)
{
    static logits out;
    memset(&out, 0, sizeof out);
    wt_ok(ctx, wf_exec_read(exec, "logits", out.logits, (size_t)bucket[b] * VOCAB * sizeof(float)));
    return out;
}

/* The results of a bucket in a session without others. */
static logits alone(wf_ctx *ctx, int b, int step)
{
    wt_run r = wt_open(ctx, "cpu:1");
    r.exec = compile_bucket(ctx, r.session, b);
    write_params(ctx, r.session);
    write_inputs(ctx, r.exec, b, step);
    wt_run_once(&r);
    logits out = read_logits(ctx, r.exec, b);
    wt_close(&r);
    return out;
}

static void expect_logits(wf_ctx *ctx, wf_exec *exec, int b, const logits *want)
{
    logits got = read_logits(ctx, exec, b);
    if (memcmp(&got, want, sizeof got) != 0)
        fail_msg("bucket %d gave other bits than in a session of its own", b);
}

/* Checks that memory is exactly states, ports and the largest region. */
static void check_memory(const wt_run *r, wf_exec *const *exec, size_t most)
{
    size_t ports = 0, states = 0, now, peak;
    for (int b = 0; b < BUCKETS; b++)
        if (exec[b]) {
            wf_memory m;
            wf_exec_memory(exec[b], &m);
            assert_int_equal(m.region, most);
            assert_true(m.activations <= most);
            ports += m.ports;
            states = m.states;
        }
    wf_device_memory(r->device, &now, &peak);
    assert_int_equal(now, states + ports + most);
    assert_int_equal(peak, now);
}

static void test_any_order_of_buckets(void **state)
{
    static const int order[6][BUCKETS] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                          {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    wf_ctx *ctx = *state;
    static logits want[BUCKETS];
    for (int b = 0; b < BUCKETS; b++)
        want[b] = alone(ctx, b, b);
    for (int i = 0; i < 6; i++) {
        wt_run r = wt_open(ctx, "cpu:1");
        wf_exec *exec[BUCKETS] = {NULL};
        size_t most = 0;
        for (int k = 0; k < BUCKETS; k++) {
            wf_memory m;
            int b = order[i][k];
            exec[b] = compile_bucket(ctx, r.session, b);
            if (k == 0)
                write_params(ctx, r.session);
            wf_exec_memory(exec[b], &m);
            most = m.activations > most ? m.activations : most;
            check_memory(&r, exec, most);
            write_inputs(ctx, exec[b], b, b);
            wt_ok(ctx, wf_exec_run(exec[b]));
        }
        /* Outputs from before the region moved, and runs after it. */
        for (int b = 0; b < BUCKETS; b++)
            expect_logits(ctx, exec[b], b, &want[b]);
        for (int b = 0; b < BUCKETS; b++) {
            wt_ok(ctx, wf_exec_run(exec[b]));
            expect_logits(ctx, exec[b], b, &want[b]);
        }
        for (int b = 0; b < BUCKETS; b++)
            wf_exec_free(exec[b]);
        wt_close(&r);
    }
}

typedef struct {
    wf_exec *exec;
    int step, ran; /* of the inputs, and of the last run; -1: not run */
} live;

/* Writes, runs, reads, frees and compiles at random, and checks all outputs after each action. */
static void test_runs_in_any_order(void **state)
{
    enum { STEPS = 3 };
    wf_ctx *ctx = *state;
    static logits want[BUCKETS][STEPS];
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 0);
    for (int b = 0; b < BUCKETS; b++)
        for (int s = 0; s < STEPS; s++)
            want[b][s] = alone(ctx, b, s);
    assert_memory_not_equal(&want[0][0], &want[0][1], sizeof want[0][0]);
    wt_run r = wt_open(ctx, "cpu:2");
    wf_exec *keeper = compile_bucket(ctx, r.session, 0); /* keeps the states alive */
    write_params(ctx, r.session);
    live l[BUCKETS] = {{NULL, -1, -1}, {NULL, -1, -1}, {NULL, -1, -1}};
    for (int i = 0; i < 150; i++) {
        int b = (int)(wf_rng_u32(&rng) % BUCKETS), what = (int)(wf_rng_u32(&rng) % 8);
        if (!l[b].exec) {
            l[b] = (live){compile_bucket(ctx, r.session, b), -1, -1};
        } else if (what == 0) {
            wf_exec_free(l[b].exec);
            l[b] = (live){NULL, -1, -1};
        } else if (what < 4 || l[b].step < 0) {
            l[b].step = (int)(wf_rng_u32(&rng) % STEPS);
            write_inputs(ctx, l[b].exec, b, l[b].step);
        } else { /* inputs may be from many runs ago */
            wt_ok(ctx, wf_exec_run(l[b].exec));
            l[b].ran = l[b].step;
        }
        for (int k = 0; k < BUCKETS; k++)
            if (l[k].exec && l[k].ran >= 0)
                expect_logits(ctx, l[k].exec, k, &want[k][l[k].ran]);
    }
    for (int b = 0; b < BUCKETS; b++)
        wf_exec_free(l[b].exec);
    wf_exec_free(keeper);
    wt_close(&r);
}

/* ---- Reservations that fail ---- */

static struct {
    wf_device_ops ops;
    wf_status (*buffer_new)(wf_device *device, size_t bytes, wf_buffer **out);
    size_t limit; /* larger allocations fail */
} scarce;

static wf_status scarce_buffer_new(wf_device *device, size_t bytes, wf_buffer **out)
{
    *out = NULL;
    if (bytes > scarce.limit)
        return wf_fail(device->ctx, WF_ERR_MEMORY, "out of memory: %zu bytes were wanted", bytes);
    return scarce.buffer_new(device, bytes, out);
}

static void make_scarce(wf_device *device)
{
    scarce.ops = *device->ops;
    scarce.buffer_new = scarce.ops.buffer_new;
    scarce.ops.buffer_new = scarce_buffer_new;
    scarce.limit = SIZE_MAX;
    device->ops = &scarce.ops;
}

/* y = x, which needs no region; for n > 2 y = 3 exp(x), with a region much larger than the
 * ports. */
static wf_status compile_small(wf_ctx *ctx, wf_session *s, int64_t n, wf_exec **out)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *x = wf_input(g, "x", WF_F32, 1, &n);
    if (n > 2) {
        x = wf_unary(g, "exp", wf_broadcast(g, x, 2, D(16, n)));
        x = wf_scale(g, wf_reduce(g, "max", x, WF_AXIS(0), false), 3);
    }
    wf_output(g, "y", x);
    wf_status status = wf_compile(s, g, out);
    wf_graph_free(g);
    return status;
}

static void run_small(wf_ctx *ctx, wf_exec *exec, int64_t n)
{
    float *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    x[n - 1] = n > 2 ? 0 : 3;
    wt_ok(ctx, wf_exec_write(exec, "x", x, (size_t)n * sizeof *x));
    wt_ok(ctx, wf_exec_run(exec));
    wt_ok(ctx, wf_exec_read(exec, "y", x, (size_t)n * sizeof *x));
    assert_true(x[n - 1] == 3);
    free(x);
}

static void test_a_reservation_fails(void **state)
{
    wf_ctx *ctx = *state;
    wt_run r = wt_open(ctx, "cpu:1");
    wf_exec *none, *middle, *large, *small;
    wf_memory m;
    size_t now, peak, after;
    make_scarce(r.device);
    wt_ok(ctx, compile_small(ctx, r.session, 2, &none));
    wf_exec_memory(none, &m);
    assert_int_equal(m.region, 0);
    scarce.limit = 10000;
    wt_fails(ctx, compile_small(ctx, r.session, 1000, &middle), WF_ERR_MEMORY, "out of memory");
    assert_null(middle);
    run_small(ctx, none, 2); /* a region of 0 bytes works too */
    scarce.limit = SIZE_MAX;
    wt_ok(ctx, compile_small(ctx, r.session, 1000, &middle));
    run_small(ctx, middle, 1000);
    wf_exec_memory(middle, &m);
    wf_device_memory(r.device, &now, &peak);

    scarce.limit = 100000; /* enough for the large one's ports, but not for its region */
    wt_fails(ctx, compile_small(ctx, r.session, 9000, &large), WF_ERR_MEMORY, "out of memory");
    wf_device_memory(r.device, &after, &peak);
    assert_int_equal(after, now);        /* the old region is restored, */
    assert_true(peak >= now + 9000 * 8); /* and the ports had been allocated */
    run_small(ctx, none, 2);
    run_small(ctx, middle, 1000);

    wt_ok(ctx, wf_exec_run(middle));
    scarce.limit = m.region - 1; /* not even the old region */
    assert_true(wf_session_reserve(r.session, m.region + 1) == WF_ERR_MEMORY);
    wt_fails(ctx, wf_exec_run(middle), WF_ERR_MEMORY, "could not be allocated again");
    wt_fails(ctx, wf_exec_run(none), WF_ERR_MEMORY, "could not be allocated again");
    wt_fails(ctx, wf_exec_read(middle, "y", NULL, 4000), WF_ERR_MEMORY, "the last run failed");
    wt_fails(ctx, compile_small(ctx, r.session, 10, &small), WF_ERR_MEMORY, "out of memory");
    scarce.limit = SIZE_MAX;
    /* Allocates the region for all executables again */
    wt_ok(ctx, compile_small(ctx, r.session, 10, &small));
    run_small(ctx, small, 10);
    run_small(ctx, middle, 1000);
    run_small(ctx, none, 2);
    wf_exec_memory(small, &m);
    assert_true(m.activations < m.region);
    wf_exec_free(small);
    wf_exec_free(middle);
    wf_exec_free(none);
    wt_close(&r);
}

/* Every allocation of compiling a larger bucket fails in turn; the smaller bucket still works. */
static void test_every_allocation_fails(void **state)
{
    wf_ctx *ctx = *state;
    logits want = alone(ctx, 0, 1);
    wt_run r = wt_open(ctx, "cpu:1");
    wt_model model;
    wf_exec *exec = compile_bucket(ctx, r.session, 0), *larger;
    wf_graph *g = build_bucket(ctx, 1, &model);
    write_params(ctx, r.session);
    write_inputs(ctx, exec, 0, 1);
    uint64_t blocks = wt_live_blocks(ctx);
    size_t before, after, peak;
    wf_device_memory(r.device, &before, &peak);
    bool reached = true;
    for (uint64_t nth = 1; reached; nth++) {
        wf_ctx_fail_allocation(ctx, nth);
        wf_status status = wf_compile(r.session, g, &larger);
        reached = ctx->fail_in_calls == 0;
        wf_ctx_fail_allocation(ctx, 0);
        if (reached) {
            wt_fails(ctx, status, WF_ERR_MEMORY, "out of memory");
            wf_device_memory(r.device, &after, &peak);
            assert_int_equal(after, before);
            assert_int_equal(wt_live_blocks(ctx), blocks);
        } else {
            wt_ok(ctx, status);
        }
        wt_ok(ctx, wf_exec_run(exec));
        expect_logits(ctx, exec, 0, &want);
    }
    wf_graph_free(g);
    wf_exec_free(larger);
    wf_exec_free(exec);
    wt_close(&r);
}

/* ---- Training in two halves ---- */

enum { MICRO = 12, PARTS = 4, PARAMS = 4, STEPS = 5, WIDTH = 16, HIDDEN = 40 };

static const char *const param_name[PARAMS] = {"table", "norm", "up", "down"};
static const int64_t param_dim[PARAMS][2] = {
    {VOCAB, WIDTH}, {WIDTH, 1}, {HIDDEN, WIDTH}, {WIDTH, HIDDEN}};

static int64_t param_count(int i)
{
    return param_dim[i][0] * param_dim[i][1];
}

static void add_params(wf_graph *g, wf_value **param)
{
    for (int i = 0; i < PARAMS; i++)
        param[i] = wf_state(g, param_name[i], WF_F32, param_dim[i][1] > 1 ? 2 : 1, param_dim[i]);
}

static wf_value *state_of(wf_graph *g, const char *prefix, int i, const wf_value *param)
{
    char name[32];
    snprintf(name, sizeof name, "%s.%s", prefix, param_name[i]);
    return wf_state_like(g, name, param);
}

/* Gradients of the sum of all losses, and the number of targets that count. */
static void forward_backward(wf_graph *g, int64_t tokens, wf_value **param, wf_value **grad,
                             wf_value **count)
{
    wf_value *targets = wf_input(g, "targets", WF_I32, 1, &tokens);
    wf_value *x = wf_embed(g, param[0], wf_input(g, "tokens", WF_I32, 1, &tokens));
    wf_value *h = wf_linear(g, wf_rms_norm(g, x, param[1], 1e-5), param[2], NULL);
    x = wf_binary(g, "add", x, wf_linear(g, wf_unary(g, "gelu", h), param[3], NULL));
    wf_value *loss = wf_cross_entropy(g, wf_linear(g, x, param[0], NULL), targets, NULL);
    loss = wf_reduce(g, "sum", loss, 1, false);
    wf_output(g, "loss", loss);
    wf_grad(g, loss, param, PARAMS, grad);
    wf_value *counts = wf_binary(g, "ne", targets, wf_fill(g, WF_I32, 0, NULL, -100));
    *count = wf_reduce(g, "sum", wf_cast(g, counts, WF_F32), 1, false);
}

/* Divides by the number of targets, clips, and applies an AdamW step. */
static void update(wf_graph *g, wf_value **param, wf_value **grad, wf_value *count)
{
    const wf_loss_scale_options o = {.initial = 1, .interval = -1, .clip = 0.5};
    wf_scaled s;
    wf_value *lr = wf_fill(g, WF_F32, 0, NULL, 0.01);
    wf_unscale(g, grad, PARAMS, count, &o, &s);
    wf_output(g, "norm", s.norm);
    for (int i = 0; i < PARAMS; i++)
        wf_adamw(g, param[i], state_of(g, "m", i, param[i]), state_of(g, "v", i, param[i]), grad[i],
                 lr, s.step, s.factor, s.apply, &(wf_adamw_options){.weight_decay = 0.1});
}

static wf_graph *micro_graph(wf_ctx *ctx)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *param[PARAMS], *grad[PARAMS], *count;
    add_params(g, param);
    forward_backward(g, MICRO, param, grad, &count);
    for (int i = 0; i < PARAMS; i++)
        wf_accumulate(g, state_of(g, "sum", i, param[i]), grad[i], NULL);
    wf_accumulate(g, wf_state(g, "count", WF_F32, 0, NULL), count, NULL);
    return g;
}

static wf_graph *update_graph(wf_ctx *ctx)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *param[PARAMS], *sum[PARAMS], *count = wf_state(g, "count", WF_F32, 0, NULL);
    add_params(g, param);
    for (int i = 0; i < PARAMS; i++)
        sum[i] = state_of(g, "sum", i, param[i]);
    update(g, param, sum, count);
    for (int i = 0; i < PARAMS; i++)
        wf_assign(g, sum[i], wf_scale(g, sum[i], 0), NULL);
    wf_assign(g, count, wf_fill(g, WF_F32, 0, NULL, 0), NULL);
    return g;
}

static wf_graph *merged_graph(wf_ctx *ctx)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *param[PARAMS], *grad[PARAMS], *count;
    add_params(g, param);
    forward_backward(g, MICRO * PARTS, param, grad, &count);
    update(g, param, grad, count);
    return g;
}

static wf_exec *compile(wf_ctx *ctx, wf_session *session, wf_graph *g)
{
    wf_exec *exec;
    wt_ok(ctx, wf_compile(session, g, &exec));
    wf_graph_free(g);
    return exec;
}

/* Each part has a different number of targets that count, so a mean of means would be wrong. */
static void make_batch(int step, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < MICRO * PARTS; i++) {
        tokens[i] = (i * 7 + step * 5 + i * i % 11) % VOCAB;
        targets[i] = i % MICRO < i / MICRO * 3 ? -100 : (tokens[i] * 3 + 1) % VOCAB;
    }
}

typedef struct {
    float param[PARAMS][VOCAB * HIDDEN];
    float norm[STEPS], loss[STEPS];
} trained;

static void begin_training(wf_ctx *ctx, wf_session *session)
{
    float p[VOCAB * HIDDEN];
    for (int i = 0; i < PARAMS; i++) {
        wf_random_normal(3, (uint64_t)i, i == 1, 0.3f, p, param_count(i));
        wt_ok(ctx, wf_session_write(session, param_name[i], p, (size_t)param_count(i) * 4));
    }
}

static void end_training(wf_ctx *ctx, wf_session *session, trained *out)
{
    for (int i = 0; i < PARAMS; i++)
        wt_ok(ctx,
              wf_session_read(session, param_name[i], out->param[i], (size_t)param_count(i) * 4));
}

static void run_part(wf_ctx *ctx, wf_exec *exec, const int32_t *tokens, const int32_t *targets,
                     size_t n, float *loss)
{
    float part;
    wt_ok(ctx, wf_exec_write(exec, "tokens", tokens, n * 4));
    wt_ok(ctx, wf_exec_write(exec, "targets", targets, n * 4));
    wt_ok(ctx, wf_exec_run(exec));
    wt_ok(ctx, wf_exec_read(exec, "loss", &part, 4));
    *loss += part;
}

static void train_in_halves(wf_ctx *ctx, const char *device, trained *out)
{
    wt_run r = wt_open(ctx, device);
    wf_exec *micro = compile(ctx, r.session, micro_graph(ctx));
    wf_exec *last = compile(ctx, r.session, update_graph(ctx));
    int32_t tokens[MICRO * PARTS], targets[MICRO * PARTS];
    memset(out, 0, sizeof *out);
    begin_training(ctx, r.session);
    for (int step = 0; step < STEPS; step++) {
        float count, sum[WIDTH];
        make_batch(step, tokens, targets);
        for (int i = 0; i < PARTS; i++)
            run_part(ctx, micro, tokens + i * MICRO, targets + i * MICRO, MICRO, &out->loss[step]);
        wt_ok(ctx, wf_session_read(r.session, "count", &count, 4));
        assert_true(count == MICRO * PARTS - (3 + 6 + 9));
        wt_ok(ctx, wf_exec_run(last));
        wt_ok(ctx, wf_exec_read(last, "norm", &out->norm[step], 4));
        wt_ok(ctx, wf_session_read(r.session, "count", &count, 4));
        wt_ok(ctx, wf_session_read(r.session, "sum.norm", sum, sizeof sum));
        assert_true(count == 0);
        for (int i = 0; i < WIDTH; i++)
            assert_true(sum[i] == 0);
    }
    end_training(ctx, r.session, out);
    wf_exec_free(micro);
    wf_exec_free(last);
    wt_close(&r);
}

static void train_merged(wf_ctx *ctx, trained *out)
{
    wt_run r = wt_open(ctx, "cpu:1");
    int32_t tokens[MICRO * PARTS], targets[MICRO * PARTS];
    memset(out, 0, sizeof *out);
    wt_compile(&r, merged_graph(ctx));
    begin_training(ctx, r.session);
    for (int step = 0; step < STEPS; step++) {
        make_batch(step, tokens, targets);
        run_part(ctx, r.exec, tokens, targets, MICRO * PARTS, &out->loss[step]);
        wt_read(&r, "norm", &out->norm[step], 4);
    }
    end_training(ctx, r.session, out);
    wt_close(&r);
}

static void test_two_halves_make_a_step(void **state)
{
    static trained halves, again, merged;
    train_in_halves(*state, "cpu:1", &halves);
    train_in_halves(*state, "cpu:3", &again);
    assert_memory_equal(&halves, &again, sizeof halves);
    train_merged(*state, &merged);
    /* The sums have another order, so gradients agree to some roundoffs. Where a gradient is near
     * zero, AdamW normalizes the noise, so a step may differ by a fraction of lr, here below
     * 1/10000. */
    double worst = 0;
    for (int i = 0; i < PARAMS; i++)
        for (int64_t k = 0; k < param_count(i); k++)
            worst = fmax(worst, fabs((double)halves.param[i][k] - merged.param[i][k]));
    print_message("largest difference of a parameter after %d steps: %g\n", STEPS, worst);
    assert_true(worst < STEPS * 0.01 * 1e-4);
    for (int s = 0; s < STEPS; s++) {
        assert_true(fabsf(halves.loss[s] - merged.loss[s]) < 1e-4f * merged.loss[s]);
        assert_true(fabsf(halves.norm[s] - merged.norm[s]) < 1e-4f * merged.norm[s]);
    }
    assert_true(merged.norm[0] > 0.5f); /* clipping took effect */
    assert_true(merged.loss[STEPS - 1] < merged.loss[0]);
}

/* ---- Planned before any allocation ---- */

static wf_graph *train_graph(wf_ctx *ctx)
{
    wt_model m;
    wf_graph *g = wt_graph(ctx);
    const wt_sizes size = sizes_of(1);
    wt_forward(g, &size, &m);
    wt_train(g, &m);
    return g;
}

static wf_graph *bucket_graph(wf_ctx *ctx)
{
    wt_model m;
    return build_bucket(ctx, 2, &m);
}

static wf_graph *state_graph(wf_ctx *ctx)
{
    wf_graph *g = wt_graph(ctx);
    wf_state(g, "unread", WF_Q4_K, 2, D(3, 256));
    wf_output(g, "y", wf_state(g, "odd", WF_F16, 1, D(3)));
    return g;
}

static void test_planned_is_measured(void **state)
{
    wf_graph *(*const build[])(wf_ctx *) = {micro_graph, update_graph, merged_graph,
                                            train_graph, bucket_graph, state_graph};
    static const wf_compile_options options[] = {
        {0}, {.without = WF_PASS_FUSE | WF_PASS_FOLD}, {.without = WF_PASS_MEMORY}};
    wf_ctx *ctx = *state;
    for (size_t i = 0; i < sizeof build / sizeof *build; i++)
        for (size_t o = 0; o < sizeof options / sizeof *options; o++)
            for (int threads = 1; threads <= 3; threads += 2) {
                wt_run r = wt_open(ctx, threads == 1 ? "cpu:1" : "cpu:3");
                wf_graph *g = build[i](ctx);
                wf_memory planned, got;
                size_t now, peak;
                wt_ok(ctx, wf_plan_memory(r.device, g, &options[o], &planned));
                wf_device_memory(r.device, &now, &peak);
                assert_true(now == 0 && peak == 0);
                wt_ok(ctx, wf_compile_with(r.session, g, &options[o], &r.exec));
                wf_exec_memory(r.exec, &got);
                assert_memory_equal(&planned, &got, sizeof got);
                wf_device_memory(r.device, &now, &peak);
                assert_int_equal(peak, got.states + got.ports + got.region);
                assert_int_equal(now, peak);
                wf_graph_free(g);
                wt_close(&r);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_any_order_of_buckets),   wt_test(test_runs_in_any_order),
        wt_test(test_a_reservation_fails),    wt_test(test_every_allocation_fails),
        wt_test(test_two_halves_make_a_step), wt_test(test_planned_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
