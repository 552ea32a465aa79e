/* SPDX-License-Identifier: MIT */
/* generate.c - see generate.h. */
#include "bench/generate.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/philox.h"

#define SEED 20 /* of the tokens */

/* ---- Time ---- */

/* The sequences of a measurement. */
typedef struct {
    wf_engine *engine;
    const wf_bench_run *run;
    int32_t *ids;           /* [sequences, count] */
    wf_sequence **sequence; /* [sequences] */
    size_t count;           /* tokens of each */
    uint64_t salt;          /* of this measurement: it finds no page of an earlier one */
} bench;

/* Tokens before the timed ones. Prompts continue cached pages, which are whole; generated tokens
 * follow at least one other. */
static int64_t depth_of(const wf_bench_run *r)
{
    if (r->prompt)
        return r->depth - r->depth % WF_PAGE_TOKENS;
    return r->depth > 0 ? r->depth : 1;
}

/* Sequences that generate begin within one step per sequence, with a token that is not timed. */
int64_t wf_bench_run_context(const wf_bench_run *r)
{
    return depth_of(r) + r->tokens + (r->prompt ? 0 : r->sequences);
}

static void end_all(bench *b)
{
    for (int64_t i = 0; i < b->run->sequences; i++) {
        wf_sequence_free(b->sequence[i]);
        b->sequence[i] = NULL;
    }
}

static wf_status ignore_logits(void *user, size_t i, const float *logits, size_t vocab)
{
    (void)user, (void)i, (void)logits, (void)vocab;
    return WF_OK;
}

/* Submits the first `count` tokens of all sequences. */
static wf_status submit_all(bench *b, size_t count, int64_t limit)
{
    const wf_request request = {.limit = limit,
                                .ignore_end = true,
                                .salt = b->salt,
                                .logits = b->run->logits ? ignore_logits : NULL};
    for (int64_t i = 0; i < b->run->sequences; i++)
        WF_TRY(wf_engine_submit(b->engine, b->ids + i * (int64_t)b->count, count, &request,
                                &b->sequence[i]));
    return WF_OK;
}

static int64_t generated(const wf_sequence *s)
{
    size_t count, prompt;
    wf_sequence_tokens(s, &count, &prompt);
    return (int64_t)(count - prompt);
}

/* Runs until every sequence has a new token, had no room for one, or has all its logits. */
static wf_status run_to_tokens(bench *b)
{
    for (int64_t i = 0; i < b->run->sequences;) {
        const wf_stop stop = wf_sequence_stop(b->sequence[i]);
        if (generated(b->sequence[i]) > 0 || stop == WF_STOP_CONTEXT || stop == WF_STOP_LIMIT)
            i++;
        else if (stop != WF_UNFINISHED)
            return wf_fail(b->engine->ctx, WF_ERR_DEVICE, "a measured sequence ended early: %s",
                           wf_sequence_error(b->sequence[i], NULL));
        else
            WF_TRY(wf_engine_step(b->engine, NULL));
    }
    return WF_OK;
}

/* Computes what the timed part finds in the cache. */
static wf_status fill_cache(bench *b)
{
    const int64_t depth = depth_of(b->run);
    if (depth <= 1)
        return WF_OK;
    WF_TRY(submit_all(b, (size_t)depth, 1));
    WF_TRY(run_to_tokens(b));
    end_all(b);
    return WF_OK;
}

static wf_status time_prompts(bench *b, double *seconds)
{
    WF_TRY(submit_all(b, b->count, 1));
    uint64_t begin = wf_clock_ns();
    WF_TRY(run_to_tokens(b));
    *seconds = (double)(wf_clock_ns() - begin) / 1e9;
    return WF_OK;
}

/* Times steps in which all sequences get a token. */
static wf_status time_steps(bench *b, double *seconds)
{
    WF_TRY(submit_all(b, b->count, 0));
    WF_TRY(run_to_tokens(b));
    const uint64_t tokens = b->engine->stats.tokens;
    uint64_t begin = wf_clock_ns();
    for (int64_t i = 0; i < b->run->tokens; i++)
        WF_TRY(wf_engine_step(b->engine, NULL));
    *seconds = (double)(wf_clock_ns() - begin) / 1e9;
    if (b->engine->stats.tokens - tokens != (uint64_t)(b->run->tokens * b->run->sequences))
        return wf_fail(b->engine->ctx, WF_ERR_USAGE,
                       "the KV cache is too small to measure %lld sequences at a time; give more "
                       "--cache-tokens",
                       (long long)b->run->sequences);
    return WF_OK;
}

static wf_status measure(bench *b, double *seconds)
{
    const wf_bench_run *r = b->run;
    const int64_t n = r->sequences * (int64_t)b->count;
    wf_rng rng;
    b->ids = wf_mem_array(b->engine->ctx, (size_t)n, sizeof *b->ids);
    b->sequence = wf_mem_array(b->engine->ctx, (size_t)r->sequences, sizeof *b->sequence);
    if (!b->ids || !b->sequence)
        return WF_ERR_MEMORY;
    wf_rng_init(&rng, SEED, 0);
    for (int64_t i = 0; i < n; i++)
        b->ids[i] = (int32_t)wf_rng_below(&rng, (uint64_t)b->engine->vocab);
    const int64_t shared = r->shared < (int64_t)b->count ? r->shared : (int64_t)b->count;
    for (int64_t i = 1; i < r->sequences; i++)
        memcpy(b->ids + i * (int64_t)b->count, b->ids, (size_t)shared * sizeof *b->ids);
    WF_TRY(fill_cache(b));
    return r->prompt ? time_prompts(b, seconds) : time_steps(b, seconds);
}

wf_status wf_bench_run_time(wf_engine *e, const wf_bench_run *r, double *seconds)
{
    bench b = {.engine = e,
               .run = r,
               .count = (size_t)(depth_of(r) + (r->prompt ? r->tokens : 0)),
               .salt = e->stats.steps + 1};
    *seconds = 0;
    wf_status status = measure(&b, seconds);
    if (b.sequence)
        end_all(&b);
    wf_mem_free(e->ctx, b.sequence);
    wf_mem_free(e->ctx, b.ids);
    return status;
}

/* ---- Work ---- */

/* Adds the attention of one pass over `tokens` tokens that follow `before` others. */
static void add_attention(const wf_engine *e, int64_t before, int64_t tokens, wf_bench_work *out)
{
    const wf_config *c = e->source.config;
    for (int64_t i = 0; i < c->layers; i++) {
        const wf_layer *l = wf_config_layer(c, i);
        const double row =
            (double)(l->heads * l->key_dim); /* elements of q; keys have fewer heads */
        const double kv = (double)wf_type_bytes(e->kv, l->kv_heads * (l->key_dim + l->value_dim));
        int64_t window = l->window, most = before + tokens;
        if (window <= 0 || window > most)
            window = most;
        double pairs = 0;
        /* Token k sees the tokens before it and itself, at most `window` of them. */
        for (int64_t k = 1; k <= tokens; k++)
            pairs += (double)(before + k < window ? before + k : window);
        /* Two matmuls, scores and values: each 2 FLOP per pair (query, key) and element of q. */
        out->flops += 4 * row * pairs;
        /* each key that some token sees, once */
        out->bytes += kv * (double)(window + tokens - 1 < most ? window + tokens - 1 : most);
    }
}

/* Adds the weights of one run. rows: tokens with logits. */
static void add_weights(const wf_engine *e, int64_t tokens, int64_t rows, wf_bench_work *out)
{
    const wf_config *c = e->source.config;
    for (int i = 0; i < e->model->weights; i++) {
        const wf_model_weight_info *w = &e->model->weight[i];
        bool embedding = strcmp(w->name, "token_embd.weight") == 0;
        bool head = strcmp(w->name, "output.weight") == 0 || (embedding && c->tied);
        bool lookup = (embedding && !c->tied) || strcmp(w->name, "position_embd.weight") == 0;
        double count = (double)wf_dims_count(&w->shape);
        if (lookup) /* one row per token */
            out->bytes +=
                (double)(tokens * (int64_t)wf_type_bytes(w->type, wf_dims_last(&w->shape)));
        else
            out->bytes += (double)wf_type_bytes(w->type, wf_dims_count(&w->shape));
        if (!lookup && w->shape.n > 1)
            out->flops += 2 * count * (double)(head ? rows : tokens);
    }
}

/* The work of all sequences. Prompts run in chunks of the largest run, a step of decode has a token
 * of every sequence; both read all weights once. */
void wf_bench_run_work(const wf_engine *e, const wf_bench_run *r, wf_bench_work *out)
{
    const int64_t chunk = r->prompt ? wf_engine_most_tokens(e) : 1, all = r->tokens * r->sequences;
    *out = (wf_bench_work){0};
    for (int64_t at = 0; at < r->tokens; at += chunk) {
        int64_t tokens = r->tokens - at < chunk ? r->tokens - at : chunk;
        for (int64_t i = 0; i < r->sequences; i++)
            add_attention(e, depth_of(r) + at, tokens, out);
    }
    if (r->prompt)
        for (int64_t at = 0; at < all; at += chunk)
            add_weights(e, all - at < chunk ? all - at : chunk, r->logits ? chunk : 1, out);
    else
        for (int64_t at = 0; at < r->tokens; at++)
            add_weights(e, r->sequences, r->sequences, out);
}
