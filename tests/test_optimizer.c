/* SPDX-License-Identifier: MIT */
/*
 * test_optimizer.c - optimizers, clipping, averaged weights and the loss scale match PyTorch
 * (tests/fixtures/optimizers.json), and a skipped step changes no state.
 *
 * WEFT_OPTIMIZER_DEVICE selects another device than cpu and check; the test does nothing when that
 * device cannot be opened.
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

#include "optimizer_fixture.h"
#include "pjrt_support.h"
#include "support.h"
#include "train/optimizer.h"

#define MAX_PARAMS 8
#define MAX_COUNT 64 /* elements of a parameter */

/* ---- The fixture's parameters ---- */

typedef struct {
    wt_optimizers f;
    int count;
    struct {
        const char *name;
        int rank;
        int64_t dim[2], elements;
    } param[MAX_PARAMS];
} fixture;

static fixture open_fixture(wf_ctx *ctx)
{
    fixture x = {.f = wt_optimizers_open(ctx)};
    const wf_json_node *shapes = wf_json_get(x.f.root, "shapes");
    x.count = (int)shapes->count;
    assert_true(x.count > 1 && x.count <= MAX_PARAMS);
    for (int i = 0; i < x.count; i++) {
        const wf_json_node *s = &shapes->child[i];
        x.param[i].name = s->key;
        x.param[i].rank = (int)s->count;
        x.param[i].elements = 1;
        for (int k = 0; k < x.param[i].rank; k++)
            x.param[i].elements *= x.param[i].dim[k] = s->child[k].integer;
        assert_true(x.param[i].elements <= MAX_COUNT);
    }
    return x;
}

static double number(const fixture *x, const char *list, int i)
{
    return wf_json_get(x->f.root, list)->child[i].number;
}

/* ---- A session with an optimizer ---- */

typedef struct {
    const char *run; /* name in the fixture */
    wf_optimizer_options o;
    double clip;
    double tolerance; /* absolute; weights are about 1 */
} row;

static const row rows[] = {
    {"adamw", {.kind = WF_ADAMW, .beta2 = 0.95, .weight_decay = 0.1}, 0, 2e-6},
    {"adamw_all",
     {.kind = WF_ADAMW,
      .beta1 = 0.8,
      .beta2 = 0.99,
      .eps = 1e-5,
      .weight_decay = 0.1,
      .decay_all = true},
     0,
     2e-6},
    {"adamw_ema", {.kind = WF_ADAMW, .beta2 = 0.95, .weight_decay = 0.1, .ema = 0.75}, 0, 2e-6},
    {"sgd", {.kind = WF_SGD, .weight_decay = 0.1}, 0, 1e-6},
    {"sgd_momentum", {.kind = WF_SGD, .momentum = 0.9, .weight_decay = 0.1}, 0, 1e-6},
    {"sgd_clip", {.kind = WF_SGD, .momentum = 0.9, .weight_decay = 0.1}, 4, 2e-6},
    {"lion", {.kind = WF_LION, .weight_decay = 0.1}, 0, 1e-6},
    {"muon", {.kind = WF_MUON, .beta2 = 0.95, .weight_decay = 0.1}, 0, 1e-5},
    /* PyTorch's Muon, which orthogonalizes in bf16 */
    {"muon_bf16", {.kind = WF_MUON, .beta2 = 0.95, .weight_decay = 0.1}, 0, 2e-3},
};
#define ROWS ((int)(sizeof rows / sizeof *rows))

static wf_graph *build(wf_ctx *ctx, const fixture *x, const row *t)
{
    wf_graph *g = wt_graph(ctx);
    wf_value *p[MAX_PARAMS], *grad[MAX_PARAMS];
    const wf_loss_scale_options o = {.initial = 1, .interval = -1, .clip = t->clip};
    wf_scaled s;
    for (int i = 0; i < x->count; i++) {
        p[i] = wf_state(g, x->param[i].name, WF_F32, x->param[i].rank, x->param[i].dim);
        grad[i] = wf_input(g, x->param[i].name, WF_F32, x->param[i].rank, x->param[i].dim);
    }
    wf_value *rate = wf_input(g, "rate", WF_F32, 0, NULL);
    wt_ok(ctx, wf_unscale(g, grad, x->count, NULL, &o, &s));
    wt_ok(ctx, wf_optimizer_update(g, &t->o, p, grad, x->count, rate, &s));
    wf_output(g, "norm", s.norm);
    return g;
}

static void write_weights(wt_run *r, const fixture *x, bool average)
{
    uint64_t lcg = 1;
    for (int i = 0; i < x->count; i++) {
        float w[MAX_COUNT];
        char name[80];
        for (int64_t k = 0; k < x->param[i].elements; k++)
            w[k] = wt_lcg(&lcg);
        wt_set_state(r, x->param[i].name, w, x->param[i].elements);
        snprintf(name, sizeof name, "ema.%s", x->param[i].name);
        if (average)
            wt_set_state(r, name, w, x->param[i].elements);
    }
}

/* A nonzero `poison` replaces an element in the middle of the second-last parameter's gradient. */
static void step(wt_run *r, const fixture *x, int t, float poison)
{
    uint64_t lcg = 100 + (uint64_t)t;
    const float rate = (float)number(x, "rates", t);
    for (int i = 0; i < x->count; i++) {
        float g[MAX_COUNT];
        for (int64_t k = 0; k < x->param[i].elements; k++)
            g[k] = (float)(wt_lcg(&lcg) * number(x, "sizes", t));
        if (poison != 0 && i == x->count - 2)
            g[x->param[i].elements / 2] = poison;
        wt_write(r, x->param[i].name, g, (size_t)x->param[i].elements * sizeof *g);
    }
    wt_write(r, "rate", &rate, sizeof rate);
    wt_run_once(r);
}

/* Compares state PREFIX NAME of every parameter with the recording. Returns the largest
 * difference. */
static double compare(wt_run *r, const fixture *x, const wf_json_node *wanted, const char *prefix)
{
    double gap = 0;
    assert_non_null(wanted);
    for (int i = 0; i < x->count; i++) {
        const wf_json_node *list = wf_json_get(wanted, x->param[i].name);
        float got[MAX_COUNT];
        char name[80];
        snprintf(name, sizeof name, "%s%s", prefix, x->param[i].name);
        assert_int_equal(list->count, x->param[i].elements);
        wt_ok(r->ctx, wf_session_read(r->session, name, got, list->count * sizeof *got));
        for (size_t k = 0; k < list->count; k++) {
            double off = fabs(got[k] - list->child[k].number);
            gap = off > gap || isnan(off) ? off : gap;
        }
    }
    return gap;
}

/* ---- Skipped steps ---- */

/* Copies every state except the counters of the loss scale. */
static unsigned char *take(wt_run *r, size_t *size)
{
    wf_info s;
    unsigned char *bytes = NULL;
    *size = 0;
    for (int i = 0; wf_session_state(r->session, i, &s); i++) {
        if (strncmp(s.name, "loss_scale", 10) == 0)
            continue;
        bytes = realloc(bytes, *size + s.bytes);
        assert_non_null(bytes);
        wt_ok(r->ctx, wf_session_read(r->session, s.name, bytes + *size, s.bytes));
        *size += s.bytes;
    }
    return bytes;
}

static void bad_step(wt_run *r, const fixture *x, int t, float poison)
{
    size_t size, again;
    unsigned char *before = take(r, &size);
    step(r, x, t, poison);
    unsigned char *after = take(r, &again);
    assert_int_equal(size, again);
    assert_memory_equal(before, after, size);
    free(before);
    free(after);
}

/* ---- Runs ---- */

static const char *const *devices(void)
{
    static const char *list[3] = {"cpu", "check", NULL};
    const char *given = getenv("WEFT_OPTIMIZER_DEVICE");
    if (given) {
        list[0] = given;
        list[1] = NULL;
    }
    return list;
}

static void run_row(wf_ctx *ctx, const char *device, const fixture *x, const row *t)
{
    const wf_json_node *wanted = wf_json_get(wf_json_get(x->f.root, "runs"), t->run);
    const wf_json_node *norms = wf_json_get(wanted, "norms");
    const int steps = (int)wf_json_get(x->f.root, "rates")->count;
    wt_run r = wt_open(ctx, device);
    int32_t made, skipped;
    wt_compile(&r, build(ctx, x, t));
    write_weights(&r, x, t->o.ema > 0);
    for (int i = 0; i < steps; i++) {
        float norm;
        if (i == 0 || i == 3) {
            bad_step(&r, x, i, NAN);
            bad_step(&r, x, i, -INFINITY);
        }
        step(&r, x, i, 0);
        wt_read(&r, "norm", &norm, sizeof norm);
        if (norms)
            assert_true(fabs(norm - norms->child[i].number) <= 1e-6 * norms->child[i].number);
    }
    double gap = compare(&r, x, wf_json_get(wanted, "final"), "");
    if (t->o.ema > 0)
        gap = fmax(gap, compare(&r, x, wf_json_get(wanted, "average"), "ema."));
    print_message("%-6s %-12s differs by %.2g\n", device, t->run, gap);
    if (!(gap <= t->tolerance))
        fail_msg("%s on %s differs from what was recorded by %g", t->run, device, gap);
    wt_ok(ctx, wf_session_read(r.session, "loss_scale.steps", &made, sizeof made));
    wt_ok(ctx, wf_session_read(r.session, "loss_scale.skipped", &skipped, sizeof skipped));
    assert_true(made == steps && skipped == 4);
    wt_close(&r);
}

static void test_as_recorded(void **state)
{
    fixture x = open_fixture(*state);
    for (const char *const *device = devices(); *device; device++)
        for (int i = 0; i < ROWS; i++)
            run_row(*state, *device, &x, &rows[i]);
    wt_optimizers_close(&x.f);
}

/* Checks which states exist besides the parameters and the counters. */
static void test_states(void **state)
{
    static const struct {
        wf_optimizer_options o;
        int m, v, ema; /* how many of the 5 parameters have one */
    } cases[] = {
        {{.kind = WF_ADAMW}, 5, 5, 0}, {{.kind = WF_ADAMW, .ema = 0.5}, 5, 5, 5},
        {{.kind = WF_SGD}, 0, 0, 0},   {{.kind = WF_SGD, .momentum = 0.5}, 5, 0, 0},
        {{.kind = WF_LION}, 5, 0, 0},  {{.kind = WF_MUON, .ema = 0.9}, 5, 2, 5},
    };
    fixture x = open_fixture(*state);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int m = 0, v = 0, ema = 0;
        wt_run r = wt_open(*state, "cpu");
        wf_info s;
        wt_compile(&r, build(*state, &x, &(row){"", cases[i].o, 0, 0}));
        for (int k = 0; wf_session_state(r.session, k, &s); k++) {
            m += strncmp(s.name, "m.", 2) == 0;
            v += strncmp(s.name, "v.", 2) == 0;
            ema += strncmp(s.name, "ema.", 4) == 0;
        }
        assert_true(m == cases[i].m && v == cases[i].v && ema == cases[i].ema);
        wt_close(&r);
    }
    wt_optimizers_close(&x.f);
}

/* Muon updates every matrix of a stack as it updates that matrix alone. */
static void test_stacks(void **state)
{
    enum { R = 5, C = 3, MATRICES = 2, STEPS = 3 };
    static const char *const names[] = {"blk.0.stack", "blk.0.first", "blk.0.second"};
    const wf_optimizer_options o = {.kind = WF_MUON, .beta2 = 0.95, .weight_decay = 0.1};
    const wf_loss_scale_options scale = {.initial = 1, .interval = -1};
    for (const char *const *device = devices(); *device; device++) {
        wf_graph *g = wt_graph(*state);
        wf_value *p[3], *grad[3];
        wf_scaled s;
        for (int i = 0; i < 3; i++) {
            const int64_t stack[] = {MATRICES, R, C}, *dim = i == 0 ? stack : stack + 1;
            p[i] = wf_state(g, names[i], WF_F32, i == 0 ? 3 : 2, dim);
            grad[i] = wf_input(g, names[i], WF_F32, i == 0 ? 3 : 2, dim);
        }
        wf_value *rate = wf_input(g, "rate", WF_F32, 0, NULL);
        wt_ok(*state, wf_unscale(g, grad, 3, NULL, &scale, &s));
        wt_ok(*state, wf_optimizer_update(g, &o, p, grad, 3, rate, &s));
        wt_run r = wt_open(*state, *device);
        wt_compile(&r, g);
        uint64_t lcg = 1;
        float x[MATRICES * R * C], got[MATRICES * R * C], alone[MATRICES * R * C];
        for (int t = 0; t <= STEPS; t++) { /* weights first, then gradients */
            const float factor = 0.1f;
            for (int i = 0; i < MATRICES * R * C; i++)
                x[i] = wt_lcg(&lcg) * (float)(1 + i / (R * C)); /* matrices of unequal norms */
            for (int i = 0; i < 3; i++) {
                const float *from = i == 2 ? x + R * C : x;
                const int count = i == 0 ? MATRICES * R * C : R * C;
                if (t == 0)
                    wt_set_state(&r, names[i], from, count);
                else
                    wt_write(&r, names[i], from, (size_t)count * sizeof *from);
            }
            wt_write(&r, "rate", &factor, sizeof factor);
            if (t > 0)
                wt_run_once(&r);
        }
        wt_ok(*state, wf_session_read(r.session, names[0], got, sizeof got));
        wt_ok(*state, wf_session_read(r.session, names[1], alone, sizeof alone / 2));
        wt_ok(*state, wf_session_read(r.session, names[2], alone + R * C, sizeof alone / 2));
        for (int i = 0; i < MATRICES * R * C; i++)
            assert_true(fabs((double)got[i] - (double)alone[i]) < 1e-6);
        wt_close(&r);
    }
}

/* The scale follows torch.amp.GradScaler. */
static void test_scaler(void **state)
{
    fixture x = open_fixture(*state);
    const wf_json_node *t = wf_json_get(x.f.root, "scaler"), *bad = wf_json_get(t, "overflow");
    const wf_json_node *scales = wf_json_get(t, "scale");
    const wf_loss_scale_options o = {.initial = wf_json_get_number(t, "initial", 0),
                                     .interval = wf_json_get_int(t, "interval", 0)};
    for (const char *const *device = devices(); *device; device++) {
        wf_graph *g = wt_graph(*state);
        wf_value *grad = wf_input(g, "grad", WF_F32, 1, (int64_t[]){2});
        wf_scaled s;
        wt_ok(*state, wf_unscale(g, &grad, 1, NULL, &o, &s));
        wf_output(g, "scale", s.scale);
        wt_run r = wt_open(*state, *device);
        wt_compile(&r, g);
        assert_int_equal(bad->count, 20);
        for (size_t i = 0; i < bad->count; i++) {
            const float gradient[2] = {1, bad->child[i].integer ? INFINITY : 1};
            float scale;
            wt_write(&r, "grad", gradient, sizeof gradient);
            wt_run_once(&r);
            wt_read(&r, "scale", &scale, sizeof scale);
            assert_true(scale == scales->child[i].number);
        }
        wt_close(&r);
    }
    wt_optimizers_close(&x.f);
}

/* ---- Misuse ---- */

static void refuses(wf_ctx *ctx, wf_optimizer_options o, int mistake, const char *part)
{
    wf_graph *g = wt_graph(ctx);
    const int64_t two = 2, three = 3;
    char name[600];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;
    wf_value *p = mistake == 1 ? wf_input(g, "p", WF_F32, 1, &two)
                               : wf_state(g, mistake == 2 ? name : "p",
                                          mistake == 3 ? WF_I32 : WF_F32, 1, &two);
    wf_value *grad = wf_input(g, "grad", WF_F32, 1, mistake == 4 ? &three : &two);
    wf_value *rate = wf_input(g, "rate", WF_F32, mistake == 5 ? 1 : 0, &two);
    wf_scaled s;
    wt_ok(ctx, wf_unscale(g, &grad, 1, NULL, NULL, &s));
    wt_fails(ctx, wf_optimizer_update(g, &o, &p, &grad, 1, rate, &s), WF_ERR_USAGE, part);
    assert_int_equal(wf_graph_status(g), WF_ERR_USAGE);
    wf_graph_free(g);
}

static void test_misuse(void **state)
{
    refuses(*state, (wf_optimizer_options){.momentum = 1}, 0,
            "momentum is 1; it must be at least 0 and below 1");
    refuses(*state, (wf_optimizer_options){.momentum = NAN}, 0,
            "momentum is nan; it must be at least 0 and below 1");
    refuses(*state, (wf_optimizer_options){.weight_decay = -1}, 0,
            "weight decay is -1; it must be finite and at least 0");
    refuses(*state, (wf_optimizer_options){.weight_decay = INFINITY}, 0,
            "weight decay is inf; it must be finite and at least 0");
    refuses(*state, (wf_optimizer_options){.ema = 1}, 0,
            "the decay of averaged weights is 1; it must be at least 0 and below 1");
    refuses(*state, (wf_optimizer_options){.beta1 = 1}, 0, "betas must lie in [0, 1)");
    refuses(*state, (wf_optimizer_options){.kind = WF_LION, .beta2 = 1}, 0, "betas must lie");
    refuses(*state, (wf_optimizer_options){0}, 1, "a parameter must be a float state");
    refuses(*state, (wf_optimizer_options){0}, 2,
            "the name of a parameter may have at most 512 bytes");
    refuses(*state, (wf_optimizer_options){0}, 3, "a parameter must be a float state");
    refuses(*state, (wf_optimizer_options){0}, 4, "of the same shape");
    refuses(*state, (wf_optimizer_options){0}, 5, "lr must be an f32 scalar");
}

int main(void)
{
    const struct CMUnitTest tests[] = {wt_test(test_as_recorded), wt_test(test_states),
                                       wt_test(test_stacks), wt_test(test_scaler),
                                       wt_test(test_misuse)};
    if (!wt_can_open(devices()[0]))
        return 0;
    return cmocka_run_group_tests_name("optimizer", tests, NULL, NULL);
}
