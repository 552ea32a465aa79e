/* SPDX-License-Identifier: MIT */
/*
 * emulator.h - runs CUDA C kernels on the host: the description of a grid, and the functions that
 * its threads call.
 *
 * Every thread of a block is a fiber with its own stack, and runs until it has to wait. Blocks run
 * one after the other, unless they wait for each other, in an order that depends on a seed. Shared
 * memory is filled with one bits before each block, so that unwritten elements read as NaN. A
 * deadlock within a block ends the program with a message.
 *
 * Environment:
 *   WEFT_EMULATED_CAPABILITY  compute capability times 10: 90 is Hopper (default 80)
 *   WEFT_EMULATED_SEED        order of blocks, warps, lanes and streams (default 1)
 *   WEFT_EMULATED_MEMORY      device memory in MiB (default 4096)
 *   WEFT_EMULATED_DEVICES     number of devices; 0: as without a driver (default 1)
 *   CUDA_LAUNCH_BLOCKING      1: runs enqueued work at once, for debuggers
 */
#ifndef WF_TESTS_EMULATOR_H
#define WF_TESTS_EMULATOR_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs the kernel for one thread. */
typedef void wf_emulated_call(const void *arguments);

typedef struct {
    const char *name; /* borrowed; must live forever */
    dim3 grid, block;
    size_t shared; /* dynamic shared memory, bytes */
    wf_emulated_call *call;
    const void *arguments;
    size_t argument_bytes;
} wf_emulated_grid;

/* Enqueues a launch; copies the arguments. cudaGetLastError returns errors. */
void wf_emulated_launch(const wf_emulated_grid *grid, cudaStream_t stream);

/* Variables that threads read. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

void *wf_emulated_shared(void); /* dynamic shared memory of the block */

/* A __shared__ variable of a kernel: one per declaration and template instance. */
typedef struct {
    void *address;   /* in the block that used it last */
    uint64_t serial; /* of that block */
    int number;      /* 0: not used yet */
} wf_emulated_slot;
extern uint64_t wf_emulated_serial; /* of the running block */
void *wf_emulated_find(wf_emulated_slot *slot, size_t bytes, size_t alignment);
static inline void *wf_emulated_static(wf_emulated_slot *slot, size_t bytes, size_t alignment)
{
    return slot->serial == wf_emulated_serial ? slot->address
                                              : wf_emulated_find(slot, bytes, alignment);
}

typedef enum { WF_BARRIER, WF_BARRIER_COUNT, WF_BARRIER_AND, WF_BARRIER_OR } wf_barrier_kind;
/* Waits for all threads of the block that have not ended. Returns the reduction of `value`. */
int wf_emulated_syncthreads(wf_barrier_kind kind, int value);
/* bar.sync: waits until `threads` threads, a multiple of 32, have arrived at one of the 16
 * barriers. */
void wf_emulated_barrier(int barrier, int threads);
/* bar.arrive: arrives without waiting. */
void wf_emulated_barrier_arrive(int barrier, int threads);

typedef enum {
    WF_WARP_SYNC,
    WF_WARP_SHUFFLE, /* returns the value of lane `source` */
    WF_WARP_BALLOT,  /* returns the lanes whose value is not 0 */
    WF_WARP_GATHER,  /* see wf_emulated_gather */
    WF_WARP_MATCH,   /* returns the lanes with an equal value */
    WF_WARP_ADD,
    WF_WARP_AND,
    WF_WARP_OR,
    WF_WARP_XOR,
    WF_WARP_MIN, /* signed */
    WF_WARP_MAX,
    WF_WARP_UMIN, /* unsigned */
    WF_WARP_UMAX
} wf_warp_kind;
/* Waits until all lanes of the mask call it with the same kind and mask. */
uint64_t wf_emulated_warp(wf_warp_kind kind, unsigned mask, uint64_t value, int source);
/* Gathers up to WF_EMULATED_GATHERED bytes of each of the 32 lanes, at that stride. Valid until the
 * second call after this one. */
enum { WF_EMULATED_GATHERED = 64 };
const void *wf_emulated_gather(const void *mine, size_t bytes);
unsigned wf_emulated_activemask(void);
int wf_emulated_lane(void);

/* Kernels that start early (WF_RUN_EARLY): every thread calls _await between the other two. */
void wf_emulated_early(void);
void wf_emulated_await(void);
void wf_emulated_early_end(void);

/* ---- For tests ---- */

typedef struct {
    uint64_t launches;               /* of single kernels */
    uint64_t captured;               /* launches captured into a graph */
    uint64_t captures;               /* graphs captured */
    uint64_t graph_launches;         /* of whole graphs */
    uint64_t allocations;            /* of host and device memory */
    uint64_t waits;                  /* of the host for the device */
    uint64_t to_device, from_device; /* bytes transferred */
    int alive;                       /* allocations, streams, events and graphs not freed */
} wf_emulated_counts;
/* Counts since the start of the program. */
wf_emulated_counts wf_emulated_count(void);
/* Makes the nth fallible call from now fail with `error`; 0: no failure. */
void wf_emulated_fail(int nth, cudaError_t error);
/* Whether that call has failed. */
bool wf_emulated_failed(void);

/* ---- Blocks that wait for others ---- */

/* Lets threads of other blocks run; for loops that poll memory that another block writes. */
void wf_emulated_yield(void);

#ifdef __cplusplus
}
#endif
#endif
