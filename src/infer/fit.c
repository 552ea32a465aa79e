/* SPDX-License-Identifier: MIT */
/*
 * fit.c - chooses context, sequences and pool of an engine so that it fits in memory.
 *
 * The pools are linear in their pages, so two plans give their largest size. The context is halved
 * while the pools would hold less than two of them: one long request must not block all others.
 */
#include "base/check.h"
#include "infer/engine.h"

#define MOST_AT_ONCE 32   /* sequences, unless the caller asks for another number */
#define LEAST_CONTEXT 512 /* tokens: less is not tried, unless the model has less */

typedef struct {
    wf_device *device;
    const wf_model *model;
    size_t limit; /* bytes */
} place;

/* Mapped weights count: where they are used in place, they must stay in the same memory. */
static size_t total(const wf_memory *m)
{
    return m->states + m->mapped + m->region + m->ports;
}

static int64_t least_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Plans; *fits: within the limit. */
static wf_status plan(const place *p, const wf_engine_options *o, wf_memory *m, bool *fits)
{
    WF_TRY(wf_engine_plan(p->device, p->model, o, m));
    *fits = total(m) <= p->limit;
    return WF_OK;
}

/* Raises o->cache, which fits, by as many pages as fit if all are as large as the next 64; at most
 * to `most` tokens. */
static wf_status grow_once(const place *p, wf_engine_options *o, int64_t most, wf_memory *m)
{
    wf_engine_options larger = *o;
    wf_memory more;
    bool fits;
    larger.cache = least_of(o->cache + 64 * WF_PAGE_TOKENS, most);
    const int64_t least = o->cache, tried = (larger.cache - least) / WF_PAGE_TOKENS;
    if (tried == 0)
        return WF_OK;
    WF_TRY(plan(p, &larger, &more, &fits));
    const size_t each = (total(&more) - total(m)) / (size_t)tried; /* bytes per page */
    int64_t pages = (most - least) / WF_PAGE_TOKENS;
    if (each > 0 && (size_t)pages > (p->limit - total(m)) / each)
        pages = (int64_t)((p->limit - total(m)) / each);
    for (fits = false; !fits && pages >= 0; pages -= pages / 64 + 1) { /* alignment may add bytes */
        o->cache = least + pages * WF_PAGE_TOKENS;
        WF_TRY(plan(p, o, m, &fits));
    }
    wf_assert(fits);
    return WF_OK;
}

/* Raises o->cache as far as memory allows. Pages become smaller when the pools of windows stop
 * growing, so this takes several rounds. */
static wf_status grow_pools(const place *p, wf_engine_options *o, int64_t most, wf_memory *m)
{
    int64_t before;
    do {
        before = o->cache;
        WF_TRY(grow_once(p, o, least_of(most, WF_MOST_CACHE_TOKENS), m));
    } while (o->cache - before >= 64 * WF_PAGE_TOKENS);
    return WF_OK;
}

/* Tries one context: halves the number of sequences until it fits. Unless it is the last context,
 * at least two sequences share the pools. */
static wf_status try_context(const place *p, const wf_engine_options *wanted, int64_t context,
                             bool last, wf_engine_options *out, wf_memory *m, bool *fits)
{
    int64_t sequences = wanted->sequences ? wanted->sequences : MOST_AT_ONCE;
    const int64_t fewest = last || wanted->sequences ? 1 : 2;
    const int64_t two = context < WF_MOST_CACHE_TOKENS / 2 ? 2 * context : WF_MOST_CACHE_TOKENS;
    *out = *wanted;
    out->context = context;
    for (*fits = false; !*fits && sequences >= fewest; sequences /= 2) {
        out->sequences = sequences;
        out->cache = wanted->cache ? wanted->cache : sequences > 1 && !last ? two : context;
        WF_TRY(plan(p, out, m, fits));
        if (wanted->sequences)
            break;
    }
    const int64_t whole = wf_engine_whole_cache(out->sequences, context);
    if (*fits && !wanted->cache && out->cache < whole)
        return grow_pools(p, out, whole, m);
    return WF_OK;
}

/* Returns the longest context of which the pools hold two, if the caller gives their size. */
static int64_t most_context(const wf_model *model, const wf_engine_options *wanted)
{
    const int64_t most = model->config.context;
    const int64_t each =
        wanted->sequences == 1 ? wanted->cache : wanted->cache / 2 + wanted->cache % 2;
    if (wanted->context)
        return wanted->context;
    return each > 0 && each < most ? each : most;
}

wf_status wf_engine_fit(wf_device *device, const wf_model *model, const wf_engine_options *wanted,
                        size_t limit, wf_engine_options *out, wf_memory *memory)
{
    static const wf_engine_options nothing = {0};
    const place p = {device, model, limit};
    bool fits = false;
    *memory = (wf_memory){0};
    if (!wanted)
        wanted = &nothing;
    if (wanted->sequences < 0 || wanted->context < 0 || wanted->cache < 0)
        return plan(&p, wanted, memory, &fits); /* reports the range */
    const int64_t most = most_context(model, wanted);
    const int64_t least = most < LEAST_CONTEXT || wanted->context ? most : LEAST_CONTEXT;
    for (int64_t context = most; !fits;) {
        const bool last = context == least;
        WF_TRY(try_context(&p, wanted, context, last, out, memory, &fits));
        if (last)
            break;
        context = context / 2 > least ? context / 2 : least;
    }
    if (!fits)
        return wf_fail(model->ctx, WF_ERR_MEMORY,
                       "the model needs at least %zu bytes with a context of %lld tokens, but only "
                       "%zu are available; take a smaller model or type of keys and values",
                       total(memory), (long long)least, limit);
    return WF_OK;
}
