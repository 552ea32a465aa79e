/* SPDX-License-Identifier: MIT */
/* mem.h - allocates host memory.
 *
 * Every allocation of the library passes here, so a test can make each of them fail in turn and
 * check the context's counters for leaks. Blocks are zeroed and aligned to WF_MEM_ALIGN bytes. A
 * failure returns NULL and records WF_ERR_MEMORY with the size in the context. */
#ifndef WF_BASE_MEM_H
#define WF_BASE_MEM_H

#include <stddef.h>

#include "base/ctx.h"

/* Bytes: a cache line, and an AVX-512 register. */
#define WF_MEM_ALIGN 64

/* bytes may be 0: the result is a unique pointer. */
void *wf_mem_new(wf_ctx *ctx, size_t bytes);
/* Allocates count * size bytes; a product that overflows fails like any other shortage of
 * memory. */
void *wf_mem_array(wf_ctx *ctx, size_t count, size_t size);

/* Resizes as realloc does and zeroes the new bytes. A failure leaves p valid. p may be NULL. */
void *wf_mem_grow(wf_ctx *ctx, void *p, size_t bytes);

/* Makes room for one more item in a list of `count` items of `size` bytes with capacity *room.
 * Returns p, or a larger block that replaces it. Fails as wf_mem_grow does. */
void *wf_mem_room(wf_ctx *ctx, void *p, int count, int *room, size_t size);

/* p must be NULL or a block of this context. */
void wf_mem_free(wf_ctx *ctx, void *p);

#endif
