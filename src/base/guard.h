/* SPDX-License-Identifier: MIT */
/*
 * guard.h - survives the truncation of mapped files by other processes.
 *
 * Access beyond the end of a truncated file raises SIGBUS. With the guard on
 * (wf_guard_mapped_files), the handler replaces the pages from there to the end of the mapping by
 * zeros and marks the mapping as broken. This works in any thread and in any kernel; the user of
 * the mapping checks wf_guard_broken afterwards. wf_map_open registers every mapping here, so the
 * guard may be turned on at any time.
 */
#ifndef WF_BASE_GUARD_H
#define WF_BASE_GUARD_H

#include <stdbool.h>
#include <stddef.h>

/* Registers a mapping and returns its slot; -1: the list is full, and the mapping is not
 * guarded. */
int wf_guard_add(const void *data, size_t bytes);
/* Call before unmapping. slot may be -1. */
void wf_guard_remove(int slot);
bool wf_guard_broken(int slot);

#endif
