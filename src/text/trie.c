/* SPDX-License-Identifier: MIT */
/*
 * trie.c - see trie.h.
 *
 * The edges are in one open-addressed hash table, at most half full. Its hash is keyed, so a
 * vocabulary cannot be crafted to make edges collide.
 */
#include "text/trie.h"

#include "base/hash.h"
#include "base/mem.h"
#include "text/utf8.h"

bool wf_trie_takes(const wf_vocab *v, int32_t id)
{
    const wf_vocab_token *t = &v->token[id];
    return t->text && t->bytes > 0 && !t->outside && t->kind != WF_TOKEN_CONTROL &&
           t->kind != WF_TOKEN_UNKNOWN && t->kind != WF_TOKEN_BYTE &&
           wf_utf8_valid(t->text, t->bytes) && wf_vocab_find(v, t->text, t->bytes) == id;
}

/* Returns the slot of this edge, or the free slot where it belongs. */
static wf_trie_edge *find_edge(const wf_trie *t, uint32_t key)
{
    for (uint32_t i = wf_hash_u64(key) & t->mask;; i = (i + 1) & t->mask)
        if (!t->edge[i].child || t->edge[i].key == key)
            return &t->edge[i];
}

uint32_t wf_trie_child(const wf_trie *t, uint32_t node, uint8_t byte)
{
    uint32_t child = find_edge(t, node << 8 | byte)->child;
    return child ? child : WF_TRIE_NONE;
}

/* ---- Building ---- */

/* Doubles the table when it is half full, and so id[], which has half as many entries. */
static wf_status make_room(wf_trie *t, wf_ctx *ctx)
{
    uint32_t slots = t->mask + 1;
    if (2 * t->nodes < slots)
        return WF_OK;
    wf_trie old = *t;
    int32_t *id = wf_mem_grow(ctx, t->id, slots * sizeof *id);
    if (!id)
        return WF_ERR_MEMORY;
    t->id = id;
    wf_trie_edge *edge = wf_mem_array(ctx, 2 * (size_t)slots, sizeof *edge);
    if (!edge)
        return WF_ERR_MEMORY;
    t->edge = edge;
    t->mask = 2 * slots - 1;
    for (uint32_t i = 0; i < slots; i++)
        if (old.edge[i].child)
            *find_edge(t, old.edge[i].key) = old.edge[i];
    wf_mem_free(ctx, old.edge);
    return WF_OK;
}

static wf_status add(wf_trie *t, wf_ctx *ctx, const wf_vocab_token *token, int32_t id)
{
    uint32_t node = WF_TRIE_ROOT;
    for (uint32_t i = 0; i < token->bytes; i++) {
        uint32_t key = node << 8 | (uint8_t)token->text[i];
        wf_trie_edge *e = find_edge(t, key);
        if (!e->child) {
            *e = (wf_trie_edge){key, t->nodes};
            t->id[t->nodes++] = -1;
            WF_TRY(make_room(t, ctx));
            e = find_edge(t, key);
        }
        node = e->child;
    }
    t->id[node] = id;
    return WF_OK;
}

static wf_status check_size(wf_ctx *ctx, const wf_vocab *v)
{
    size_t bytes = 0;
    for (int32_t id = 0; id < v->count; id++) {
        if (!wf_trie_takes(v, id))
            continue;
        bytes += v->token[id].bytes;
        if (v->token[id].bytes > WF_TRIE_TOKEN || bytes >= WF_TRIE_BYTES_ALL)
            return wf_fail(ctx, WF_ERR_UNSUPPORTED,
                           "token %d of the tokenizer is longer than %d bytes, or its tokens have "
                           "more than %zu bytes in total",
                           (int)id, WF_TRIE_TOKEN, WF_TRIE_BYTES_ALL);
    }
    return WF_OK;
}

/* The tables grow outside of the arena, because tokens share most of their bytes. */
wf_status wf_trie_init(wf_trie *t, wf_arena *arena, const wf_vocab *v)
{
    wf_ctx *ctx = arena->ctx;
    enum { SLOTS = 16 };
    *t = (wf_trie){.mask = SLOTS - 1, .nodes = 1};
    WF_TRY(check_size(ctx, v));
    t->edge = wf_mem_array(ctx, SLOTS, sizeof *t->edge);
    t->id = wf_mem_array(ctx, SLOTS / 2, sizeof *t->id);
    wf_status status = t->edge && t->id ? WF_OK : WF_ERR_MEMORY;
    if (status == WF_OK)
        t->id[WF_TRIE_ROOT] = -1;
    for (int32_t id = 0; id < v->count && status == WF_OK; id++)
        if (wf_trie_takes(v, id))
            status = add(t, ctx, &v->token[id], id);
    wf_trie_edge *edge = t->edge;
    int32_t *ids = t->id;
    if (status == WF_OK) {
        t->edge = wf_arena_copy(arena, edge, ((size_t)t->mask + 1) * sizeof *edge);
        t->id = wf_arena_copy(arena, ids, t->nodes * sizeof *ids);
        status = t->edge && t->id ? WF_OK : WF_ERR_MEMORY;
    }
    wf_mem_free(ctx, edge);
    wf_mem_free(ctx, ids);
    return status;
}
