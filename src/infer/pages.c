/* SPDX-License-Identifier: MIT */
/*
 * pages.c - see pages.h.
 *
 * Pages are interchangeable, so any free one will do: allocation and release are O(1) per page.
 * Freed pages are reused first, while their memory may still be cached.
 */
#include "infer/pages.h"

#include "base/mem.h"

wf_status wf_pages_init(wf_pages *p, wf_ctx *ctx, int64_t count)
{
    *p = (wf_pages){.ctx = ctx};
    p->free = wf_mem_array(ctx, (size_t)count, sizeof *p->free);
    if (!p->free)
        return WF_ERR_MEMORY;
    p->count = p->free_count = count;
    for (int64_t i = 0; i < count; i++) /* page 0 is allocated first */
        p->free[i] = (int32_t)(count - 1 - i);
    return WF_OK;
}

void wf_pages_free(wf_pages *p)
{
    if (p->ctx)
        wf_mem_free(p->ctx, p->free);
    *p = (wf_pages){0};
}

/* Takes the entry out of the list: a later table may still contain it. */
static void give(wf_pages *p, wf_page_list *l, int64_t i)
{
    p->free[p->free_count++] = l->page[i];
    l->page[i] = 0;
}

bool wf_pages_hold(wf_pages *p, wf_page_list *l, int64_t first, int64_t end)
{
    while (l->end > end && l->end > l->first)
        give(p, l, --l->end);
    while (l->first < first && l->first < l->end)
        give(p, l, l->first++);
    if (l->first == l->end) /* empty: may start anywhere */
        l->first = l->end = first;
    if (end - l->end > p->free_count)
        return false;
    while (l->end < end)
        l->page[l->end++] = p->free[--p->free_count];
    return true;
}

void wf_pages_drop(wf_pages *p, wf_page_list *l)
{
    wf_pages_hold(p, l, 0, 0);
}
