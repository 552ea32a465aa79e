/* SPDX-License-Identifier: MIT */
/*
 * generator.c - creates, plans and frees generators, and computes logits of whole texts.
 *
 * A generator compiles one executable per bucket size in one session, so that all of them share the
 * weights and the page pool.
 */
#include "infer/generator.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "device/device.h"

#define DEFAULT_CONTEXT 4096 /* tokens; a longer one reserves more memory for the KV cache */
#define DEFAULT_CHUNK 512    /* tokens of a prompt per run */
#define EVERY_TOKENS \
    32 /* tokens of a run that returns all logits: limits the size of every_logits */

/* ---- Options ---- */

/* Returns the size of the largest bucket: a prefill chunk, and at least one token per sequence. */
static int64_t most_tokens(const wf_generator *g)
{
    int64_t most = g->chunk < g->context * g->sequences ? g->chunk : g->context * g->sequences;
    return most < g->sequences ? g->sequences : most;
}

static int64_t pages_each(const wf_generator *g)
{
    return (g->context - 1) / WF_PAGE_TOKENS + 1;
}

/* A pool has the pages that all sequences together can hold. */
static void choose_pools(wf_generator *g)
{
    wf_config_caches(&g->model->config, &g->caches);
    g->longest = most_tokens(g) < g->context ? most_tokens(g) : g->context;
    for (int i = 0; i < g->caches.count; i++) {
        int64_t most =
            wf_cache_most_pages(&g->caches.cache[i], WF_PAGE_TOKENS, pages_each(g), g->longest);
        g->size[i] = (wf_cache_size){
            .page = WF_PAGE_TOKENS, .pages = pages_each(g), .pool = g->sequences * most};
    }
}

/* Fills in the defaults and checks every option. */
static wf_status choose(wf_generator *g, const wf_generator_options *o)
{
    const wf_config *c = &g->model->config;
    g->context = o->context;
    if (g->context == 0)
        g->context = c->context < DEFAULT_CONTEXT ? c->context : DEFAULT_CONTEXT;
    g->sequences = o->sequences ? o->sequences : 1;
    g->chunk = o->chunk ? o->chunk : DEFAULT_CHUNK;
    g->kv = o->kv ? o->kv : WF_F32;
    g->vocab = c->vocab;
    if (g->context < 1 || g->context > c->context)
        return wf_fail(g->ctx, WF_ERR_USAGE,
                       "context %lld is outside this model's range of 1 to %lld tokens (%s); "
                       "choose a context within it",
                       (long long)g->context, (long long)c->context, WF_SHOWN(g->model->info.name));
    if (g->sequences < 1 || g->sequences > 4096)
        return wf_fail(g->ctx, WF_ERR_USAGE, "sequences is %lld, but must be from 1 to 4096",
                       (long long)g->sequences);
    if (g->chunk < 1 || g->chunk > 65536)
        return wf_fail(g->ctx, WF_ERR_USAGE, "chunk is %lld tokens, but must be from 1 to 65536",
                       (long long)g->chunk);
    if (wf_type_get(g->kv)->kind != WF_KIND_FLOAT)
        return wf_fail(g->ctx, WF_ERR_USAGE,
                       "keys and values cannot be stored as %s; use f32, f16 or bf16",
                       wf_type_name(g->kv));
    if (pages_each(g) * g->sequences >
        INT32_MAX / WF_PAGE_TOKENS) /* token slots have i32 indices */
        return wf_fail(g->ctx, WF_ERR_USAGE,
                       "%lld sequences of %lld tokens exceed the limit of 2^31 cached tokens; "
                       "use fewer sequences or a smaller context",
                       (long long)g->sequences, (long long)g->context);
    choose_pools(g);
    return WF_OK;
}

/* ---- Executables ---- */

/* Builds the graph of one run. rows: how many tokens get logits; 0: all of them. */
static wf_status build(wf_generator *g, int64_t tokens, int64_t rows, wf_graph *graph)
{
    wf_build_options options = {
        .form = WF_FORM_STEP,
        .tokens = tokens,
        .sequences = g->sequences,
        .rows = rows,
        .kv = g->kv,
        .given_frequencies = true,
        .type = wf_model_weight_type,
        .user = (void *)(uintptr_t)g->model, /* only read */
        .adapt = g->adapters.count > 0 ? wf_adapters_apply : NULL,
        .adapt_user = &g->adapters,
    };
    memcpy(options.cache, g->size, sizeof g->size);
    wf_value *logits = wf_model_graph(graph, &g->model->config, &options, NULL);
    WF_TRY(wf_output(graph, "logits", logits));
    if (!rows)
        return WF_OK;
    /* Greedy sequences read back only the argmax and the largest logit, not all logits. The maximum
     * is NaN when any logit is NaN, which take_token checks. */
    wf_value *named = logits;
    if (g->mask.limit < g->vocab) /* exclude rows that pad the vocabulary */
        named = wf_slice(graph, logits, 1, 0, g->mask.limit);
    WF_TRY(wf_output(graph, "best", wf_argmax(graph, named, 1)));
    return wf_output(graph, "top", wf_reduce(graph, "max", logits, WF_AXIS(1), false));
}

/* Compiles one run; all executables share the session's states and region. */
static wf_status compile(wf_generator *g, int64_t tokens, int64_t rows, wf_exec **out)
{
    wf_graph *graph;
    WF_TRY(wf_graph_new(g->ctx, &graph));
    wf_status status = build(g, tokens, rows, graph);
    if (status == WF_OK)
        status = wf_compile(g->session, graph, out);
    wf_graph_free(graph);
    return status;
}

/* Bucket sizes: one token per sequence, then x4 up to a full prefill chunk. */
static wf_status compile_buckets(wf_generator *g)
{
    int64_t sizes[WF_MAX_BUCKETS] = {most_tokens(g)};
    int n = 1;
    while (n < WF_MAX_BUCKETS - 1 && sizes[n - 1] / 4 > g->sequences) {
        sizes[n] = sizes[n - 1] / 4;
        n++;
    }
    if (sizes[n - 1] > g->sequences)
        sizes[n++] = g->sequences;
    while (n >
           0) { /* smallest first; counted one by one, so that a failure frees those that exist */
        wf_bucket *b = &g->bucket[g->buckets];
        b->tokens = sizes[--n];
        WF_TRY(compile(g, b->tokens, g->sequences, &b->exec));
        g->buckets++;
    }
    return WF_OK;
}

/* Allocates the host arrays for the largest bucket. Runs allocate nothing. */
static wf_status allocate(wf_generator *g)
{
    size_t s = (size_t)g->sequences;
    int64_t most = g->bucket[g->buckets - 1].tokens;
    size_t tokens = (size_t)(most > EVERY_TOKENS ? most : EVERY_TOKENS);
    g->slot = wf_mem_array(g->ctx, s, sizeof(wf_sequence *));
    g->tokens = wf_mem_array(g->ctx, tokens, sizeof *g->tokens);
    g->positions = wf_mem_array(g->ctx, tokens, sizeof *g->positions);
    g->seq_start = wf_mem_array(g->ctx, s + 1, sizeof *g->seq_start);
    g->lengths = wf_mem_array(g->ctx, s, sizeof *g->lengths);
    g->rows = wf_mem_array(g->ctx, s, sizeof *g->rows);
    g->best = wf_mem_array(g->ctx, s, sizeof *g->best);
    g->top = wf_mem_array(g->ctx, s, sizeof *g->top);
    g->logits = wf_mem_array(g->ctx, s * (size_t)g->vocab, sizeof *g->logits);
    bool made = true;
    for (int i = 0; i < g->caches.count; i++) {
        g->table[i] = wf_mem_array(g->ctx, s * (size_t)g->size[i].pages, sizeof *g->table[i]);
        made = made && g->table[i];
    }
    if (!made || !g->slot || !g->tokens || !g->positions || !g->seq_start || !g->lengths ||
        !g->rows || !g->best || !g->top || !g->logits)
        return WF_ERR_MEMORY;
    return wf_sampler_scratch_new(g->ctx, g->vocab, &g->scratch);
}

/* Order matters: weights are mapped before compiling, because that decides kernels, and written
 * after it, when their states exist. */
static wf_status prepare(wf_generator *g, wf_device *device, const wf_generator_options *o)
{
    WF_TRY(choose(g, o));
    WF_TRY(wf_mask_make(g->ctx, wf_model_tokenizer(g->model), g->vocab, &g->mask));
    WF_TRY(wf_adapters_open(g->ctx, o->lora, o->loras, &g->model->config, &g->adapters));
    WF_TRY(wf_session_new(device, &g->session));
    for (int i = 0; i < g->caches.count; i++)
        WF_TRY(wf_pages_init(&g->pages[i], g->ctx, g->size[i].pool));
    if (o->check)
        WF_TRY(wf_generator_check_weights(g));
    WF_TRY(wf_generator_map_weights(g));
    WF_TRY(compile_buckets(g));
    WF_TRY(wf_generator_write_weights(g));
    return allocate(g);
}

wf_status wf_generator_new(wf_device *device, const wf_model *model,
                           const wf_generator_options *options, wf_generator **out)
{
    const wf_generator_options defaults = {0};
    *out = NULL;
    WF_TRY(wf_device_check_ctx(device, model->ctx, "the model"));
    wf_generator *g = wf_mem_new(model->ctx, sizeof *g);
    if (!g)
        return WF_ERR_MEMORY;
    g->ctx = model->ctx;
    g->model = model;
    wf_status status = prepare(g, device, options ? options : &defaults);
    if (status == WF_OK)
        *out = g;
    else
        wf_generator_free(g);
    return status;
}

void wf_generator_free(wf_generator *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->buckets; i++)
        wf_exec_free(g->bucket[i].exec);
    wf_exec_free(g->every);
    wf_session_free(g->session);
    wf_adapters_close(&g->adapters);
    for (int i = 0; i < g->caches.count; i++) {
        wf_pages_free(&g->pages[i]);
        wf_mem_free(g->ctx, g->table[i]);
    }
    void *arrays[] = {g->slot, g->tokens, g->positions, g->seq_start, g->lengths,
                      g->rows, g->best,   g->top,       g->logits,    g->every_logits};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        wf_mem_free(g->ctx, arrays[i]);
    wf_sampler_scratch_free(g->scratch);
    wf_mask_free(g->ctx, &g->mask);
    wf_mem_free(g->ctx, g);
}

void wf_generator_get_stats(const wf_generator *g, wf_generator_stats *out)
{
    *out = g->stats;
    for (int i = 0; i < g->caches.count; i++) {
        out->pages += g->pages[i].count;
        out->pages_used += wf_pages_used(&g->pages[i]);
    }
    out->packing_nanoseconds = g->session->packing_ns;
    for (int i = 0; i < g->buckets; i++) {
        wf_run_stats run;
        wf_exec_stats(g->bucket[i].exec, &run);
        out->bytes_in += run.bytes_in;
        out->bytes_out += run.bytes_out;
    }
}

void wf_generator_memory(const wf_generator *g, wf_memory *out)
{
    wf_exec_memory(g->bucket[g->buckets - 1].exec, out);
    for (int i = 0; i + 1 < g->buckets; i++) {
        wf_memory other;
        wf_exec_memory(g->bucket[i].exec, &other);
        out->ports += other.ports;
    }
    if (g->every) {
        wf_memory other;
        wf_exec_memory(g->every, &other);
        out->ports += other.ports;
    }
}

/* Plans the largest bucket in a session without buffers; allocates nothing on the device. */
static wf_status plan(wf_generator *g, wf_device *device, const wf_generator_options *o,
                      wf_memory *out)
{
    size_t mapped;
    wf_graph *graph;
    WF_TRY(choose(g, o));
    WF_TRY(wf_mask_make(g->ctx, wf_model_tokenizer(g->model), g->vocab, &g->mask));
    WF_TRY(wf_adapters_open(g->ctx, o->lora, o->loras, &g->model->config, &g->adapters));
    WF_TRY(wf_session_new(device, &g->session));
    WF_TRY(wf_generator_plan_weights(g->session, g->model, &mapped));
    WF_TRY(wf_graph_new(g->ctx, &graph));
    wf_status status = build(g, most_tokens(g), g->sequences, graph);
    if (status == WF_OK)
        status = wf_session_plan(g->session, graph, NULL, out);
    wf_graph_free(graph);
    out->mapped = mapped;
    out->states -= mapped;
    return status;
}

wf_status wf_generator_plan(wf_device *device, const wf_model *model,
                            const wf_generator_options *options, wf_memory *out)
{
    const wf_generator_options defaults = {0};
    wf_generator g = {.ctx = model->ctx, .model = model};
    *out = (wf_memory){0};
    WF_TRY(wf_device_check_ctx(device, model->ctx, "the model"));
    wf_status status = plan(&g, device, options ? options : &defaults, out);
    wf_session_free(g.session);
    wf_adapters_close(&g.adapters);
    wf_mask_free(g.ctx, &g.mask);
    return status;
}

wf_status wf_generator_kv_bytes(const wf_model *model, const wf_generator_options *options,
                                size_t *out)
{
    wf_generator g = {.ctx = model->ctx, .model = model};
    *out = 0;
    WF_TRY(choose(&g, options));
    *out = wf_config_cache_bytes(&model->config, &g.caches, g.size, g.kv);
    return WF_OK;
}

/* ---- Logits of every token of a text ---- */

/* Runs the next n tokens of this sequence, and of no other. rows: see wf_generator_launch. */
static wf_status run_alone(wf_sequence *s, int64_t n, wf_exec *exec, int64_t tokens, bool rows)
{
    wf_generator *g = s->generator;
    const int64_t at = s->cached;
    WF_TRY(wf_sequence_reserve(s, n));
    for (int64_t i = 0; i < n; i++) {
        g->tokens[i] = s->token[at + i];
        g->positions[i] = (int32_t)(at + i);
    }
    for (int64_t i = 0; i <= g->sequences; i++)
        g->seq_start[i] = (int32_t)(i > s->slot ? n : 0);
    for (int64_t i = 0; i < g->sequences; i++) {
        g->lengths[i] = (int32_t)(i == s->slot ? at + n : 0);
        g->rows[i] = 0;
    }
    WF_TRY(wf_generator_launch(g, exec, tokens, n, rows));
    s->cached += n;
    return WF_OK;
}

/* Computes the tokens before `end` in the fewest runs, without reading their logits. */
static wf_status run_silent(wf_sequence *s, int64_t end)
{
    const wf_generator *g = s->generator;
    while (s->cached < end) {
        const wf_bucket *b = g->bucket, *last = &g->bucket[g->buckets - 1];
        while (b < last && b->tokens < end - s->cached)
            b++;
        int64_t n = end - s->cached < b->tokens ? end - s->cached : b->tokens;
        WF_TRY(run_alone(s, n, b->exec, b->tokens, true));
    }
    return WF_OK;
}

/* Calls fn with the logits of each remaining token, in order. */
static wf_status each_logits(wf_sequence *s, wf_logits_fn *fn, void *user)
{
    wf_generator *g = s->generator;
    while (s->cached < s->count) {
        int64_t at = s->cached, left = s->count - at;
        int64_t most = g->longest < EVERY_TOKENS ? g->longest : EVERY_TOKENS;
        int64_t n = left < most ? left : most;
        WF_TRY(run_alone(s, n, g->every, EVERY_TOKENS, false));
        WF_TRY(wf_exec_read(g->every, "logits", g->every_logits,
                            (size_t)(EVERY_TOKENS * g->vocab) * sizeof *g->every_logits));
        for (int64_t i = 0; i < n; i++)
            WF_TRY(fn(user, (size_t)(at + i), g->every_logits + i * g->vocab, (size_t)g->vocab));
    }
    return WF_OK;
}

/* Compiles the executable with all logits at first use: most generators never need it. */
static wf_status prepare_every(wf_generator *g)
{
    if (!g->every)
        WF_TRY(compile(g, EVERY_TOKENS, 0, &g->every));
    if (!g->every_logits)
        g->every_logits =
            wf_mem_array(g->ctx, (size_t)(EVERY_TOKENS * g->vocab), sizeof *g->every_logits);
    return g->every_logits ? WF_OK : WF_ERR_MEMORY;
}

wf_status wf_sequence_logits(wf_sequence *s, const int32_t *ids, size_t count, size_t from,
                             wf_logits_fn *fn, void *user)
{
    WF_TRY(wf_sequence_restart(s, ids, count, NULL));
    s->stop = WF_STOP_CANCEL;
    WF_TRY(prepare_every(s->generator));
    int64_t first = from < count ? (int64_t)from : s->count;
    if (s->cached > first) /* cached tokens have no logits: compute them again */
        wf_sequence_rewind(s, first);
    WF_TRY(run_silent(s, first));
    return each_logits(s, fn, user);
}

wf_status wf_generator_logits(wf_generator *g, const int32_t *ids, size_t count, wf_logits_fn *fn,
                              void *user)
{
    wf_sequence *s;
    if (count == 0)
        return WF_OK;
    WF_TRY(wf_sequence_new(g, ids, count, NULL, &s));
    wf_status status = wf_sequence_logits(s, ids, count, 0, fn, user);
    wf_sequence_free(s);
    return status;
}
