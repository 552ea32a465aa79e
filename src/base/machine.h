/* SPDX-License-Identifier: MIT */
/* machine.h - describes this machine, for benchmark reports and memory estimates. */
#ifndef WF_BASE_MACHINE_H
#define WF_BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char cpu[128];      /* model name; the architecture when the system has no name */
    int cores, threads; /* of the machine; cores == threads when the system does not report cores */
    uint64_t memory;    /* bytes; 0: unknown */
    uint64_t cache;     /* bytes of the last-level cache, all slices together; 0: unknown */
} wf_machine;

/* Reads files, so it is not for hot paths. Not thread-safe. */
void wf_machine_get(wf_machine *out);
/* Returns this process's peak resident memory in bytes; 0: unknown. */
uint64_t wf_machine_peak_resident(void);

/* Returns the memory in bytes that this process can still allocate without swapping, within its
 * cgroup's limit; 0: unknown. */
uint64_t wf_machine_available(void);

#endif
