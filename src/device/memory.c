/* SPDX-License-Identifier: MIT */
/*
 * memory.c - places blocks by size, the largest first, each at the lowest offset where it does not
 * meet a block that lives at the same time. Depends on the blocks alone, so plans repeat.
 */
#include "device/memory.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/mem.h"

typedef struct {
    wf_lifetime *block;
    size_t bytes; /* rounded up to the alignment */
    int index;
} item;

static int larger_first(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->index - y->index;
}

static bool meet(const wf_lifetime *a, const wf_lifetime *b)
{
    return a->begin <= b->end && b->begin <= a->end;
}

/* placed[0..n) is sorted by offset: walk up through the blocks in the way. Returns the place in the
 * list where the new one belongs. */
static int place(const item *const *placed, int n, const item *it)
{
    size_t offset = 0;
    for (int i = 0; i < n; i++) {
        const wf_lifetime *p = placed[i]->block;
        if (!meet(p, it->block) || p->offset + placed[i]->bytes <= offset)
            continue;
        if (p->offset >= offset + it->bytes)
            break; /* fits below this one, and the rest lie higher */
        offset = p->offset + placed[i]->bytes;
    }
    it->block->offset = offset;
    while (n > 0 && placed[n - 1]->block->offset > offset)
        n--;
    return n;
}

/* The most bytes alive at any one step. It can only rise where a block begins. */
static size_t busiest(const item *items, int n)
{
    size_t most = 0;
    for (int i = 0; i < n; i++) {
        size_t sum = 0;
        int step = items[i].block->begin;
        for (int k = 0; k < n; k++)
            if (items[k].block->begin <= step && step <= items[k].block->end)
                sum += items[k].bytes;
        most = sum > most ? sum : most;
    }
    return most;
}

wf_status wf_memory_pack(wf_ctx *ctx, wf_lifetime *blocks, int n, size_t alignment, size_t *total,
                         size_t *lower_bound)
{
    *total = *lower_bound = 0;
    wf_status status = WF_ERR_MEMORY;
    size_t sum = 0;
    item *items = wf_mem_array(ctx, (size_t)n, sizeof *items);
    const item **placed = wf_mem_array(ctx, (size_t)n, sizeof *placed);
    if (!items || !placed)
        goto done;
    for (int i = 0; i < n; i++) {
        items[i] = (item){.block = &blocks[i], .index = i};
        if (!wf_align_size(blocks[i].bytes, alignment, &items[i].bytes) ||
            !wf_add_size(sum, items[i].bytes, &sum)) {
            status =
                wf_fail(ctx, WF_ERR_MEMORY, "the values of this graph exceed any address space");
            goto done;
        }
    }
    qsort(items, (size_t)n, sizeof *items, larger_first);
    for (int i = 0; i < n; i++) {
        int at = place(placed, i, &items[i]);
        for (int k = i; k > at; k--)
            placed[k] = placed[k - 1];
        placed[at] = &items[i];
        size_t end = items[i].block->offset + items[i].bytes;
        *total = end > *total ? end : *total;
    }
    *lower_bound = busiest(items, n);
    status = WF_OK;
done:
    wf_mem_free(ctx, items);
    wf_mem_free(ctx, placed);
    return status;
}
