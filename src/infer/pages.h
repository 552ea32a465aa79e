/* SPDX-License-Identifier: MIT */
/* pages.h - which pages of the pool are free, and lists of those that a sequence has. */
#ifndef WF_INFER_PAGES_H
#define WF_INFER_PAGES_H

#include "base/ctx.h"

typedef struct {
    wf_ctx *ctx;
    int32_t *free; /* a stack: the next to be given is the last */
    int64_t free_count;
    int64_t count; /* pages of the pool */
} wf_pages;

wf_status wf_pages_init(wf_pages *p, wf_ctx *ctx, int64_t count);
void wf_pages_free(wf_pages *p);

/* Makes list[0 .. *have) as long as `want`, longer or shorter. False, and nothing changed, when the pool
 * has not enough. */
bool wf_pages_resize(wf_pages *p, int32_t *list, int64_t *have, int64_t want);

#endif
