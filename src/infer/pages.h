/* SPDX-License-Identifier: MIT */
/* pages.h - the allocator of cache pages: a stack of free page numbers. The pages themselves are a
 * state of the generator's session. */
#ifndef WF_INFER_PAGES_H
#define WF_INFER_PAGES_H

#include "base/ctx.h"

typedef struct {
    wf_ctx *ctx;
    int32_t
        *free; /* [count], of which free[0 .. free_count) are free; the last is allocated next */
    int64_t free_count; /* <= count */
    int64_t count;      /* pages of the pool */
} wf_pages;

wf_status wf_pages_init(wf_pages *p, wf_ctx *ctx, int64_t count);
void wf_pages_free(wf_pages *p);

/* Allocates or frees pages at the end of list[0 .. *have) until it has `want`. Returns false, and
 * changes nothing, when the pool has too few. */
bool wf_pages_resize(wf_pages *p, int32_t *list, int64_t *have, int64_t want);

#endif
