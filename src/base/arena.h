/* SPDX-License-Identifier: MIT */
/* arena.h - a region allocator: many small allocations that are freed together. */
#ifndef WF_BASE_ARENA_H
#define WF_BASE_ARENA_H

#include <stddef.h>

#include "base/ctx.h"

/* Bytes; enough for every type of C without alignas. */
#define WF_ARENA_ALIGN 16
/* Bytes per chunk, its header included. Larger requests get a chunk of their own. */
#define WF_ARENA_CHUNK 65536

typedef struct wf_arena_chunk wf_arena_chunk;

typedef struct {
    wf_ctx *ctx;
    wf_arena_chunk *chunks; /* the first one is being filled */
} wf_arena;

/* Allocates nothing, so it cannot fail. */
void wf_arena_init(wf_arena *a, wf_ctx *ctx);

/* Memory is zeroed and aligned to WF_ARENA_ALIGN bytes. Out of memory: NULL and a message, as from
 * wf_mem_new. */
void *wf_arena_alloc(wf_arena *a, size_t bytes);
void *wf_arena_copy(wf_arena *a, const void *src, size_t bytes);
char *wf_arena_strdup(wf_arena *a, const char *s);

/* Frees everything. The arena is then empty and may be used again. */
void wf_arena_free(wf_arena *a);

#endif
