/* SPDX-License-Identifier: MIT */
/*
 * guard.h - mapped files that others cut short.
 *
 * Touching a page of a mapping that its file no longer has raises SIGBUS. With the guard on
 * (wf_guard_mapped_files), the pages from there to the end of the mapping become zeros and the mapping
 * is marked as broken, in whatever thread and kernel that happened; whoever used it asks afterwards.
 * Every mapping of wf_map_open is listed here, so the guard may be turned on at any time.
 */
#ifndef WF_BASE_GUARD_H
#define WF_BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Lists a mapping; the number is for the others. -1 when the list is full: it is then not guarded. */
int wf_guard_add(const void *data, size_t bytes);
/* Before it is unmapped. -1 is fine. */
void wf_guard_remove(int slot);
bool wf_guard_broken(int slot);

#endif
