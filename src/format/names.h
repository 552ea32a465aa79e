/* SPDX-License-Identifier: MIT */
/*
 * names.h - finds items by name, and duplicate names, in arrays of structs. The first member of the
 * struct is the name, a const char *.
 *
 * It sorts rather than hashes: names come from untrusted files, and no choice of names makes
 * sorting slow.
 */
#ifndef WF_FORMAT_NAMES_H
#define WF_FORMAT_NAMES_H

#include "base/ctx.h"

/* Sets *sorted to pointers to the items, ordered by name. The caller frees it with wf_mem_free; the
 * items must not move. */
wf_status wf_names_sort(wf_ctx *ctx, const void *items, size_t count, size_t size,
                        const void ***sorted);
/* Returns a duplicate name, or NULL. */
const char *wf_names_twice(const void *const *sorted, size_t count);
/* Returns the item, or NULL. */
const void *wf_names_find(const void *const *sorted, size_t count, const char *name);

#endif
