/* SPDX-License-Identifier: MIT */
/*
 * engine.c - creates, plans and frees engines.
 *
 * An engine has its own session for a model from files. For a model in training it adds its page
 * pools and executables to the trainer's session, and so uses the weights as they are.
 */
#include "infer/engine.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/thread.h"
#include "device/device.h"
#include "infer/load.h"

#define DEFAULT_CONTEXT 4096 /* tokens; a longer one reserves more memory for the KV cache */
#define DEFAULT_CHUNK 512    /* tokens per step */
#define DEFAULT_STEP_MS 100
#define MOST_SEQUENCES 4096
#define MOST_CHUNK 65536 /* tokens */
/* Pages per sequence and window cache that may keep what was just returned, so that the next prompt
 * of a conversation finds the window before its new part. */
#define WINDOW_SLACK 2
/* Nodes of sequences without pages, of 120 bytes each, unless one context needs more. */
#define MOST_NODES (1 << 20)
/* Most events per running sequence in one step: a sequence may start, be preempted, and leave its place
 * to another one that starts, has a token and ends. */
#define EVENTS_EACH 6

/* ---- Options ---- */

int64_t wf_engine_most_tokens(const wf_engine *e)
{
    int64_t most = e->chunk < e->limit * e->sequences ? e->chunk : e->limit * e->sequences;
    return most < e->sequences ? e->sequences : most;
}

int64_t wf_engine_whole_cache(int64_t sequences, int64_t context)
{
    return sequences * wf_pages_for(context) * WF_PAGE_TOKENS;
}

/* Pools of whole contexts hold `cache` tokens. Those of windows hold the windows of all sequences,
 * if that is less. */
static void choose_pools(wf_engine *e, int64_t cache)
{
    const int64_t whole = wf_pages_for(cache);
    wf_config_caches(e->source.config, &e->caches);
    for (int i = 0; i < e->caches.count; i++)
        if (wf_cache_keeps(&e->caches.cache[i]) && whole * WF_PAGE_TOKENS < e->limit)
            e->limit = whole * WF_PAGE_TOKENS;
    const int64_t each = wf_pages_for(e->limit), tokens = wf_engine_most_tokens(e);
    e->longest = tokens < e->limit ? tokens : e->limit;
    for (int i = 0; i < e->caches.count; i++) {
        const wf_cache *cache_i = &e->caches.cache[i];
        int64_t pool = whole;
        if (!wf_cache_keeps(cache_i)) {
            int64_t one =
                wf_cache_most_pages(cache_i, WF_PAGE_TOKENS, each, e->longest) + WINDOW_SLACK;
            pool = e->sequences * one < whole ? e->sequences * one : whole;
            pool = pool > one ? pool : one;
        }
        e->size[i] = (wf_cache_size){.page = WF_PAGE_TOKENS, .pages = each, .pool = pool};
    }
}

static wf_status check_range(wf_ctx *ctx, const char *name, int64_t value, int64_t most)
{
    if (value < 1 || value > most)
        return wf_fail(ctx, WF_ERR_USAGE, "%s is %lld; use 1 to %lld", name, (long long)value,
                       (long long)most);
    return WF_OK;
}

bool wf_kv_type(wf_kv kv, wf_type *out)
{
    static const wf_type types[] = {WF_F16, WF_BF16, WF_F32, WF_Q8_0};
    if ((unsigned)kv >= sizeof types / sizeof *types)
        return false;
    *out = types[kv];
    return true;
}

static wf_status choose_kv(wf_engine *e, wf_kv kv)
{
    if (!wf_kv_type(kv, &e->kv))
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "kv is %d; use WF_KV_F16, WF_KV_BF16, WF_KV_F32 or WF_KV_Q8_0", (int)kv);
    const wf_type_info *type = wf_type_get(e->kv);
    for (int64_t i = 0; i < e->source.config->layers; i++) {
        const wf_layer *l = wf_config_layer(e->source.config, i);
        int64_t odd = l->key_dim % type->block ? l->key_dim : l->value_dim;
        if (odd % type->block)
            return wf_fail(e->ctx, WF_ERR_USAGE,
                           "keys and values of %lld elements per head cannot be stored as %s, "
                           "which needs a multiple of %d; use f16",
                           (long long)odd, wf_type_name(e->kv), type->block);
    }
    return WF_OK;
}

/* Fills in the defaults and checks every option. */
static wf_status choose(wf_engine *e, const wf_engine_options *o)
{
    const wf_config *c = e->source.config;
    e->context = o->context                     ? o->context
                 : c->context < DEFAULT_CONTEXT ? c->context
                                                : DEFAULT_CONTEXT;
    e->sequences = o->sequences ? o->sequences : 1;
    e->chunk = o->chunk ? o->chunk : DEFAULT_CHUNK;
    e->rows = o->rows ? o->rows : e->sequences;
    e->step_ms = o->step_ms != 0 ? o->step_ms : DEFAULT_STEP_MS;
    e->reuse = !o->no_reuse;
    WF_TRY(choose_kv(e, o->kv));
    e->rounds = o->compute != WF_F32;
    if (o->compute != WF_TYPE_NONE && o->compute != WF_F32)
        return wf_fail(e->ctx, WF_ERR_USAGE, "compute is %s; use WF_F32 or 0",
                       wf_type_name(o->compute));
    e->vocab = c->vocab;
    if (e->context < 1 || e->context > c->context)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "context %lld is outside this model's range of 1 to %lld tokens; choose a "
                       "context within it",
                       (long long)e->context, (long long)c->context);
    WF_TRY(check_range(e->ctx, "sequences", e->sequences, MOST_SEQUENCES));
    WF_TRY(check_range(e->ctx, "chunk", e->chunk, MOST_CHUNK));
    WF_TRY(check_range(e->ctx, "rows", e->rows, MOST_CHUNK));
    if (!(e->step_ms > 0 && e->step_ms <= 1e9))
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "step_ms is %g, but must be more than 0 and at most 1e9", e->step_ms);
    int64_t cache = o->cache ? o->cache : wf_engine_whole_cache(e->sequences, e->context);
    if (cache < 1 || cache > WF_MOST_CACHE_TOKENS)
        return wf_fail(e->ctx, WF_ERR_USAGE,
                       "a cache of %lld tokens is outside the range of 1 to %d; use fewer "
                       "sequences or a smaller context",
                       (long long)cache, WF_MOST_CACHE_TOKENS);
    e->limit = e->context;
    choose_pools(e, cache);
    int64_t most = wf_engine_most_tokens(e);
    e->rows = e->rows > e->sequences ? e->rows : e->sequences;
    e->rows = e->rows < most ? e->rows : most;
    e->fresh_room = most / WF_PAGE_TOKENS + e->sequences;
    return WF_OK;
}

/* ---- Creation ---- */

/* Allocates the host arrays for the largest run. Runs allocate nothing. */
static wf_status allocate(wf_engine *e)
{
    const size_t s = (size_t)e->sequences, r = (size_t)e->rows;
    const size_t tokens = (size_t)wf_bucket_largest(e).tokens, pages = (size_t)e->size[0].pages;
    struct {
        void *array; /* address of the pointer */
        size_t count, size;
    } arrays[] = {
        {&e->running, s, sizeof *e->running},
        {&e->batch, s, sizeof *e->batch},
        {&e->tokens, tokens, sizeof *e->tokens},
        {&e->positions, tokens, sizeof *e->positions},
        {&e->seq_start, s + 1, sizeof *e->seq_start},
        {&e->lengths, s, sizeof *e->lengths},
        {&e->row, r, sizeof *e->row},
        {&e->fresh, (size_t)e->fresh_room, sizeof *e->fresh},
        {&e->match, pages, sizeof *e->match},
        {&e->best, r, sizeof *e->best},
        {&e->top, r, sizeof *e->top},
        {&e->logits, r * (size_t)e->vocab, sizeof *e->logits},
        {&e->job, r, sizeof *e->job},
        {&e->event, EVENTS_EACH * s, sizeof *e->event},
    };
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        void *made = wf_mem_array(e->ctx, arrays[i].count, arrays[i].size);
        if (!made)
            return WF_ERR_MEMORY;
        memcpy(arrays[i].array, &made, sizeof made);
    }
    for (int i = 0; i < e->caches.count; i++) {
        e->table[i] = wf_mem_array(e->ctx, s * pages, sizeof *e->table[i]);
        if (!e->table[i])
            return WF_ERR_MEMORY;
    }
    const int threads = e->session->device->threads; /* 0: the device computes without the host's */
    return wf_sample_rows_new(e->ctx, e->vocab, threads > 0 ? threads : wf_threads_available(),
                              &e->sampling);
}

static void release(wf_engine *e)
{
    void *arrays[] = {e->running, e->batch,  e->tokens, e->positions, e->seq_start,
                      e->lengths, e->row,    e->fresh,  e->match,     e->best,
                      e->top,     e->logits, e->job,    e->event,     e->bucket};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        wf_mem_free(e->ctx, arrays[i]);
    wf_sample_rows_free(e->sampling);
    wf_prefix_free(e->prefix);
    for (int i = 0; i < e->caches.count; i++) {
        wf_pages_free(&e->pages[i]);
        wf_mem_free(e->ctx, e->table[i]);
    }
    wf_waitlist_free(&e->waitlist);
    wf_mask_free(e->ctx, &e->mask);
}

/* Checks the options of an engine for `source`, and makes what planning needs, too. */
static wf_status begin(wf_engine *e, const wf_engine_source *source, const wf_engine_options *o)
{
    e->source = *source;
    e->ctx = source->ctx;
    WF_TRY(choose(e, o));
    return wf_mask_make(e->ctx, source->tokenizer, e->vocab, &e->mask);
}

/* With windows in all layers, a long sequence has more pages than the pools: their nodes remain, so
 * that those of its last pages are found. */
static wf_status make_prefix(wf_engine *e)
{
    int64_t more = 0;
    if (!wf_cache_keeps(&e->caches.cache[0])) {
        more = e->sequences * e->size[0].pages;
        more = more < MOST_NODES ? more : MOST_NODES;
        more = more > e->size[0].pages ? more : e->size[0].pages;
    }
    return wf_prefix_new(e->ctx, &e->caches, e->pages, more, &e->prefix);
}

static wf_status make_pages(wf_engine *e)
{
    wf_waitlist_init(&e->waitlist, e->ctx);
    for (int i = 0; i < e->caches.count; i++)
        WF_TRY(wf_pages_init(&e->pages[i], e->ctx, e->size[i].pool));
    return e->reuse ? make_prefix(e) : WF_OK;
}

/* Compiles the largest run, so that all memory of the device is allocated now. */
static wf_status compile_largest(wf_engine *e)
{
    const wf_bucket most = wf_bucket_largest(e), *b;
    wf_session_share_ports(e->session);
    return wf_bucket_find(e, most.tokens, most.sequences, most.rows, &b);
}

/* Describes a model from files. */
static wf_engine_source source_of(wf_engine *e, const wf_model *m)
{
    return (wf_engine_source){
        .ctx = m->ctx,
        .config = &m->config,
        .tokenizer = wf_model_tokenizer(m),
        .build = {.given_frequencies = true,
                  .type = wf_model_weight_type,
                  .user = (void *)(uintptr_t)m, /* only read */
                  .adapt = e->adapters.count > 0 ? wf_adapters_apply : NULL,
                  .adapt_user = &e->adapters},
    };
}

/* Order matters: weights are mapped before compiling, because that decides kernels, and written
 * after it, when their states exist. */
static wf_status prepare(wf_engine *e, wf_device *device, const wf_engine_options *o)
{
    WF_TRY(wf_adapters_open(e->ctx, o->lora, o->loras, &e->model->config, &e->adapters));
    const wf_engine_source source = source_of(e, e->model);
    WF_TRY(begin(e, &source, o));
    WF_TRY(wf_session_new(device, &e->session));
    WF_TRY(make_pages(e));
    if (o->check)
        WF_TRY(wf_load_check(e->model));
    WF_TRY(wf_load_map(e->session, e->model, e->rounds));
    WF_TRY(compile_largest(e));
    WF_TRY(wf_load_write(e->session, e->model, &e->adapters, e->context));
    return allocate(e);
}

static wf_status attach(wf_engine *e, const wf_engine_source *source, const wf_engine_options *o)
{
    WF_TRY(begin(e, source, o));
    WF_TRY(make_pages(e));
    WF_TRY(compile_largest(e));
    return allocate(e);
}

static const wf_engine_options defaults = {0};

/* Passes a new engine to the caller, or frees it after a failure. */
static wf_status deliver(wf_engine *e, wf_status status, wf_engine **out)
{
    if (status == WF_OK)
        *out = e;
    else
        wf_engine_free(e);
    return status;
}

wf_status wf_engine_new(wf_device *device, const wf_model *model, const wf_engine_options *options,
                        wf_engine **out)
{
    *out = NULL;
    WF_TRY(wf_device_check_ctx(device, model->ctx, "the model"));
    wf_engine *e = wf_mem_new(model->ctx, sizeof *e);
    if (!e)
        return WF_ERR_MEMORY;
    e->ctx = model->ctx;
    e->model = model;
    return deliver(e, prepare(e, device, options ? options : &defaults), out);
}

wf_status wf_engine_attach(wf_session *session, const wf_engine_source *source,
                           const wf_engine_options *options, wf_engine **out)
{
    *out = NULL;
    wf_engine *e = wf_mem_new(source->ctx, sizeof *e);
    if (!e)
        return WF_ERR_MEMORY;
    e->ctx = source->ctx;
    e->session = session;
    return deliver(e, attach(e, source, options), out);
}

/* Frees the page pools in the session of a trainer. Only executables of the engine used them. */
static void free_pools(wf_session *s)
{
    wf_info state;
    for (int i = s->state_count - 1; i >= 0; i--)
        if (wf_session_state(s, i, &state) && wf_is_pool(state.name))
            wf_session_remove(s, i);
}

void wf_engine_free(wf_engine *e)
{
    if (!e)
        return;
    for (int i = 0; i < e->buckets; i++)
        wf_exec_free(e->bucket[i].exec);
    if (e->model)
        wf_session_free(e->session);
    else
        free_pools(e->session);
    wf_adapters_close(&e->adapters);
    release(e);
    wf_mem_free(e->ctx, e);
}

/* ---- Planning ---- */

/* Plans the largest run in a session, which may be without buffers; allocates nothing on the
 * device. */
static wf_status plan_largest(const wf_engine *e, wf_memory *out)
{
    const wf_bucket most = wf_bucket_largest(e);
    wf_graph *graph;
    WF_TRY(wf_bucket_graph(e, &most, &graph));
    wf_status status = wf_session_plan(e->session, graph, NULL, out);
    wf_graph_free(graph);
    return status;
}

static wf_status plan(wf_engine *e, wf_device *device, const wf_engine_options *o, wf_memory *out)
{
    size_t mapped;
    WF_TRY(wf_adapters_open(e->ctx, o->lora, o->loras, &e->model->config, &e->adapters));
    const wf_engine_source source = source_of(e, e->model);
    WF_TRY(begin(e, &source, o));
    WF_TRY(wf_session_new(device, &e->session));
    WF_TRY(wf_load_plan(e->session, e->model, e->rounds, &mapped));
    WF_TRY(plan_largest(e, out));
    out->mapped = mapped;
    out->states -= mapped;
    return WF_OK;
}

wf_status wf_engine_plan(wf_device *device, const wf_model *model, const wf_engine_options *options,
                         wf_memory *out)
{
    wf_engine e = {.ctx = model->ctx, .model = model};
    *out = (wf_memory){0};
    WF_TRY(wf_device_check_ctx(device, model->ctx, "the model"));
    wf_status status = plan(&e, device, options ? options : &defaults, out);
    wf_session_free(e.session);
    wf_adapters_close(&e.adapters);
    wf_mask_free(e.ctx, &e.mask);
    return status;
}

wf_status wf_engine_attach_graph(const wf_engine_source *source, const wf_engine_options *options,
                                 wf_graph **out)
{
    wf_engine e = {.ctx = source->ctx};
    *out = NULL;
    wf_status status = begin(&e, source, options);
    const wf_bucket most = wf_bucket_largest(&e);
    if (status == WF_OK)
        status = wf_bucket_graph(&e, &most, out);
    wf_mask_free(e.ctx, &e.mask);
    return status;
}

wf_status wf_engine_limits(const wf_model *model, const wf_engine_options *options, int64_t *tokens,
                           size_t *kv_bytes)
{
    wf_engine e = {.ctx = model->ctx, .source = {.config = &model->config}};
    WF_TRY(choose(&e, options));
    *tokens = e.limit;
    *kv_bytes = wf_config_cache_bytes(&model->config, &e.caches, e.size, e.kv);
    return WF_OK;
}

/* ---- Statistics ---- */

void wf_engine_get_stats(const wf_engine *e, wf_engine_stats *out)
{
    *out = e->stats;
    for (int i = 0; i < e->caches.count; i++) {
        out->pages += e->pages[i].count;
        out->pages_used += wf_pages_used(&e->pages[i]);
        out->pages_cached += e->pages[i].cached_count;
    }
    out->packing_nanoseconds = e->session->packing_ns;
    out->running = e->running_count;
    out->waiting = e->waitlist.count;
    for (int i = 0; i < e->buckets; i++) {
        wf_run_stats run;
        wf_exec_stats(e->bucket[i].exec, &run);
        out->bytes_in += run.bytes_in;
        out->bytes_out += run.bytes_out;
    }
}

void wf_engine_memory(const wf_engine *e, wf_memory *out)
{
    wf_exec_memory(e->bucket[0].exec, out); /* the largest; all share its memory */
}

const wf_engine_event *wf_engine_events(const wf_engine *e, size_t *count)
{
    *count = (size_t)e->events;
    return e->event;
}

void wf_engine_report(wf_engine *e, wf_engine_event_kind kind, wf_sequence *s)
{
    wf_assert(e->events < EVENTS_EACH * e->sequences);
    e->event[e->events++] = (wf_engine_event){.kind = kind, .sequence = s, .user = s->user};
}

/* ---- Logits ---- */

wf_status wf_engine_logits(wf_engine *e, const int32_t *ids, size_t count, size_t from,
                           wf_logits_fn *fn, void *user)
{
    const wf_request request = {.logits = fn, .logits_from = from, .user = user};
    wf_sequence *s;
    if (from >= count)
        return WF_OK;
    WF_TRY(wf_engine_submit(e, ids, count, &request, &s));
    wf_status status = WF_OK;
    while (status == WF_OK && wf_sequence_stop(s) == WF_UNFINISHED)
        status = wf_engine_step(e, NULL);
    if (status == WF_OK && wf_sequence_stop(s) == WF_STOP_ERROR) {
        wf_status why;
        const char *message = wf_sequence_error(s, &why);
        status = wf_fail(e->ctx, why, "%s", message);
    }
    wf_sequence_free(s);
    return status;
}
