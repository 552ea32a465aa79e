/* SPDX-License-Identifier: MIT */
/*
 * pages.h - the pages of one cache: which are free, which sequences hold, which can be reused.
 *
 * The pages themselves are states of the engine's session. A page is in one of three states:
 *   free:   unused, without a node;
 *   used:   one or more sequences hold it;
 *   cached: no sequence holds it, but a node of the prefix cache (prefix.h) owns it. Cached pages
 *           are evicted, least recently used first, when no page is free.
 * Every operation is O(1) per page.
 */
#ifndef WF_INFER_PAGES_H
#define WF_INFER_PAGES_H

#include "base/ctx.h"

#define WF_PAGE_TOKENS 16 /* tokens whose keys and values fill one page */

/* Returns how many pages hold this many tokens. */
static inline int64_t wf_pages_for(int64_t tokens)
{
    return (tokens + WF_PAGE_TOKENS - 1) / WF_PAGE_TOKENS;
}

typedef struct {
    int32_t holders;      /* sequences that hold the page */
    int32_t owner;        /* node of the prefix cache; -1: none */
    int32_t older, newer; /* while cached: neighbours in the list of cached pages; -1: none */
} wf_page;

/* Reports that the page of a node was evicted. The page has no owner any more. */
typedef void wf_page_lost(void *user, int32_t node);

typedef struct {
    wf_ctx *ctx;
    wf_page *page;          /* [count] */
    int32_t *free;          /* [count], of which free[0 .. free_count) are free; the last is next */
    int32_t oldest, newest; /* ends of the list of cached pages; -1: it is empty */
    int64_t count, free_count, cached_count;
    wf_page_lost *lost; /* required once a page has an owner */
    void *user;
} wf_pages;

/* After a failure, *p holds nothing. */
wf_status wf_pages_init(wf_pages *p, wf_ctx *ctx, int64_t count);
void wf_pages_free(wf_pages *p);
void wf_pages_on_lost(wf_pages *p, wf_page_lost *lost, void *user);

/* Returns how many pages can be taken. */
static inline int64_t wf_pages_available(const wf_pages *p)
{
    return p->free_count + p->cached_count;
}

static inline int64_t wf_pages_used(const wf_pages *p)
{
    return p->count - wf_pages_available(p);
}

/* ---- Single pages ---- */

/* Takes a free page, or evicts the least recently used cached one. The page has one holder and no
 * owner. Returns false when all pages are used. */
bool wf_pages_take(wf_pages *p, int32_t *page);
/* Adds a holder to a used or cached page. */
void wf_pages_share(wf_pages *p, int32_t page);
/* Removes a holder. Without holders the page becomes the most recently used cached page, or free if
 * it has no owner. */
void wf_pages_give(wf_pages *p, int32_t page);
/* Sets the owner of a used page that has none, or removes it (-1). A page with neither holders nor
 * an owner becomes free. */
void wf_pages_set_owner(wf_pages *p, int32_t page, int32_t node);
/* Evicts the least recently used cached page. Returns false if no page is cached. */
bool wf_pages_evict(wf_pages *p);
/* Evicts all cached pages. */
void wf_pages_evict_all(wf_pages *p);

/* ---- The pages of one sequence ---- */

/* page[i] holds tokens i * WF_PAGE_TOKENS and following. The list holds pages [first, end). All
 * other entries are 0, a valid index that kernels skip behind the window. An empty list is {0}. */
typedef struct {
    int32_t *page; /* [room], grows on demand */
    int64_t room, first, end;
} wf_page_list;

/* Returns page `at` of the list; -1: the list does not hold it. */
static inline int32_t wf_page_at(const wf_page_list *list, int64_t at)
{
    return at >= list->first && at < list->end ? list->page[at] : -1;
}

/* Gives the pages outside [first, end), then takes the missing ones before `end`. `first` is at
 * least list->first, unless the list becomes empty. *held is false, and the list as before, when
 * the pool has too few pages. A failure for lack of memory changes nothing either. */
wf_status wf_pages_hold(wf_pages *p, wf_page_list *list, int64_t first, int64_t end, bool *held);
/* Whether wf_pages_hold would hold the pages if so many were available. */
bool wf_pages_suffice(const wf_pages *p, const wf_page_list *list, int64_t first, int64_t end,
                      int64_t available);
/* Count the pages that several lists would give together: wf_pages_leave removes the list's holds
 * without giving its pages, and returns how many have no holder left. wf_pages_return undoes it.
 * Nothing else may change the pool in between. */
int64_t wf_pages_leave(wf_pages *p, const wf_page_list *list);
void wf_pages_return(wf_pages *p, const wf_page_list *list);
/* Gives the pages outside [first, end). */
void wf_pages_trim(wf_pages *p, wf_page_list *list, int64_t first, int64_t end);
/* Shares a page and appends it as page `at` of the sequence. `at` is list->end, or anything if the
 * list is empty. A failure changes nothing. */
wf_status wf_pages_append(wf_pages *p, wf_page_list *list, int64_t at, int32_t page);
/* Replaces page `at`, which the list holds, by a page with the same contents. */
void wf_pages_replace(wf_pages *p, wf_page_list *list, int64_t at, int32_t page);
/* Gives all pages and frees the list's memory. */
void wf_pages_drop(wf_pages *p, wf_page_list *list);

#endif
