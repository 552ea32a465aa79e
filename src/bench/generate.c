/* SPDX-License-Identifier: MIT */
/* generate.c - see generate.h. */
#include "bench/generate.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/philox.h"

#define SEED 20 /* of the tokens */

/* ---- Time ---- */

/* One more than the computed tokens: the last generated token takes a place, too. */
int64_t wf_bench_run_context(const wf_bench_run *r)
{
    return r->depth + r->tokens + (r->prompt ? 0 : 1);
}

static wf_status run_to_end(wf_generator *g)
{
    for (bool busy = true; busy;)
        WF_TRY(wf_generator_step(g, &busy));
    return WF_OK;
}

/* The `depth` tokens run as a prompt of their own before the timer starts; the sequence then
 * continues it. */
static wf_status run_timed(wf_generator *g, const wf_bench_run *r, const int32_t *ids,
                           double *seconds)
{
    const wf_request one = {.limit = 1, .ignore_end = true};
    const wf_request all = {.limit = r->prompt ? 1 : r->tokens, .ignore_end = true};
    const size_t depth = (size_t)r->depth, count = depth + (r->prompt ? (size_t)r->tokens : 1);
    wf_sequence *s = NULL;
    wf_status status;
    if (depth > 0) {
        status = wf_sequence_new(g, ids, depth, &one, &s);
        if (status == WF_OK)
            status = run_to_end(g);
        if (status == WF_OK)
            status = wf_sequence_restart(s, ids, count, &all);
    } else {
        status = wf_sequence_new(g, ids, count, &all, &s);
    }
    uint64_t begin = wf_clock_ns();
    if (status == WF_OK)
        status = run_to_end(g);
    *seconds = (double)(wf_clock_ns() - begin) / 1e9;
    wf_sequence_free(s);
    return status;
}

wf_status wf_bench_run_time(wf_generator *g, const wf_bench_run *r, double *seconds)
{
    int64_t n = wf_bench_run_context(r);
    int32_t *ids = wf_mem_array(g->ctx, (size_t)n, sizeof *ids);
    wf_rng rng;
    *seconds = 0;
    if (!ids)
        return WF_ERR_MEMORY;
    wf_rng_init(&rng, SEED, 0);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)wf_rng_below(&rng, (uint64_t)g->vocab);
    wf_status status = run_timed(g, r, ids, seconds);
    wf_mem_free(g->ctx, ids);
    return status;
}

/* ---- Work ---- */

/* Adds the attention of one pass over `tokens` tokens that follow `before` others. */
static void add_attention(const wf_generator *g, int64_t before, int64_t tokens, wf_bench_work *out)
{
    const wf_config *c = &g->model->config;
    for (int64_t i = 0; i < c->layers; i++) {
        const wf_layer *l = wf_config_layer(c, i);
        const double row =
            (double)(l->heads * l->key_dim); /* elements of q; keys have fewer heads */
        const double kv = (double)wf_type_bytes(g->kv, l->kv_heads * (l->key_dim + l->value_dim));
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

static void add_weights(const wf_generator *g, int64_t tokens, wf_bench_work *out)
{
    const wf_config *c = &g->model->config;
    for (int i = 0; i < g->model->weights; i++) {
        const wf_model_weight_info *w = &g->model->weight[i];
        bool embedding = strcmp(w->name, "token_embd.weight") == 0;
        bool head = strcmp(w->name, "output.weight") == 0 || (embedding && c->tied);
        bool rows = (embedding && !c->tied) || strcmp(w->name, "position_embd.weight") == 0;
        double count = (double)wf_dims_count(&w->shape);
        if (rows) /* one row per token */
            out->bytes +=
                (double)(tokens * (int64_t)wf_type_bytes(w->type, wf_dims_last(&w->shape)));
        else
            out->bytes += (double)wf_type_bytes(w->type, wf_dims_count(&w->shape));
        if (!rows && w->shape.n > 1) /* only the last token has logits */
            out->flops += 2 * count * (head ? 1 : (double)tokens);
    }
}

/* A prompt runs in chunks of the generator's largest bucket, and every chunk reads all weights
 * once. */
void wf_bench_run_work(const wf_generator *g, const wf_bench_run *r, wf_bench_work *out)
{
    int64_t chunk = r->prompt ? g->bucket[g->buckets - 1].tokens : 1;
    *out = (wf_bench_work){0};
    for (int64_t at = 0; at < r->tokens; at += chunk) {
        int64_t tokens = r->tokens - at < chunk ? r->tokens - at : chunk;
        add_attention(g, r->depth + at, tokens, out);
        add_weights(g, tokens, out);
    }
}
