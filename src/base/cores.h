/* SPDX-License-Identifier: MIT */
/*
 * cores.h - the processors that this process may use.
 *
 * Linux says which they are, which of them are two halves of one core, and how much of them a container
 * may use; elsewhere every processor of the machine counts. `root` is "" or, for tests, a folder that
 * has sys/ and proc/.
 */
#ifndef WF_BASE_CORES_H
#define WF_BASE_CORES_H

#include <stdbool.h>
#include <stdint.h>

#define WF_CORES_MAX 1024

/* The numbers of the processors in the affinity mask of the calling thread, ascending; how many, 1 to
 * WF_CORES_MAX. */
int wf_cores_list(int cpu[WF_CORES_MAX]);

/* Sorts cpu[0 .. n) so that one processor of each core comes first and their siblings after all of
 * them; how many cores there are. */
int wf_cores_order(const char *root, int *cpu, int n);

/* For how many processors the cgroup's quota is enough, rounded up; INT_MAX where there is none. */
int wf_cores_quota(const char *root);

/* Keeps the calling thread on this processor. False where that cannot be had. */
bool wf_cores_pin(int cpu);

/* How often the system has taken the processor from the calling thread, which would have gone on, for another
 * one; -1 where it does not say. Time that a hypervisor gives to other machines is not in it. */
int64_t wf_cores_preemptions(void);

/* Asks the system for tile registers, for all threads of the process, also those to come. False where it
 * does not give them, or the machine has none. */
bool wf_cores_allow_tiles(void);

#endif
