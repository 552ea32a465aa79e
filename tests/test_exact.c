/* SPDX-License-Identifier: MIT */
/*
 * test_exact.c - batch exactness: the logits of a token have the same bits for any division of its
 * text into runs, alone or among other sequences.
 *
 * Any seed must pass. The vector kernels of another instruction set are tested with WEFT_CPU.
 * WEFT_EXACT_DEVICE names another device than the cpu, for an emulated GPU, which runs a share of
 * the cases. On a real GPU, matmuls by cuBLASLt depend on the number of rows. WEFT_EXACT_SAMPLE=1
 * runs this share on the cpu.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/philox.h"
#include "graph/build.h"
#include "graph/quant/block.h"
#include "infer/engine.h"
#include "model_fixture.h"
#include "scratch.h"
#include "support.h"

#define D(...) ((int64_t[]){__VA_ARGS__})

static const wf_type types[] = {WF_F32, WF_F16, WF_BF16, WF_Q8_0};
/* The same types as options of engines. */
static const wf_kv kvs[] = {WF_KV_F32, WF_KV_F16, WF_KV_BF16, WF_KV_Q8_0};
enum { TYPES = 4, TOGETHER = 4 };

static const char *named_device(void)
{
    return getenv("WEFT_EXACT_DEVICE");
}

/* The named device, or this one. */
static const char *or_named(const char *cpu)
{
    return named_device() ? named_device() : cpu;
}

/* Whether a run takes a sixteenth of the cases, because emulated kernels are slow. The seed chooses
 * them. */
static bool is_sampled(void)
{
    return (named_device() || getenv("WEFT_EXACT_SAMPLE")) && !getenv("WEFT_ALL_CASES");
}

static int cases(int n)
{
    return is_sampled() ? (wt_cases(n) + 15) / 16 : wt_cases(n);
}

/* Uniform in [low, high]. */
static int64_t pick(wf_rng *r, int64_t low, int64_t high)
{
    return low + wf_rng_u32(r) % (uint32_t)(high - low + 1);
}

static void fill_ids(wf_rng *r, int32_t *ids, size_t n, int64_t vocab)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)pick(r, 0, vocab - 1);
}

/* ---- One attention op ---- */

/* Sequences whose last tokens are in the run. Page 0 belongs to none of them. */
typedef struct {
    int64_t sequences, heads, kv_heads, d, dv, page, pages, pool;
    wf_type kv;
    wf_attention_options options;
    int32_t lengths[TOGETHER], queries[TOGETHER], first[TOGETHER + 1]; /* first query of each */
    int32_t *table;                                                    /* [sequences, pages] */
    float *q, *k, *v;
} problem;

/* Some zeros of both signs, and a factor that makes e^x underflow. */
static float *noise(wf_rng *r, int64_t n, float scale)
{
    float *x = malloc((size_t)n * sizeof *x);
    for (int64_t i = 0; i < n; i++) {
        uint32_t bits = wf_rng_u32(r);
        x[i] = bits % 16 == 0 ? 0.0f : scale * (2 * wf_u32_to_unit(bits) - 1);
        x[i] = bits % 32 == 0 ? -0.0f : x[i];
    }
    return x;
}

static void make_lengths(wf_rng *r, problem *p)
{
    /* Decode attention on cuda merges 1024 keys at once; on the cpu 256. */
    static const int64_t longest[] = {150, 150, 150, 150, 150, 900, 900, 2400};
    const int64_t most = longest[pick(r, 0, 7)];
    p->pages = 0;
    p->first[0] = 0;
    for (int64_t s = 0; s < p->sequences; s++) {
        p->lengths[s] = (int32_t)pick(r, 1, most);
        int64_t queries = most > 900 || pick(r, 0, 2) ? pick(r, 1, 6) : pick(r, 1, 80);
        p->queries[s] = queries < p->lengths[s] ? (int32_t)queries : p->lengths[s];
        p->first[s + 1] = p->first[s] + p->queries[s];
        int64_t pages = (p->lengths[s] + p->page - 1) / p->page;
        p->pages = pages > p->pages ? pages : p->pages;
    }
}

/* Pages behind the window of all queries of a run have entry 0. */
static void make_table(problem *p)
{
    int32_t next = 1;
    p->table = calloc((size_t)(p->sequences * p->pages), sizeof *p->table);
    for (int64_t s = 0; s < p->sequences; s++)
        for (int64_t i = 0; i * p->page < p->lengths[s]; i++) {
            int64_t seen = p->lengths[s] - p->queries[s] - p->options.window + 1;
            if (p->options.window == 0 || (i + 1) * p->page > seen)
                p->table[s * p->pages + i] = next++;
        }
    p->pool = next;
}

static void make_problem(wf_rng *r, problem *p)
{
    *p = (problem){.sequences = pick(r, 1, TOGETHER), .kv_heads = pick(r, 1, 2)};
    p->heads = p->kv_heads * pick(r, 1, 8);
    p->kv = types[pick(r, 0, named_device() ? TYPES - 2 : TYPES - 1)];
    const bool blocks = p->kv == WF_Q8_0;
    p->d = blocks ? 32 * pick(r, 1, 8) : 8 * pick(r, 1, 32);
    p->dv = pick(r, 0, 3) ? p->d : blocks ? 32 * pick(r, 1, 3) : pick(r, 1, 80);
    p->page = pick(r, 0, 3) ? 16 : pick(r, 1, 20);
    p->options.window = pick(r, 0, 2) ? 0 : pick(r, 1, 100);
    p->options.softcap = pick(r, 0, 3) ? 0 : 30;
    p->options.bidirectional = pick(r, 0, 7) == 0;
    make_lengths(r, p);
    make_table(p);
    int64_t keys = p->pool * p->page * p->kv_heads;
    p->q = noise(r, p->first[p->sequences] * p->heads * p->d, pick(r, 0, 3) ? 1 : 60);
    p->k = noise(r, keys * p->d, 1);
    p->v = noise(r, keys * p->dv, 1);
    for (int64_t i = 0; i < p->page * p->kv_heads; i++) /* of page 0 */
        p->k[i * p->d] = p->v[i * p->dv] = NAN;
}

static void free_problem(problem *p)
{
    free(p->table);
    free(p->q);
    free(p->k);
    free(p->v);
}

/* Queries [begin, begin + n[s]) of each sequence, counted from its first in the problem. */
typedef struct {
    int32_t begin[TOGETHER], n[TOGETHER];
} division;

/* An input of f32 that is cast, or of blocks, to which nothing can be cast. */
static wf_value *pool_of(wf_graph *g, const char *name, const problem *p, int64_t width)
{
    const bool blocks = p->kv == WF_Q8_0;
    wf_value *x =
        wf_input(g, name, blocks ? p->kv : WF_F32, 4, D(p->pool, p->page, p->kv_heads, width));
    return blocks ? x : wf_cast(g, x, p->kv);
}

/* Page 0 of blocks becomes NaN: its scales do. */
static void write_pool(wt_run *run, const char *name, const problem *p, const float *x,
                       int64_t width)
{
    const int64_t rows = p->pool * p->page * p->kv_heads;
    if (p->kv != WF_Q8_0) {
        wt_write(run, name, x, (size_t)(rows * width) * sizeof *x);
        return;
    }
    const size_t size = wf_type_bytes(p->kv, rows * width);
    void *blocks = malloc(size);
    wf_quantize(p->kv, x, NULL, blocks, rows, width);
    memset(blocks, 0xff, wf_type_bytes(p->kv, p->page * p->kv_heads * width));
    wt_write(run, name, blocks, size);
    free(blocks);
}

static wf_graph *make_graph(wf_ctx *ctx, const problem *p, int64_t n)
{
    wf_graph *g = wt_graph(ctx);
    const int64_t s = p->sequences;
    wf_value *o = wf_attention_paged(
        g, wf_input(g, "q", WF_F32, 3, D(n, p->heads, p->d)), pool_of(g, "k", p, p->d),
        pool_of(g, "v", p, p->dv), wf_input(g, "start", WF_I32, 1, D(s + 1)),
        wf_input(g, "positions", WF_I32, 1, D(n)), wf_input(g, "table", WF_I32, 2, D(s, p->pages)),
        wf_input(g, "lengths", WF_I32, 1, D(s)), &p->options);
    wf_output(g, "o", o);
    wf_output(g, "lse", wf_value_output(o, 1));
    return g;
}

/* Runs some queries of each sequence; their rows go to o and lse, which have room for all. */
static void attend(wf_ctx *ctx, const char *device, const problem *p, const division *d, float *o,
                   float *lse)
{
    int32_t start[TOGETHER + 1] = {0}, lengths[TOGETHER];
    const size_t row = (size_t)(p->heads * p->d), wide = (size_t)(p->heads * p->dv);
    const size_t heads = (size_t)p->heads;
    for (int64_t s = 0; s < p->sequences; s++)
        start[s + 1] = start[s] + d->n[s];
    const size_t n = (size_t)start[p->sequences];
    int32_t *positions = malloc(n * sizeof *positions);
    float *q = malloc(n * row * sizeof *q), *got = malloc(n * wide * sizeof *got);
    float *sums = malloc(n * heads * sizeof *sums);
    for (int64_t s = 0; s < p->sequences; s++) {
        int32_t before = p->lengths[s] - p->queries[s] + d->begin[s];
        /* Later keys are not written yet, unless a query sees them. */
        lengths[s] = p->options.bidirectional ? p->lengths[s] : before + d->n[s];
        for (int32_t i = 0; i < d->n[s]; i++)
            positions[start[s] + i] = before + i;
        memcpy(q + (size_t)start[s] * row, p->q + (size_t)(p->first[s] + d->begin[s]) * row,
               (size_t)d->n[s] * row * sizeof *q);
    }
    wt_run r = wt_open(ctx, device);
    wt_compile(&r, make_graph(ctx, p, (int64_t)n));
    wt_write(&r, "q", q, n * row * sizeof *q);
    write_pool(&r, "k", p, p->k, p->d);
    write_pool(&r, "v", p, p->v, p->dv);
    wt_write(&r, "start", start, (size_t)(p->sequences + 1) * sizeof *start);
    wt_write(&r, "positions", positions, n * sizeof *positions);
    wt_write(&r, "table", p->table, (size_t)(p->sequences * p->pages) * sizeof *p->table);
    wt_write(&r, "lengths", lengths, (size_t)p->sequences * sizeof *lengths);
    wt_run_once(&r);
    wt_read(&r, "o", got, n * wide * sizeof *got);
    wt_read(&r, "lse", sums, n * heads * sizeof *sums);
    wt_close(&r);
    for (int64_t s = 0; s < p->sequences; s++) {
        size_t to = (size_t)(p->first[s] + d->begin[s]), from = (size_t)start[s];
        memcpy(o + to * wide, got + from * wide, (size_t)d->n[s] * wide * sizeof *o);
        memcpy(lse + to * heads, sums + from * heads, (size_t)d->n[s] * heads * sizeof *lse);
    }
    free(positions);
    free(q);
    free(got);
    free(sums);
}

/* Some queries of every sequence: one each, or any number, so that both attention paths run. */
static division divide(wf_rng *r, const problem *p, const int32_t *done, bool single)
{
    division d = {{0}, {0}};
    for (int64_t s = 0; s < p->sequences; s++) {
        int64_t left = p->queries[s] - done[s];
        d.begin[s] = done[s];
        d.n[s] = (int32_t)(single ? left > 0 : pick(r, left > 0, left));
    }
    return d;
}

/* Runs all queries in divisions, in order. */
static void attend_divided(wf_ctx *ctx, wf_rng *r, const problem *p, bool single, float *o,
                           float *lse)
{
    int32_t done[TOGETHER] = {0};
    for (bool more = true; more;) {
        division d = divide(r, p, done, single);
        attend(ctx, or_named(pick(r, 0, 1) ? "cpu:1" : "cpu:3"), p, &d, o, lse);
        more = false;
        for (int64_t s = 0; s < p->sequences; s++) {
            done[s] += d.n[s];
            more = more || done[s] < p->queries[s];
        }
    }
}

/* A query's bits do not depend on the other queries of its run. */
static void attention_of_any_queries(void **state)
{
    wf_ctx *ctx = *state;
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 1);
    for (int i = 0; i < cases(60); i++) {
        problem p;
        make_problem(&r, &p);
        const size_t n = (size_t)(p.first[p.sequences] * p.heads), wide = n * (size_t)p.dv;
        float *o[2], *lse[2];
        for (int j = 0; j < 2; j++) {
            o[j] = malloc(wide * sizeof **o);
            lse[j] = malloc(n * sizeof **lse);
        }
        division all = {.begin = {0}};
        memcpy(all.n, p.queries, sizeof all.n);
        attend(ctx, or_named("cpu:2"), &p, &all, o[0], lse[0]);
        for (int j = 0; j < 2; j++) {
            attend_divided(ctx, &r, &p, j == 0, o[1], lse[1]);
            if (memcmp(o[0], o[1], wide * sizeof **o) != 0 ||
                memcmp(lse[0], lse[1], n * sizeof **lse) != 0)
                fail_msg("case %d: %lld/%lld heads of %lld and %lld, %s, page %lld, window %lld", i,
                         (long long)p.heads, (long long)p.kv_heads, (long long)p.d, (long long)p.dv,
                         wf_type_name(p.kv), (long long)p.page, (long long)p.options.window);
        }
        for (size_t k = 0; k < wide; k++)
            assert_true(isfinite(o[0][k]));
        for (int j = 0; j < 2; j++) {
            free(o[j]);
            free(lse[j]);
        }
        free_problem(&p);
    }
}

/* ---- Chunks ---- */

/* Logits of a text's tokens. */
typedef struct {
    float *logits;
    size_t from; /* the first token with logits */
} listing;

static wf_status keep(void *user, size_t i, const float *logits, size_t vocab)
{
    const listing *l = user;
    memcpy(l->logits + (i - l->from) * vocab, logits, vocab * sizeof *logits);
    return WF_OK;
}

/* Logits of the tokens from `from` on, by runs of at most `chunk` tokens. The caller frees them. */
static float *chunked(wf_ctx *ctx, const char *path, wf_kv kv, int64_t chunk, const int32_t *ids,
                      size_t count, size_t from)
{
    const wf_engine_options options = {.chunk = chunk, .rows = chunk, .kv = kv};
    wt_talker t = wt_talker_open(ctx, or_named("cpu"), path, &options);
    listing l = {malloc((count - from) * (size_t)t.engine->vocab * sizeof(float)), from};
    wt_ok(ctx, wf_engine_logits(t.engine, ids, count, from, keep, &l));
    wt_talker_close(&t);
    return l.logits;
}

/* Whether the model's heads are whole blocks of the type. */
static bool holds(wf_ctx *ctx, const char *path, wf_kv kv)
{
    if (kv == WF_KV_Q8_0 && named_device()) /* other devices have no kernels for it */
        return false;
    const wf_engine_options options = {.kv = kv};
    wf_model *model;
    int64_t tokens;
    size_t bytes;
    wt_ok(ctx, wf_model_open(ctx, path, &model));
    const bool can = wf_engine_limits(model, &options, &tokens, &bytes) == WF_OK;
    assert_true(can || kv == WF_KV_Q8_0);
    wf_model_close(model);
    return can;
}

/* chunk is for the message; 0: a batch. */
static void expect_equal(const float *got, const float *wanted, int64_t n, const char *path,
                         wf_kv kv, int64_t chunk)
{
    int64_t others = 0;
    double most = 0;
    wf_type type;
    assert_true(wf_kv_type(kv, &type));
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&got[i], &wanted[i], sizeof *got) != 0) {
            others++;
            most = fmax(most, fabs((double)got[i] - wanted[i]));
        }
    if (others > 0)
        fail_msg("%s, keys in %s, %s (chunk %lld): %lld of %lld logits differ, by up to %.2g", path,
                 wf_type_name(type), chunk ? "alone" : "in a batch", (long long)chunk,
                 (long long)others, (long long)n, most);
}

/* How many of n chunk sizes, or whole models, a run takes: an eighth, fewer when sanitized; all with
 * WEFT_ALL_CASES=1 (`make test-long`). The seed chooses them. */
static int some(int n)
{
    return getenv("WEFT_ALL_CASES") ? n : (cases(n) + 7) / 8;
}

/* Logits of all tokens of a random text do not depend on the chunk: sizes to 64 in equal steps or at
 * random, the first of at most 8, for which devices may have other kernels. */
static void chunks_of_small_models(void **state)
{
    wf_ctx *ctx = *state;
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 2);
    for (int m = 0; wt_models[m]; m++)
        for (int k = 0; k < TYPES; k++) {
            wt_reference reference;
            int32_t ids[100];
            size_t count = (size_t)pick(&r, 65, 100);
            if (is_sampled() && pick(&r, 0, 5) > 0) /* one pair in six */
                continue;
            wt_reference_read(wt_models[m], &reference);
            if (!holds(ctx, reference.path, kvs[k])) {
                wt_reference_free(&reference);
                continue;
            }
            fill_ids(&r, ids, count, reference.vocab);
            float *wanted = chunked(ctx, reference.path, kvs[k], 512, ids, count, 0);
            const int64_t step = 64 / some(64);
            for (int64_t chunk = pick(&r, 1, step < 8 ? step : 8), even = pick(&r, 0, 2) == 0;
                 chunk <= 64; chunk += even ? step : pick(&r, 1, 2 * step + 14)) {
                float *got = chunked(ctx, reference.path, kvs[k], chunk, ids, count, 0);
                expect_equal(got, wanted, (int64_t)count * reference.vocab, reference.path, kvs[k],
                             chunk);
                free(got);
            }
            free(wanted);
            wt_reference_free(&reference);
        }
}

/* Matmuls by weights of every type that engines multiply, in any layout. */
static void chunks_of_all_weights(void **state)
{
    wf_ctx *ctx = *state;
    static const char *const weights[] = {"f16",    "bf16",   "q4_0", "q4_1", "q5_0",
                                          "q5_1",   "q8_0",   "q2_K", "q3_K", "q4_K",
                                          "iq4_nl", "iq4_xs", "q5_K", "q6_K"};
    enum { WEIGHTS = sizeof weights / sizeof *weights, COUNT = 70 };
    wt_scratch files;
    wt_reference reference;
    wf_model *model;
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 7);
    wt_scratch_make(&files);
    wt_reference_read("llama", &reference);
    wt_ok(ctx, wf_model_open(ctx, reference.path, &model));
    for (int64_t i = pick(&r, 0, WEIGHTS / cases(WEIGHTS) - 1); i < WEIGHTS;
         i += WEIGHTS / cases(WEIGHTS)) {
        const wf_convert_options options = {.type = weights[i], .pure = true};
        char name[32];
        int32_t ids[COUNT];
        snprintf(name, sizeof name, "%s.gguf", weights[i]);
        const char *path = wt_path(&files, name);
        wt_ok(ctx, wf_model_convert(model, ctx, path, &options));
        fill_ids(&r, ids, COUNT, reference.vocab);
        float *wanted = chunked(ctx, path, WF_KV_F32, 512, ids, COUNT, 0);
        for (int64_t chunk = is_sampled() ? pick(&r, 1, 8) : 1; chunk <= 64;
             chunk += pick(&r, 1, is_sampled() ? 64 : 16)) {
            float *got = chunked(ctx, path, WF_KV_F32, chunk, ids, COUNT, 0);
            expect_equal(got, wanted, COUNT * reference.vocab, path, WF_KV_F32, chunk);
            free(got);
        }
        free(wanted);
    }
    wf_model_close(model);
    wt_reference_free(&reference);
    wt_scratch_remove(&files);
}

/* Returns NULL, with a message, when the model was not fetched. */
static const char *real_model(void)
{
    const char *path = getenv("WEFT_TEST_SMOLLM2");
    if (path && access(path, R_OK) == 0)
        return path;
    print_message("skipped: SmolLM2 is not here (tools/fetch_models.sh brings it)\n");
    return NULL;
}

enum { VOCAB = 49152 }; /* of SmolLM2 */

/* The last token's logits depend on the keys and values of all tokens in all layers, so they stand
 * for all logits: these are computed for some chunks only. */
static void chunks_of_a_real_model(void **state)
{
    wf_ctx *ctx = *state;
    const char *path = real_model();
    enum { COUNT = 60 };
    int32_t ids[COUNT];
    wf_rng r;
    if (!path)
        skip();
    wf_rng_init(&r, wt_seed(), 3);
    fill_ids(&r, ids, COUNT, VOCAB);
    for (int k = 0; k < TYPES; k++) {
        float *wanted = chunked(ctx, path, kvs[k], 512, ids, COUNT, 0);
        const int64_t step = 64 / some(64);
        for (int64_t chunk = pick(&r, 1, step); chunk <= 64;
             chunk += k == 0 ? step : pick(&r, 1, 8 * step)) {
            size_t from = chunk == 7 || chunk == 40 ? 0 : COUNT - 1;
            float *got = chunked(ctx, path, kvs[k], chunk, ids, COUNT, from);
            expect_equal(got, wanted + from * VOCAB, (int64_t)(COUNT - from) * VOCAB, path, kvs[k],
                         chunk);
            free(got);
        }
        free(wanted);
    }
}

/* Depths beyond a chunk of keys of decode attention. */
static void depths_of_a_real_model(void **state)
{
    wf_ctx *ctx = *state;
    const char *path = real_model();
    enum { COUNT = 600 };
    static const int64_t chunks[] = {5, 33, 130};
    int32_t ids[COUNT];
    wf_rng r;
    if (!path)
        skip();
    wf_rng_init(&r, wt_seed(), 4);
    fill_ids(&r, ids, COUNT, VOCAB);
    const wf_kv kv = pick(&r, 0, 1) ? WF_KV_F32 : WF_KV_Q8_0;
    float *wanted = chunked(ctx, path, kv, 512, ids, COUNT, COUNT - 1);
    for (int i = 0; i < some(3); i++) {
        float *got = chunked(ctx, path, kv, chunks[i], ids, COUNT, COUNT - 1);
        expect_equal(got, wanted, VOCAB, path, kv, chunks[i]);
        free(got);
    }
    free(wanted);
}

/* ---- Batches ---- */

/* A sequence of a batch, and the logits that chose its tokens. */
typedef struct {
    wf_sequence *sequence;
    float *logits; /* [most][vocab], for the token of this index */
    size_t count;  /* tokens so far */
    size_t prompt;
} member;

/* Begins a text; after another one, with a prefix of its tokens. */
static void begin(wf_ctx *ctx, wf_engine *e, wf_rng *r, member *m, size_t most)
{
    int32_t ids[128];
    const wf_request request = {.limit = pick(r, 1, 12),
                                .ignore_end = true,
                                .sampling = {.temperature = 1, .seed = wf_rng_u32(r)}};
    m->prompt = m->count = (size_t)pick(r, 1, (int64_t)most - 12);
    fill_ids(r, ids, m->count, e->vocab);
    if (m->sequence) {
        size_t total;
        const int32_t *old = wf_sequence_tokens(m->sequence, &total, NULL);
        total = total < m->count ? total : m->count;
        memcpy(ids, old, (size_t)pick(r, 0, (int64_t)total) * sizeof *ids);
        wf_sequence_free(m->sequence);
    }
    wt_ok(ctx, wf_engine_submit(e, ids, m->count, &request, &m->sequence));
}

/* Keeps the logits of the tokens that the last step chose. */
static void note(const wf_engine *e, member *m)
{
    size_t total, before;
    wf_sequence_tokens(m->sequence, &total, &before);
    if (total == m->count)
        return;
    assert_int_equal(total, m->count + 1);
    memcpy(m->logits + (total - 2) * (size_t)e->vocab, e->logits + m->sequence->row * e->vocab,
           (size_t)e->vocab * sizeof(float));
    m->count = total;
}

/* Computes a finished text alone, in one run, and compares. */
static void compare_alone(wf_ctx *ctx, wf_engine *alone, const char *path, wf_kv kv,
                          const member *m)
{
    size_t total, before;
    const size_t vocab = (size_t)alone->vocab;
    const int32_t *ids = wf_sequence_tokens(m->sequence, &total, &before);
    float *wanted = wt_logits(ctx, alone, ids, total, alone->vocab);
    expect_equal(m->logits + (m->prompt - 1) * vocab, wanted + (m->prompt - 1) * vocab,
                 (int64_t)((total - m->prompt) * vocab), path, kv, 0);
    free(wanted);
}

/* Sequences that begin and end at different times, of up to `most` tokens in all. Half of the engines
 * have pools for few of them, so that sequences wait and are preempted, and pages are evicted. */
static void batch_of(wf_ctx *ctx, wf_rng *r, const char *path, size_t most, int texts)
{
    enum { CONTEXT = 128 };
    const wf_kv any = kvs[pick(r, 0, TYPES - 1)];
    const wf_kv kv = holds(ctx, path, any) ? any : WF_KV_F32;
    const wf_engine_options together = {.sequences = TOGETHER,
                                        .chunk = pick(r, 1, 80),
                                        .step_ms = 1e6, /* time changes no steps */
                                        .kv = kv,
                                        .context = CONTEXT,
                                        .cache = pick(r, 0, 1) ? 0 : pick(r, CONTEXT, 2 * CONTEXT)};
    const wf_engine_options single = {.kv = kv, .context = CONTEXT};
    wt_talker t = wt_talker_open(ctx, or_named("cpu"), path, &together);
    wt_talker alone = wt_talker_open(ctx, or_named("cpu"), path, &single);
    member all[TOGETHER] = {{.sequence = NULL}};
    int active = 0;
    for (int i = 0; i < TOGETHER; i++)
        all[i].logits = malloc(most * (size_t)t.engine->vocab * sizeof(float));
    while (texts > 0 || active > 0) {
        for (int i = 0; i < TOGETHER; i++)
            if (!all[i].sequence && texts > 0 && pick(r, 0, 2) == 0) {
                begin(ctx, t.engine, r, &all[i], most);
                texts--;
                active++;
            }
        wt_ok(ctx, wf_engine_step(t.engine, NULL));
        for (int i = 0; i < TOGETHER; i++) {
            if (!all[i].sequence)
                continue;
            note(t.engine, &all[i]);
            if (wf_sequence_stop(all[i].sequence) == WF_UNFINISHED)
                continue;
            compare_alone(ctx, alone.engine, path, kv, &all[i]);
            if (texts > 0 && pick(r, 0, 1)) {
                begin(ctx, t.engine, r, &all[i], most);
                texts--;
                continue;
            }
            wf_sequence_free(all[i].sequence);
            all[i].sequence = NULL;
            active--;
        }
    }
    for (int i = 0; i < TOGETHER; i++)
        free(all[i].logits);
    wt_talker_close(&alone);
    wt_talker_close(&t);
}

static void batches_of_small_models(void **state)
{
    wf_rng r;
    wf_rng_init(&r, wt_seed(), 5);
    for (int i = 0; i < cases(40); i++) {
        wt_reference reference;
        int models = 0;
        while (wt_models[models])
            models++;
        wt_reference_read(wt_models[pick(&r, 0, models - 1)], &reference);
        batch_of(*state, &r, reference.path, 100, 8);
        wt_reference_free(&reference);
    }
}

static void batches_of_a_real_model(void **state)
{
    const char *path = real_model();
    wf_rng r;
    if (!path)
        skip();
    wf_rng_init(&r, wt_seed(), 6);
    for (int i = 0; i < some(2); i++)
        batch_of(*state, &r, path, 80, 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        wt_test(attention_of_any_queries), wt_test(chunks_of_small_models),
        wt_test(chunks_of_all_weights),    wt_test(chunks_of_a_real_model),
        wt_test(depths_of_a_real_model),   wt_test(batches_of_small_models),
        wt_test(batches_of_a_real_model),
    };
    const struct CMUnitTest small[] = {
        wt_test(attention_of_any_queries),
        wt_test(chunks_of_small_models),
        wt_test(chunks_of_all_weights),
        wt_test(batches_of_small_models),
    };
    return named_device() || is_sampled() ? cmocka_run_group_tests(small, NULL, NULL)
                                          : cmocka_run_group_tests(tests, NULL, NULL);
}
