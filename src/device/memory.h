/* SPDX-License-Identifier: MIT */
/* memory.h - assigns offsets in one region to blocks with known lifetimes. */
#ifndef WF_DEVICE_MEMORY_H
#define WF_DEVICE_MEMORY_H

#include "base/ctx.h"

/* A block of memory in use from step `begin` to step `end`, both included. */
typedef struct {
    size_t bytes; /* 0: needs no memory; gets offset 0 */
    int begin, end;
    size_t offset; /* set by wf_memory_pack */
} wf_lifetime;

/* Assigns every block an offset, a multiple of alignment, so that blocks with overlapping lifetimes
 * do not overlap in memory. *total is the size of the region in bytes. *lower_bound is the memory
 * of the busiest step, which no packing can beat. Deterministic: depends on the arguments only.
 * Fails without memory, or if the sum of all blocks overflows size_t. */
wf_status wf_memory_pack(wf_ctx *ctx, wf_lifetime *blocks, int n, size_t alignment, size_t *total,
                         size_t *lower_bound);

#endif
