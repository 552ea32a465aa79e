/* SPDX-License-Identifier: MIT */
/*
 * cores.h - the logical processors that this process may use.
 *
 * On Linux: the affinity mask, hyperthread siblings from /sys, and the cgroup's CPU quota.
 * Elsewhere: all processors that are online. `root` is "" or, in tests, a folder that contains sys/
 * and proc/.
 */
#ifndef WF_BASE_CORES_H
#define WF_BASE_CORES_H

#include <stdbool.h>
#include <stdint.h>

#define WF_CORES_MAX 1024

/* Writes the processor numbers in the calling thread's affinity mask, ascending. Returns how many,
 * 1 to WF_CORES_MAX. */
int wf_cores_list(int cpu[WF_CORES_MAX]);

/* Reorders cpu[0 .. n): first one processor of each core, then the hyperthread siblings. Returns
 * the number of cores. */
int wf_cores_order(const char *root, int *cpu, int n);

/* Returns the cgroup's CPU quota in processors, rounded up; INT_MAX: no quota. */
int wf_cores_quota(const char *root);

/* Pins the calling thread to this processor. Returns false where the system refuses or cannot
 * pin. */
bool wf_cores_pin(int cpu);

/* Returns the calling thread's count of involuntary context switches; -1: unknown. Time that a
 * hypervisor steals is not counted. */
int64_t wf_cores_preemptions(void);

/* Requests permission to use AMX tile registers, for all current and future threads of the process.
 * Returns false when the system denies it or the machine has none. */
bool wf_cores_allow_tiles(void);

#endif
