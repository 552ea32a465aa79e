/* SPDX-License-Identifier: MIT */
/*
 * test_setups.c - memory of whole setups, planned and measured.
 *
 * For each setup (a model and its use) the memory of every executable is planned before any
 * allocation. Then all executables are compiled in one session and run. The device's peak must
 * equal, to the byte, the planned states, the inputs and outputs of all executables, and the
 * largest activation region. No region may exceed the bytes alive at its busiest step by more than
 * a tenth.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/sanitize.h"
#include "parity_model.h"
#include "support.h"

#define MOST_OVER_BOUND 1.10
#define MAX_GRAPHS 3
#define PAGE 16

/* Whether times can be asserted, and whether there is time to run all setups. */
#if defined(NDEBUG) && !WF_ADDRESS_SANITIZER
#define FAST_BUILD true
#else
#define FAST_BUILD false
#endif
#define SLOW_WORK 4e8 /* bytes of states times tokens; larger setups are only compiled */

typedef enum {
    FORWARD,    /* the loss */
    TRAIN,      /* a step: gradients and update in one */
    ACCUMULATE, /* micro-batches that accumulate gradients; and an update */
    BUCKETS,    /* forward for all, a half and a quarter of the tokens */
    DECODE      /* prefill of all tokens, and decode of one token per sequence, over page pools */
} kind;

typedef struct {
    const char *name;
    kind kind;
    int64_t tokens, sequences;
    pm_config model;
    wf_compile_options options;
    wf_type compute; /* 0: f32 */
    double clip;     /* by the global norm; 0: off */
    bool sgd;        /* false: AdamW */
    bool scaled;     /* with a loss scale */
    bool logits;     /* logits are an output */
} setup;

/* clang-format off */
#define GPT2(layers_, width_, heads_, vocab_)                                                       \
    .model = {.name = "gpt2", .tied = true, .layers = layers_, .vocab = vocab_, .context = 4096,    \
              .width = width_, .heads = heads_, .kv_heads = heads_, .head_dim = (width_) / (heads_), \
              .hidden = 4 * (width_), .norm_eps = 1e-5}
#define LLAMA(layers_, width_, heads_, kv_heads_, vocab_)                                           \
    .model = {.name = "llama", .llama = true, .layers = layers_, .vocab = vocab_, .width = width_,  \
              .heads = heads_, .kv_heads = kv_heads_, .head_dim = (width_) / (heads_),              \
              .hidden = 3 * (width_), .norm_eps = 1e-5}
#define WITHOUT(passes) .options = {.without = (passes)}
#define RECOMPUTE(n) .options = {.recompute = (n)}

static const setup setups[] = {
    {"gpt2 forward",               FORWARD,     96, 2, GPT2(4, 128, 4, 512)},
    {"gpt2 forward, logits",       FORWARD,     61, 1, GPT2(2, 64, 4, 1000), .logits = true},
    {"gpt2 forward, as written",   FORWARD,     96, 2, GPT2(4, 128, 4, 512), WITHOUT(WF_PASS_FOLD | WF_PASS_FUSE)},
    {"gpt2 train",                 TRAIN,       96, 2, GPT2(4, 128, 4, 512)},
    {"gpt2 train, one block",      TRAIN,       96, 2, GPT2(4, 128, 4, 512), RECOMPUTE(1)},
    {"gpt2 train, two blocks",     TRAIN,       77, 3, GPT2(8, 64, 4, 257), RECOMPUTE(2)},
    {"gpt2 train, four blocks",    TRAIN,       77, 3, GPT2(12, 64, 4, 257), RECOMPUTE(4)},
    {"gpt2 train, no fuse",        TRAIN,       96, 2, GPT2(4, 128, 4, 512), WITHOUT(WF_PASS_FUSE)},
    {"gpt2 train, bf16",           TRAIN,       96, 2, GPT2(4, 128, 4, 512), .compute = WF_BF16},
    {"gpt2 train, f16, scaled",    TRAIN,       96, 2, GPT2(3, 128, 4, 512), .compute = WF_F16, .scaled = true, .clip = 1},
    {"gpt2 train, clipped",        TRAIN,       96, 2, GPT2(4, 128, 4, 512), .clip = 1},
    {"gpt2 train, SGD",            TRAIN,       33, 1, GPT2(6, 96, 3, 1003), .sgd = true},
    {"gpt2 accumulate",            ACCUMULATE,  96, 2, GPT2(4, 128, 4, 512), .clip = 1},
    {"llama forward",              FORWARD,    128, 4, LLAMA(4, 256, 8, 2, 768)},
    {"llama train",                TRAIN,      128, 4, LLAMA(4, 256, 8, 2, 768)},
    {"llama train, one block",     TRAIN,      127, 3, LLAMA(6, 128, 8, 4, 768), RECOMPUTE(1)},
    {"llama train, bf16, clipped", TRAIN,      128, 4, LLAMA(4, 256, 8, 2, 768), .compute = WF_BF16, .clip = 1},
    {"llama train, SGD, clipped",  TRAIN,      101, 3, LLAMA(2, 64, 4, 1, 301), .sgd = true, .clip = 1},
    {"llama train, all as written", TRAIN,      64, 1, LLAMA(3, 128, 4, 4, 400), WITHOUT(WF_PASS_FOLD | WF_PASS_FUSE | WF_PASS_SCHEDULE)},
    {"llama accumulate, bf16",     ACCUMULATE, 128, 4, LLAMA(4, 128, 4, 2, 600), RECOMPUTE(2), .compute = WF_BF16},
    {"llama accumulate, SGD",      ACCUMULATE,  57, 2, LLAMA(5, 96, 6, 3, 600), .sgd = true, .clip = 1},
    {"llama buckets",              BUCKETS,    128, 1, LLAMA(4, 128, 4, 2, 600)},
    {"gpt2 buckets, logits",       BUCKETS,     92, 1, GPT2(3, 128, 4, 600), .logits = true},
    {"llama decode",               DECODE,     120, 5, LLAMA(4, 128, 4, 2, 600)},
    {"llama decode, bf16",         DECODE,      99, 3, LLAMA(6, 256, 8, 8, 1001), .compute = WF_BF16},
};
static const setup large[] = {
    {"gpt2 24 x 1024, train",             TRAIN, 4096, 4, GPT2(24, 1024, 16, 50257)},
    {"gpt2 48 x 1600, train, bf16",       TRAIN, 1024, 1, GPT2(48, 1600, 25, 50257), .compute = WF_BF16, .clip = 1},
    {"llama 32 x 2048, train, one block", TRAIN, 4096, 2, LLAMA(32, 2048, 16, 8, 32000), RECOMPUTE(1), .clip = 1},
    {"llama 48 x 1024, train, SGD",       TRAIN, 2048, 2, LLAMA(48, 1024, 16, 4, 32000), .sgd = true},
};
/* clang-format on */
#define LENGTH(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- Training ---- */

static wf_value *state_of(wf_graph *g, const char *prefix, const pm_param *p)
{
    char name[PM_MAX_NAME + 16];
    snprintf(name, sizeof name, "%s%s", prefix, p->name);
    return wf_state(g, name, WF_F32, p->rank, p->dims);
}

static void step(wf_graph *g, const setup *s, const pm_param *p, wf_value *lr, wf_value *number,
                 wf_value *factor, wf_value *apply)
{
    if (s->sgd)
        wf_sgd(g, p->value, state_of(g, "velocity.", p), p->grad, lr, factor, apply,
               &(wf_sgd_options){.momentum = 0.9});
    else
        wf_adamw(g, p->value, state_of(g, "m.", p), state_of(g, "v.", p), p->grad, lr, number,
                 factor, apply, &pm_adamw);
}

/* min(1, clip / norm) */
static wf_value *clip_factor(wf_graph *g, const setup *s, pm_model *m)
{
    wf_value *grads[PM_MAX_PARAMS], *one = wf_fill(g, WF_F32, 0, NULL, 1);
    if (s->clip == 0)
        return one;
    for (int i = 0; i < m->param_count; i++)
        grads[i] = m->param[i].grad;
    wf_value *norm = wf_global_norm(g, grads, m->param_count);
    wf_output(g, "norm", norm);
    return wf_binary(g, "minimum", one,
                     wf_binary(g, "div", wf_fill(g, WF_F32, 0, NULL, s->clip), norm));
}

static void update(wf_graph *g, const setup *s, pm_model *m)
{
    wf_value *lr = wf_input(g, "lr", WF_F32, 0, NULL);
    wf_value *number = s->sgd ? NULL : wf_input(g, "step", WF_I32, 0, NULL);
    wf_value *factor = clip_factor(g, s, m);
    for (int i = 0; i < m->param_count; i++)
        step(g, s, &m->param[i], lr, number, factor, NULL);
}

static void update_scaled(wf_graph *g, const setup *s, pm_model *m)
{
    wf_value *wrt[PM_MAX_PARAMS], *grads[PM_MAX_PARAMS];
    wf_scaled scaled;
    for (int i = 0; i < m->param_count; i++)
        wrt[i] = m->param[i].value;
    wf_loss_scale_options options = {.clip = s->clip};
    wf_grad_scaled(g, m->loss, wrt, m->param_count, &options, grads, &scaled);
    wf_value *lr = wf_input(g, "lr", WF_F32, 0, NULL);
    for (int i = 0; i < m->param_count; i++) {
        m->param[i].grad = grads[i];
        step(g, s, &m->param[i], lr, scaled.step, scaled.factor, scaled.apply);
    }
}

static void train(wf_graph *g, const setup *s)
{
    pm_model *m = calloc(1, sizeof *m);
    pm_forward(g, &s->model, s->tokens, s->sequences, m);
    if (s->compute)
        wf_precision(g, s->compute);
    if (s->scaled) {
        update_scaled(g, s, m);
    } else {
        pm_gradients(g, m);
        update(g, s, m);
    }
    wf_output(g, "loss", m->loss);
    free(m);
}

/* Accumulates the gradients of the sum of losses, and the number of targets that count. */
static void micro(wf_graph *g, const setup *s)
{
    pm_model *m = calloc(1, sizeof *m);
    wf_value *wrt[PM_MAX_PARAMS], *grads[PM_MAX_PARAMS];
    pm_forward(g, &s->model, s->tokens, s->sequences, m);
    if (s->compute)
        wf_precision(g, s->compute);
    for (int i = 0; i < m->param_count; i++)
        wrt[i] = m->param[i].value;
    wf_grad(g, m->loss_sum, wrt, m->param_count, grads);
    for (int i = 0; i < m->param_count; i++)
        wf_accumulate(g, state_of(g, "sum.", &m->param[i]), grads[i], NULL);
    wf_accumulate(g, wf_state(g, "count", WF_F32, 0, NULL), m->count, NULL);
    wf_output(g, "loss", m->loss);
    free(m);
}

/* Divides the accumulated gradients by the count, applies them, and resets them to zero. */
static void update_sums(wf_ctx *ctx, wf_graph *g, const setup *s)
{
    pm_model *m = calloc(1, sizeof *m);
    wf_value *sum[PM_MAX_PARAMS], *count = wf_state(g, "count", WF_F32, 0, NULL);
    wf_value *lr = wf_input(g, "lr", WF_F32, 0, NULL), *zero = wf_fill(g, WF_F32, 0, NULL, 0);
    wf_value *number = s->sgd ? NULL : wf_input(g, "step", WF_I32, 0, NULL);
    wf_graph *like = wt_graph(ctx); /* for names and shapes of the parameters */
    pm_forward(like, &s->model, s->tokens, s->sequences, m);
    wf_graph_free(like);
    for (int i = 0; i < m->param_count; i++) {
        m->param[i].value = state_of(g, "", &m->param[i]);
        m->param[i].grad = sum[i] = state_of(g, "sum.", &m->param[i]);
    }
    wf_value *factor = wf_binary(g, "div", clip_factor(g, s, m), count);
    for (int i = 0; i < m->param_count; i++)
        step(g, s, &m->param[i], lr, number, factor, NULL);
    for (int i = 0; i < m->param_count; i++)
        wf_assign(g, sum[i], wf_broadcast(g, zero, m->param[i].rank, m->param[i].dims), NULL);
    wf_assign(g, count, zero, NULL);
    free(m);
}

static void forward(wf_graph *g, const setup *s, int64_t tokens)
{
    pm_model *m = calloc(1, sizeof *m);
    pm_forward(g, &s->model, tokens, s->sequences, m);
    if (s->compute)
        wf_precision(g, s->compute);
    wf_output(g, s->logits ? "logits" : "loss", s->logits ? m->logits : m->loss);
    free(m);
}

/* ---- Decoding: a Llama over page pools ---- */

typedef struct {
    wf_graph *g;
    const pm_config *c;
    int64_t tokens, pages, pool; /* pages of a sequence, and of all sequences */
    wf_value *positions, *start, *table, *lengths, *inv_freq;
    int layer;
} decoder;

static wf_value *weight(const decoder *d, const char *name, int64_t rows, int64_t columns)
{
    char full[48];
    snprintf(full, sizeof full, "%d.%s", d->layer, name);
    return wf_state(d->g, full, WF_F32, columns > 0 ? 2 : 1, (int64_t[]){rows, columns});
}

static wf_value *heads(const decoder *d, wf_value *x, const char *name, int64_t n, bool turn)
{
    const int64_t D = d->c->head_dim;
    x = wf_linear(d->g, x, weight(d, name, n * D, d->c->width), NULL);
    x = wf_reshape(d->g, x, 3, (int64_t[]){d->tokens, n, D});
    return turn ? wf_rope(d->g, x, d->positions, d->inv_freq, false, 1) : x;
}

static wf_value *append(const decoder *d, wf_value *x, const char *name)
{
    char full[48];
    snprintf(full, sizeof full, "%d.%s", d->layer, name);
    const int64_t dims[] = {d->pool, PAGE, d->c->kv_heads, d->c->head_dim};
    wf_value *pool = wf_state(d->g, full, WF_F32, 4, dims);
    return wf_kv_append(d->g, pool, x, d->start, d->positions, d->table);
}

static wf_value *layer(const decoder *d, wf_value *x)
{
    const pm_config *c = d->c;
    wf_graph *g = d->g;
    wf_value *h = wf_rms_norm(g, x, weight(d, "norm1", c->width, 0), c->norm_eps);
    wf_value *q = heads(d, h, "q", c->heads, true);
    wf_value *k = append(d, heads(d, h, "k", c->kv_heads, true), "keys");
    wf_value *v = append(d, heads(d, h, "v", c->kv_heads, false), "values");
    wf_value *y = wf_attention_paged(g, q, k, v, d->start, d->positions, d->table, d->lengths,
                                     &(wf_attention_options){0});
    y = wf_reshape(g, y, 2, (int64_t[]){d->tokens, c->width});
    x = wf_binary(g, "add", x, wf_linear(g, y, weight(d, "o", c->width, c->width), NULL));
    h = wf_rms_norm(g, x, weight(d, "norm2", c->width, 0), c->norm_eps);
    wf_value *gate = wf_linear(g, h, weight(d, "gate", c->hidden, c->width), NULL);
    wf_value *up = wf_linear(g, h, weight(d, "up", c->hidden, c->width), NULL);
    h = wf_glu(g, gate, up, WF_GLU_SILU);
    return wf_binary(g, "add", x, wf_linear(g, h, weight(d, "down", c->width, c->hidden), NULL));
}

static void decode(wf_graph *g, const setup *s, int64_t tokens)
{
    const pm_config *c = &s->model;
    decoder d = {.g = g, .c = c, .tokens = tokens};
    d.pages = (s->tokens / s->sequences + 2) / PAGE + 1;
    d.pool = d.pages * s->sequences;
    wf_value *ids = wf_input(g, "tokens", WF_I32, 1, &tokens);
    d.positions = wf_input(g, "positions", WF_I32, 1, &tokens);
    d.start = wf_input(g, "seq_start", WF_I32, 1, &(int64_t){s->sequences + 1});
    d.table = wf_input(g, "table", WF_I32, 2, (int64_t[]){s->sequences, d.pages});
    d.lengths = wf_input(g, "lengths", WF_I32, 1, &s->sequences);
    d.inv_freq = wf_input(g, "inv_freq", WF_F32, 1, &(int64_t){c->head_dim / 2});
    wf_value *table = wf_state(g, "embedding", WF_F32, 2, (int64_t[]){c->vocab, c->width});
    wf_value *x = wf_embed(g, table, ids);
    for (; d.layer < c->layers; d.layer++)
        x = layer(&d, x);
    x = wf_rms_norm(g, x, weight(&d, "norm", c->width, 0), c->norm_eps);
    wf_output(g, "next", wf_argmax(g, wf_linear(g, x, table, NULL), 1));
    if (s->compute)
        wf_precision(g, s->compute);
}

/* ---- A setup ---- */

static int graphs_of(const setup *s)
{
    static const int count[] = {
        [FORWARD] = 1, [TRAIN] = 1, [ACCUMULATE] = 2, [BUCKETS] = 3, [DECODE] = 2};
    return count[s->kind];
}

static wf_graph *build(wf_ctx *ctx, const setup *s, int part)
{
    wf_graph *g = wt_graph(ctx);
    switch (s->kind) {
    case FORWARD: forward(g, s, s->tokens); break;
    case TRAIN: train(g, s); break;
    case ACCUMULATE:
        if (part == 0)
            micro(g, s);
        else
            update_sums(ctx, g, s);
        break;
    case BUCKETS: forward(g, s, s->tokens >> part); break;
    case DECODE: decode(g, s, part == 0 ? s->tokens : s->sequences); break;
    }
    wt_ok(ctx, wf_graph_status(g));
    return g;
}

/* Writes legal contents; the results do not matter. `tokens`: of this executable. */
static void write_input(wt_run *r, const setup *s, const wf_info *in, int64_t tokens)
{
    int32_t *v = calloc(1, in->bytes + 4);
    const int64_t n = in->dim[0], per = s->tokens / s->sequences;
    const bool one = s->kind == DECODE && tokens == s->sequences; /* one token per sequence */
    for (int64_t i = 0; i < n && strcmp(in->name, "seq_start") == 0; i++)
        v[i] = (int32_t)(i * tokens / s->sequences);
    for (int64_t i = 0; i < n && strcmp(in->name, "positions") == 0; i++)
        for (int64_t k = 0; k < s->sequences; k++)
            if (i >= k * tokens / s->sequences)
                v[i] = (int32_t)(one ? per : i - k * tokens / s->sequences);
    for (int64_t i = 0; i < n && strcmp(in->name, "lengths") == 0; i++)
        v[i] = (int32_t)(one ? per + 1 : (i + 1) * tokens / n - i * tokens / n);
    for (int64_t i = 0; strcmp(in->name, "table") == 0 && i < n * in->dim[1]; i++)
        v[i] = (int32_t)i;
    if (strcmp(in->name, "step") == 0)
        v[0] = 1;
    wt_write(r, in->name, v, in->bytes);
    free(v);
}

static void run(wt_run *r, const setup *s)
{
    wf_info info;
    int64_t tokens = 0;
    for (int i = 0; wf_exec_input(r->exec, i, &info); i++)
        if (strcmp(info.name, "tokens") == 0)
            tokens = info.dim[0];
    for (int i = 0; wf_exec_input(r->exec, i, &info); i++)
        write_input(r, s, &info, tokens);
    wf_run_stats stats;
    wt_run_once(r);
    wf_exec_stats(r->exec, &stats);
    assert_int_equal(stats.allocations, 0);
}

static void print_head(void)
{
    print_message("%-34s %11s %10s %11s %11s %7s\n", "bytes of", "states", "ports", "activations",
                  "bound", "ratio");
}

static double ratio_of(const wf_memory *m)
{
    return m->lower_bound > 0 ? (double)m->activations / (double)m->lower_bound : 1;
}

static void print_row(const setup *s, int part, const wf_memory *m)
{
    char name[64];
    snprintf(name, sizeof name, graphs_of(s) > 1 ? "%s, %d" : "%s", s->name, part + 1);
    print_message("%-34s %11zu %10zu %11zu %11zu %7.3f\n", name, m->states, m->ports,
                  m->activations, m->lower_bound, ratio_of(m));
}

/* Every graph of a setup has the same states. Returns the largest ratio of a region to its
 * bound. */
static double try_setup(wf_ctx *ctx, const char *device, const setup *s, bool print)
{
    wf_memory planned[MAX_GRAPHS], got;
    wf_exec *exec[MAX_GRAPHS];
    size_t states = 0, ports = 0, region = 0, bytes, peak;
    double worst = 0;
    wt_run r = wt_open(ctx, device);
    for (int i = 0; i < graphs_of(s); i++) {
        wf_graph *g = build(ctx, s, i);
        wt_ok(ctx, wf_plan_memory(r.device, g, &s->options, &planned[i]));
        wf_graph_free(g);
        states = planned[i].states > states ? planned[i].states : states;
        region = planned[i].activations > region ? planned[i].activations : region;
        ports += planned[i].ports;
        double ratio = ratio_of(&planned[i]);
        worst = ratio > worst ? ratio : worst;
        if (print)
            print_row(s, i, &planned[i]);
    }
    wf_device_memory(r.device, &bytes, &peak);
    assert_int_equal(peak, 0); /* planning allocates nothing */
    for (int i = 0; i < graphs_of(s); i++) {
        wf_graph *g = build(ctx, s, i);
        wt_ok(ctx, wf_compile_with(r.session, g, &s->options, &exec[i]));
        wf_graph_free(g);
    }
    for (int i = 0; i < graphs_of(s); i++) {
        r.exec = exec[i];
        if (FAST_BUILD || (double)states * (double)s->tokens < SLOW_WORK)
            run(&r, s);
        wf_exec_memory(exec[i], &got);
        assert_int_equal(got.activations, planned[i].activations);
        assert_int_equal(got.ports, planned[i].ports);
        assert_int_equal(got.states, states);
        assert_int_equal(got.region, region);
    }
    wf_device_memory(r.device, &bytes, &peak);
    if (peak != states + ports + region)
        fail_msg("%s on %s: %zu bytes were planned, and %zu used", s->name, device,
                 states + ports + region, peak);
    for (int i = 1; i < graphs_of(s); i++)
        wf_exec_free(exec[i]);
    r.exec = exec[0];
    wt_close(&r);
    return worst;
}

/* ---- Tests ---- */

static void test_planned_is_measured(void **state)
{
    int over = 0;
    print_head();
    for (int i = 0; i < LENGTH(setups); i++)
        over += try_setup(*state, "cpu:2", &setups[i], true) > MOST_OVER_BOUND;
    if (over > 0)
        fail_msg("%d setups need more than %.2f of what is alive at one time", over,
                 MOST_OVER_BOUND);
}

/* Other thread counts need other workspaces; the check device adds guards around everything. */
static void test_other_devices(void **state)
{
    static const char *const devices[] = {"cpu:1", "cpu:3", "check"};
    for (int i = 0; i < LENGTH(setups); i++)
        assert_true(try_setup(*state, devices[i % 3], &setups[i], false) <= MOST_OVER_BOUND);
}

static size_t activations(wf_device *device, wf_graph *g, const wf_compile_options *options)
{
    wf_memory m;
    assert_int_equal(wf_plan_memory(device, g, options, &m), WF_OK);
    return m.activations;
}

/* The saving of each pass: a step of the smallest GPT-2 with every block recomputed. */
static void test_memory_saved_by_passes(void **state)
{
    static const struct {
        const char *name;
        uint32_t bit;
    } passes[] = {{"fold", WF_PASS_FOLD},
                  {"fuse", WF_PASS_FUSE},
                  {"recompute", WF_PASS_RECOMPUTE},
                  {"schedule", WF_PASS_SCHEDULE},
                  {"memory", WF_PASS_MEMORY}};
    wf_ctx *ctx = *state;
    const setup s = {"gpt2", TRAIN, 1024, 1, GPT2(12, 768, 12, 50257), RECOMPUTE(1)};
    wf_device *device;
    wf_graph *g = build(ctx, &s, 0);
    wt_ok(ctx, wf_device_open(ctx, "cpu:2", &device));
    wf_compile_options options = s.options;
    size_t all = activations(device, g, &options);
    print_message("activations of a training step with all passes: %zu bytes\n", all);
    for (int i = 0; i < LENGTH(passes); i++) {
        options.without = passes[i].bit;
        size_t without = activations(device, g, &options);
        print_message("  without %-9s %11zu, %5.2f times as many\n", passes[i].name, without,
                      (double)without / (double)all);
        assert_true(without > all);
    }
    wf_graph_free(g);
    wf_device_close(device);
}

/* Planned, not run: they would take gigabytes. */
static void test_large_plans(void **state)
{
    wf_ctx *ctx = *state;
    wf_device *device;
    wt_ok(ctx, wf_device_open(ctx, "cpu:2", &device));
    print_head();
    for (int i = 0; i < LENGTH(large); i++) {
        wf_memory m;
        wf_graph *g = build(ctx, &large[i], 0);
        uint64_t begin = wf_clock_ns();
        wt_ok(ctx, wf_plan_memory(device, g, &large[i].options, &m));
        double seconds = (double)(wf_clock_ns() - begin) * 1e-9;
        print_row(&large[i], 0, &m);
        print_message("  planned in %.2f s\n", seconds);
        assert_true(ratio_of(&m) <= MOST_OVER_BOUND);
        if (FAST_BUILD)
            assert_true(seconds < 5);
        wf_graph_free(g);
    }
    wf_device_close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(test_planned_is_measured),
        wt_test(test_other_devices),
        wt_test(test_memory_saved_by_passes),
        wt_test(test_large_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
