/* SPDX-License-Identifier: MIT */
/* pages.h - the allocator of a cache's pages: a stack of free page numbers. The pages themselves are
 * states of the generator's session. */
#ifndef WF_INFER_PAGES_H
#define WF_INFER_PAGES_H

#include "base/ctx.h"

#define WF_PAGE_TOKENS 16 /* tokens whose keys and values fill one page */

typedef struct {
    wf_ctx *ctx;
    int32_t
        *free; /* [count], of which free[0 .. free_count) are free; the last is allocated next */
    int64_t free_count; /* <= count */
    int64_t count;      /* pages of the pool */
} wf_pages;

/* The pages of one sequence: page[i] holds tokens i * WF_PAGE_TOKENS and following. Pages [first,
 * end) are held. Earlier ones were returned; their entries are 0, a valid index that kernels skip
 * behind the window. */
typedef struct {
    int32_t *page; /* [pages of a full sequence] */
    int64_t first, end;
} wf_page_list;

wf_status wf_pages_init(wf_pages *p, wf_ctx *ctx, int64_t count);
void wf_pages_free(wf_pages *p);

/* Returns the pages outside [first, end) to the pool and allocates the missing ones before `end`.
 * `first` is at least list->first, unless the list becomes empty. Returns false, and allocates
 * nothing, when the pool has too few. */
bool wf_pages_hold(wf_pages *p, wf_page_list *list, int64_t first, int64_t end);
/* Returns all pages to the pool. */
void wf_pages_drop(wf_pages *p, wf_page_list *list);

#endif
