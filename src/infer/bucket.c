/* SPDX-License-Identifier: MIT */
/*
 * bucket.c - graphs and executables of an engine's runs.
 *
 * A bucket is compiled when a run first needs it. If compiling it or running it finds no memory,
 * the run uses a larger one. All buckets share the session's region and ports, and the largest one
 * is compiled first, so later ones need no more device memory. Their host memory is bounded by
 * their number: a new one replaces the least recently used one.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "device/device.h"
#include "infer/engine.h"

/* Returns the smallest size of the ladder that is at least n: `steps` sizes per doubling, 1, 2, 3,
 * ... below 2 * steps; with 0 steps, powers of 4. The last size is `most`. */
static int64_t round_up(int64_t n, int steps, int64_t most)
{
    int64_t size = 1;
    if (steps == 0)
        while (size < n)
            size *= 4;
    else {
        int64_t step = 1;
        while (n > 2 * steps * step)
            step *= 2;
        size = (n + step - 1) / step * step;
    }
    return size < most ? size : most;
}

wf_bucket wf_bucket_largest(const wf_engine *e)
{
    return (wf_bucket){
        .tokens = wf_engine_most_tokens(e), .sequences = e->sequences, .rows = e->rows};
}

/* The number of sequences costs little, so its ladder is coarse. So does the number of rows in a
 * run with many more tokens. */
static wf_bucket size_of(const wf_engine *e, int64_t tokens, int64_t sequences, int64_t rows)
{
    const int steps = e->session->device->ops->sizes_per_doubling;
    const wf_bucket most = wf_bucket_largest(e);
    wf_bucket b = {.tokens = round_up(tokens, steps, most.tokens),
                   .sequences = round_up(sequences, 0, most.sequences),
                   .rows = round_up(rows > 0 ? rows : 1, 4 * rows < tokens ? 0 : steps, most.rows)};
    return b;
}

wf_status wf_bucket_graph(const wf_engine *e, const wf_bucket *size, wf_graph **out)
{
    wf_build_options options = e->source.build;
    wf_graph *g;
    WF_TRY(wf_graph_new(e->ctx, &g));
    options.form = WF_FORM_STEP;
    options.tokens = size->tokens;
    options.sequences = size->sequences;
    options.rows = size->rows;
    options.kv = e->kv;
    for (int i = 0; i < e->caches.count; i++)
        options.cache[i] = e->size[i];
    wf_value *logits = wf_model_graph(g, e->source.config, &options, NULL), *named = logits;
    /* Greedy sequences read back only the argmax and the largest logit, not all logits. The maximum
     * is NaN when any logit is NaN. */
    if (e->mask.limit < e->vocab) /* exclude rows that pad the vocabulary */
        named = wf_slice(g, logits, 1, 0, e->mask.limit);
    wf_status status = wf_output(g, "logits", logits);
    if (status == WF_OK)
        status = wf_output(g, "best", wf_argmax(g, named, 1));
    if (status == WF_OK)
        status = wf_output(g, "top", wf_reduce(g, "max", logits, WF_AXIS(1), false));
    if (status == WF_OK && e->source.compute != WF_TYPE_NONE)
        status = wf_precision(g, e->source.compute);
    if (status == WF_OK)
        *out = g;
    else
        wf_graph_free(g);
    return status;
}

/* Frees the executable that was not used for the longest time, but not the largest one. Returns its
 * entry. */
static wf_bucket *evict(wf_engine *e)
{
    wf_bucket *oldest = &e->bucket[1];
    wf_run_stats run;
    for (int i = 2; i < e->buckets; i++)
        if (e->bucket[i].turn < oldest->turn)
            oldest = &e->bucket[i];
    wf_exec_stats(oldest->exec, &run);
    e->stats.bytes_in += run.bytes_in;
    e->stats.bytes_out += run.bytes_out;
    wf_exec_free(oldest->exec);
    return oldest;
}

static wf_status compile(wf_engine *e, wf_bucket *b)
{
    wf_graph *graph;
    const uint64_t begin = wf_clock_ns();
    WF_TRY(wf_bucket_graph(e, b, &graph));
    wf_status status = wf_compile(e->session, graph, &b->exec);
    wf_graph_free(graph);
    e->compiling_ns += wf_clock_ns() - begin;
    return status;
}

static wf_status add(wf_engine *e, wf_bucket b, wf_bucket **out)
{
    const bool full = e->buckets == WF_MOST_BUCKETS;
    wf_bucket *grown = e->bucket;
    if (!full)
        grown = wf_mem_room(e->ctx, e->bucket, e->buckets, &e->bucket_room, sizeof *grown);
    if (!grown)
        return WF_ERR_MEMORY;
    e->bucket = grown;
    WF_TRY(compile(e, &b));
    *out = full ? evict(e) : &e->bucket[e->buckets++];
    **out = b;
    return WF_OK;
}

/* Returns the compiled bucket of the fewest tokens that holds b, or NULL. */
static wf_bucket *find_larger(const wf_engine *e, const wf_bucket *b)
{
    wf_bucket *best = NULL;
    for (int i = 0; i < e->buckets; i++) {
        wf_bucket *k = &e->bucket[i];
        if (!k->avoided && k->tokens >= b->tokens && k->sequences >= b->sequences &&
            k->rows >= b->rows && (!best || k->tokens < best->tokens))
            best = k;
    }
    return best;
}

static wf_bucket *find(const wf_engine *e, const wf_bucket *b)
{
    for (int i = 0; i < e->buckets; i++) {
        wf_bucket *k = &e->bucket[i];
        if (k->tokens == b->tokens && k->sequences == b->sequences && k->rows == b->rows)
            return k->avoided ? find_larger(e, b) : k;
    }
    return NULL;
}

wf_status wf_bucket_find(wf_engine *e, int64_t tokens, int64_t sequences, int64_t rows,
                         const wf_bucket **out)
{
    const wf_bucket b = size_of(e, tokens, sequences, rows);
    wf_bucket *found = find(e, &b);
    wf_status status = found ? WF_OK : add(e, b, &found);
    if (status == WF_ERR_MEMORY && (found = find_larger(e, &b))) { /* slower, but it goes on */
        wf_ctx_clear(e->ctx);
        status = WF_OK;
    }
    WF_TRY(status);
    found->turn = ++e->turn;
    *out = found;
    return WF_OK;
}

bool wf_bucket_avoid(wf_engine *e, const wf_bucket *b)
{
    const bool has_larger = b != e->bucket;
    if (has_larger)
        wf_ctx_clear(e->ctx);
    e->bucket[b - e->bucket].avoided = has_larger;
    for (int i = 0; !has_larger && i < e->buckets; i++) /* no size has memory now */
        e->bucket[i].avoided = false;
    return has_larger;
}
