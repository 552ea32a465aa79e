/* SPDX-License-Identifier: MIT */
/*
 * emulator.h - kernels in CUDA C on the host: how a grid is described, and what its threads ask for.
 *
 * Every thread of a block is a fiber with a stack of its own, and runs until it has to wait for others; blocks run one
 * after the other, in an order that follows from a seed, unless they wait for others. Shared memory is filled with ones before each block, so
 * that what was not written reads as NaN. A block whose threads wait for each other in vain ends the program with
 * a sentence.
 *
 * Environment:
 *   WEFT_EMULATED_CAPABILITY  of the device, times 10: 90 is Hopper (default 80)
 *   WEFT_EMULATED_SEED        decides the order of blocks, warps, lanes and streams (default 1)
 *   WEFT_EMULATED_MEMORY      MiB of memory that the device has (default 4096)
 *   WEFT_EMULATED_DEVICES     how many there are; 0: none, as without a driver (default 1)
 *   CUDA_LAUNCH_BLOCKING      1: what is put into a stream is done at once, for debuggers
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
    const char *name; /* borrowed for ever */
    dim3 grid, block;
    size_t shared; /* bytes, dynamic */
    wf_emulated_call *call;
    const void *arguments;
    size_t argument_bytes;
} wf_emulated_grid;

/* Puts a launch into a stream; the arguments are copied. What is wrong about it is kept for cudaGetLastError. */
void wf_emulated_launch(const wf_emulated_grid *grid, cudaStream_t stream);

/* What threads read. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;

void *wf_emulated_shared(void); /* dynamic, of the block */

/* A __shared__ variable of a kernel: one a declaration and instance of a template. */
typedef struct {
    void *address;   /* in the block that looked last */
    uint64_t serial; /* of that block */
    int number;      /* 0: nobody asked yet */
} wf_emulated_slot;
extern uint64_t wf_emulated_serial; /* of the block that runs */
void *wf_emulated_find(wf_emulated_slot *slot, size_t bytes, size_t alignment);
static inline void *wf_emulated_static(wf_emulated_slot *slot, size_t bytes, size_t alignment)
{
    return slot->serial == wf_emulated_serial ? slot->address
                                              : wf_emulated_find(slot, bytes, alignment);
}

typedef enum { WF_BARRIER, WF_BARRIER_COUNT, WF_BARRIER_AND, WF_BARRIER_OR } wf_barrier_kind;
/* Waits for all threads of the block that have not ended; gives the sum of `value` or what became of it. */
int wf_emulated_syncthreads(wf_barrier_kind kind, int value);
/* bar.sync: waits until so many threads have arrived at this barrier of 16, a multiple of 32. */
void wf_emulated_barrier(int barrier, int threads);
/* bar.arrive: the same without waiting. */
void wf_emulated_barrier_arrive(int barrier, int threads);

typedef enum {
    WF_WARP_SYNC,
    WF_WARP_SHUFFLE, /* gives the value of lane `source` */
    WF_WARP_BALLOT,  /* gives the lanes whose value is not 0 */
    WF_WARP_GATHER,  /* see wf_emulated_gather */
    WF_WARP_MATCH,   /* gives the lanes that have the same value */
    WF_WARP_ADD,
    WF_WARP_AND,
    WF_WARP_OR,
    WF_WARP_XOR,
    WF_WARP_MIN, /* signed */
    WF_WARP_MAX,
    WF_WARP_UMIN, /* unsigned */
    WF_WARP_UMAX
} wf_warp_kind;
/* Waits for all lanes of the mask to call it with the same kind and mask. */
uint64_t wf_emulated_warp(wf_warp_kind kind, unsigned mask, uint64_t value, int source);
/* What all 32 lanes brought, up to WF_EMULATED_GATHERED bytes each, which is where one begins after the other; until
 * the next but one call. */
enum { WF_EMULATED_GATHERED = 64 };
const void *wf_emulated_gather(const void *mine, size_t bytes);
unsigned wf_emulated_activemask(void);
int wf_emulated_lane(void);

/* ---- For tests ---- */

typedef struct {
    uint64_t launches;               /* of kernels, by themselves */
    uint64_t captured;               /* launches that became part of a graph */
    uint64_t captures;               /* graphs made so */
    uint64_t graph_launches;         /* of whole graphs */
    uint64_t allocations;            /* of either memory */
    uint64_t waits;                  /* of the host for the device */
    uint64_t to_device, from_device; /* bytes that crossed */
    int alive; /* allocations, streams, events and graphs that were not freed */
} wf_emulated_counts;
/* Since the program started. */
wf_emulated_counts wf_emulated_count(void);
/* The nth function from now that can fail does so, and nothing else; 0: none will. */
void wf_emulated_fail(int nth, cudaError_t error);
/* Whether it has. */
bool wf_emulated_failed(void);

/* ---- Blocks that wait for others ---- */

/* Lets threads of other blocks run: for loops that wait until another block has written something. */
void wf_emulated_yield(void);

#ifdef __cplusplus
}
#endif
#endif
