/* SPDX-License-Identifier: MIT */
/*
 * test_extra_loss.c - training a family whose blocks add an extra loss: it changes the gradient,
 * but neither the reported loss nor validation.
 *
 * SGD with a rate of 1 and no momentum makes a step's change of a weight its negative gradient.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/philox.h"
#include "model/build.h"
#include "model/family.h"
#include "model_fixture.h"
#include "support.h"
#include "train/trainer.h"

#define BOUND 1e-4 /* relative to the largest element of a gradient */
#define PART 50.0  /* of the mean square of a block's output, in the extra loss */

enum { DEPTH = 1, LENGTH = 16, VOCABULARY = 64, ROWS = 2, TOKENS = ROWS * LENGTH };

/* ---- A family with an extra loss ---- */

static wf_value *penalized_block(wf_builder *b, wf_value *x)
{
    wf_value *y = wf_block_pre_norm(b, x);
    wf_value *mean =
        wf_reduce(b->g, "mean", wf_binary(b->g, "mul", y, y), WF_AXIS(0) | WF_AXIS(1), false);
    wf_value *part = wf_scale(b->g, mean, PART);
    b->extra_loss = b->extra_loss ? wf_binary(b->g, "add", b->extra_loss, part) : part;
    return y;
}

static wf_family penalized(void)
{
    wf_family f = wf_family_llama;
    f.block = penalized_block;
    return f;
}

/* ---- Batches ---- */

/* ROWS sequences. A step takes all of them at once, or one after the other. */
typedef struct {
    int32_t tokens[TOKENS], targets[TOKENS], positions[TOKENS], seq_start[ROWS + 1];
    int64_t rows; /* of a batch */
    wf_batch out;
} source;

/* `ignored` targets of the first sequence have no loss. */
static source make_source(int64_t rows, int ignored)
{
    source s = {.rows = rows};
    wf_rng rng;
    wf_rng_init(&rng, wt_seed(), 1);
    for (int i = 0; i < TOKENS; i++) {
        s.tokens[i] = (int32_t)(wf_rng_unit(&rng) * VOCABULARY);
        s.targets[i] = (int32_t)(wf_rng_unit(&rng) * VOCABULARY);
        s.positions[i] = i % LENGTH;
    }
    for (int i = 0; i < ignored; i++)
        s.targets[i] = -100;
    for (int i = 0; i <= ROWS; i++)
        s.seq_start[i] = i * LENGTH;
    return s;
}

static wf_status next(void *user, int64_t index, const wf_batch **out)
{
    source *s = user;
    int64_t first = index % (ROWS / s->rows) * s->rows * LENGTH;
    s->out = (wf_batch){.tokens = s->tokens + first,
                        .targets = s->targets + first,
                        .positions = s->positions,
                        .seq_start = s->seq_start};
    for (int64_t i = 0; i < s->rows * LENGTH; i++)
        s->out.valid += s->out.targets[i] >= 0;
    *out = &s->out;
    return WF_OK;
}

/* ---- Runs of the trainer ---- */

typedef struct {
    wf_device *device;
    wf_trainer *trainer;
} run;

static run open_run(wf_ctx *ctx, const wf_family *family, const wf_train_options *more)
{
    wf_train_options o = *more;
    wf_setup s;
    run r;
    o.depth = DEPTH;
    o.length = LENGTH;
    o.steps = 2;
    o.optimizer = "sgd";
    o.schedule = "constant";
    o.rate = 1;
    o.momentum = o.clip = o.warmup = -1;
    wt_ok(ctx, wf_device_open(ctx, "cpu", &r.device));
    wt_ok(ctx, wf_setup_make(ctx, &o, VOCABULARY, &s));
    s.config.family = family;
    wt_ok(ctx, wf_trainer_make(r.device, NULL, &s, 0, &r.trainer));
    return r;
}

static void close_run(run *r)
{
    wf_trainer_free(r->trainer);
    wf_device_close(r->device);
}

/* The weight whose gradient the tests look at, [n]. */
static const char watched[] = "blk.0.ffn_down.weight";

static float *read_watched(wf_ctx *ctx, wf_session *session, int64_t *n)
{
    wf_info info;
    int i = 0;
    while (wf_session_state(session, i, &info) && strcmp(info.name, watched) != 0)
        i++;
    assert_string_equal(info.name, watched);
    float *x = malloc(info.bytes);
    assert_non_null(x);
    wt_ok(ctx, wf_session_read(session, watched, x, info.bytes));
    *n = (int64_t)(info.bytes / sizeof *x);
    return x;
}

/* Makes one step. Returns the gradient of the watched weight, which the caller frees. */
static float *step_gradient(wf_ctx *ctx, const wf_family *family, const wf_train_options *o,
                            source *s, int64_t *n, double *loss)
{
    run r = open_run(ctx, family, o);
    wf_train_step step;
    float *before = read_watched(ctx, r.trainer->session, n);
    wt_ok(ctx, wf_trainer_step(r.trainer, next, s, &step));
    assert_true(step.applied);
    if (loss)
        *loss = step.loss;
    float *after = read_watched(ctx, r.trainer->session, n);
    for (int64_t i = 0; i < *n; i++)
        before[i] -= after[i];
    free(after);
    close_run(&r);
    return before;
}

/* ---- The same gradient by hand ---- */

/* Writes the inputs of a batch and the weights of a trainer that has made no step. */
static void write_inputs(wt_run *hand, wf_trainer *t, const wf_batch *b, int64_t rows)
{
    size_t bytes = (size_t)(rows * LENGTH) * sizeof(int32_t);
    wf_info info;
    for (int i = 0; wf_session_state(hand->session, i, &info); i++) {
        void *x = malloc(info.bytes);
        assert_non_null(x);
        wt_ok(hand->ctx, wf_session_read(t->session, info.name, x, info.bytes));
        wt_ok(hand->ctx, wf_session_write(hand->session, info.name, x, info.bytes));
        free(x);
    }
    wt_write(hand, "tokens", b->tokens, bytes);
    wt_write(hand, "targets", b->targets, bytes);
    wt_write(hand, "positions", b->positions, bytes);
    wt_write(hand, "seq_start", b->seq_start, (size_t)(rows + 1) * sizeof(int32_t));
}

/* Adds the gradient of sum(cross-entropy) + count * extra loss to sum. Returns count. */
static int64_t add_by_hand(wf_ctx *ctx, const wf_family *family, source *s, int64_t index,
                           double *sum, int64_t n)
{
    const int64_t tokens = s->rows * LENGTH;
    run r = open_run(ctx, family, &(wf_train_options){.batch = s->rows});
    wf_build_options o = wf_train_weights(&r.trainer->setup, false);
    wf_model_values values;
    const wf_batch *b;
    wf_value *w = NULL, *dw;
    wt_run hand = wt_open(ctx, "cpu");
    wf_graph *g = wt_graph(ctx);
    o.form = WF_FORM_TRAIN;
    o.tokens = tokens;
    o.sequences = s->rows;
    wt_ok(ctx, next(s, index, &b));
    wf_value *logits = wf_model_graph(g, &r.trainer->setup.config, &o, &values);
    wf_value *targets = wf_input(g, "targets", WF_I32, 1, &tokens);
    wf_value *loss = wf_reduce(
        g, "sum",
        wf_cross_entropy(g, logits, targets, &(wf_cross_entropy_options){.ignore_index = -100}),
        WF_AXIS(0), false);
    assert_non_null(values.extra_loss);
    loss = wf_binary(g, "add", loss, wf_scale(g, values.extra_loss, (double)b->valid));
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->name && strcmp(g->nodes[i]->name, watched) == 0)
            w = &g->nodes[i]->out[0];
    wt_ok(ctx, wf_grad(g, loss, &w, 1, &dw));
    wt_ok(ctx, wf_output(g, "dw", dw));
    wt_compile(&hand, g);
    write_inputs(&hand, r.trainer, b, s->rows);
    wt_run_once(&hand);
    float *part = malloc((size_t)n * sizeof *part);
    assert_non_null(part);
    wt_read(&hand, "dw", part, (size_t)n * sizeof *part);
    for (int64_t i = 0; i < n; i++)
        sum[i] += (double)part[i];
    free(part);
    wt_close(&hand);
    close_run(&r);
    return b->valid;
}

/* ---- Tests ---- */

/* One batch; batches that are accumulated, with different numbers of targets; recomputation. */
static void gradients_contain_the_extra_loss(void **state)
{
    static const struct {
        wf_train_options options;
        int ignored;
    } cases[] = {
        {{.batch = ROWS}, 0},
        {{.batch = ROWS, .recompute = 1}, 5},
        {{.batch = 1, .accumulate = ROWS}, 9},
        {{.batch = 1, .accumulate = ROWS}, LENGTH}, /* the first batch has no targets */
    };
    const wf_family family = penalized();
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        source s = make_source(cases[c].options.batch, cases[c].ignored);
        int64_t n, count = 0;
        float *got = step_gradient(*state, &family, &cases[c].options, &s, &n, NULL);
        float *dense = step_gradient(*state, &wf_family_llama, &cases[c].options, &s, &n, NULL);
        double *sum = calloc((size_t)n, sizeof *sum);
        float *want = malloc((size_t)n * sizeof *want);
        assert_true(sum && want);
        for (int64_t i = 0; i < ROWS / s.rows; i++)
            count += add_by_hand(*state, &family, &s, i, sum, n);
        for (int64_t i = 0; i < n; i++)
            want[i] = (float)(sum[i] / (double)count);
        assert_true(wt_relative(got, want, n) <= BOUND);
        assert_true(wt_relative(dense, want, n) > 100 * BOUND); /* the extra loss matters */
        free(got);
        free(dense);
        free(want);
        free(sum);
    }
}

/* With as many targets in every batch, and means over equally many tokens. */
static void accumulation_equals_one_batch(void **state)
{
    const wf_family family = penalized();
    source whole = make_source(ROWS, 0), parts = make_source(1, 0);
    int64_t n;
    double loss[2];
    float *want =
        step_gradient(*state, &family, &(wf_train_options){.batch = ROWS}, &whole, &n, &loss[0]);
    float *got = step_gradient(*state, &family, &(wf_train_options){.batch = 1, .accumulate = ROWS},
                               &parts, &n, &loss[1]);
    assert_true(wt_relative(got, want, n) <= BOUND);
    assert_true(fabs(loss[0] - loss[1]) <= 1e-6 * fabs(loss[0]));
    free(want);
    free(got);
}

/* The losses of an untrained model are those of the same model without the extra loss. */
static void reports_have_the_data_loss_alone(void **state)
{
    const wf_family family = penalized();
    const wf_train_options o = {.batch = ROWS};
    double valid[2], loss[2];
    int64_t count[2], n;
    for (int i = 0; i < 2; i++) {
        const wf_family *f = i ? &family : &wf_family_llama;
        source s = make_source(ROWS, 3);
        const wf_batch *b;
        run r = open_run(*state, f, &o);
        wt_ok(*state, next(&s, 0, &b));
        wt_ok(*state, wf_trainer_evaluate(r.trainer, b, &valid[i], &count[i]));
        close_run(&r);
        free(step_gradient(*state, f, &o, &s, &n, &loss[i]));
    }
    assert_true(valid[0] == valid[1]);
    assert_int_equal(count[0], TOKENS - 3);
    assert_int_equal(count[0], count[1]);
    assert_true(fabs(loss[0] - loss[1]) <= 1e-6 * fabs(loss[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(gradients_contain_the_extra_loss),
        wt_test(accumulation_equals_one_batch),
        wt_test(reports_have_the_data_loss_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
