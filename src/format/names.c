/* SPDX-License-Identifier: MIT */
/*
 * names.c - sorted names with binary search; see names.h.
 *
 * Not a hash table: names come from files, and the cost of comparing strings does not depend on a
 * hash that an attacker could make collide.
 */
#include "format/names.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The first member of every item is its name. */
static const char *name_of(const void *item)
{
    return *(const char *const *)item;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(name_of(*(const void *const *)a), name_of(*(const void *const *)b));
}

wf_status wf_names_sort(wf_ctx *ctx, const void *items, size_t count, size_t size,
                        const void ***sorted)
{
    *sorted = wf_mem_array(ctx, count, sizeof **sorted);
    if (!*sorted)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        (*sorted)[i] = (const char *)items + i * size;
    qsort(*sorted, count, sizeof **sorted, by_name);
    return WF_OK;
}

const char *wf_names_twice(const void *const *sorted, size_t count)
{
    for (size_t i = 1; i < count; i++)
        if (strcmp(name_of(sorted[i - 1]), name_of(sorted[i])) == 0)
            return name_of(sorted[i]);
    return NULL;
}

const void *wf_names_find(const void *const *sorted, size_t count, const char *name)
{
    for (size_t low = 0, high = count; low < high;) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(name, name_of(sorted[middle]));
        if (order == 0)
            return sorted[middle];
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}
