/* SPDX-License-Identifier: MIT */
/* runtime.h - what the parts of the emulated runtime share: memory and errors (runtime.c), and streams, events
 * and graphs (stream.c). All but the functions of CUDA are called with the lock held. */
#ifndef WF_TESTS_RUNTIME_H
#define WF_TESTS_RUNTIME_H

#include "grid.h"

void wf_runtime_lock(void);
/* The same at the beginning of what can fail: an error that a test asked for, which ends the function. */
cudaError_t wf_runtime_enter(void);
extern wf_emulated_counts wf_runtime_counts;
/* Gives up the lock, and remembers an error for cudaGetLastError. */
cudaError_t wf_runtime_unlock(cudaError_t error);

typedef enum { WF_PAGEABLE, WF_PINNED, WF_ON_DEVICE, WF_BEYOND } wf_place;
/* Where bytes lie; WF_BEYOND: they begin in an allocation and end after it. */
wf_place wf_runtime_place(const void *data, size_t bytes);
/* Shared memory that some kernel has been allowed to take. */
size_t wf_runtime_shared(void);

/* Waits for everything. */
void wf_stream_drain(void);
/* For functions that may not be called while anything is captured. */
cudaError_t wf_stream_permits(void);

#endif
