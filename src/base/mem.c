/* SPDX-License-Identifier: MIT */
/* mem.c - the allocator: zeroed memory, a header in front of each block, and the accounting.
 *
 *     base ... [ header, 64 bytes ][ the user's bytes ] ... end
 *              ^ 64-byte aligned   ^ what wf_mem_new returns
 *
 * Large blocks are mapped directly: fresh pages are zero without a memset, and each is placed on
 * the NUMA node of the thread that first writes it. They request huge pages, which need fewer page
 * faults and TLB entries. Small blocks come from calloc. Under AddressSanitizer all blocks come
 * from calloc, which it instruments, and the header and the alignment slack are poisoned. */
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
#include "base/sanitize.h"

#define MAGIC_LIVE 0x57454654424c4f4bu /* "WEFTBLOK" */
#define MAGIC_FREE 0x5745465446524545u /* "WEFTFREE" */

typedef struct {
    alignas(WF_MEM_ALIGN) uint64_t magic;
    size_t bytes; /* of the user's part */
    void *base;   /* start of the allocation, for free or munmap */
    wf_ctx *ctx;
    size_t mapped; /* bytes to munmap; 0: from calloc */
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

/* Returns a block's header and checks that the block is alive and belongs to this context. Leaves
 * the header unpoisoned: the callers free the block. */
static header *header_of(wf_ctx *ctx, void *p)
{
    header *h = (header *)p - 1;
    wf_unpoison(h, sizeof *h);
    wf_assert(h->magic == MAGIC_LIVE);
    wf_assert(h->ctx == ctx);
    (void)ctx;
    return h;
}

#if defined MADV_HUGEPAGE && !WF_ADDRESS_SANITIZER
#define LARGE ((size_t)4 << 20) /* bytes: two huge pages of x86 */

static char *pages_new(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    madvise(p, bytes, MADV_HUGEPAGE); /* a hint: failure is fine */
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

    /* Rounds base up to WF_MEM_ALIGN. calloc aligns to 16 only; `total` includes the slack. */
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
        bytes = SIZE_MAX; /* wf_mem_new refuses it, and counts the call */
    return wf_mem_new(ctx, bytes);
}

/* Always copies: realloc would neither keep the alignment of 64 nor zero the new bytes. Callers
 * that double their capacity copy each byte a bounded number of times. */
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
    /* wanted == count only at INT_MAX: the list cannot grow. */
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
    h->magic = MAGIC_FREE; /* makes header_of's assertion catch most double frees */
    if (h->mapped)
        munmap(h->base, h->mapped);
    else
        free(h->base);
}
