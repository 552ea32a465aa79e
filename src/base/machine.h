/* SPDX-License-Identifier: MIT */
/* machine.h - what this machine is, for reports of what was measured on it. */
#ifndef WF_BASE_MACHINE_H
#define WF_BASE_MACHINE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    char cpu[128];      /* as the system calls it; its architecture where it has no name */
    int cores, threads; /* of the machine; cores are threads where the system does not tell */
    uint64_t memory;    /* bytes; 0: unknown */
    uint64_t cache;     /* bytes of the last level, all parts of it together; 0: unknown */
} wf_machine;

void wf_machine_get(wf_machine *out);
/* The most memory that this process has had resident so far, in bytes; 0: unknown. */
uint64_t wf_machine_peak_resident(void);

/* Memory that this process could still take without others being pushed out, in bytes, limits of its control
 * group counted; 0: unknown. */
uint64_t wf_machine_available(void);

#endif
