/* SPDX-License-Identifier: MIT */
/*
 * cache.h - the memory that a model's layers keep between runs.
 *
 * Layers whose tokens live equally long form one cache: they share a page table, and a page index
 * addresses the same page in the pools of all of them. A layer with `shares` keeps nothing; it
 * reads the pools of an earlier layer of its cache.
 */
#ifndef WF_MODEL_CACHE_H
#define WF_MODEL_CACHE_H

#include "model/config.h"

#define WF_MOST_CACHES 4

/* docs/architecture.md lists the places to change for a further kind. */
typedef enum {
    WF_CACHE_WHOLE, /* keys and values of all tokens */
    WF_CACHE_WINDOW /* keys and values of the window; pages behind it return to the pool */
} wf_cache_kind;

typedef struct {
    wf_cache_kind kind;
    int64_t window; /* tokens that a token sees, itself included; 0: all (WF_CACHE_WHOLE) */
} wf_cache;

/* What a layer stores of each token in one of its page pools: [heads, dim] elements. */
typedef struct {
    int64_t heads, dim;
} wf_pool_row;
#define WF_MOST_POOLS 2 /* of a layer */

typedef struct {
    wf_cache cache[WF_MOST_CACHES]; /* the whole context first, if a layer needs it */
    int count;
} wf_caches;

/* Sizes of a cache in a graph. */
typedef struct {
    int64_t page;  /* tokens per page */
    int64_t pages; /* columns of the page table: pages of a sequence of full length */
    int64_t pool;  /* pages that exist, for all sequences */
} wf_cache_size;

/* Lists the caches of a model. Returns false if there are more than WF_MOST_CACHES; wf_config_check
 * refuses such a config. */
bool wf_config_caches(const wf_config *c, wf_caches *out);
/* Returns the index of a layer's cache. */
int wf_caches_find(const wf_caches *caches, const wf_layer *layer);
/* Lists the pools of a layer, keys first. Returns their number, 0 if it shares those of another. */
int wf_layer_pools(const wf_layer *layer, wf_pool_row row[WF_MOST_POOLS]);
/* Returns whether sequences hold the pages of all their tokens. Otherwise pages return to the pool
 * before the sequence ends, and a node of the prefix cache may lose its page before its
 * children. */
bool wf_cache_keeps(const wf_cache *cache);
/* Returns the bytes of the pools of all layers; size[i] belongs to caches->cache[i]. */
size_t wf_config_cache_bytes(const wf_config *c, const wf_caches *caches, const wf_cache_size *size,
                             wf_type type);

/* Returns the first page that the token at this position, or a later one, reads. */
int64_t wf_cache_first_page(const wf_cache *cache, int64_t page, int64_t position);
/* Returns how many pages a sequence can hold at once, if its context has `pages` pages and a run
 * at most `run` tokens of it. */
int64_t wf_cache_most_pages(const wf_cache *cache, int64_t page, int64_t pages, int64_t run);

#endif
