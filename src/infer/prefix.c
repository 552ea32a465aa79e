/* SPDX-License-Identifier: MIT */
/*
 * prefix.c - see prefix.h.
 *
 * Nodes are found by a hash table with the key (parent, salt, tokens). A key is compared in full,
 * so a collision of hashes never finds a wrong node. The parent's index is part of the key: an
 * index is reused only after all children of the node are gone.
 *
 * A node in a model with a cache of the whole context lives as long as its page there. In a model
 * with windows only, it lives as long as it has a page or a child, is a place, or waits.
 */
#include "infer/prefix.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

static wf_page_lost page_lost;

/* ---- Creating ---- */

static wf_status allocate(wf_prefix *p)
{
    p->buckets = 1;
    while (p->buckets < p->capacity)
        p->buckets *= 2;
    p->node = wf_mem_array(p->ctx, (size_t)p->capacity, sizeof *p->node);
    p->bucket = wf_mem_array(p->ctx, p->buckets, sizeof *p->bucket);
    if (!p->node || !p->bucket)
        return WF_ERR_MEMORY;
    memset(p->bucket, 0xff, p->buckets * sizeof *p->bucket); /* -1 */
    for (int64_t i = 0; i < p->capacity; i++)
        p->node[i].next = i + 1 < p->capacity ? (int32_t)i + 1 : -1;
    p->free = p->capacity > 0 ? 0 : -1;
    return WF_OK;
}

wf_status wf_prefix_new(wf_ctx *ctx, const wf_caches *caches, wf_pages *pages, int64_t more,
                        wf_prefix **out)
{
    *out = NULL;
    wf_prefix *p = wf_mem_new(ctx, sizeof *p);
    if (!p)
        return WF_ERR_MEMORY;
    p->ctx = ctx;
    p->caches = *caches;
    p->pages = pages;
    p->capacity = more;
    for (int i = 0; i < caches->count; i++) {
        p->capacity += pages[i].count;
        p->pool[i] = (wf_prefix_pool){.prefix = p, .cache = i};
        wf_pages_on_lost(&pages[i], page_lost, &p->pool[i]);
    }
    wf_status status = allocate(p);
    if (status == WF_OK)
        *out = p;
    else
        wf_prefix_free(p);
    return status;
}

/* Takes all pages from a node. */
static void disown(wf_prefix *p, wf_prefix_node *n)
{
    for (int i = 0; i < p->caches.count; i++)
        if (n->page[i] >= 0) {
            wf_pages_set_owner(&p->pages[i], n->page[i], -1);
            n->page[i] = -1;
        }
}

void wf_prefix_free(wf_prefix *p)
{
    if (!p)
        return;
    for (int64_t i = 0; p->node && i < p->capacity; i++)
        if (p->node[i].state != WF_NODE_FREE)
            disown(p, &p->node[i]);
    for (int i = 0; i < p->caches.count; i++)
        wf_pages_on_lost(&p->pages[i], NULL, NULL);
    wf_mem_free(p->ctx, p->node);
    wf_mem_free(p->ctx, p->bucket);
    wf_mem_free(p->ctx, p);
}

/* ---- The hash table ---- */

static int32_t *bucket_of(const wf_prefix *p, int32_t parent, uint64_t salt, const int32_t *token)
{
    uint64_t key = wf_hash_key();
    uint64_t h = (uint64_t)(uint32_t)parent << 32 |
                 wf_hash_bytes((const char *)token, WF_PAGE_TOKENS * sizeof *token);
    return &p->bucket[wf_hash_u64(h ^ wf_hash_mix(salt ^ key, key)) & (p->buckets - 1)];
}

/* Returns the node with this key, -1 if it is missing. */
static int32_t find(const wf_prefix *p, int32_t parent, uint64_t salt, const int32_t *token)
{
    int32_t at = *bucket_of(p, parent, salt, token);
    for (; at >= 0; at = p->node[at].next) {
        const wf_prefix_node *n = &p->node[at];
        if (n->parent == parent && n->salt == salt && memcmp(n->token, token, sizeof n->token) == 0)
            break;
    }
    return at;
}

/* ---- Adding and removing nodes ---- */

static void link_node(wf_prefix *p, int32_t node)
{
    wf_prefix_node *n = &p->node[node];
    int32_t *first = bucket_of(p, n->parent, n->salt, n->token);
    n->next = *first;
    *first = node;
    n->left = n->right = -1;
    if (n->parent < 0)
        return;
    wf_prefix_node *parent = &p->node[n->parent];
    n->right = parent->child;
    if (n->right >= 0)
        p->node[n->right].left = node;
    parent->child = node;
}

static void unlink_node(wf_prefix *p, int32_t node)
{
    const wf_prefix_node *n = &p->node[node];
    int32_t *at = bucket_of(p, n->parent, n->salt, n->token);
    while (*at != node)
        at = &p->node[*at].next;
    *at = n->next;
    if (n->right >= 0)
        p->node[n->right].left = n->left;
    if (n->left >= 0)
        p->node[n->left].right = n->right;
    else if (n->parent >= 0)
        p->node[n->parent].child = n->right;
}

/* Removes a node without children. Its pages lose their owner. */
static void remove_leaf(wf_prefix *p, int32_t node)
{
    wf_prefix_node *n = &p->node[node];
    wf_assert(n->child < 0 && n->places == 0);
    unlink_node(p, node);
    disown(p, n);
    *n = (wf_prefix_node){.state = WF_NODE_FREE, .next = p->free};
    p->free = node;
    p->count--;
}

static bool is_needed(const wf_prefix *p, const wf_prefix_node *n)
{
    bool needed = n->child >= 0 || n->places > 0 || n->state == WF_NODE_WAITS;
    for (int i = 0; i < p->caches.count; i++)
        needed = needed || n->page[i] >= 0;
    return needed;
}

/* Removes a node that nothing needs, then its parent if only this child kept it, and so on. */
static void prune(wf_prefix *p, int32_t node)
{
    while (node >= 0 && !is_needed(p, &p->node[node])) {
        int32_t parent = p->node[node].parent;
        remove_leaf(p, node);
        node = parent;
    }
}

/* Removes a node and its descendants, leaves first. */
static void cut(wf_prefix *p, int32_t node)
{
    int32_t above = p->node[node].parent, at = node;
    while (at != above) {
        while (p->node[at].child >= 0)
            at = p->node[at].child;
        int32_t parent = p->node[at].parent;
        remove_leaf(p, at);
        at = parent;
    }
    prune(p, above);
}

/* A text cannot be reused without all pages of the whole context: the node goes. Its children are
 * already gone, see prefix.h. */
static void page_lost(void *user, int32_t node)
{
    const wf_prefix_pool *pool = user;
    wf_prefix *p = pool->prefix;
    p->node[node].page[pool->cache] = -1;
    if (wf_cache_keeps(&p->caches.cache[pool->cache])) {
        wf_assert(p->node[node].child < 0);
        cut(p, node);
    } else
        prune(p, node);
}

/* ---- Places ---- */

/* The pages of a place are used in caches of the whole context. */
static void check_place(const wf_prefix *p, int32_t node)
{
    for (int i = 0; node >= 0 && i < p->caches.count; i++)
        wf_assert(
            !wf_cache_keeps(&p->caches.cache[i]) ||
            (p->node[node].page[i] >= 0 && p->pages[i].page[p->node[node].page[i]].holders > 0));
}

void wf_prefix_move(wf_prefix *p, int32_t *place, int32_t node)
{
    int32_t from = *place;
    check_place(p, node);
    *place = node;
    if (node >= 0)
        p->node[node].places++;
    if (from >= 0) {
        p->node[from].places--;
        prune(p, from);
    }
}

/* ---- Finding ---- */

/* Whether all pages that the token after `count` pages reads are present. run[i]: the pages of
 * cache i before it that are present without a gap. */
static bool is_readable(const wf_prefix *p, int64_t count, const int64_t *run)
{
    for (int i = 0; i < p->caches.count; i++) {
        int64_t first =
            wf_cache_first_page(&p->caches.cache[i], WF_PAGE_TOKENS, count * WF_PAGE_TOKENS);
        if (run[i] < count - first)
            return false;
    }
    return true;
}

int64_t wf_prefix_match(const wf_prefix *p, uint64_t salt, const int32_t *tokens,
                        int64_t most_pages, int32_t *nodes, bool *pending)
{
    int64_t run[WF_MOST_CACHES] = {0}, best = 0;
    int32_t at = -1;
    *pending = false;
    for (int64_t i = 0; i < most_pages; i++) {
        at = find(p, at, salt, tokens + i * WF_PAGE_TOKENS);
        if (at < 0)
            break;
        *pending = p->node[at].state == WF_NODE_WAITS;
        if (*pending)
            break;
        nodes[i] = at;
        for (int k = 0; k < p->caches.count; k++)
            run[k] = p->node[at].page[k] >= 0 ? run[k] + 1 : 0;
        if (is_readable(p, i + 1, run))
            best = i + 1;
    }
    return best;
}

wf_status wf_prefix_hold(wf_prefix *p, const int32_t *nodes, int64_t count, wf_page_list *lists,
                         int32_t *place)
{
    wf_status status = WF_OK;
    for (int k = 0; k < p->caches.count; k++) {
        int64_t i =
            wf_cache_first_page(&p->caches.cache[k], WF_PAGE_TOKENS, count * WF_PAGE_TOKENS);
        for (; status == WF_OK && i < count; i++)
            status = wf_pages_append(&p->pages[k], &lists[k], i, p->node[nodes[i]].page[k]);
    }
    if (status == WF_OK)
        wf_prefix_move(p, place, count > 0 ? nodes[count - 1] : -1);
    else
        for (int k = 0; k < p->caches.count; k++)
            wf_pages_drop(&p->pages[k], &lists[k]);
    return status;
}

/* ---- Inserting ---- */

/* Returns whether a node is free, after evicting the oldest pages if necessary: with windows, a few
 * cached pages keep the nodes of a whole sequence. The caller's parent is a place or waits, so it
 * remains. */
static bool free_node(wf_prefix *p)
{
    bool evicted = true;
    while (p->free < 0 && evicted) {
        evicted = false;
        for (int i = 0; i < p->caches.count && p->free < 0; i++)
            evicted = wf_pages_evict(&p->pages[i]) || evicted;
    }
    return p->free >= 0;
}

int32_t wf_prefix_insert(wf_prefix *p, int32_t parent, uint64_t salt, const int32_t *tokens,
                         const int32_t *page, bool *exists)
{
    wf_assert(parent < 0 || p->node[parent].salt == salt);
    check_place(p, parent);
    int32_t node = find(p, parent, salt, tokens);
    *exists = node >= 0;
    if (*exists || !free_node(p))
        return node;
    node = p->free;
    wf_prefix_node *n = &p->node[node];
    p->free = n->next;
    p->count++;
    *n = (wf_prefix_node){.salt = salt, .parent = parent, .child = -1, .state = WF_NODE_WAITS};
    memcpy(n->token, tokens, sizeof n->token);
    for (int i = 0; i < WF_MOST_CACHES; i++)
        n->page[i] = i < p->caches.count ? page[i] : -1;
    for (int i = 0; i < p->caches.count; i++)
        if (n->page[i] >= 0)
            wf_pages_set_owner(&p->pages[i], n->page[i], node);
    link_node(p, node);
    check_place(p, node);
    return node;
}

void wf_prefix_ready(wf_prefix *p, int32_t node)
{
    wf_prefix_node *n = &p->node[node];
    wf_assert(n->state == WF_NODE_WAITS);
    wf_assert(n->parent < 0 || p->node[n->parent].state == WF_NODE_READY);
    n->state = WF_NODE_READY;
}

void wf_prefix_abandon(wf_prefix *p, int32_t node)
{
    wf_assert(p->node[node].state == WF_NODE_WAITS);
    cut(p, node);
}

void wf_prefix_join(wf_prefix *p, int32_t node, wf_page_list *lists, int64_t at)
{
    wf_prefix_node *n = &p->node[node];
    wf_assert(n->state == WF_NODE_READY);
    for (int i = 0; i < p->caches.count; i++) {
        if (at < lists[i].first || at >= lists[i].end)
            continue; /* behind the window */
        int32_t own = lists[i].page[at];
        if (n->page[i] >= 0)
            wf_pages_replace(&p->pages[i], &lists[i], at, n->page[i]);
        else {
            wf_pages_set_owner(&p->pages[i], own, node);
            n->page[i] = own;
        }
    }
}

bool wf_prefix_extend(wf_prefix *p, int32_t *place, uint64_t salt, const int32_t *tokens,
                      wf_page_list *lists, int64_t at)
{
    int32_t page[WF_MOST_CACHES];
    bool exists;
    for (int i = 0; i < p->caches.count; i++)
        page[i] = wf_page_at(&lists[i], at);
    int32_t node = wf_prefix_insert(p, *place, salt, tokens, page, &exists);
    if (node < 0)
        return false;
    if (exists)
        wf_prefix_join(p, node, lists, at);
    else
        wf_prefix_ready(p, node);
    wf_prefix_move(p, place, node);
    return true;
}

/* ---- Forgetting ---- */

void wf_prefix_clear(wf_prefix *p)
{
    for (int i = 0; i < p->caches.count; i++)
        wf_pages_evict_all(&p->pages[i]);
}
