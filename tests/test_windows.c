/* SPDX-License-Identifier: MIT */
/*
 * test_windows.c - layers with an attention window return the pages behind it, and texts do not
 * change.
 *
 * The reference has no cache: it is the training graph over the whole text. Before each step, all
 * free pages are filled with NaN, so that a read of a returned page shows. WEFT_WINDOWS_DEVICE names
 * another device than the cpu.
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
#include "core_device.h"
#include "infer/generator.h"
#include "infer/upload.h"
#include "model_fixture.h"
#include "support.h"

/* Relative to the largest logit of a text, as in test_models.c. A chosen token may be this far below
 * the best. */
#define LOGITS_BOUND 1e-5

enum { CONTEXT = 128, TOGETHER = 5 };

/* Windows of 7 to 9 tokens: in all layers, or beside layers without a window. */
static const char *const models[] = {"mistral", "phi3", "qwen2", "olmo3", "cohere2"};
enum { MODELS = sizeof models / sizeof *models };

static const char *the_device(void)
{
    const char *name = getenv("WEFT_WINDOWS_DEVICE");
    return name ? name : "cpu";
}

/* ---- The reference ---- */

typedef struct {
    wf_ctx *ctx;
    wf_model *model;
    wt_run run;
    int64_t vocab;
    float *logits; /* [CONTEXT, vocab] */
} oracle;

static void write_weights(oracle *o)
{
    for (int i = 0; i < o->model->weights; i++) {
        const wf_model_weight_info *w = &o->model->weight[i];
        size_t bytes = wf_type_bytes(w->type, wf_dims_count(&w->shape));
        void *data = malloc(bytes);
        wt_ok(o->ctx, wf_weight_read(o->ctx, w, data));
        wt_ok(o->ctx, wf_session_write(o->run.session, w->name, data, bytes));
        free(data);
    }
    wt_ok(o->ctx, wf_upload_frequencies(o->run.session, &o->model->config, CONTEXT));
}

static oracle oracle_open(wf_ctx *ctx, const char *name)
{
    oracle o = {.ctx = ctx, .run = wt_open(ctx, "cpu")};
    char path[128];
    snprintf(path, sizeof path, WT_MODELS_FOLDER "/%s", name);
    wt_ok(ctx, wf_model_open(ctx, path, &o.model));
    o.vocab = o.model->config.vocab;
    o.logits = malloc((size_t)(CONTEXT * o.vocab) * sizeof *o.logits);
    const wf_build_options options = {.form = WF_FORM_TRAIN,
                                      .tokens = CONTEXT,
                                      .sequences = 1,
                                      .given_frequencies = true,
                                      .type = wf_model_weight_type,
                                      .user = o.model};
    wf_graph *g = wt_graph(ctx);
    wt_ok(ctx, wf_output(g, "logits", wf_model_graph(g, &o.model->config, &options, NULL)));
    wt_compile(&o.run, g);
    write_weights(&o);
    return o;
}

static void oracle_close(oracle *o)
{
    free(o->logits);
    wt_close(&o->run);
    wf_model_close(o->model);
}

/* Computes the logits of a whole text. The mask is causal, so padding after it has no effect. */
static void oracle_run(oracle *o, const int32_t *ids, size_t count)
{
    int32_t tokens[CONTEXT] = {0}, positions[CONTEXT], ends[2] = {0, CONTEXT};
    assert_true(count <= CONTEXT);
    memcpy(tokens, ids, count * sizeof *ids);
    for (int i = 0; i < CONTEXT; i++)
        positions[i] = i;
    wt_write(&o->run, "tokens", tokens, sizeof tokens);
    wt_write(&o->run, "positions", positions, sizeof positions);
    wt_write(&o->run, "seq_start", ends, sizeof ends);
    wt_run_once(&o->run);
    wt_read(&o->run, "logits", o->logits, (size_t)(CONTEXT * o->vocab) * sizeof *o->logits);
}

static double largest(const float *x, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fabs(x[i]) > most ? fabs(x[i]) : most;
    return most;
}

/* Checks that every generated token of the sequence is the most likely one. */
static void check_text(oracle *o, const wf_sequence *s)
{
    size_t count, prompt;
    const int32_t *ids = wf_sequence_tokens(s, &count, &prompt);
    if (count == prompt)
        return;
    oracle_run(o, ids, count);
    double bound = LOGITS_BOUND * largest(o->logits, (int64_t)count * o->vocab);
    for (size_t i = prompt; i < count; i++) {
        const float *row = o->logits + (int64_t)(i - 1) * o->vocab;
        float best = row[0];
        for (int64_t v = 1; v < o->vocab; v++)
            best = row[v] > best ? row[v] : best;
        if (!(row[ids[i]] >= best - 2 * bound))
            fail_msg("token %zu of %zu is %d with logit %g; the best is %g", i, count, ids[i],
                     (double)row[ids[i]], (double)best);
    }
}

/* ---- The generator ---- */

typedef struct {
    oracle oracle;
    wf_device *device;
    wf_generator *g;
} bench;

static bench bench_open(wf_ctx *ctx, const char *device, const char *model,
                        const wf_generator_options *o)
{
    bench b = {.oracle = oracle_open(ctx, model)};
    wt_ok(ctx, wt_device_open(ctx, device, &b.device));
    wt_ok(ctx, wf_generator_new(b.device, b.oracle.model, o, &b.g));
    return b;
}

static void bench_close(bench *b)
{
    wf_generator_free(b->g);
    wf_device_close(b->device);
    oracle_close(&b->oracle);
}

/* Fills the free pages of one pool with NaN. */
static void poison_state(wf_generator *g, int cache, const char *name)
{
    wf_info info;
    int i = 0;
    while (wf_session_state(g->session, i, &info) && strcmp(info.name, name) != 0)
        i++;
    assert_string_equal(info.name, name);
    size_t page = info.bytes / (size_t)info.dim[0] / sizeof(float);
    float *x = malloc(info.bytes);
    wt_ok(g->ctx, wf_session_read(g->session, name, x, info.bytes));
    for (int64_t k = 0; k < g->pages[cache].free_count; k++)
        for (size_t e = 0; e < page; e++)
            x[(size_t)g->pages[cache].free[k] * page + e] = NAN;
    wt_ok(g->ctx, wf_session_write(g->session, name, x, info.bytes));
    free(x);
}

static void poison(wf_generator *g)
{
    const wf_config *c = &g->model->config;
    for (int64_t i = 0; i < c->layers; i++)
        for (int k = 0; k < 2; k++) {
            char name[32];
            snprintf(name, sizeof name, "kv.%d.%s", (int)i, k ? "v" : "k");
            poison_state(g, wf_caches_find(&g->caches, wf_config_layer(c, i)), name);
        }
}

/* No page belongs to two sequences, or to a sequence and the pool, and none is lost. */
static void check_pages(const wf_generator *g)
{
    for (int c = 0; c < g->caches.count; c++) {
        const wf_pages *p = &g->pages[c];
        int *owners = calloc((size_t)p->count, sizeof *owners);
        for (int64_t i = 0; i < p->free_count; i++)
            owners[p->free[i]]++;
        for (int64_t s = 0; s < g->sequences; s++) {
            const wf_page_list *l = g->slot[s] ? &g->slot[s]->pages[c] : NULL;
            for (int64_t i = l ? l->first : 0; l && i < l->end; i++)
                owners[l->page[i]]++;
            assert_true(!l || l->end - l->first <= p->count / g->sequences);
        }
        for (int64_t i = 0; i < p->count; i++)
            assert_int_equal(owners[i], 1);
        free(owners);
    }
}

static void step(wf_generator *g, bool *busy)
{
    poison(g);
    wt_ok(g->ctx, wf_generator_step(g, busy));
    check_pages(g);
}

static int64_t pages_used(const wf_generator *g)
{
    wf_generator_stats stats;
    wf_generator_get_stats(g, &stats);
    return stats.pages_used;
}

/* ---- Texts many windows long ---- */

/* Five sequences that fill their contexts, up to 18 windows. */
static void check_long_texts(wf_ctx *ctx, const char *device, const char *model, int64_t chunk)
{
    static const size_t begin[TOGETHER] = {0, 5, 23, 11, 20};
    const wf_generator_options o = {.context = CONTEXT, .sequences = TOGETHER, .chunk = chunk};
    const wf_request request = {.ignore_end = true};
    bench b = bench_open(ctx, device, model, &o);
    wf_sequence *s[TOGETHER];
    wt_reference r;
    wt_reference_read(model, &r);
    for (int i = 0; i < TOGETHER; i++)
        wt_ok(ctx, wf_sequence_new(b.g, r.prompt + begin[i], r.prompt_count - begin[i], &request,
                                   &s[i]));
    for (bool busy = true; busy;)
        step(b.g, &busy);
    for (int i = 0; i < TOGETHER; i++) {
        size_t count;
        wf_sequence_tokens(s[i], &count, NULL);
        assert_int_equal(count, CONTEXT);
        check_text(&b.oracle, s[i]);
        wf_sequence_free(s[i]);
    }
    assert_int_equal(pages_used(b.g), 0);
    wt_reference_free(&r);
    bench_close(&b);
}

static void long_texts(void **state)
{
    static const int64_t chunks[] = {1, 7, 16, 64};
    for (int m = 0; m < MODELS; m++)
        for (int i = 0; i < 4; i++)
            check_long_texts(*state, the_device(), models[m], chunks[i]);
}

static void long_texts_on_check(void **state)
{
    for (int m = 0; m < MODELS; m++)
        check_long_texts(*state, "check", models[m], 16);
}

/* The expansion of attention, on a device with kernels for core ops only. */
static void long_texts_of_core_ops(void **state)
{
    check_long_texts(*state, "core", "cohere2", 16);
}

/* ---- Restarts ---- */

static void run(wf_generator *g)
{
    for (bool busy = true; busy;)
        step(g, &busy);
}

static uint64_t restarted(wf_sequence *s, const int32_t *ids, size_t count, const wf_request *r)
{
    wf_generator *g = s->generator;
    uint64_t before = g->stats.reused_tokens;
    wt_ok(g->ctx, wf_sequence_restart(s, ids, count, r));
    check_pages(g);
    return g->stats.reused_tokens - before;
}

/* A prefix is reused only if its window is still in pages. */
static void restarts(void **state)
{
    wf_ctx *ctx = *state;
    const wf_generator_options o = {.context = CONTEXT, .chunk = 16};
    const wf_request request = {.ignore_end = true, .limit = 40};
    wt_reference r;
    wt_reference_read("mistral", &r); /* window 7 */
    bench b = bench_open(ctx, the_device(), "mistral", &o);
    wf_sequence *s;
    int32_t ids[CONTEXT];
    size_t count;
    wt_ok(ctx, wf_sequence_new(b.g, r.prompt, 20, &request, &s));
    run(b.g);
    memcpy(ids, wf_sequence_tokens(s, &count, NULL), sizeof ids);
    assert_int_equal(count, 60); /* 59 are cached; the last run holds tokens from 48 on */
    assert_int_equal(s->pages[0].first, 3);
    /* longer: all cached tokens are reused */
    assert_int_equal(restarted(s, ids, 60, &request), 59);
    run(b.g);
    check_text(&b.oracle, s);
    memcpy(ids, wf_sequence_tokens(s, &count, NULL), sizeof ids);
    assert_int_equal(count, 100); /* the last run held tokens 92 .. 98, in pages from 80 on */
    /* shorter, within the held pages: token 86 reads from 80 on */
    assert_int_equal(restarted(s, ids, 87, &request), 86);
    run(b.g);
    check_text(&b.oracle, s);
    /* shorter, with returned pages: the whole prompt is computed again */
    assert_int_equal(restarted(s, ids, 30, &request), 0);
    assert_int_equal(pages_used(b.g), 0);
    run(b.g);
    check_text(&b.oracle, s);
    wf_sequence_free(s);
    assert_int_equal(pages_used(b.g), 0);
    wt_reference_free(&r);
    bench_close(&b);
}

/* ---- Random requests ---- */

typedef struct {
    bench b;
    wf_rng rng;
    int32_t ids[CONTEXT];
    size_t count;
    size_t next; /* token whose logits come next */
} random_case;

static size_t below(random_case *c, size_t n)
{
    return (size_t)wf_rng_below(&c->rng, n);
}

/* A prefix of the sequence's text (NULL: an empty one), then random tokens. */
static void choose_ids(random_case *c, const wf_sequence *s)
{
    size_t have = 0, keep;
    const int32_t *ids = s ? wf_sequence_tokens(s, &have, NULL) : NULL;
    keep = below(c, 3) == 0 ? have : below(c, have + 1);
    if (keep > 0)
        memcpy(c->ids, ids, keep * sizeof *ids);
    size_t more = below(c, 4) == 0 ? 0 : below(c, CONTEXT - keep + 1) / (1 + below(c, 4));
    c->count = keep + more;
    for (size_t i = keep; i < c->count; i++)
        c->ids[i] = (int32_t)below(c, (size_t)c->b.oracle.vocab);
    if (c->count == 0)
        c->count = 1;
}

static wf_status compare_row(void *user, size_t position, const float *logits, size_t vocab)
{
    random_case *c = user;
    const float *want = c->b.oracle.logits + (int64_t)(position * vocab);
    double bound = LOGITS_BOUND * largest(c->b.oracle.logits, (int64_t)(c->count * vocab));
    assert_int_equal(position, c->next++);
    for (size_t i = 0; i < vocab; i++)
        if (!(fabs((double)logits[i] - (double)want[i]) <= bound))
            fail_msg("logit %zu of token %zu is %g, not %g", i, position, (double)logits[i],
                     (double)want[i]);
    poison(c->b.g);
    return WF_OK;
}

static void act(random_case *c, wf_sequence **s)
{
    wf_ctx *ctx = c->b.oracle.ctx;
    const wf_request request = {.ignore_end = true, .limit = 1 + (int64_t)below(c, 40)};
    size_t what = below(c, 8);
    if (*s)
        check_text(&c->b.oracle, *s);
    if (!*s) {
        choose_ids(c, NULL);
        wt_ok(ctx, wf_sequence_new(c->b.g, c->ids, c->count, &request, s));
    } else if (what == 0) {
        wf_sequence_free(*s);
        *s = NULL;
    } else if (what < 4) {
        choose_ids(c, *s);
        oracle_run(&c->b.oracle, c->ids, c->count);
        c->next = below(c, c->count);
        poison(c->b.g);
        wt_ok(ctx, wf_sequence_logits(*s, c->ids, c->count, c->next, compare_row, c));
        assert_int_equal(c->next, c->count);
    } else {
        choose_ids(c, *s);
        wt_ok(ctx, wf_sequence_restart(*s, c->ids, c->count, &request));
    }
    check_pages(c->b.g);
}

/* Several sequences with random chunks, prompts, restarts, steps and logits. */
static void check_random(wf_ctx *ctx, uint64_t stream)
{
    enum { ACTIONS = 16 };
    random_case c = {0};
    wf_rng_init(&c.rng, wt_seed(), stream);
    wf_sequence *s[3] = {0};
    const wf_generator_options o = {.context = CONTEXT,
                                    .sequences = 1 + (int64_t)below(&c, 3),
                                    .chunk = 1 + (int64_t)below(&c, 40)};
    c.b = bench_open(ctx, the_device(), models[below(&c, MODELS)], &o);
    for (int i = 0; i < ACTIONS; i++) {
        act(&c, &s[below(&c, (size_t)o.sequences)]);
        for (size_t n = below(&c, 30); n > 0; n--)
            step(c.b.g, NULL);
    }
    for (int i = 0; i < 3; i++)
        if (s[i]) {
            check_text(&c.b.oracle, s[i]);
            wf_sequence_free(s[i]);
        }
    assert_int_equal(pages_used(c.b.g), 0);
    bench_close(&c.b);
}

static void random_requests(void **state)
{
    for (uint64_t i = 0; i < 4; i++)
        check_random(*state, i);
}

/* ---- Memory ---- */

/* The most pages that a run of one sequence touches, by trying all runs. */
static int64_t most_pages(int64_t window, int64_t run)
{
    int64_t most = 0;
    for (int64_t at = 0; at < CONTEXT; at++)
        for (int64_t n = 1; n <= run && at + n <= CONTEXT; n++) {
            int64_t low = window > 0 && at - window + 1 > 0 ? at - window + 1 : 0;
            int64_t pages = (at + n - 1) / WF_PAGE_TOKENS - low / WF_PAGE_TOKENS + 1;
            most = pages > most ? pages : most;
        }
    return most;
}

/* Pools have exactly the pages that runs can touch; plans equal the memory held. */
static void check_memory(wf_ctx *ctx, const char *model, int64_t chunk)
{
    const wf_generator_options o = {.context = CONTEXT, .sequences = 3, .chunk = chunk};
    bench b = bench_open(ctx, "cpu", model, &o);
    const wf_config *c = &b.oracle.model->config;
    wf_memory planned, held;
    wf_info info;
    size_t kv, sum = 0;
    int64_t run = chunk < 3 ? 3 : chunk; /* at least a token of each sequence */
    wt_ok(ctx, wf_generator_plan(b.device, b.oracle.model, &o, &planned));
    wf_generator_memory(b.g, &held);
    assert_int_equal(planned.states, held.states);
    assert_int_equal(planned.mapped, held.mapped);
    assert_int_equal(planned.activations, held.activations);
    for (int i = 0; wf_session_state(b.g->session, i, &info); i++) {
        int layer;
        if (sscanf(info.name, "kv.%d.", &layer) != 1)
            continue;
        int64_t window = wf_config_layer(c, layer)->window;
        assert_int_equal(info.dim[0], 3 * most_pages(window, run));
        sum += info.bytes;
    }
    wt_ok(ctx, wf_generator_kv_bytes(b.oracle.model, &o, &kv));
    assert_int_equal(kv, sum);
    bench_close(&b);
}

static void memory(void **state)
{
    for (int m = 0; m < MODELS; m++)
        for (int64_t chunk = 1; chunk <= 60; chunk += chunk < 20 ? 1 : 10)
            check_memory(*state, models[m], chunk);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        wt_test(long_texts), wt_test(long_texts_on_check), wt_test(long_texts_of_core_ops),
        wt_test(restarts),   wt_test(random_requests),     wt_test(memory),
    };
    const struct CMUnitTest named[] = {wt_test(restarts), wt_test(random_requests)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return getenv("WEFT_WINDOWS_DEVICE") ? cmocka_run_group_tests(named, NULL, NULL)
                                         : cmocka_run_group_tests(tests, NULL, NULL);
}
