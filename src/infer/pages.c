/* SPDX-License-Identifier: MIT */
/*
 * pages.c - see pages.h.
 *
 * Pages are interchangeable, so any free one will do. Freed pages are reused first, while their
 * memory may still be in the processor's caches.
 *
 * A list gives its pages from the last to the first. So in a cache of the whole context, the page
 * of a node is more recently used than those of its children, and eviction takes leaves first.
 */
#include "infer/pages.h"

#include "base/mem.h"

#define FEWEST_ROOM 16 /* entries of a list that is not empty */

wf_status wf_pages_init(wf_pages *p, wf_ctx *ctx, int64_t count)
{
    *p = (wf_pages){.ctx = ctx, .oldest = -1, .newest = -1};
    p->free = wf_mem_array(ctx, (size_t)count, sizeof *p->free);
    p->page = wf_mem_array(ctx, (size_t)count, sizeof *p->page);
    if (!p->free || !p->page) {
        wf_pages_free(p);
        return WF_ERR_MEMORY;
    }
    p->count = p->free_count = count;
    for (int64_t i = 0; i < count; i++) {
        p->free[i] = (int32_t)(count - 1 - i); /* page 0 is taken first */
        p->page[i] = (wf_page){.owner = -1};
    }
    return WF_OK;
}

void wf_pages_free(wf_pages *p)
{
    if (p->ctx) {
        wf_mem_free(p->ctx, p->free);
        wf_mem_free(p->ctx, p->page);
    }
    *p = (wf_pages){0};
}

void wf_pages_on_lost(wf_pages *p, wf_page_lost *lost, void *user)
{
    p->lost = lost;
    p->user = user;
}

/* ---- Cached pages, from the oldest to the newest ---- */

static void link_newest(wf_pages *p, int32_t page)
{
    wf_page *e = &p->page[page];
    e->older = p->newest;
    e->newer = -1;
    if (p->newest >= 0)
        p->page[p->newest].newer = page;
    else
        p->oldest = page;
    p->newest = page;
    p->cached_count++;
}

static void unlink_cached(wf_pages *p, int32_t page)
{
    wf_page *e = &p->page[page];
    if (e->older >= 0)
        p->page[e->older].newer = e->newer;
    else
        p->oldest = e->newer;
    if (e->newer >= 0)
        p->page[e->newer].older = e->older;
    else
        p->newest = e->older;
    p->cached_count--;
}

/* Returns the oldest cached page, which is neither free nor cached after that. The owner is told
 * last, because it may free other pages of this pool. */
static int32_t evict(wf_pages *p)
{
    int32_t page = p->oldest, node = p->page[page].owner;
    unlink_cached(p, page);
    p->page[page].owner = -1;
    p->lost(p->user, node);
    return page;
}

/* ---- Single pages ---- */

bool wf_pages_take(wf_pages *p, int32_t *page)
{
    if (wf_pages_available(p) == 0)
        return false;
    *page = p->free_count > 0 ? p->free[--p->free_count] : evict(p);
    p->page[*page].holders = 1;
    return true;
}

void wf_pages_share(wf_pages *p, int32_t page)
{
    wf_page *e = &p->page[page];
    wf_assert(e->holders > 0 || e->owner >= 0);
    if (e->holders++ == 0)
        unlink_cached(p, page);
}

void wf_pages_give(wf_pages *p, int32_t page)
{
    wf_page *e = &p->page[page];
    wf_assert(e->holders > 0);
    if (--e->holders > 0)
        return;
    if (e->owner >= 0)
        link_newest(p, page);
    else
        p->free[p->free_count++] = page;
}

void wf_pages_set_owner(wf_pages *p, int32_t page, int32_t node)
{
    wf_page *e = &p->page[page];
    wf_assert((node < 0) == (e->owner >= 0) && (node < 0 || e->holders > 0));
    e->owner = node;
    if (e->holders > 0)
        return;
    unlink_cached(p, page);
    p->free[p->free_count++] = page;
}

bool wf_pages_evict(wf_pages *p)
{
    if (p->cached_count == 0)
        return false;
    int32_t page = evict(p);
    p->free[p->free_count++] = page;
    return true;
}

void wf_pages_evict_all(wf_pages *p)
{
    while (wf_pages_evict(p))
        continue;
}

/* ---- The pages of one sequence ---- */

/* Makes room for pages before `end`. wf_mem_grow zeroes the new entries. */
static wf_status make_room(wf_pages *p, wf_page_list *l, int64_t end)
{
    if (end <= l->room)
        return WF_OK;
    int64_t room = l->room > 0 ? 2 * l->room : FEWEST_ROOM;
    if (room < end)
        room = end;
    int32_t *grown = wf_mem_grow(p->ctx, l->page, (size_t)room * sizeof *grown);
    if (!grown)
        return WF_ERR_MEMORY;
    l->page = grown;
    l->room = room;
    return WF_OK;
}

/* Gives pages [from, to) of the list, the last one first. */
static void give_range(wf_pages *p, wf_page_list *l, int64_t from, int64_t to)
{
    while (to > from) {
        wf_pages_give(p, l->page[--to]);
        l->page[to] = 0;
    }
}

void wf_pages_trim(wf_pages *p, wf_page_list *l, int64_t first, int64_t end)
{
    if (end < l->end) {
        int64_t from = end > l->first ? end : l->first;
        give_range(p, l, from, l->end);
        l->end = from;
    }
    if (first > l->first) {
        int64_t to = first < l->end ? first : l->end;
        give_range(p, l, l->first, to);
        l->first = to;
    }
}

/* Returns how many pages become available when pages [from, to) of the list are given. */
static int64_t count_sole(const wf_pages *p, const wf_page_list *l, int64_t from, int64_t to)
{
    int64_t n = 0;
    for (int64_t i = from < l->first ? l->first : from; i < to && i < l->end; i++)
        n += p->page[l->page[i]].holders == 1;
    return n;
}

bool wf_pages_suffice(const wf_pages *p, const wf_page_list *l, int64_t first, int64_t end,
                      int64_t available)
{
    bool apart = l->first == l->end || l->end <= first || end <= l->first; /* no page is kept */
    int64_t missing = end - (apart ? first : l->end);
    if (missing <= available)
        return true;
    return missing <= available + count_sole(p, l, l->first, first) + count_sole(p, l, end, l->end);
}

int64_t wf_pages_leave(wf_pages *p, const wf_page_list *l)
{
    int64_t n = 0;
    for (int64_t i = l->first; i < l->end; i++)
        n += --p->page[l->page[i]].holders == 0;
    return n;
}

void wf_pages_return(wf_pages *p, const wf_page_list *l)
{
    for (int64_t i = l->first; i < l->end; i++)
        p->page[l->page[i]].holders++;
}

wf_status wf_pages_hold(wf_pages *p, wf_page_list *l, int64_t first, int64_t end, bool *held)
{
    *held = wf_pages_suffice(p, l, first, end, wf_pages_available(p));
    if (!*held)
        return WF_OK;
    WF_TRY(make_room(p, l, end));
    wf_pages_trim(p, l, first, end);
    if (l->first == l->end) /* empty: may start anywhere */
        l->first = l->end = first;
    wf_assert(l->first == first);
    while (l->end < end) {
        bool taken = wf_pages_take(p, &l->page[l->end]);
        wf_assert(taken);
        l->end += taken;
    }
    return WF_OK;
}

wf_status wf_pages_append(wf_pages *p, wf_page_list *l, int64_t at, int32_t page)
{
    WF_TRY(make_room(p, l, at + 1));
    if (l->first == l->end)
        l->first = l->end = at;
    wf_assert(at == l->end);
    wf_pages_share(p, page);
    l->page[l->end++] = page;
    return WF_OK;
}

void wf_pages_replace(wf_pages *p, wf_page_list *l, int64_t at, int32_t page)
{
    wf_assert(l->first <= at && at < l->end);
    wf_pages_share(p, page);
    wf_pages_give(p, l->page[at]);
    l->page[at] = page;
}

void wf_pages_drop(wf_pages *p, wf_page_list *l)
{
    wf_pages_trim(p, l, l->end, l->end);
    wf_mem_free(p->ctx, l->page);
    *l = (wf_page_list){0};
}
