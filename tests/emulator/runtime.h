/* SPDX-License-Identifier: MIT */
/* runtime.h - shared by the parts of the emulated runtime: memory and errors (runtime.c), and
 * streams, events and graphs (stream.c). Call everything except the CUDA functions with the lock
 * held. */
#ifndef WF_TESTS_RUNTIME_H
#define WF_TESTS_RUNTIME_H

#include "grid.h"

void wf_runtime_lock(void);
/* Locks at the start of a fallible function. Returns the error that a test injected; the function
 * then ends with it. */
cudaError_t wf_runtime_enter(void);
extern wf_emulated_counts wf_runtime_counts;
/* Unlocks, and records an error for cudaGetLastError. */
cudaError_t wf_runtime_unlock(cudaError_t error);

typedef enum { WF_PAGEABLE, WF_PINNED, WF_ON_DEVICE, WF_BEYOND } wf_place;
/* Classifies a range of bytes. WF_BEYOND: it starts in an allocation and ends after it. */
wf_place wf_runtime_place(const void *data, size_t bytes);
/* The largest shared memory limit set for any kernel, bytes. */
size_t wf_runtime_shared(void);

/* Waits for all streams. */
void wf_stream_drain(void);
/* Returns an error for functions that are forbidden during a capture. */
cudaError_t wf_stream_permits(void);

#endif
