/* SPDX-License-Identifier: MIT */
/*
 * prefix.h - the prefix cache: finds pages whose keys and values were already computed.
 *
 * A trie of full pages. A node is WF_PAGE_TOKENS tokens after those of its parent, and names the
 * page of each cache (cache.h) that holds their keys and values. Pages without holders stay in
 * their pools as cached pages until a pool needs them (pages.h).
 *
 * A sequence has a place: the last node of the trie whose tokens it holds, or -1. It enters with
 * wf_prefix_match and wf_prefix_hold, inserts a node for each further page, below its place, and
 * moves there with wf_prefix_move. It may move to a node only if, in the caches of the whole
 * context, it holds the pages of this node and of all nodes above. A page of its own with the same
 * contents does not count; wf_prefix_join replaces it. So a child's page is never used while its
 * parent's is not, and pools evict children first.
 *
 * Keys and values also depend on the weights and adapters, which are not part of a node: an engine
 * has one model and one set of adapters as long as it lives. An engine whose requests name adapters
 * must make them part of the key, beside the salt.
 *
 * All memory is allocated by wf_prefix_new.
 */
#ifndef WF_INFER_PREFIX_H
#define WF_INFER_PREFIX_H

#include "infer/pages.h"
#include "model/cache.h"

typedef enum {
    WF_NODE_FREE,  /* the entry is not in use */
    WF_NODE_WAITS, /* its keys and values are not computed yet */
    WF_NODE_READY
} wf_node_state;

typedef struct {
    uint64_t salt; /* of the request; nodes with different salts share nothing */
    int32_t token[WF_PAGE_TOKENS];
    int32_t page[WF_MOST_CACHES]; /* -1: this cache's page was evicted */
    int32_t parent;               /* -1: the first page of a sequence */
    int32_t child;                /* one of the children; -1: none */
    int32_t left, right;          /* neighbours among the parent's children; -1: none */
    int32_t next;                 /* next node in the bucket, or next free entry; -1: none */
    int32_t places;               /* sequences whose place this is */
    wf_node_state state;
} wf_prefix_node;

typedef struct wf_prefix wf_prefix;

/* Identifies the pool in which a page was evicted. */
typedef struct {
    wf_prefix *prefix;
    int cache;
} wf_prefix_pool;

struct wf_prefix {
    wf_ctx *ctx;
    wf_caches caches;
    wf_pages *pages; /* [caches.count], borrowed */
    wf_prefix_pool pool[WF_MOST_CACHES];
    wf_prefix_node *node; /* [capacity] */
    int64_t capacity;
    int64_t count;    /* nodes in use */
    int32_t free;     /* first free entry, linked by `next`; -1: all are in use */
    int32_t *bucket;  /* [buckets] first node of each bucket; -1: none */
    uint32_t buckets; /* a power of two */
};

/* pages[i] is the pool of caches->cache[i]. The pools must outlive the prefix cache. It has a node
 * for each of their pages, and `more`: nodes whose pages are all behind windows remain as long as
 * others follow them. */
wf_status wf_prefix_new(wf_ctx *ctx, const wf_caches *caches, wf_pages *pages, int64_t more,
                        wf_prefix **out);
/* All pages lose their owners. p may be NULL. */
void wf_prefix_free(wf_prefix *p);

/* ---- Finding ---- */

/* Finds the longest prefix of at most most_pages full pages whose keys and values are in pages, as
 * far as the next token reads them. Returns its pages; nodes[i], of [most_pages], is the node of
 * page i. *pending: a sequence is computing the page after the last ready node at this moment, so
 * waiting for it may find more. Time is linear in the pages. */
int64_t wf_prefix_match(const wf_prefix *p, uint64_t salt, const int32_t *tokens,
                        int64_t most_pages, int32_t *nodes, bool *pending);
/* Shares the pages of a match of `count` pages that later tokens read, and moves the sequence's
 * place to its last node. lists[i] is the sequence's list of cache i, empty. After a failure the
 * lists are empty. Call it before any page is taken after the match. */
wf_status wf_prefix_hold(wf_prefix *p, const int32_t *nodes, int64_t count, wf_page_list *lists,
                         int32_t *place);

/* ---- Inserting ---- */

/* Inserts a node of the next WF_PAGE_TOKENS tokens, which waits until its pages are computed, and
 * makes it the owner of the pages. parent: the place of the caller, or the node that it inserted
 * before. page[i] is the caller's page in cache i, or -1 behind a window. *exists: there is such a
 * node already; it is returned as it is, and the pages stay the caller's own. Evicts cached pages
 * if no node is free. Returns -1 when all nodes are in use. */
int32_t wf_prefix_insert(wf_prefix *p, int32_t parent, uint64_t salt, const int32_t *tokens,
                         const int32_t *page, bool *exists);
/* Call when the pages of a node are computed. Its parent is ready. The caller then moves there. */
void wf_prefix_ready(wf_prefix *p, int32_t node);
/* Call instead if they will not be computed, before they are given. Removes a node that waits, with
 * its descendants, which wait as well. No sequence may have its place there. */
void wf_prefix_abandon(wf_prefix *p, int32_t node);
/* Call when the caller has computed page `at`, and a ready node below its place has the same key.
 * The caller's lists hold the node's pages instead of the copies, which are given. The node becomes
 * the owner of pages that it had lost. Then the caller may move there. */
void wf_prefix_join(wf_prefix *p, int32_t node, wf_page_list *lists, int64_t at);

/* Inserts a node for page `at`, which the caller has computed, or joins the node that exists, and
 * moves the caller's place there. tokens: those of the page. Returns false, and changes nothing,
 * when all nodes are in use. */
bool wf_prefix_extend(wf_prefix *p, int32_t *place, uint64_t salt, const int32_t *tokens,
                      wf_page_list *lists, int64_t at);

/* ---- Places ---- */

/* Moves the place of a sequence to another node; -1: to none. A node exists at least as long as it
 * is a place. */
void wf_prefix_move(wf_prefix *p, int32_t *place, int32_t node);

/* ---- Forgetting ---- */

/* Forgets all cached pages and the nodes that only they kept. Nodes whose pages are used remain. */
void wf_prefix_clear(wf_prefix *p);

#endif
