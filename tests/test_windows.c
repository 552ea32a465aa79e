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
#include "infer/engine.h"
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

/* ---- The engine ---- */

typedef struct {
    oracle oracle;
    wf_device *device;
    wf_engine *e;
} bench;

static bench bench_open(wf_ctx *ctx, const char *device, const char *model,
                        const wf_engine_options *o)
{
    bench b = {.oracle = oracle_open(ctx, model)};
    wt_ok(ctx, wt_device_open(ctx, device, &b.device));
    wt_ok(ctx, wf_engine_new(b.device, b.oracle.model, o, &b.e));
    return b;
}

static void bench_close(bench *b)
{
    wf_engine_free(b->e);
    wf_device_close(b->device);
    oracle_close(&b->oracle);
}

/* Fills the free pages of one pool with NaN. */
static void poison_state(wf_engine *e, int cache, const char *name)
{
    wf_info info;
    int i = 0;
    while (wf_session_state(e->session, i, &info) && strcmp(info.name, name) != 0)
        i++;
    assert_string_equal(info.name, name);
    size_t page = info.bytes / (size_t)info.dim[0] / sizeof(float);
    float *x = malloc(info.bytes);
    wt_ok(e->ctx, wf_session_read(e->session, name, x, info.bytes));
    for (int64_t k = 0; k < e->pages[cache].free_count; k++)
        for (size_t n = 0; n < page; n++)
            x[(size_t)e->pages[cache].free[k] * page + n] = NAN;
    wt_ok(e->ctx, wf_session_write(e->session, name, x, info.bytes));
    free(x);
}

static void poison(wf_engine *e)
{
    const wf_config *c = &e->model->config;
    for (int64_t i = 0; i < c->layers; i++)
        for (int k = 0; k < 2; k++) {
            char name[32];
            snprintf(name, sizeof name, "kv.%d.%s", (int)i, k ? "v" : "k");
            poison_state(e, wf_caches_find(&e->caches, wf_config_layer(c, i)), name);
        }
}

/* A page is free, cached for the owner of a node, or held by running sequences; none is lost. No
 * sequence holds more pages than a run of its own can touch. */
static void check_pages(const wf_engine *e)
{
    for (int c = 0; c < e->caches.count; c++) {
        const wf_pages *p = &e->pages[c];
        const int64_t most =
            wf_cache_most_pages(&e->caches.cache[c], WF_PAGE_TOKENS, e->size[c].pages, e->longest);
        int *holders = calloc((size_t)p->count, sizeof *holders);
        int *free_times = calloc((size_t)p->count, sizeof *free_times);
        int64_t cached = 0;
        for (int64_t i = 0; i < p->free_count; i++)
            free_times[p->free[i]]++;
        for (int64_t s = 0; s < e->running_count; s++) {
            const wf_page_list *l = &e->running[s]->pages[c];
            for (int64_t i = l->first; i < l->end; i++)
                holders[l->page[i]]++;
            assert_in_range(l->end - l->first, 0, most);
        }
        for (int64_t i = 0; i < p->count; i++) {
            const int32_t owner = p->page[i].owner;
            assert_int_equal(p->page[i].holders, holders[i]);
            assert_int_equal(free_times[i], holders[i] == 0 && owner < 0);
            if (owner >= 0)
                assert_int_equal(e->prefix->node[owner].page[c], i);
            cached += holders[i] == 0 && owner >= 0;
        }
        assert_int_equal(cached, p->cached_count);
        free(holders);
        free(free_times);
    }
}

static void step(wf_engine *e, bool *busy)
{
    poison(e);
    wt_ok(e->ctx, wf_engine_step(e, busy));
    check_pages(e);
}

static int64_t pages_used(const wf_engine *e)
{
    wf_engine_stats stats;
    wf_engine_get_stats(e, &stats);
    return stats.pages_used;
}

/* ---- Texts many windows long ---- */

/* Five sequences that fill their contexts, up to 18 windows. */
static void check_long_texts(wf_ctx *ctx, const char *device, const char *model, int64_t chunk)
{
    static const size_t begin[TOGETHER] = {0, 5, 23, 11, 20};
    const wf_engine_options o = {.compute = WF_F32,
                                 .context = CONTEXT,
                                 .sequences = TOGETHER,
                                 .chunk = chunk,
                                 .kv = WF_KV_F32};
    const wf_request request = {.ignore_end = true};
    bench b = bench_open(ctx, device, model, &o);
    wf_sequence *s[TOGETHER];
    wt_reference r;
    wt_reference_read(model, &r);
    for (int i = 0; i < TOGETHER; i++)
        wt_ok(ctx, wf_engine_submit(b.e, r.prompt + begin[i], r.prompt_count - begin[i], &request,
                                    &s[i]));
    for (bool busy = true; busy;)
        step(b.e, &busy);
    for (int i = 0; i < TOGETHER; i++) {
        size_t count;
        wf_sequence_tokens(s[i], &count, NULL);
        assert_int_equal(count, CONTEXT);
        check_text(&b.oracle, s[i]);
        wf_sequence_free(s[i]);
    }
    assert_int_equal(pages_used(b.e), 0);
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

/* ---- Reuse ---- */

static void run_all(wf_engine *e)
{
    for (bool busy = true; busy;)
        step(e, &busy);
}

/* Runs a prompt and 40 tokens, checks them, and copies all tokens to ids. Returns how many tokens of
 * the prompt were reused. */
static size_t continued(bench *b, int32_t *ids, size_t count)
{
    const wf_request request = {.ignore_end = true, .limit = 40};
    wf_sequence *s;
    size_t total;
    wt_ok(b->e->ctx, wf_engine_submit(b->e, ids, count, &request, &s));
    run_all(b->e);
    check_text(&b->oracle, s);
    const int32_t *all = wf_sequence_tokens(s, &total, NULL);
    assert_int_equal(total, count + 40 < CONTEXT ? count + 40 : CONTEXT);
    memcpy(ids, all, total * sizeof *ids);
    size_t reused = wf_sequence_reused(s);
    wf_sequence_free(s);
    assert_int_equal(pages_used(b->e), 0);
    check_pages(b->e);
    return reused;
}

/* A prefix is reused only if its window is still in pages. The pool has five pages: a run of 16
 * tokens and their window touch three, and two more may be cached. */
static void reuse(void **state)
{
    const wf_engine_options o = {
        .compute = WF_F32, .context = CONTEXT, .chunk = 16, .kv = WF_KV_F32};
    wt_reference r;
    wt_reference_read("mistral", &r); /* window 7 */
    bench b = bench_open(*state, the_device(), "mistral", &o);
    int32_t ids[CONTEXT];
    assert_int_equal(b.e->pages[0].count, 5);
    memcpy(ids, r.prompt, 20 * sizeof *ids);
    assert_int_equal(continued(&b, ids, 20), 0);
    /* 59 tokens were computed: pages 0 to 2 are full. Token 48 reads from token 42 on, in page 2. */
    assert_int_equal(continued(&b, ids, 60), 48);
    /* 99 were: pages 2 to 5 are cached. Token 80 reads from token 74 on, in page 4. */
    assert_int_equal(b.e->pages[0].cached_count, 4);
    assert_int_equal(continued(&b, ids, 87), 80);
    /* Token 112 would read from 106 on; 126 tokens were computed, so page 6 is cached. */
    assert_int_equal(continued(&b, ids, 126), 112);
    /* Page 0 was evicted: token 16 would read from token 10 on. */
    assert_int_equal(continued(&b, ids, 30), 0);
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
    poison(c->b.e);
    return WF_OK;
}

static void act(random_case *c, wf_sequence **s)
{
    wf_ctx *ctx = c->b.oracle.ctx;
    const wf_request request = {.ignore_end = true, .limit = 1 + (int64_t)below(c, 40)};
    size_t what = below(c, 8);
    if (*s)
        check_text(&c->b.oracle, *s);
    choose_ids(c, *s);
    if (*s && what < 4) {
        wf_sequence_free(*s);
        *s = NULL;
    }
    if (!*s && what > 0)
        wt_ok(ctx, wf_engine_submit(c->b.e, c->ids, c->count, &request, s));
    else if (*s) {
        oracle_run(&c->b.oracle, c->ids, c->count);
        c->next = below(c, c->count);
        poison(c->b.e);
        wt_ok(ctx, wf_engine_logits(c->b.e, c->ids, c->count, c->next, compare_row, c));
        assert_int_equal(c->next, c->count);
    }
    check_pages(c->b.e);
}

/* Random prompts, steps and logits. More sequences than run at a time, in pools that may hold as
 * little as one: they wait, and are preempted. */
static void check_random(wf_ctx *ctx, uint64_t stream)
{
    enum { ACTIONS = 16, SEQUENCES = 4 };
    random_case c = {0};
    wf_rng_init(&c.rng, wt_seed(), stream);
    wf_sequence *s[SEQUENCES] = {0};
    const wf_engine_options o = {.compute = WF_F32,
                                 .context = CONTEXT,
                                 .sequences = 1 + (int64_t)below(&c, 3),
                                 .chunk = 1 + (int64_t)below(&c, 40),
                                 .rows = 1 + (int64_t)below(&c, 8),
                                 .cache = CONTEXT + (int64_t)below(&c, 3 * CONTEXT),
                                 .kv = WF_KV_F32};
    c.b = bench_open(ctx, the_device(), models[below(&c, MODELS)], &o);
    for (int i = 0; i < ACTIONS; i++) {
        act(&c, &s[below(&c, SEQUENCES)]);
        for (size_t n = below(&c, 30); n > 0; n--)
            step(c.b.e, NULL);
    }
    for (int i = 0; i < SEQUENCES; i++)
        if (s[i]) {
            check_text(&c.b.oracle, s[i]);
            wf_sequence_free(s[i]);
        }
    assert_int_equal(pages_used(c.b.e), 0);
    bench_close(&c.b);
}

/* A named device may be an emulated one, which is slow. */
static void random_requests(void **state)
{
    const bool few = getenv("WEFT_WINDOWS_DEVICE") && !getenv("WEFT_ALL_CASES");
    for (uint64_t i = 0; i < (few ? 1 : 4); i++)
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

static void check_held(const bench *b, const wf_memory *planned)
{
    wf_memory held;
    wf_engine_memory(b->e, &held);
    assert_int_equal(planned->states, held.states);
    assert_int_equal(planned->mapped, held.mapped);
    assert_int_equal(planned->activations, held.activations);
    assert_int_equal(planned->ports, held.ports);
}

/* Pools of windows have the pages that runs can touch, and two more per sequence for the cache; or
 * as many as those of the whole context, if these are fewer. */
static int64_t pool_of(int64_t window, int64_t sequences, int64_t run)
{
    const int64_t whole = sequences * CONTEXT / WF_PAGE_TOKENS;
    const int64_t most = sequences * (most_pages(window, run) + 2);
    return window > 0 && most < whole ? most : whole;
}

/* Plans equal the memory held, whatever runs have happened. */
static void check_memory(wf_ctx *ctx, const char *model, int64_t chunk)
{
    const wf_engine_options o = {
        .compute = WF_F32, .context = CONTEXT, .sequences = 3, .chunk = chunk, .kv = WF_KV_F32};
    static const size_t counts[] = {2, 1, 30, 5, 1};
    const wf_request request = {.limit = 3, .ignore_end = true};
    const int32_t ids[30] = {3, 1, 4};
    wf_sequence *s[5];
    bench b = bench_open(ctx, "cpu", model, &o);
    const wf_config *c = &b.oracle.model->config;
    wf_memory planned;
    wf_info info;
    int64_t tokens;
    size_t kv, sum = 0;
    int64_t run = chunk < 3 ? 3 : chunk; /* at least a token of each sequence */
    wt_ok(ctx, wf_engine_plan(b.device, b.oracle.model, &o, &planned));
    check_held(&b, &planned);
    for (int i = 0; wf_session_state(b.e->session, i, &info); i++) {
        int layer;
        if (sscanf(info.name, "kv.%d.", &layer) != 1)
            continue;
        int64_t window = wf_config_layer(c, layer)->window;
        assert_int_equal(info.dim[0], pool_of(window, 3, run));
        sum += info.bytes;
    }
    wt_ok(ctx, wf_engine_limits(b.oracle.model, &o, &tokens, &kv));
    assert_int_equal(kv, sum);
    for (int i = 0; i < 5; i++)
        wt_ok(ctx, wf_engine_submit(b.e, ids, counts[i], &request, &s[i]));
    run_all(b.e);
    check_held(&b, &planned);
    for (int i = 0; i < 5; i++)
        wf_sequence_free(s[i]);
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
        wt_test(reuse),      wt_test(random_requests),     wt_test(memory),
    };
    const struct CMUnitTest named[] = {wt_test(reuse), wt_test(random_requests)};
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return getenv("WEFT_WINDOWS_DEVICE") ? cmocka_run_group_tests(named, NULL, NULL)
                                         : cmocka_run_group_tests(tests, NULL, NULL);
}
