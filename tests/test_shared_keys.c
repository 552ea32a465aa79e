/* SPDX-License-Identifier: MIT */
/* test_shared_keys.c - layers that attend to the keys and values of an earlier layer, the caches of
 * a config, and the values of a model besides its logits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/philox.h"
#include "infer/engine.h"
#include "model/blank.h"
#include "model/family.h"
#include "model/model.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

#define BOUND 1e-5 /* relative to the largest logit */

enum { LAYERS = 5, VOCAB = 40, WIDTH = 32, TOKENS = 40, RUN = 8, PAGE = 4, PAGES = TOKENS / PAGE };

/* Layer 2 reads the keys of layer 1, in a window, and layer 4 those of layer 0. */
static wf_config make_config(wf_layer layer[LAYERS])
{
    wf_config c = {
        .family = &wf_family_llama,
        .type = wf_family_llama.types,
        .layers = LAYERS,
        .vocab = VOCAB,
        .context = TOKENS,
        .width = WIDTH,
        .all = {.heads = 4, .kv_heads = 2, .key_dim = 8, .value_dim = 8, .hidden = 48},
        .layer = layer,
        .eps = 1e-5,
        .tied = true,
        .rope = {{.base = 10000, .dims = 8}},
        .ropes = 1,
    };
    for (int i = 0; i < LAYERS; i++)
        layer[i] = c.all;
    layer[1].window = layer[2].window = 5;
    layer[2].shares = 1;
    layer[4].shares = 4;
    return c;
}

static wf_build_options make_options(wf_build_form form, int64_t tokens)
{
    wf_build_options o = {.form = form, .tokens = tokens, .sequences = 1, .kv = WF_F32};
    for (int i = 0; i < WF_MOST_CACHES; i++)
        o.cache[i] = (wf_cache_size){.page = PAGE, .pages = PAGES, .pool = PAGES + i};
    return o;
}

static wf_value *build(wf_graph *g, const wf_config *c, wf_build_form form, int64_t tokens,
                       wf_model_values *values)
{
    const wf_build_options o = make_options(form, tokens);
    return wf_model_graph(g, c, &o, values);
}

/* Random values for a weight of this name; norms are around 1. */
static wf_status fetch(void *user, const char *name, float *x, int64_t n)
{
    const float mean = strstr(name, "norm") ? 1 : 0;
    wf_rng rng;
    (void)user;
    wf_rng_init(&rng, wt_seed(), wf_hash_fnv1a(WF_FNV1A, name, strlen(name)));
    for (int64_t k = 0; k < n; k++)
        x[k] = mean + 0.4f * ((float)wf_rng_unit(&rng) - 0.5f);
    return WF_OK;
}

static void write_weights(wt_run *r)
{
    wf_info info;
    for (int i = 0; wf_session_state(r->session, i, &info); i++) {
        float *x = malloc(info.bytes);
        wt_ok(r->ctx, fetch(NULL, info.name, x, (int64_t)(info.bytes / sizeof *x)));
        wt_ok(r->ctx, wf_session_write(r->session, info.name, x, info.bytes));
        free(x);
    }
}

static bool has_state(const wt_run *r, const char *name)
{
    wf_info info;
    for (int i = 0; wf_session_state(r->session, i, &info); i++)
        if (strcmp(info.name, name) == 0)
            return true;
    return false;
}

static int32_t token_at(int64_t position)
{
    return (int32_t)((7 * position + 3) % VOCAB);
}

static void write_tokens(wt_run *r, int64_t begin, int64_t n)
{
    int32_t tokens[TOKENS], positions[TOKENS], ends[2] = {0, (int32_t)n};
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = token_at(begin + i);
        positions[i] = (int32_t)(begin + i);
    }
    wt_write(r, "tokens", tokens, (size_t)n * sizeof *tokens);
    wt_write(r, "positions", positions, (size_t)n * sizeof *positions);
    wt_write(r, "seq_start", ends, sizeof ends);
}

/* Runs of RUN tokens over page pools, each cache with its own order of pages. */
static void run_steps(wt_run *r, float *logits)
{
    int32_t table[2][PAGES];
    for (int32_t i = 0; i < PAGES; i++) {
        table[0][i] = PAGES - 1 - i;
        table[1][i] = (i + 3) % (PAGES + 1);
    }
    for (int64_t at = 0; at < TOKENS; at += RUN) {
        write_tokens(r, at, RUN);
        wt_write(r, "table", table[0], sizeof table[0]);
        wt_write(r, "table.1", table[1], sizeof table[1]);
        wt_write(r, "lengths", (int32_t[]){(int32_t)at + RUN}, sizeof(int32_t));
        wt_run_once(r);
        wt_read(r, "logits", logits + at * VOCAB, RUN * VOCAB * sizeof *logits);
    }
}

/* Logits of the whole text, without caches. */
static void train_logits(wf_ctx *ctx, const wf_config *c, float *logits)
{
    wt_run r = wt_open(ctx, "cpu");
    wf_graph *g = wt_graph(ctx);
    wt_ok(ctx, wf_output(g, "logits", build(g, c, WF_FORM_TRAIN, TOKENS, NULL)));
    wt_compile(&r, g);
    write_weights(&r);
    write_tokens(&r, 0, TOKENS);
    wt_run_once(&r);
    wt_read(&r, "logits", logits, TOKENS * VOCAB * sizeof *logits);
    wt_close(&r);
}

static void steps_equal_the_training_graph(void **state)
{
    static const char *const devices[] = {"cpu", "check"};
    static float want[TOKENS * VOCAB], got[TOKENS * VOCAB];
    wf_ctx *ctx = *state;
    wf_layer layer[LAYERS];
    const wf_config c = make_config(layer);
    wt_ok(ctx, wf_config_check(ctx, "the config", &c));
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        wt_run r = wt_open(ctx, devices[d]);
        wf_graph *g = wt_graph(ctx);
        wt_ok(ctx, wf_output(g, "logits", build(g, &c, WF_FORM_TRAIN, TOKENS, NULL)));
        wt_compile(&r, g);
        write_weights(&r);
        write_tokens(&r, 0, TOKENS);
        wt_run_once(&r);
        wt_read(&r, "logits", want, sizeof want);
        g = wt_graph(ctx); /* the session keeps the weights */
        wt_ok(ctx, wf_output(g, "logits", build(g, &c, WF_FORM_STEP, RUN, NULL)));
        wt_compile(&r, g);
        run_steps(&r, got);
        assert_true(wt_relative(got, want, TOKENS * VOCAB) <= BOUND);
        assert_true(has_state(&r, "kv.1.k") && !has_state(&r, "kv.2.k") &&
                    !has_state(&r, "kv.4.v"));
        assert_true(has_state(&r, "blk.2.attn_q.weight") && !has_state(&r, "blk.2.attn_k.weight"));
        wt_close(&r);
    }
}

/* ---- The engine ---- */

/* Writes a model of this config as a GGUF file, and opens it. No key of the format says which
 * layers share keys, so the config replaces the one in the file. */
static wf_model *open_model(wf_ctx *ctx, wt_scratch *s, const wf_config *c)
{
    const wf_blank blank = {.name = "shared", .config = c, .fetch = fetch};
    const char *path = wt_path(s, "m.gguf");
    wf_model *m;
    wt_ok(ctx, wf_model_new(ctx, &blank, &m));
    wt_ok(ctx, wf_model_convert(m, ctx, path, NULL));
    wf_model_close(m);
    m = wf_mem_new(ctx, sizeof *m);
    m->ctx = ctx;
    wf_arena_init(&m->arena, ctx);
    m->path = wf_arena_strdup(&m->arena, path);
    wt_ok(ctx, wf_gguf_open(ctx, path, &m->gguf));
    m->store = &m->gguf->store;
    m->config = *c;
    m->config.rope[0].interleaved = true; /* Llama's order of rows in GGUF files */
    wt_ok(ctx, wf_model_bind(m));
    wf_model_describe(m, "GGUF");
    return m;
}

/* Returns the bytes of all pools. Fails if a layer that shares keys has one. */
static size_t pool_bytes(const wf_engine *e)
{
    size_t sum = 0;
    wf_info info;
    for (int i = 0; wf_session_state(e->session, i, &info); i++) {
        int layer;
        if (!wf_is_pool(info.name))
            continue;
        assert_int_equal(sscanf(info.name, "kv.%d.", &layer), 1);
        assert_int_equal(wf_config_layer(&e->model->config, layer)->shares, 0);
        sum += info.bytes;
    }
    return sum;
}

/* The plan is what the engine holds, before and after runs. Returns the bytes of the pools. */
static size_t check_engine(wf_ctx *ctx, const wf_config *c, const char *device, float *logits)
{
    const wf_engine_options o = {.context = TOKENS, .sequences = 2, .chunk = RUN, .kv = WF_KV_F32};
    int32_t ids[TOKENS];
    wf_memory planned, held;
    wt_scratch s;
    wt_talker t = {.ctx = ctx};
    int64_t tokens;
    size_t kv;
    for (int i = 0; i < TOKENS; i++)
        ids[i] = token_at(i);
    wt_scratch_make(&s);
    t.model = open_model(ctx, &s, c);
    wt_ok(ctx, wf_device_open(ctx, device, &t.device));
    wt_ok(ctx, wf_engine_plan(t.device, t.model, &o, &planned));
    wt_ok(ctx, wf_engine_new(t.device, t.model, &o, &t.engine));
    wf_engine_memory(t.engine, &held);
    assert_memory_equal(&planned, &held, sizeof held);
    wt_ok(ctx, wf_engine_limits(t.model, &o, &tokens, &kv));
    assert_int_equal(kv, pool_bytes(t.engine));
    assert_int_equal(kv, wf_config_cache_bytes(c, &t.engine->caches, t.engine->size, WF_F32));
    float *got = wt_logits(ctx, t.engine, ids, TOKENS, VOCAB);
    memcpy(logits, got, TOKENS * VOCAB * sizeof *got);
    free(got);
    wf_engine_memory(t.engine, &held);
    assert_memory_equal(&planned, &held, sizeof held);
    wt_talker_close(&t);
    wt_scratch_remove(&s);
    return kv;
}

static void sharing_layers_take_no_pages(void **state)
{
    static const char *const devices[] = {"cpu", "check"};
    static float want[TOKENS * VOCAB], got[TOKENS * VOCAB];
    wf_ctx *ctx = *state;
    wf_layer layer[LAYERS];
    const wf_config c = make_config(layer);
    train_logits(ctx, &c, want);
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        size_t shared = check_engine(ctx, &c, devices[d], got);
        assert_true(wt_relative(got, want, TOKENS * VOCAB) <= BOUND);
        layer[2].shares = layer[4].shares = 0;
        size_t own = check_engine(ctx, &c, devices[d], got);
        /* Layers 0, 3 and 4 keep 2 x 3 pages of 16 tokens, layers 1 and 2 as many: the context is
         * too short for windows to take fewer. A token takes 2 heads of 8 keys and 8 values. */
        const size_t each = 2 * 3 * 16 * 2 * (8 + 8) * sizeof(float);
        assert_int_equal(own, 5 * each);
        assert_int_equal(shared, 3 * each);
        layer[2].shares = 1;
        layer[4].shares = 4;
    }
}

/* ---- Gradients ---- */

/* The gradient of a weight whose keys a later block reads. */
static void gradient(wf_ctx *ctx, int64_t recompute, float *out)
{
    wf_layer layer[LAYERS];
    const wf_config c = make_config(layer);
    const wf_compile_options options = {.recompute = recompute};
    wt_run r = wt_open(ctx, "cpu");
    wf_graph *g = wt_graph(ctx);
    wf_value *logits = build(g, &c, WF_FORM_TRAIN, TOKENS, NULL), *k = NULL, *dk;
    wf_value *loss =
        wf_reduce(g, "sum", wf_binary(g, "mul", logits, logits), WF_AXIS(0) | WF_AXIS(1), false);
    for (int i = 0; i < g->node_count; i++)
        if (g->nodes[i]->name && strcmp(g->nodes[i]->name, "blk.1.attn_k.weight") == 0)
            k = &g->nodes[i]->out[0];
    assert_non_null(k);
    wt_ok(ctx, wf_grad(g, loss, &k, 1, &dk));
    wt_ok(ctx, wf_output(g, "dk", dk));
    wt_ok(ctx, wf_compile_with(r.session, g, &options, &r.exec));
    wf_graph_free(g);
    write_weights(&r);
    write_tokens(&r, 0, TOKENS);
    wt_run_once(&r);
    wt_read(&r, "dk", out, 2 * 8 * WIDTH * sizeof *out);
    wt_close(&r);
}

static void recomputed_gradients_are_equal(void **state)
{
    static float kept[2 * 8 * WIDTH], again[2 * 8 * WIDTH];
    gradient(*state, 0, kept);
    gradient(*state, 1, again);
    assert_memory_equal(kept, again, sizeof kept);
    assert_true(fabsf(kept[0]) > 0);
}

/* ---- Hidden states ---- */

static void hidden_states_give_the_logits(void **state)
{
    static float hidden[TOKENS * WIDTH], logits[TOKENS * VOCAB], product[TOKENS * VOCAB],
        head[VOCAB * WIDTH];
    wf_ctx *ctx = *state;
    wf_layer layer[LAYERS];
    const wf_config c = make_config(layer);
    wf_model_values values;
    wt_run r = wt_open(ctx, "cpu");
    wf_graph *g = wt_graph(ctx);
    wt_ok(ctx, wf_output(g, "logits", build(g, &c, WF_FORM_TRAIN, TOKENS, &values)));
    wt_ok(ctx, wf_output(g, "hidden", values.hidden));
    assert_null(values.extra_loss); /* a dense family */
    wt_compile(&r, g);
    write_weights(&r);
    write_tokens(&r, 0, TOKENS);
    wt_run_once(&r);
    wt_read(&r, "hidden", hidden, sizeof hidden);
    wt_read(&r, "logits", logits, sizeof logits);
    wt_ok(ctx, wf_session_read(r.session, "token_embd.weight", head, sizeof head)); /* tied */
    for (int i = 0; i < TOKENS; i++)
        for (int v = 0; v < VOCAB; v++) {
            double sum = 0;
            for (int k = 0; k < WIDTH; k++)
                sum += (double)hidden[i * WIDTH + k] * head[v * WIDTH + k];
            product[i * VOCAB + v] = (float)sum;
        }
    assert_true(wt_relative(product, logits, TOKENS * VOCAB) <= BOUND);
    wt_close(&r);
}

/* ---- Configs ---- */

static void caches_of_a_config(void **state)
{
    wf_ctx *ctx = *state;
    wf_layer layer[LAYERS];
    wf_config c = make_config(layer);
    wf_caches k;
    layer[0].window = 5; /* the whole context comes first, wherever its layers are */
    assert_true(wf_config_caches(&c, &k));
    assert_int_equal(k.count, 2);
    assert_int_equal(k.cache[0].kind, WF_CACHE_WHOLE);
    assert_int_equal(k.cache[1].kind, WF_CACHE_WINDOW);
    assert_int_equal(wf_caches_find(&k, &layer[0]), 1);
    assert_int_equal(wf_caches_find(&k, &layer[3]), 0);
    wt_fails(ctx, wf_config_check(ctx, "the config", &c), WF_ERR_FORMAT,
             "layer 4 shares the keys of layer 0, which has other heads or another window");
    c = make_config(layer);
    c.all.window = 9;
    c.layer = NULL; /* all layers have a window: one cache */
    assert_true(wf_config_caches(&c, &k));
    assert_int_equal(k.count, 1);
    assert_int_equal(k.cache[0].window, 9);
    c = make_config(layer);
    for (int i = 0; i < LAYERS; i++) {
        layer[i].shares = 0;
        layer[i].window = 3 * i;
    }
    wt_fails(ctx, wf_config_check(ctx, "the config", &c), WF_ERR_FORMAT,
             "more than 4 different attention windows");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(steps_equal_the_training_graph),
        wt_test(sharing_layers_take_no_pages),
        wt_test(recomputed_gradients_are_equal),
        wt_test(hidden_states_give_the_logits),
        wt_test(caches_of_a_config),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
