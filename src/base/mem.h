/* SPDX-License-Identifier: MIT */
/* mem.h - the one way host memory is allocated.
 *
 * Because every allocation passes here, a test can fail each of them in turn and then see, from
 * the context's counters, that nothing leaked. Blocks are zeroed and aligned to WF_MEM_ALIGN. On
 * failure the result is NULL and the context says WF_ERR_MEMORY and how many bytes were wanted. */
#ifndef WF_BASE_MEM_H
#define WF_BASE_MEM_H

#include <stddef.h>

#include "base/ctx.h"

#define WF_MEM_ALIGN 64

/* Zero bytes give a pointer of their own, too. */
void *wf_mem_new(wf_ctx *ctx, size_t bytes);
void *wf_mem_array(wf_ctx *ctx, size_t count, size_t size);

/* Resizes as realloc does, zeroing what is new; on failure p stays as it was. p may be NULL. */
void *wf_mem_grow(wf_ctx *ctx, void *p, size_t bytes);

/* Room for one more in a list of `count` items of `size` bytes, *room of which its memory has: p itself,
 * or a larger block in its place. As wf_mem_grow when it fails. */
void *wf_mem_room(wf_ctx *ctx, void *p, int count, int *room, size_t size);

/* p is NULL or a block of this context. */
void wf_mem_free(wf_ctx *ctx, void *p);

#endif
