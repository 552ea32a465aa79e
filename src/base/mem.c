/* SPDX-License-Identifier: MIT */
/* mem.c - the allocator: zeroed memory, a header in front of each block, and the accounting.
 *
 *     base ... [ header, 64 bytes ][ the user's bytes ] ... end
 *              ^ 64-byte aligned   ^ what wf_mem_new returns
 *
 * calloc rather than an aligned allocator and memset, and for large blocks pages of the system, because
 * calloc reuses memory and zeroes it then: untouched zero pages are there at once, and each of them is
 * placed near the thread that writes to it first. Large blocks ask for huge pages, too, which take
 * fewer faults and fewer entries of the TLB. The slack that alignment leaves on either side is poisoned
 * under AddressSanitizer, as is the header; there all blocks come from calloc, which it watches. */
#ifdef __linux__
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS, madvise */
#endif
#include "base/mem.h"

#include <limits.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/check.h"
#include "base/poison.h"

#define MAGIC_LIVE 0x57454654424c4f4bu /* "WEFTBLOK" */
#define MAGIC_FREE 0x5745465446524545u /* "WEFTFREE" */

typedef struct {
    alignas(WF_MEM_ALIGN) uint64_t magic;
    size_t bytes; /* the user's */
    void *base;   /* where the memory begins that was asked for */
    wf_ctx *ctx;
    size_t mapped; /* bytes of it, if they are pages of the system; else 0 */
} header;

_Static_assert(sizeof(header) == WF_MEM_ALIGN, "the header must keep the block aligned");

void wf_ctx_fail_allocation(wf_ctx *ctx, uint64_t nth)
{
    ctx->fail_in_calls = nth;
}

void wf_ctx_mem_stats(const wf_ctx *ctx, wf_mem_stats *out)
{
    *out = ctx->mem;
}

static header *header_of(wf_ctx *ctx, void *p)
{
    header *h = (header *)p - 1;
    wf_unpoison(h, sizeof *h);
    wf_assert(h->magic == MAGIC_LIVE);
    wf_assert(h->ctx == ctx);
    (void)ctx;
    return h;
}

#ifdef __SANITIZE_ADDRESS__
#define WATCHED 1
#elif defined __has_feature
#define WATCHED __has_feature(address_sanitizer)
#else
#define WATCHED 0
#endif

#if defined MADV_HUGEPAGE && !WATCHED
#define LARGE ((size_t)4 << 20) /* two huge pages where they are smallest */

static char *pages_new(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE); /* a wish: not all systems have them */
    return p;
}
#else
#define LARGE SIZE_MAX

static char *pages_new(size_t bytes)
{
    (void)bytes;
    return NULL;
}
#endif

void *wf_mem_new(wf_ctx *ctx, size_t bytes)
{
    ctx->mem.calls++;
    bool fail_now = ctx->fail_in_calls && --ctx->fail_in_calls == 0;

    size_t total, mapped = 0;
    char *base = NULL;
    if (!fail_now && wf_add_size(bytes, sizeof(header) + WF_MEM_ALIGN - 1, &total)) {
        mapped = total >= LARGE ? total : 0;
        base = mapped ? pages_new(total) : calloc(1, total);
    }
    if (!base) {
        wf_fail(ctx, WF_ERR_MEMORY, "out of memory: %zu bytes could not be allocated", bytes);
        return NULL;
    }

    header *h = (header *)(void *)(base + (-(uintptr_t)base & (WF_MEM_ALIGN - 1)));
    *h = (header){.magic = MAGIC_LIVE, .bytes = bytes, .base = base, .ctx = ctx, .mapped = mapped};
    char *p = (char *)(h + 1);
    wf_poison(base, (size_t)(p - base));
    wf_poison(p + bytes, (size_t)(base + total - (p + bytes)));

    ctx->mem.live_blocks++;
    ctx->mem.live_bytes += bytes;
    if (ctx->mem.peak_bytes < ctx->mem.live_bytes)
        ctx->mem.peak_bytes = ctx->mem.live_bytes;
    return p;
}

void *wf_mem_array(wf_ctx *ctx, size_t count, size_t size)
{
    size_t bytes;
    if (!wf_mul_size(count, size, &bytes))
        bytes = SIZE_MAX; /* which wf_mem_new refuses, and counts as it does any other call */
    return wf_mem_new(ctx, bytes);
}

void *wf_mem_grow(wf_ctx *ctx, void *p, size_t bytes)
{
    void *q = wf_mem_new(ctx, bytes);
    if (!q || !p)
        return q;
    header *h = header_of(ctx, p);
    memcpy(q, p, h->bytes < bytes ? h->bytes : bytes);
    wf_mem_free(ctx, p);
    return q;
}

void *wf_mem_room(wf_ctx *ctx, void *p, int count, int *room, size_t size)
{
    if (count < *room)
        return p;
    int wanted = count < 16 ? 16 : count <= INT_MAX / 2 ? count * 2 : INT_MAX;
    size_t bytes;
    if (wanted == count || !wf_mul_size((size_t)wanted, size, &bytes))
        bytes = SIZE_MAX;
    void *grown = wf_mem_grow(ctx, p, bytes);
    if (grown)
        *room = wanted;
    return grown;
}

void wf_mem_free(wf_ctx *ctx, void *p)
{
    if (!p)
        return;
    header *h = header_of(ctx, p);
    ctx->mem.live_blocks--;
    ctx->mem.live_bytes -= h->bytes;
    h->magic = MAGIC_FREE; /* so that a second free is likely to be noticed */
    if (h->mapped)
        munmap(h->base, h->mapped);
    else
        free(h->base);
}
