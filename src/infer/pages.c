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

bool wf_pages_resize(wf_pages *p, int32_t *list, int64_t *have, int64_t want)
{
    if (want - *have > p->free_count)
        return false;
    while (*have < want)
        list[(*have)++] = p->free[--p->free_count];
    while (*have > want)
        p->free[p->free_count++] = list[--*have];
    return true;
}
