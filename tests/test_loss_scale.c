/* SPDX-License-Identifier: MIT */
/*
 * test_loss_scale.c - training in bf16 and f16: loss curves against f32, and the loss scale, which
 * the device updates by itself.
 *
 * WEFT_PRECISION_DEVICE names a device other than the cpu; the tests are skipped when it cannot be
 * opened.
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

#include "pjrt_support.h"
#include "support.h"

static const char *device_under_test(void)
{
    const char *given = getenv("WEFT_PRECISION_DEVICE");
    return given ? given : "cpu";
}

/* ---- A small model in training ---- */

static const wt_sizes small = {
    .tokens = 60, .vocab = 23, .width = 32, .heads = 4, .kv_heads = 2, .head_dim = 8, .hidden = 48};

typedef struct {
    wt_run run;
    wt_model model; /* its values were freed with the graph */
} trainer;

/* Builds a training step with the inputs of wt_write_inputs, and `poison`, which multiplies the
 * loss. */
static wf_graph *build(wf_ctx *ctx, wf_type compute, const wf_loss_scale_options *o, wt_model *m)
{
    wf_graph *g = wt_graph(ctx);
    wf_scaled s;
    wt_forward(g, &small, m);
    wf_value *lr = wf_input(g, "lr", WF_F32, 0, NULL);
    wf_input(g, "step", WF_I32, 0, NULL); /* unused: the device counts steps */
    wf_value *loss = wf_binary(g, "mul", m->loss, wf_input(g, "poison", WF_F32, 0, NULL));
    wt_ok(ctx, wf_precision(g, compute));
    wt_ok(ctx, wf_grad_scaled(g, loss, m->param, m->count, o, m->grad, &s));
    for (int i = 0; i < m->count; i++) {
        wf_value *moment[2];
        for (int k = 0; k < 2; k++) {
            char name[32];
            snprintf(name, sizeof name, "%c.%s", "mv"[k], m -> name[i]);
            moment[k] = wf_state_like(g, name, m->param[i]);
        }
        wf_adamw(g, m->param[i], moment[0], moment[1], m->grad[i], lr, s.step, s.factor, s.apply,
                 &(wf_adamw_options){.beta2 = 0.95});
    }
    wf_output(g, "scale", s.scale);
    wf_output(g, "norm", s.norm);
    wf_output(g, "apply", s.apply);
    wf_output(g, "count", s.step);
    return g;
}

/* Writes initial values: gains 1, biases 0, small random matrices. */
static void write_params(trainer *t)
{
    for (int i = 0; i < t->model.count; i++) {
        int64_t n = t->model.elements[i];
        const char *name = t->model.name[i];
        bool bias = strstr(name, "bias") != NULL, gain = !bias && strncmp(name, "norm", 4) == 0;
        float *w = malloc((size_t)n * sizeof *w);
        assert_non_null(w);
        wf_random_normal(5, (uint64_t)i, gain ? 1 : 0, bias || gain ? 0 : 0.15f, w, n);
        wt_set_state(&t->run, name, w, n);
        free(w);
    }
}

static void open_trainer(wf_ctx *ctx, wf_type compute, const wf_loss_scale_options *o, trainer *t)
{
    t->run = wt_open(ctx, device_under_test());
    wt_compile(&t->run, build(ctx, compute, o, &t->model));
    write_params(t);
}

static void step(trainer *t, int32_t n, float poison)
{
    float lr = 0.003f;
    wt_ok(t->run.ctx, wt_write_inputs(t->run.exec, &small, n));
    wt_write(&t->run, "lr", &lr, sizeof lr);
    wt_write(&t->run, "poison", &poison, sizeof poison);
    wt_run_once(&t->run);
}

static float read_f32(trainer *t, const char *output)
{
    float v;
    wt_read(&t->run, output, &v, sizeof v);
    return v;
}

/* ---- Loss curves ---- */

enum { STEPS = 60 };

static void train(wf_ctx *ctx, wf_type compute, const wf_loss_scale_options *o, float *losses)
{
    trainer t;
    open_trainer(ctx, compute, o, &t);
    for (int i = 0; i < STEPS; i++) {
        step(&t, i + 1, 1);
        losses[i] = read_f32(&t, "loss");
        assert_true(isfinite(losses[i]));
    }
    wt_close(&t.run);
}

static double largest_gap(const float *a, const float *b)
{
    double gap = 0;
    for (int i = 0; i < STEPS; i++)
        gap = fmax(gap, fabs((double)a[i] - b[i]));
    return gap;
}

/* Runs with different roundings drift apart by at most two roundoffs of the narrow type, relative
 * to the first loss. f16 uses the default loss scale, which does not overflow here; a skipped step
 * would show as a curve that lags. */
static void test_curves_track(void **state)
{
    float f32[STEPS], bf16[STEPS], f16[STEPS];
    const wf_loss_scale_options fixed = {.initial = 1, .interval = -1};
    train(*state, WF_F32, &fixed, f32);
    train(*state, WF_BF16, &fixed, bf16);
    train(*state, WF_F16, NULL, f16);
    double gap_bf16 = largest_gap(bf16, f32), gap_f16 = largest_gap(f16, f32);
    print_message("loss %.4f to %.4f; largest difference bf16 %.5f, f16 %.5f\n", (double)f32[0],
                  (double)f32[STEPS - 1], gap_bf16, gap_f16);
    assert_true(f32[STEPS - 1] < 0.1f * f32[0]); /* the model learned */
    assert_true(gap_bf16 <= 2 * 0x1p-8 * f32[0]);
    assert_true(gap_f16 <= 2 * 0x1p-11 * f32[0]);
    assert_true(gap_bf16 > 0 && gap_f16 > 0);
}

/* ---- Overflow ---- */

/* A copy of all other states, and the states of the loss scale. */
typedef struct {
    unsigned char *bytes;
    size_t size;
    float scale;
    int32_t good, steps, skipped;
} snapshot;

/* Reads all states. States with this prefix go into the loss scale's fields. */
static void take(trainer *t, const char *prefix, snapshot *s)
{
    wf_info info;
    size_t at = 0;
    s->size = 0;
    for (int i = 0; wf_session_state(t->run.session, i, &info); i++)
        s->size += info.bytes;
    s->bytes = malloc(s->size);
    assert_non_null(s->bytes);
    for (int i = 0; wf_session_state(t->run.session, i, &info); i++) {
        const char *suffix = info.name + strlen(prefix);
        void *to = strncmp(info.name, prefix, strlen(prefix)) != 0 ? s->bytes + at
                   : !*suffix                                      ? (void *)&s->scale
                   : strcmp(suffix, ".good") == 0                  ? (void *)&s->good
                   : strcmp(suffix, ".steps") == 0                 ? (void *)&s->steps
                                                                   : (void *)&s->skipped;
        wt_ok(t->run.ctx, wf_session_read(t->run.session, info.name, to, info.bytes));
        at += to == s->bytes + at ? info.bytes : 0;
    }
    s->size = at;
}

/* Checks one step by the states before and after it. Returns whether it was skipped. */
static bool check_step(const snapshot *a, const snapshot *b, const wf_loss_scale_options *o)
{
    bool skipped = b->skipped > a->skipped;
    float scale = a->scale == 0 ? (float)o->initial : a->scale;
    assert_int_equal(b->skipped, a->skipped + skipped);
    assert_int_equal(b->steps, a->steps + !skipped);
    assert_int_equal(memcmp(a->bytes, b->bytes, a->size) == 0, skipped);
    if (skipped) {
        assert_true(b->scale == fmaxf(scale / 2, (float)o->smallest));
        assert_int_equal(b->good, 0);
    } else if (a->good + 1 == o->interval) {
        assert_true(b->scale == fminf(2 * scale, (float)o->largest));
        assert_int_equal(b->good, 0);
    } else {
        assert_true(b->scale == scale);
        assert_int_equal(b->good, a->good + 1);
    }
    return skipped;
}

/* A too large scale overflows f16: steps are skipped and the scale halves until they succeed,
 * then grows again. */
static void test_overflow(void **state)
{
    const wf_loss_scale_options o = {
        .name = "s", .initial = 0x1p30, .largest = 0x1p30, .smallest = 1, .interval = 4};
    trainer t;
    snapshot before, after;
    uint8_t apply;
    int32_t first_skips = 0, grown = 0, count;
    open_trainer(*state, WF_F16, &o, &t);
    take(&t, "s", &before);
    assert_true(before.scale == 0);
    for (int i = 0; i < 40; i++) {
        step(&t, i + 1, 1);
        take(&t, "s", &after);
        bool skipped = check_step(&before, &after, &o);
        wt_read(&t.run, "apply", &apply, 1);
        wt_read(&t.run, "count", &count, sizeof count);
        assert_int_equal(apply, !skipped);
        assert_int_equal(count, before.steps + 1); /* the step number that AdamW used */
        assert_true(read_f32(&t, "scale") == (i == 0 ? 0x1p30f : before.scale));
        assert_int_equal(!isfinite(read_f32(&t, "norm")), skipped);
        first_skips += skipped && after.steps == 0;
        grown += after.scale > before.scale && i > 0;
        free(before.bytes);
        before = after;
    }
    free(before.bytes);
    print_message("%d steps skipped before the first, scale then 2^%.0f, grown %d times\n",
                  first_skips, log2(0x1p30) - first_skips, grown);
    assert_true(first_skips >= 8 && after.steps >= 20 && grown >= 3);
    wt_close(&t.run);
}

/* Training without reading anything back ends in the same states. */
static void test_nothing_is_read(void **state)
{
    const wf_loss_scale_options o = {
        .name = "s", .initial = 0x1p30, .largest = 0x1p30, .interval = 4};
    trainer t[2];
    snapshot s[2];
    for (int k = 0; k < 2; k++) {
        open_trainer(*state, WF_F16, &o, &t[k]);
        for (int i = 0; i < 24; i++) {
            step(&t[k], i + 1, 1);
            if (k == 1)
                read_f32(&t[k], "loss");
        }
        wf_run_stats stats;
        wf_exec_stats(t[k].run.exec, &stats);
        assert_int_equal(stats.bytes_out, k == 0 ? 0 : 24 * sizeof(float));
        take(&t[k], "s", &s[k]);
        wt_close(&t[k].run);
    }
    assert_int_equal(s[0].steps + s[0].skipped, 24);
    assert_true(s[0].steps > 0 && s[0].skipped > 0);
    assert_memory_equal(s[0].bytes, s[1].bytes, s[0].size);
    free(s[0].bytes);
    free(s[1].bytes);
}

/* In every type, a step with a NaN or infinite gradient changes only the counters and the scale. */
static void test_gradients_that_are_no_numbers(void **state)
{
    const wf_type types[] = {WF_F32, WF_BF16, WF_F16};
    const float poisons[] = {NAN, INFINITY, -INFINITY};
    for (int k = 0; k < 3; k++) {
        wf_loss_scale_options o = {.initial = 256, .smallest = 64, .interval = 1000};
        trainer t;
        snapshot before, after;
        open_trainer(*state, types[k], &o, &t);
        for (int i = 0; i < 3; i++)
            step(&t, i + 1, 1);
        for (int i = 0; i < 3; i++) {
            take(&t, "loss_scale", &before);
            step(&t, 4 + i, poisons[i]);
            take(&t, "loss_scale", &after);
            o.largest = 0x1p24;
            assert_true(check_step(&before, &after, &o));
            free(before.bytes);
            free(after.bytes);
        }
        assert_true(after.scale == 64); /* limited by `smallest` */
        step(&t, 7, 1);
        assert_true(isfinite(read_f32(&t, "loss")));
        take(&t, "loss_scale", &after);
        assert_int_equal(after.steps, 4);
        assert_int_equal(after.skipped, 3);
        free(after.bytes);
        wt_close(&t.run);
    }
}

/* ---- Gradient accumulation and clipping ---- */

#define PARAMETERS 2

/* Accumulates the gradient of sum(w * x), which is x, and a count of 2 per run. */
static wf_graph *micro_graph(wf_ctx *ctx)
{
    wf_graph *g = wt_graph(ctx);
    const int64_t n = PARAMETERS;
    wf_value *w = wf_state(g, "w", WF_F32, 1, &n), *x = wf_input(g, "x", WF_F32, 1, &n), *grad;
    wf_value *loss = wf_reduce(g, "sum", wf_binary(g, "mul", w, x), 1, false);
    wt_ok(ctx, wf_grad(g, wf_binary(g, "mul", loss, wf_loss_scale(g, NULL)), &w, 1, &grad));
    wf_accumulate(g, wf_state(g, "sum", WF_F32, 1, &n), grad, NULL);
    wf_accumulate(g, wf_state(g, "n", WF_F32, 0, NULL), wf_fill(g, WF_F32, 0, NULL, 2), NULL);
    return g;
}

/* Unscales, clips and applies the accumulated gradient, then resets it. */
static wf_graph *update_graph(wf_ctx *ctx, double clip)
{
    wf_graph *g = wt_graph(ctx);
    const int64_t n = PARAMETERS;
    const wf_loss_scale_options o = {.clip = clip};
    wf_value *w = wf_state(g, "w", WF_F32, 1, &n), *sum = wf_state(g, "sum", WF_F32, 1, &n);
    wf_value *count = wf_state(g, "n", WF_F32, 0, NULL);
    wf_scaled s;
    wt_ok(ctx, wf_unscale(g, &sum, 1, count, &o, &s));
    wf_sgd(g, w, NULL, sum, wf_fill(g, WF_F32, 0, NULL, 1), s.factor, s.apply, NULL);
    wf_output(g, "norm", s.norm);
    wf_assign(g, sum, wf_fill(g, WF_F32, 1, &n, 0), NULL);
    wf_assign(g, count, wf_fill(g, WF_F32, 0, NULL, 0), NULL);
    return g;
}

/* Gradients summed over two runs, then divided, clipped and applied in another graph. */
static void test_micro_batches(void **state)
{
    wf_ctx *ctx = *state;
    /* (9, 12) + (3, 4) = (12, 16); divided by 4 it is (3, 4), with norm 5 */
    const float x[2][PARAMETERS] = {{9, 12}, {3, 4}}, start[PARAMETERS] = {1, 1};
    const double clips[] = {0, 10, 2.5};
    const float wanted[3][PARAMETERS] = {{-2, -3}, {-2, -3}, {-0.5f, -1}};
    for (int k = 0; k < 3; k++) {
        wt_run micro = wt_open(ctx, device_under_test()), update = micro;
        wt_compile(&micro, micro_graph(ctx));
        wt_compile(&update, update_graph(ctx, clips[k]));
        for (int round = 0; round < 2; round++) { /* the scale is 0 first, then 65536 */
            float scale, norm;
            wt_set_state(&micro, "w", start, PARAMETERS);
            for (int i = 0; i < 2; i++) {
                wt_write(&micro, "x", x[i], sizeof x[i]);
                wt_run_once(&micro);
            }
            wt_run_once(&update);
            wt_read(&update, "norm", &norm, sizeof norm);
            wt_expect_state(&update, "w", wanted[k], PARAMETERS);
            wt_ok(ctx, wf_session_read(micro.session, "loss_scale", &scale, sizeof scale));
            assert_true(norm == 5 && scale == 65536);
        }
        wf_exec_free(micro.exec);
        wt_close(&update);
    }
}

/* A fixed scale has no state of its own, but steps are still counted. */
static void test_fixed_scale(void **state)
{
    trainer t;
    snapshot s;
    wf_info info;
    open_trainer(*state, WF_BF16, &(wf_loss_scale_options){.initial = 1, .interval = -1}, &t);
    for (int i = 0; wf_session_state(t.run.session, i, &info); i++)
        assert_true(strcmp(info.name, "loss_scale") != 0 && strcmp(info.name, "loss_scale.good"));
    step(&t, 1, NAN);
    step(&t, 2, 1);
    take(&t, "loss_scale", &s);
    assert_int_equal(s.steps, 1);
    assert_int_equal(s.skipped, 1);
    assert_true(read_f32(&t, "scale") == 1);
    free(s.bytes);
    wt_close(&t.run);
}

/* ---- Outliers ---- */

/* A step with a given gradient, and the resulting states. */
typedef struct {
    wt_run run;
    float w, scale, average;
    int32_t good, steps, skipped, outliers;
} watched;

static void open_watched(wf_ctx *ctx, const wf_loss_scale_options *o, watched *t)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *w = wf_state(g, "w", WF_F32, 0, NULL), *x = wf_input(g, "x", WF_F32, 0, NULL);
    wf_scaled s;
    wt_ok(ctx, wf_unscale(g, &x, 1, NULL, o, &s));
    wf_sgd(g, w, NULL, x, wf_fill(g, WF_F32, 0, NULL, 1), s.factor, s.apply, NULL);
    wf_output(g, "scale", s.scale);
    *t = (watched){.run = wt_open(ctx, device_under_test())};
    wt_compile(&t->run, g);
}

/* Runs a step with a gradient of this unscaled norm. */
static void give(watched *t, const wf_loss_scale_options *o, float norm)
{
    wf_session *s = t->run.session;
    const float x = norm * (t->scale == 0 ? (float)o->initial : t->scale);
    wt_write(&t->run, "x", &x, sizeof x);
    wt_run_once(&t->run);
    wt_ok(t->run.ctx, wf_session_read(s, "w", &t->w, sizeof t->w));
    wt_ok(t->run.ctx, wf_session_read(s, "n.average", &t->average, sizeof t->average));
    wt_ok(t->run.ctx, wf_session_read(s, "n.steps", &t->steps, sizeof t->steps));
    wt_ok(t->run.ctx, wf_session_read(s, "n.skipped", &t->skipped, sizeof t->skipped));
    wt_ok(t->run.ctx, wf_session_read(s, "n.outliers", &t->outliers, sizeof t->outliers));
    if (o->interval < 0)
        return;
    wt_ok(t->run.ctx, wf_session_read(s, "n", &t->scale, sizeof t->scale));
    wt_ok(t->run.ctx, wf_session_read(s, "n.good", &t->good, sizeof t->good));
}

static void expect_counts(const watched *t, int32_t steps, int32_t skipped, int32_t outliers)
{
    assert_int_equal(t->steps, steps);
    assert_int_equal(t->skipped, skipped);
    assert_int_equal(t->outliers, outliers);
}

/* A step whose norm exceeds `outlier` times the average is skipped, without changing the average
 * or the scale. */
static void test_outliers(void **state)
{
    const wf_loss_scale_options cases[] = {
        {.name = "n", .initial = 1024, .interval = 1000, .outlier = 4},
        {.name = "n", .initial = 1, .interval = -1, .outlier = 4}};
    for (int k = 0; k < 2; k++) {
        const wf_loss_scale_options *o = &cases[k];
        watched t, before;
        double sum = 0, average;
        open_watched(*state, o, &t);
        for (int i = 0; i < 20; i++) { /* too early to detect outliers */
            float norm = i == 7 ? 50 : 1 + 0.1f * (float)(i % 3);
            give(&t, o, norm);
            sum += norm;
            assert_true(fabs(t.average - sum / (i + 1)) < 1e-5 * sum);
        }
        expect_counts(&t, 20, 0, 0);
        for (int i = 0; i < 60; i++) { /* the mean of all norms, then an exponential average */
            average = t.average;
            give(&t, o, 2);
            double weight = fmax(1.0 / (21 + i), 0.02);
            assert_true(fabs(t.average - (average + (2 - average) * weight)) < 1e-5);
        }
        expect_counts(&t, 80, 0, 0);
        before = t;
        give(&t, o, 4.1f * before.average); /* an outlier */
        expect_counts(&t, 80, 1, 1);
        assert_true(t.w == before.w && t.average == before.average);
        assert_true(t.scale == before.scale && t.good == before.good);
        give(&t, o, NAN); /* NaN counts as skipped, not as an outlier */
        expect_counts(&t, 80, 2, 1);
        assert_true(t.w == before.w && t.average == before.average && t.good == 0);
        assert_true(k == 1 || t.scale == 0.5f * before.scale);
        give(&t, o, 3.9f * before.average);
        expect_counts(&t, 81, 2, 1);
        assert_true(t.w != before.w && t.average > before.average);
        wt_close(&t.run);
    }
}

/* ---- Misuse ---- */

static void refuses(wf_ctx *ctx, wf_loss_scale_options o, const char *part)
{
    wf_graph *g = wt_graph(ctx);
    wf_scaled s;
    wf_value *x = wf_input(g, "x", WF_F32, 0, NULL), *grad = x;
    wt_fails(ctx, wf_grad_scaled(g, x, &x, 1, &o, &grad, &s), WF_ERR_USAGE, part);
    assert_null(grad);
    assert_null(s.scale);
    assert_int_equal(wf_graph_status(g), WF_ERR_USAGE);
    wf_graph_free(g);
    g = wt_graph(ctx);
    assert_null(wf_loss_scale(g, &o));
    assert_int_equal(wf_graph_status(g), WF_ERR_USAGE);
    wf_graph_free(g);
}

static void test_wrong_options(void **state)
{
    char name[200];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    refuses(*state, (wf_loss_scale_options){.initial = -1}, "smallest <= initial");
    refuses(*state, (wf_loss_scale_options){.initial = NAN}, "smallest <= initial");
    refuses(*state, (wf_loss_scale_options){.initial = 8, .smallest = 16}, "smallest <= initial");
    refuses(*state, (wf_loss_scale_options){.initial = 8, .largest = 4}, "initial <= largest");
    refuses(*state, (wf_loss_scale_options){.largest = INFINITY}, "initial <= largest");
    refuses(*state, (wf_loss_scale_options){.growth = 0.5}, "must be 1 or more and backoff");
    refuses(*state, (wf_loss_scale_options){.growth = INFINITY}, "must be 1 or more and backoff");
    refuses(*state, (wf_loss_scale_options){.backoff = 2}, "must be in (0, 1]");
    refuses(*state, (wf_loss_scale_options){.backoff = -1}, "must be in (0, 1]");
    refuses(*state, (wf_loss_scale_options){.clip = -1}, "must be 0 or more");
    refuses(*state, (wf_loss_scale_options){.clip = NAN}, "must be 0 or more");
    refuses(*state, (wf_loss_scale_options){.interval = INT64_C(1) << 40}, "interval");
    refuses(*state, (wf_loss_scale_options){.outlier = 0.5}, "must be 0 (off), or 1 or more");
    refuses(*state, (wf_loss_scale_options){.outlier = NAN}, "must be 0 (off), or 1 or more");
    refuses(*state, (wf_loss_scale_options){.name = ""}, "the name must have");
    refuses(*state, (wf_loss_scale_options){.name = name}, "the name must have");
}

static void test_misuse(void **state)
{
    wf_ctx *ctx = *state;
    wf_scaled s;
    for (int k = 0; k < 5; k++) {
        static const char *const part[] = {
            "the loss must be a float scalar", "so it has no gradient", "takes 1 to",
            "a state 'loss_scale' that is not a scalar of type f32", "count must be an f32 scalar"};
        wf_graph *g = wt_graph(ctx);
        wf_value *x = wf_input(g, "x", WF_F32, 0, NULL), *i = wf_input(g, "i", WF_I32, 0, NULL),
                 *grad;
        if (k == 3)
            wf_state(g, "loss_scale", WF_I32, 0, NULL);
        wf_status status = k == 0   ? wf_grad_scaled(g, NULL, &x, 1, NULL, &grad, &s)
                           : k == 1 ? wf_grad_scaled(g, x, &i, 1, NULL, &grad, &s)
                           : k == 2 ? wf_grad_scaled(g, x, NULL, 0, NULL, NULL, &s)
                           : k == 3 ? wf_grad_scaled(g, x, &x, 1, NULL, &grad, &s)
                                    : wf_unscale(g, &x, 1, i, NULL, &s);
        wt_fails(ctx, status, WF_ERR_USAGE, part[k]);
        assert_null(s.apply);
        wf_graph_free(g);
    }
    wf_graph *g = wt_graph(ctx); /* a second scale in one graph would read the updated one */
    wf_value *x = wf_input(g, "x", WF_F32, 0, NULL), *grad;
    wt_ok(ctx, wf_grad_scaled(g, x, &x, 1, NULL, &grad, &s));
    wf_grad_scaled(g, x, &x, 1, NULL, &grad, &s);
    assert_int_not_equal(wf_graph_verify(g), WF_OK);
    wf_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_curves_track),    wt_test(test_overflow),
        wt_test(test_nothing_is_read), wt_test(test_gradients_that_are_no_numbers),
        wt_test(test_micro_batches),   wt_test(test_fixed_scale),
        wt_test(test_outliers),        wt_test(test_wrong_options),
        wt_test(test_misuse),
    };
    bool other = strcmp(device_under_test(), "cpu") != 0;
    if (!wt_can_open(device_under_test()))
        return 0;
    return cmocka_run_group_tests_name("loss_scale", tests, other ? wt_cache_setup : NULL,
                                       other ? wt_cache_teardown : NULL);
}
