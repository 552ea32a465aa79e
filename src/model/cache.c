/* SPDX-License-Identifier: MIT */
/* cache.c - see cache.h. */
#include "model/cache.h"

#include "base/check.h"

/* Returns the index of the cache with this window, -1 if it is missing. */
static int find(const wf_caches *k, int64_t window)
{
    for (int i = 0; i < k->count; i++)
        if (k->cache[i].window == window)
            return i;
    return -1;
}

static bool add(wf_caches *k, int64_t window)
{
    if (find(k, window) >= 0)
        return true;
    if (k->count == WF_MOST_CACHES)
        return false;
    k->cache[k->count++] = (wf_cache){
        .kind = window > 0 ? WF_CACHE_WINDOW : WF_CACHE_WHOLE,
        .window = window,
    };
    return true;
}

bool wf_config_caches(const wf_config *c, wf_caches *out)
{
    *out = (wf_caches){0};
    for (int64_t i = 0; i < c->layers; i++)
        if (wf_config_layer(c, i)->window == 0)
            add(out, 0);
    for (int64_t i = 0; i < c->layers; i++)
        if (!add(out, wf_config_layer(c, i)->window))
            return false;
    return true;
}

/* A layer that shares keys has the window of the layer that keeps them, and so the same cache. */
int wf_caches_find(const wf_caches *k, const wf_layer *layer)
{
    int i = find(k, layer->window);
    wf_assert(i >= 0);
    return i;
}

int wf_layer_pools(const wf_layer *l, wf_pool_row row[WF_MOST_POOLS])
{
    if (l->shares != 0)
        return 0;
    row[0] = (wf_pool_row){l->kv_heads, l->key_dim};
    row[1] = (wf_pool_row){l->kv_heads, l->value_dim};
    return 2;
}

bool wf_cache_keeps(const wf_cache *k)
{
    static const bool keeps[] = {[WF_CACHE_WHOLE] = true, [WF_CACHE_WINDOW] = false};
    return keeps[k->kind];
}

size_t wf_config_cache_bytes(const wf_config *c, const wf_caches *k, const wf_cache_size *size,
                             wf_type type)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < c->layers; i++) {
        const wf_layer *l = wf_config_layer(c, i);
        const wf_cache_size *s = &size[wf_caches_find(k, l)];
        wf_pool_row row[WF_MOST_POOLS];
        for (int n = wf_layer_pools(l, row); n-- > 0;)
            bytes += wf_type_bytes(type, row[n].heads * row[n].dim) * (size_t)(s->pool * s->page);
    }
    return bytes;
}

int64_t wf_cache_first_page(const wf_cache *k, int64_t page, int64_t position)
{
    int64_t first = wf_cache_keeps(k) ? 0 : position - k->window + 1;
    return first > 0 ? first / page : 0;
}

/* A run of n tokens reads at most the window - 1 tokens before it and itself: consecutive tokens.
 * These occupy most pages if the first is the last of its page; the others then begin a page. */
int64_t wf_cache_most_pages(const wf_cache *k, int64_t page, int64_t pages, int64_t run)
{
    if (wf_cache_keeps(k))
        return pages;
    int64_t others = k->window - 1 + run - 1, most = 1 + (others + page - 1) / page;
    return most < pages ? most : pages;
}
