/* SPDX-License-Identifier: MIT */
/*
 * test_device_train.c - training on a device: the transfers of a steady step, planned against
 * allocated memory, bitwise reproducible runs (also with recomputation and from a checkpoint), and
 * losses that match the cpu's.
 *
 * WEFT_TRAIN_DEVICE names a device other than the cpu; the tests are skipped when it cannot be
 * opened.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "pjrt_support.h"
#include "scratch.h"
#include "support.h"
#include "train/fit.h"
#include "train/trainer.h"

/* Even: a checkpoint is made after half of them. Runs also compare all states after the last step,
 * so steps beyond it would find nothing more. */
#define STEPS 4
#define VOCABULARY 300

static const char *device_under_test(void)
{
    const char *given = getenv("WEFT_TRAIN_DEVICE");
    return given ? given : "cpu";
}

/* ---- Batches ---- */

typedef struct {
    int64_t batch, length;
    int32_t *tokens, *targets, *positions, *seq_start;
    wf_batch out;
} source;

static source open_source(const wf_train_options *o)
{
    source s = {.batch = o->batch, .length = o->length};
    size_t n = (size_t)(o->batch * o->length);
    int32_t *all = calloc(3 * n + (size_t)o->batch + 1, sizeof *all);
    assert_non_null(all);
    s.tokens = all;
    s.targets = all + n;
    s.positions = all + 2 * n;
    s.seq_start = all + 3 * n;
    return s;
}

/* Produces a learnable language: each token determines the next, except every eighth. */
static wf_status next(void *user, int64_t index, const wf_batch **out)
{
    source *s = user;
    int64_t n = s->batch * s->length;
    uint32_t x = (uint32_t)index * 2654435761u + 12345;
    for (int64_t i = 0; i < n; i++) {
        x = i % 8 ? x * 5 + 7 : x * 1664525 + 1013904223;
        s->tokens[i] = (int32_t)(x >> 8) % VOCABULARY;
        s->tokens[i] += s->tokens[i] < 0 ? VOCABULARY : 0;
        s->positions[i] = (int32_t)(i % s->length);
        s->targets[i > 0 ? i - 1 : n - 1] = s->tokens[i];
    }
    for (int64_t b = 0; b <= s->batch; b++)
        s->seq_start[b] = (int32_t)(b * s->length);
    s->out = (wf_batch){.tokens = s->tokens,
                        .targets = s->targets,
                        .positions = s->positions,
                        .seq_start = s->seq_start,
                        .valid = n};
    *out = &s->out;
    return WF_OK;
}

/* ---- Runs ---- */

/* Losses and gradient norms of a run, and a hash of all states after its last step. */
typedef struct {
    double loss[STEPS], norm[STEPS];
    uint64_t states;
} curve;

static wf_trainer *open_trainer(wf_ctx *ctx, wf_device *device, const wf_train_options *options)
{
    wf_train_options o = *options;
    wf_setup s;
    wf_trainer *t;
    o.steps = STEPS;
    wt_ok(ctx, wf_setup_make(ctx, &o, VOCABULARY, &s));
    wt_ok(ctx, wf_trainer_make(device, NULL, &s, 0, &t));
    return t;
}

static void make_steps(wf_ctx *ctx, wf_trainer *t, const wf_train_options *o, int count, curve *out)
{
    source s = open_source(o);
    for (int i = 0; i < count; i++) {
        wf_train_step step;
        wt_ok(ctx, wf_trainer_step(t, next, &s, &step));
        assert_true(isfinite(step.loss) && step.applied);
        out->loss[step.step - 1] = step.loss;
        out->norm[step.step - 1] = step.norm;
    }
    free(s.tokens);
}

/* Hashes the bits of parameters, moments and all other states. */
static uint64_t hash_states(wf_ctx *ctx, const wf_trainer *t)
{
    uint64_t h = WF_FNV1A;
    wf_info info;
    for (int i = 0; wf_session_state(t->session, i, &info); i++) {
        void *bits = malloc(info.bytes);
        assert_non_null(bits);
        wt_ok(ctx, wf_session_read(t->session, info.name, bits, info.bytes));
        h = wf_hash_fnv1a_string(h, info.name);
        h = wf_hash_fnv1a(h, bits, info.bytes);
        free(bits);
    }
    return h;
}

/* A run on a device: its curve, what step TRAFFIC_STEP transferred, and the memory it took. */
typedef struct {
    curve curve;
    uint64_t in, out, copied, allocations; /* of one step: bytes, and their number */
    size_t planned, now, peak; /* bytes of device memory: planned, at the end, at most */
} record;
#define TRAFFIC_STEP 3 /* the steps before it warm up */

/* Adds what the executables have transferred so far, times `sign`. */
static void add_traffic(const wf_trainer *t, record *r, int sign)
{
    for (int f = 0; f < WF_TRAIN_COUNT; f++) {
        wf_run_stats stats = {0};
        if (t->exec[f])
            wf_exec_stats(t->exec[f], &stats);
        r->in += (uint64_t)sign * stats.bytes_in;
        r->out += (uint64_t)sign * stats.bytes_out;
        r->copied += (uint64_t)sign * stats.bytes_copied;
        r->allocations += (uint64_t)sign * stats.allocations;
    }
}

static record train(wf_ctx *ctx, const char *name, const wf_train_options *options)
{
    wf_train_options o = *options;
    wf_device *device;
    wf_setup s;
    wf_setup_plan plan;
    record r = {0};
    o.steps = STEPS;
    wt_ok(ctx, wf_device_open(ctx, name, &device));
    wt_ok(ctx, wf_setup_make(ctx, &o, VOCABULARY, &s));
    wt_ok(ctx, wf_setup_plan_memory(&s, device, NULL, &plan));
    wf_setup_free(&s);
    wf_trainer *t = open_trainer(ctx, device, &o);
    make_steps(ctx, t, &o, TRAFFIC_STEP - 1, &r.curve);
    add_traffic(t, &r, -1);
    make_steps(ctx, t, &o, 1, &r.curve);
    add_traffic(t, &r, 1);
    make_steps(ctx, t, &o, STEPS - TRAFFIC_STEP, &r.curve);
    r.planned = plan.total;
    wf_device_memory(device, &r.now, &r.peak);
    r.curve.states = hash_states(ctx, t);
    wf_trainer_free(t);
    wf_device_close(device);
    return r;
}

static void assert_same(const curve *a, const curve *b)
{
    assert_memory_equal(a, b, sizeof *a);
}

static const wf_train_options setups[] = {
    {.depth = 2, .batch = 2, .length = 32},
    {.depth = 2, .batch = 2, .length = 32, .compute = WF_BF16},
    {.depth = 2, .batch = 2, .length = 21, .compute = WF_F16, .accumulate = 2},
    /* layer norms, biases and gelu, whose gradients have other fused forms */
    {.config = "tests/fixtures/models/gpt2/config.json",
     .batch = 2,
     .length = 32,
     .compute = WF_BF16,
     .accumulate = 2},
};
#define SETUPS (int)(sizeof setups / sizeof *setups)

/* Returns the run of a setup on the device under test. Trains once; later calls return the same
 * record, so each test trains only the run that it compares with. */
static record trained(wf_ctx *ctx, int setup)
{
    static record records[SETUPS];
    static bool known[SETUPS];
    if (!known[setup])
        records[setup] = train(ctx, device_under_test(), &setups[setup]);
    known[setup] = true;
    return records[setup];
}

/* ---- Guarantees ---- */

/* A steady step transfers tokens, targets and the learning rate to the device and the report back,
 * nothing else. */
static void test_traffic(void **state)
{
    for (int i = 0; i < SETUPS; i++) {
        const wf_train_options *o = &setups[i];
        record r = trained(*state, i);
        int64_t batches = o->accumulate > 0 ? o->accumulate : 1;
        print_message("%s, setup %d: %d bytes in, %d out, %d copied on the device per step\n",
                      device_under_test(), i, (int)r.in, (int)r.out, (int)r.copied);
        assert_int_equal(r.in, 2 * batches * o->batch * o->length * 4 + 4);
        assert_int_equal(r.out, WF_REPORT_COUNT * 4);
        assert_int_equal(r.allocations, 0);
    }
}

/* The plan predicts the device's memory to the byte. */
static void test_planned_is_taken(void **state)
{
    for (int i = 0; i < SETUPS; i++) {
        record r = trained(*state, i);
        assert_int_equal(r.now, r.planned);
        assert_int_equal(r.peak, r.planned);
    }
}

/* A run with recomputation has the same bits. test_resumes repeats the run without it. */
static void test_recomputes(void **state)
{
    for (int i = 0; i < SETUPS; i++) {
        wf_train_options o = setups[i];
        record first = trained(*state, i);
        o.recompute = 1;
        record recomputed = train(*state, device_under_test(), &o);
        assert_same(&first.curve, &recomputed.curve);
        assert_int_equal(recomputed.peak, recomputed.planned);
    }
}

/* Repeats the run, and trains its second half from a checkpoint in a new trainer: the same bits. */
static void test_resumes(void **state)
{
    wf_ctx *ctx = *state;
    for (int i = 0; i < SETUPS; i++) {
        const wf_train_options *o = &setups[i];
        curve whole = trained(ctx, i).curve, parts = {0};
        wt_scratch scratch;
        bool exact;
        wt_scratch_make(&scratch);
        for (int half = 0; half < 2; half++) {
            wf_device *device;
            wt_ok(ctx, wf_device_open(ctx, device_under_test(), &device));
            wf_trainer *t = open_trainer(ctx, device, o);
            if (half == 1) {
                wt_ok(ctx, wf_trainer_load(t, scratch.folder, &exact));
                assert_true(exact);
            }
            make_steps(ctx, t, o, STEPS / 2, &parts);
            if (half == 0)
                wt_ok(ctx, wf_trainer_save(t, scratch.folder));
            parts.states = hash_states(ctx, t);
            wf_trainer_free(t);
            wf_device_close(device);
        }
        assert_same(&whole, &parts);
        wt_scratch_remove(&scratch);
    }
}

/* In f32, devices differ by the order of sums. In narrow types single roundings differ, and later
 * steps carry the difference on. The bounds are of losses, and of gradient norms relative to the
 * cpu's: a wrong gradient shows in the norm of the same step. */
static void test_agrees_with_cpu(void **state)
{
    static const double bounds[SETUPS] = {2e-5, 1e-2, 2e-3, 1e-2};
    for (int i = 0; i < SETUPS; i++) {
        curve here = trained(*state, i).curve;
        curve cpu = train(*state, "cpu", &setups[i]).curve;
        double loss = 0, norm = 0;
        for (int k = 0; k < STEPS; k++) {
            loss = fmax(loss, fabs(here.loss[k] - cpu.loss[k]));
            norm = fmax(norm, fabs(here.norm[k] / cpu.norm[k] - 1));
        }
        print_message("%s, setup %d: losses differ by %.2g, norms by a factor of 1 + %.2g\n",
                      device_under_test(), i, loss, norm);
        assert_true(loss <= bounds[i] && norm <= bounds[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_traffic), wt_test(test_planned_is_taken), wt_test(test_recomputes),
        wt_test(test_resumes), wt_test(test_agrees_with_cpu),
    };
    if (!wt_can_open(device_under_test()))
        return 0;
    return cmocka_run_group_tests_name("device_train", tests, NULL, NULL);
}
