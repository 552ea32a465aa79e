/* SPDX-License-Identifier: MIT */
/*
 * names.h - finding items by name, and names that come twice, in arrays of structs whose first member
 * is a const char * of their name.
 *
 * By sorting, not by hashing: who writes the file chooses the names, and no choice makes this slow.
 */
#ifndef WF_FORMAT_NAMES_H
#define WF_FORMAT_NAMES_H

#include "base/ctx.h"

/* Pointers to the items in the order of their names, for wf_mem_free. The items must then stay where
 * they are. */
wf_status wf_names_sort(wf_ctx *ctx, const void *items, size_t count, size_t size,
                        const void ***sorted);
/* A name that comes twice; NULL when none does. */
const char *wf_names_twice(const void *const *sorted, size_t count);
/* NULL when there is none. */
const void *wf_names_find(const void *const *sorted, size_t count, const char *name);

#endif
