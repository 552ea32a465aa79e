/* SPDX-License-Identifier: MIT */
/* arena.c - a list of chunks; allocations fill the first chunk from its start. */
#include "base/arena.h"

#include <stdalign.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/poison.h"

struct wf_arena_chunk {
    alignas(WF_ARENA_ALIGN) wf_arena_chunk *next;
    size_t used, size; /* bytes after this struct; used is a multiple of WF_ARENA_ALIGN, and the
                        * bytes beyond it are zero and poisoned */
};

_Static_assert(sizeof(wf_arena_chunk) % WF_ARENA_ALIGN == 0, "chunk data must be aligned");

void wf_arena_init(wf_arena *a, wf_ctx *ctx)
{
    *a = (wf_arena){.ctx = ctx};
}

/* Adds a chunk with room for `bytes`. A request too large to share a chunk gets its own, placed
 * second in the list, so that the first one continues to be filled. */
static wf_arena_chunk *chunk_new(wf_arena *a, size_t bytes)
{
    const size_t usual = WF_ARENA_CHUNK - sizeof(wf_arena_chunk);
    /* A quarter: replacing the first chunk for a shared request wastes less than a quarter of
     * it. */
    bool shared = bytes <= usual / 4;
    size_t size = shared ? usual : bytes, total;
    if (!wf_add_size(size, sizeof(wf_arena_chunk), &total))
        total = SIZE_MAX; /* refused, with a message, by wf_mem_new */
    wf_arena_chunk *c = wf_mem_new(a->ctx, total);
    if (!c)
        return NULL;

    c->size = size;
    wf_poison(c + 1, size);
    wf_arena_chunk **link = shared || !a->chunks ? &a->chunks : &a->chunks->next;
    c->next = *link;
    *link = c;
    return c;
}

void *wf_arena_alloc(wf_arena *a, size_t bytes)
{
    size_t room;
    if (!wf_align_size(bytes ? bytes : 1, WF_ARENA_ALIGN, &room))
        /* chunk_new's sum overflows, too, and wf_mem_new refuses the request. */
        room = SIZE_MAX;
    wf_arena_chunk *c = a->chunks;
    if (!c || c->size - c->used < room) {
        c = chunk_new(a, room);
        if (!c)
            return NULL;
    }
    char *p = (char *)(c + 1) + c->used;
    c->used += room;
    wf_assert(c->used <= c->size);
    wf_unpoison(p, bytes); /* the padding up to the next allocation stays poisoned */
    return p;
}

void *wf_arena_copy(wf_arena *a, const void *src, size_t bytes)
{
    void *p = wf_arena_alloc(a, bytes);
    if (p && bytes)
        memcpy(p, src, bytes);
    return p;
}

char *wf_arena_strdup(wf_arena *a, const char *s)
{
    return wf_arena_copy(a, s, strlen(s) + 1);
}

void wf_arena_free(wf_arena *a)
{
    while (a->chunks) {
        wf_arena_chunk *c = a->chunks;
        a->chunks = c->next;
        wf_mem_free(a->ctx, c);
    }
}
