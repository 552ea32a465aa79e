/* SPDX-License-Identifier: MIT */
/* memory.h - from lifetimes to offsets in one region. */
#ifndef WF_DEVICE_MEMORY_H
#define WF_DEVICE_MEMORY_H

#include "base/ctx.h"

/* A block of memory that is needed from step `begin` to step `end`, both included. */
typedef struct {
    size_t bytes;
    int begin, end;
    size_t offset; /* the result */
} wf_lifetime;

/* Gives every block an offset, a multiple of alignment, so that blocks that live at the same time
 * do not overlap. *total is the size of the region; *lower_bound what the busiest step needs. */
wf_status wf_memory_pack(wf_ctx *ctx, wf_lifetime *blocks, int n, size_t alignment, size_t *total,
                         size_t *lower_bound);

#endif
