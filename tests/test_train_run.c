/* SPDX-License-Identifier: MIT */
/* test_train_run.c - runs in a folder: stopped and resumed bitwise for every kind of setup, refused
 * where required, and the handling of bad steps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "base/path.h"
#include "data_fixture.h"
#include "device/device.h"
#include "model_fixture.h"
#include "support.h"
#include "train/trainer.h"

#define VOCAB 256
#define STEPS 8

/* ---- A run and its reports ---- */

typedef struct {
    int64_t stop_after;     /* steps; 0: runs to its end */
    double loss[STEPS + 1]; /* by step */
    double norm[STEPS + 1];
    int64_t seen, first, skipped;
    double valid;
    char said[4096];
} watcher;

static void on_step(void *user, const wf_train_step *s)
{
    watcher *w = user;
    assert_true(s->step >= 1 && s->step <= STEPS);
    w->first = w->seen == 0 ? s->step : w->first;
    w->seen++;
    w->skipped += !s->applied;
    w->loss[s->step] = s->loss;
    w->norm[s->step] = s->norm;
}

static void on_valid(void *user, int64_t step, double loss, double bits)
{
    watcher *w = user;
    (void)step;
    (void)bits;
    w->valid = loss;
}

static void on_say(void *user, const char *sentence)
{
    watcher *w = user;
    size_t len = strlen(w->said);
    snprintf(w->said + len, sizeof w->said - len, "%s\n", sentence);
}

static bool on_stop(void *user)
{
    const watcher *w = user;
    return w->stop_after > 0 && w->seen >= w->stop_after;
}

typedef struct {
    wf_ctx *ctx;
    wf_device *device;
    wt_scratch scratch;
    char data[256], llama[256],
        gpt2[256]; /* paths of models without a tokenizer, which accept any data */
} place;

static void copy_model(place *p, const char *name, char to[256])
{
    static const char *const files[] = {"config.json", "model.safetensors"};
    snprintf(to, 256, "%s", wt_path(&p->scratch, name));
    wt_ok(p->ctx, wf_path_make_folder(p->ctx, to));
    for (int i = 0; i < 2; i++) {
        char from[256], path[512], *bytes;
        size_t size;
        snprintf(from, sizeof from, WT_MODELS_FOLDER "/%s/%s", name, files[i]);
        snprintf(path, sizeof path, "%s/%s", to, files[i]);
        wt_ok(p->ctx, wf_file_read(p->ctx, from, 1 << 24, &bytes, &size));
        wt_ok(p->ctx, wf_file_write(p->ctx, path, bytes, size));
        wf_mem_free(p->ctx, bytes);
    }
}

static void make_place(place *p, wf_ctx *ctx)
{
    wt_texts train = wt_texts_random(wt_seed(), 60, 90, VOCAB, VOCAB - 1, false);
    wt_texts valid = wt_texts_random(wt_seed() + 1, 8, 90, VOCAB, VOCAB - 1, false);
    p->ctx = ctx;
    wt_scratch_make(&p->scratch);
    wt_ok(ctx, wf_device_open(ctx, "cpu:2", &p->device));
    snprintf(p->data, sizeof p->data, "%s",
             wt_data_write(ctx, &p->scratch, "data", VOCAB, &train, &valid, 20));
    wt_texts_free(&train);
    wt_texts_free(&valid);
    copy_model(p, "llama", p->llama);
    copy_model(p, "gpt2", p->gpt2);
}

static void remove_place(place *p)
{
    wf_device_close(p->device);
    wt_scratch_remove(&p->scratch);
}

static wf_status try_run(place *p, const char *name, const wf_train_options *train, bool resume,
                         watcher *w, bool *stopped)
{
    const wf_train_events events = {
        .user = w, .step = on_step, .valid = on_valid, .say = on_say, .stop = on_stop};
    char out[512];
    snprintf(out, sizeof out, "%s", wt_path(&p->scratch, name));
    wf_run_options o = {.data = p->data,
                        .out = out,
                        .resume = resume,
                        .train = *train,
                        .save_every = -1,
                        .valid_every = 4,
                        .export_type = "none",
                        .events = &events};
    if (train->model && strcmp(train->model, "llama") == 0)
        o.train.model = p->llama;
    if (train->model && strcmp(train->model, "gpt2") == 0)
        o.train.model = p->gpt2;
    return wf_train(p->device, &o, stopped);
}

static void run(place *p, const char *name, const wf_train_options *train, bool resume, watcher *w)
{
    bool stopped;
    wt_ok(p->ctx, try_run(p, name, train, resume, w, &stopped));
    assert_int_equal(stopped, w->stop_after > 0);
}

/* ---- Stopped and resumed ---- */

#define SMALL .depth = 1, .batch = 2, .length = 32, .steps = STEPS, .warmup = 2
static const struct {
    const char *name;
    wf_train_options train;
} setups[] = {
    {"adamw", {SMALL}},
    {"muon and dropout", {SMALL, .optimizer = "muon", .dropout = 0.1}},
    {"lion in bf16", {SMALL, .optimizer = "lion", .compute = WF_BF16}},
    {"sgd over two batches", {SMALL, .optimizer = "sgd", .accumulate = 2, .dropout = 0.2}},
    {"f16", {SMALL, .compute = WF_F16}},
    {"ema averages", {SMALL, .ema = 0.9, .schedule = "wsd"}},
    {"documents", {SMALL, .documents = true, .z_loss = 1e-3, .label_smoothing = 0.1}},
    {"recompute", {SMALL, .recompute = 1, .schedule = "linear", .outlier = 50}},
    {"all weights of a model", {.model = "llama", .batch = 2, .length = 32, .steps = STEPS}},
    {"adapters",
     {.model = "llama", .batch = 2, .length = 32, .steps = STEPS, .lora = 4, .lora_dropout = 0.1}},
    {"adapters of GPT-2", {.model = "gpt2", .batch = 2, .length = 32, .steps = STEPS, .lora = 4}},
};

static void test_resumed_bit_for_bit(void **state)
{
    place p;
    make_place(&p, *state);
    const size_t count = sizeof setups / sizeof *setups;
    for (size_t i = 0; i < count; i++) {
        watcher whole = {0}, half = {.stop_after = 3}, rest = {0};
        char a[32], b[32];
        if (wt_cases((int)count) < (int)count && (i + wt_seed()) % 4 != 0)
            continue; /* sanitized: a quarter of the setups */
        snprintf(a, sizeof a, "a%d", (int)i);
        snprintf(b, sizeof b, "b%d", (int)i);
        run(&p, a, &setups[i].train, false, &whole);
        run(&p, b, &setups[i].train, false, &half);
        run(&p, b, &setups[i].train, true, &rest);
        assert_int_equal(whole.seen, STEPS);
        assert_int_equal(rest.first, 4);
        for (int k = 1; k <= STEPS; k++) {
            const watcher *w = k <= 3 ? &half : &rest;
            /* compares bits, because overflowed losses are NaN */
            if (memcmp(&w->loss[k], &whole.loss[k], sizeof(double)) != 0 ||
                memcmp(&w->norm[k], &whole.norm[k], sizeof(double)) != 0)
                fail_msg("%s: step %d has the loss %.9g and had %.9g", setups[i].name, k,
                         w->loss[k], whole.loss[k]);
        }
        assert_true(rest.valid == whole.valid && isfinite(rest.valid));
        assert_null(strstr(rest.said, "not exact"));
    }
    remove_place(&p);
}

/* A model from a GGUF file, whose rows have another order, learns exactly like the same model from
 * a folder. */
static void test_order_of_rows(void **state)
{
    place p;
    wf_model *m;
    watcher folder = {0}, gguf = {0};
    char path[512];
    make_place(&p, *state);
    snprintf(path, sizeof path, "%s", wt_path(&p.scratch, "llama.gguf"));
    wt_ok(p.ctx, wf_model_open(p.ctx, p.llama, &m));
    wt_ok(p.ctx, wf_model_convert(m, p.ctx, path, &(wf_convert_options){.type = "f32"}));
    wf_model_close(m);
    for (int lora = 0; lora <= 4; lora += 4) {
        wf_train_options o = {
            .model = "llama", .batch = 2, .length = 32, .steps = STEPS, .rate = 1e-3, .lora = lora};
        run(&p, lora ? "a" : "b", &o, false, &folder);
        o.model = path;
        run(&p, lora ? "c" : "d", &o, false, &gguf);
        /* Full training: the same order of rows, so the same bits. */
        for (int k = 1; k <= STEPS; k++)
            assert_true(lora ? fabs(folder.loss[k] - gguf.loss[k]) < 1e-5
                             : folder.loss[k] == gguf.loss[k]);
        folder = gguf = (watcher){0};
    }
    remove_place(&p);
}

/* ---- Refusals ---- */

static void test_folders(void **state)
{
    place p;
    bool stopped;
    watcher w = {.stop_after = 2}, again = {0};
    wf_train_options o = {SMALL};
    make_place(&p, *state);
    run(&p, "run", &o, false, &w);
    wt_fails(p.ctx, try_run(&p, "run", &o, false, &again, &stopped), WF_ERR_USAGE,
             "contains a run at step 2");
    wf_train_options other = {SMALL, .optimizer = "lion"};
    wt_fails(p.ctx, try_run(&p, "run", &other, true, &again, &stopped), WF_ERR_USAGE,
             "optimizer = adamw");
    other = (wf_train_options){.depth = 2, .batch = 2, .length = 32, .steps = STEPS};
    wt_fails(p.ctx, try_run(&p, "run", &other, true, &again, &stopped), WF_ERR_USAGE, "depth = 1");
    other = (wf_train_options){SMALL, .rate = 1e-4};
    run(&p, "run", &other, true, &again); /* resumes, and reports that the run has changed */
    assert_non_null(strstr(again.said, "not exact"));
    remove_place(&p);
}

static void test_options(void **state)
{
    static const struct {
        wf_train_options o;
        const char *sentence;
    } wrong[] = {
        {{.batch = 2}, "the model's shape is missing"},
        {{.depth = 1, .preset = "gpt2-124M"}, "is given more than once"},
        {{.preset = "gpt2-124"}, "did you mean"},
        {{.preset = "tiny"}, "for planning only"},
        {{.depth = 1000}, "1 to 256"},
        {{.depth = 1, .optimizer = "adam"}, "use one of: adamw"},
        {{.depth = 1, .schedule = "step"}, "use one of: constant"},
        {{.depth = 1, .compute = WF_I8}, "f32, bf16 or f16"},
        {{.depth = 1, .dropout = 1}, "dropout"},
        {{.depth = 1, .rate = -1}, "rate must be above 0"},
        {{.depth = 1, .beta2 = 1}, "beta2"},
        {{.depth = 1, .lora = 4}, "adapters need a base model"},
        {{.depth = 1, .batch = 1 << 20, .length = 1 << 20}, "too large"},
        {{.model = WT_MODELS_FOLDER "/llama", .depth = 1}, "determines the shape"},
        {{.model = WT_MODELS_FOLDER "/llama", .length = 100000}, "the limit of"},
        {{.model = WT_MODELS_FOLDER "/llama", .lora = 2, .lora_targets = "nothing"}, "nothing"},
        {{.model = WT_MODELS_FOLDER "/llama", .lora = 2, .ema = 0.9}, "average"},
        {{.model = WT_MODELS_FOLDER "/llama"}, "another tokenizer"},
    };
    place p;
    make_place(&p, *state);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wf_train_options o = wrong[i].o;
        bool stopped;
        watcher w = {0};
        o.steps = STEPS;
        wt_fails(p.ctx, try_run(&p, "run", &o, false, &w, &stopped), WF_ERR_USAGE,
                 wrong[i].sentence);
    }
    remove_place(&p);
}

/* ---- Bad steps ---- */

typedef struct {
    int32_t tokens[64], targets[64], positions[64], seq_start[3];
    wf_batch batch;
} constant;

static wf_status next(void *user, int64_t index, const wf_batch **out)
{
    constant *c = user;
    (void)index;
    *out = &c->batch;
    return WF_OK;
}

static constant make_constant(void)
{
    constant c = {.seq_start = {0, 32, 64}};
    for (int i = 0; i < 64; i++) {
        c.tokens[i] = i * 7 % VOCAB;
        c.targets[i] = (i + 1) * 7 % VOCAB;
        c.positions[i] = i % 32;
    }
    return c;
}

static void point(constant *c)
{
    c->batch = (wf_batch){.tokens = c->tokens,
                          .targets = c->targets,
                          .positions = c->positions,
                          .seq_start = c->seq_start,
                          .valid = 64};
}

static void read_states(wf_trainer *t, float *to, size_t most, size_t *count)
{
    wf_info s;
    *count = 0;
    for (int i = 0; wf_session_state(t->session, i, &s); i++) {
        if (s.type != WF_F32 || strncmp(s.name, "loss_scale", 10) == 0)
            continue;
        size_t n = s.bytes / sizeof(float);
        assert_true(*count + n <= most);
        wt_ok(t->ctx, wf_session_read(t->session, s.name, to + *count, s.bytes));
        *count += n;
    }
}

static void test_bad_steps(void **state)
{
    enum { MOST = 4 << 20 };
    wf_ctx *ctx = *state;
    constant c = make_constant();
    wf_device *device;
    wf_trainer *t;
    wf_train_step step;
    size_t count;
    float *before = malloc(MOST * sizeof *before), *after = malloc(MOST * sizeof *after);
    const wf_train_options o = {SMALL, .patience = 3};
    wf_setup setup;
    assert_true(before && after);
    point(&c);
    wt_ok(ctx, wf_device_open(ctx, "cpu:2", &device));
    wt_ok(ctx, wf_setup_make(ctx, &o, VOCAB, &setup));
    wt_ok(ctx, wf_trainer_make(device, NULL, &setup, 0, &t));
    /* Positions that the graph does not expect. */
    c.positions[40]++;
    wt_fails(ctx, wf_trainer_step(t, next, &c, &step), WF_ERR_USAGE, "sequences of 32 tokens");
    c.positions[40]--;
    c.seq_start[1]++;
    wt_fails(ctx, wf_trainer_step(t, next, &c, &step), WF_ERR_USAGE, "sequences of 32 tokens");
    c.seq_start[1]--;
    wt_ok(ctx, wf_trainer_step(t, next, &c, &step));
    assert_true(step.applied && isfinite(step.loss));

    /* No target counts: the gradient is zero, and only decay changes the weights. */
    constant none = c;
    point(&none);
    for (int i = 0; i < 64; i++)
        none.targets[i] = -100;
    none.batch.valid = 0;
    wt_ok(ctx, wf_trainer_step(t, next, &none, &step));
    assert_true(step.applied && step.loss == 0 && step.norm == 0);

    /* An infinite weight makes non-finite gradients: nothing may change. */
    float gain[256];
    wt_ok(ctx, wf_session_read(t->session, "output_norm.weight", gain, sizeof gain));
    gain[3] = INFINITY;
    wt_ok(ctx, wf_session_write(t->session, "output_norm.weight", gain, sizeof gain));
    read_states(t, before, MOST, &count);
    for (int i = 0; i < 2; i++) {
        wt_ok(ctx, wf_trainer_step(t, next, &c, &step));
        assert_false(step.applied);
    }
    read_states(t, after, MOST, &count);
    assert_memory_equal(before, after, count * sizeof *before);
    wt_fails(ctx, wf_trainer_step(t, next, &c, &step), WF_ERR_DEVICE, "3 steps in a row");
    assert_int_equal(step.skipped, 3);
    wf_trainer_free(t);
    wf_device_close(device);
    free(before);
    free(after);
}

/* ---- Checkpoints of other data ---- */

static void keep_warning(void *user, wf_log_level level, const char *message)
{
    if (level == WF_LOG_WARN)
        on_say(user, message);
}

/* A trainer with the caller's own batches loads a checkpoint of wf_train, and the reverse: the data
 * cannot be compared, so the result is not exact. Other known data is refused. */
static void test_unknown_data(void **state)
{
    static const struct {
        uint64_t saved, loading; /* identities; 0: unknown */
        const char *said;        /* NULL: exact */
    } cases[] = {{0, 0, NULL},
                 {5, 5, NULL},
                 {5, 0, "not exact: the data of this trainer is unknown\n"},
                 {0, 5, "not exact: the data of the checkpoint is unknown\n"}};
    place p;
    watcher w = {.stop_after = 2}, log = {0};
    const wf_train_options o = {SMALL};
    wf_setup setup;
    wf_trainer *t;
    wf_train_info info;
    bool exact;
    make_place(&p, *state);
    run(&p, "run", &o, false, &w);
    wt_ok(p.ctx, wf_setup_make(p.ctx, &o, VOCAB, &setup));
    wt_ok(p.ctx, wf_trainer_make(p.device, NULL, &setup, 0, &t));
    wf_ctx_set_log(p.ctx, keep_warning, &log);
    wt_ok(p.ctx, wf_trainer_load(t, wt_path(&p.scratch, "run/step-00000002"), &exact));
    assert_false(exact);
    assert_string_equal(log.said, cases[2].said);
    wf_trainer_get_info(t, &info);
    assert_int_equal(info.step, 2);

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char name[16];
        snprintf(name, sizeof name, "saved-%d", (int)i);
        const char *folder = wt_path(&p.scratch, name);
        wt_ok(p.ctx, wf_path_make_folder(p.ctx, folder));
        t->data = cases[i].saved;
        wt_ok(p.ctx, wf_trainer_save(t, folder));
        t->data = cases[i].loading;
        log.said[0] = '\0';
        wt_ok(p.ctx, wf_trainer_load(t, folder, &exact));
        assert_int_equal(exact, !cases[i].said);
        assert_string_equal(log.said, cases[i].said ? cases[i].said : "");
    }
    t->data = 6;
    wt_fails(p.ctx, wf_trainer_load(t, wt_path(&p.scratch, "saved-1"), &exact), WF_ERR_USAGE,
             "trained on other data");
    wf_ctx_set_log(p.ctx, NULL, NULL);
    wf_trainer_free(t);
    remove_place(&p);
}

/* ---- Failed steps ---- */

typedef struct {
    constant c;
    int64_t fails_at; /* number of the batch whose first request fails; -1: never */
    wf_ctx *ctx;
} unreliable;

static wf_status next_or_fail(void *user, int64_t index, const wf_batch **out)
{
    unreliable *u = user;
    if (index == u->fails_at) {
        u->fails_at = -1;
        return wf_fail(u->ctx, WF_ERR_IO, "no batch %lld", (long long)index);
    }
    for (int i = 0; i < 64; i++) {
        u->c.tokens[i] = (int32_t)((i * 7 + index * 3) % VOCAB);
        u->c.targets[i] = i % 5 == index % 3 ? -100 : (int32_t)((i * 11 + index) % VOCAB);
    }
    u->c.batch.valid = 0;
    for (int i = 0; i < 64; i++)
        u->c.batch.valid += u->c.targets[i] >= 0;
    *out = &u->c.batch;
    return WF_OK;
}

static wf_trainer *make_summing(wf_device *device)
{
    const wf_train_options o = {SMALL, .accumulate = 3};
    wf_setup setup;
    wf_trainer *t;
    wt_ok(device->ctx, wf_setup_make(device->ctx, &o, VOCAB, &setup));
    wt_ok(device->ctx, wf_trainer_make(device, NULL, &setup, 0, &t));
    return t;
}

/* Steps of both trainers are bitwise equal. */
static void expect_equal_steps(wf_trainer *a, wf_trainer *b, unreliable *u, int count)
{
    for (int i = 0; i < count; i++) {
        wf_train_step x, y;
        wt_ok(a->ctx, wf_trainer_step(a, next_or_fail, u, &x));
        wt_ok(a->ctx, wf_trainer_step(b, next_or_fail, u, &y));
        assert_true(x.step == y.step && x.loss == y.loss && x.norm == y.norm);
        assert_int_equal(x.tokens, y.tokens);
    }
}

/* A step that fails between its batches leaves no part of its gradient and no token count, whether
 * it is retried or a checkpoint is loaded. */
static void test_failed_between_batches(void **state)
{
    wf_ctx *ctx = *state;
    unreliable u = {.c = make_constant(), .fails_at = -1, .ctx = ctx};
    wt_scratch scratch;
    wf_device *device;
    wf_train_step step;
    bool exact;
    point(&u.c);
    wt_scratch_make(&scratch);
    wt_ok(ctx, wf_device_open(ctx, "cpu:2", &device));
    wf_trainer *good = make_summing(device), *bad = make_summing(device);
    const char *folder = wt_path(&scratch, "saved");
    wt_ok(ctx, wf_path_make_folder(ctx, folder));

    u.fails_at = 2; /* the last batch of the first step */
    wt_fails(ctx, wf_trainer_step(bad, next_or_fail, &u, &step), WF_ERR_IO, "no batch 2");
    expect_equal_steps(good, bad, &u, 2);

    wt_ok(ctx, wf_trainer_save(good, folder));
    expect_equal_steps(good, bad, &u, 1);
    u.fails_at = 10; /* the second batch of the fourth step */
    wt_fails(ctx, wf_trainer_step(bad, next_or_fail, &u, &step), WF_ERR_IO, "no batch 10");
    wt_ok(ctx, wf_trainer_load(bad, folder, &exact));
    assert_true(exact);
    wt_ok(ctx, wf_trainer_load(good, folder, &exact));
    expect_equal_steps(good, bad, &u, 3);

    wf_trainer_free(good);
    wf_trainer_free(bad);
    wf_device_close(device);
    wt_scratch_remove(&scratch);
}

/* The norm of Muon's momentum of one matrix after one step. */
static double kept_with(wf_device *device, double momentum)
{
    enum { COUNT = 256 * 704 };
    static float m[COUNT];
    wf_ctx *ctx = device->ctx;
    constant c = make_constant();
    const wf_train_options o = {SMALL, .optimizer = "muon", .momentum = momentum};
    wf_setup setup;
    wf_trainer *t;
    wf_train_step step;
    double sum = 0;
    point(&c);
    wt_ok(ctx, wf_setup_make(ctx, &o, VOCAB, &setup));
    wt_ok(ctx, wf_trainer_make(device, NULL, &setup, 0, &t));
    wt_ok(ctx, wf_trainer_step(t, next, &c, &step));
    wt_ok(ctx, wf_session_read(t->session, "m.blk.0.ffn_down.weight", m, sizeof m));
    for (int i = 0; i < COUNT; i++)
        sum += (double)m[i] * (double)m[i];
    wf_trainer_free(t);
    return sqrt(sum);
}

/* Momentum 0, which options express by a negative value, keeps the whole last gradient and differs
 * from the default. */
static void test_no_momentum(void **state)
{
    wf_device *device;
    wt_ok(*state, wf_device_open(*state, "cpu:2", &device));
    double none = kept_with(device, -1), usual = kept_with(device, 0);
    assert_true(usual > 0 && fabs(none / usual - 20) < 1e-3);
    wf_device_close(device);
}

/* Training learns: the loss of a repeated batch falls. */
static void test_learns(void **state)
{
    static const char *const optimizers[] = {"adamw", "muon", "lion", "sgd"};
    wf_ctx *ctx = *state;
    constant c = make_constant();
    wf_device *device;
    point(&c);
    wt_ok(ctx, wf_device_open(ctx, "cpu:2", &device));
    for (int i = 0; i < 4; i++) {
        const wf_train_options o = {.depth = 1,
                                    .batch = 2,
                                    .length = 32,
                                    .steps = 40,
                                    .optimizer = optimizers[i],
                                    .schedule = "constant"};
        wf_setup setup;
        wf_trainer *t;
        double first = 0, loss = 0, mean;
        int64_t counted;
        wt_ok(ctx, wf_setup_make(ctx, &o, VOCAB, &setup));
        wt_ok(ctx, wf_trainer_make(device, NULL, &setup, 0, &t));
        for (int k = 0; k < 40; k++) {
            wf_train_step step;
            wt_ok(ctx, wf_trainer_step(t, next, &c, &step));
            first = k == 0 ? step.loss : first;
            loss = step.loss;
        }
        print_message("%s: from %.3f to %.3f\n", optimizers[i], first, loss);
        assert_true(fabs(first - log(VOCAB)) < 0.3 && loss < first - 1);
        wt_ok(ctx, wf_trainer_evaluate(t, &c.batch, &mean, &counted));
        assert_int_equal(counted, 64);
        assert_true(mean / 64 <= loss + 0.05);
        wf_trainer_free(t);
    }
    wf_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_resumed_bit_for_bit),
                                       wt_test(test_order_of_rows),
                                       wt_test(test_folders),
                                       wt_test(test_options),
                                       wt_test(test_bad_steps),
                                       wt_test(test_failed_between_batches),
                                       wt_test(test_unknown_data),
                                       wt_test(test_no_momentum),
                                       wt_test(test_learns)};
    return cmocka_run_group_tests_name("train_run", tests, NULL, NULL);
}
