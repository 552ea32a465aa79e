/* SPDX-License-Identifier: MIT */
/* grid.h - runs a grid for the emulated runtime. */
#ifndef WF_TESTS_GRID_H
#define WF_TESTS_GRID_H

#include "emulator.h"

/* Runs all blocks and returns. Not reentrant: the caller holds the runtime's lock. */
void wf_grid_run(const wf_emulated_grid *grid);
/* The next value of the random sequence of the seed. */
uint64_t wf_grid_random(void);

/* Ends the program with a message that starts with the running thread. */
_Noreturn void wf_grid_stop(const char *what);

/* The running thread's position, for race.c and hopper.c. */
typedef struct {
    const char *kernel;
    uint64_t first;      /* serial of the grid's first block */
    uint64_t block;      /* serial of the block; 0: no kernel is running */
    unsigned phase;      /* barriers that the block has passed */
    unsigned warp_phase; /* warp functions that the warp has completed */
    int thread;          /* index in the block */
    const char *stack, *stack_end;
} wf_grid_place;
extern wf_grid_place wf_grid_here;
/* Checks the running thread's last write before another thread runs. Call only if
 * wf_race_pending. */
extern bool wf_race_pending;
void wf_race_settle(void);
/* Forgets accesses to newly allocated memory. */
void wf_race_forget(const void *data, size_t bytes);

/* ---- For hopper.c ---- */

/* Pending asynchronous work of a block and its threads; NULL until the first use. */
typedef struct wf_async wf_async;
wf_async **wf_grid_async(void);
/* Completes some pending work when no thread is runnable. Returns false when nothing is pending. */
bool wf_async_advance(wf_async *a);
/* The running thread ends; the block has ended. */
void wf_async_thread_ends(const wf_async *a);
void wf_async_end(wf_async *a);
size_t wf_grid_shared(void); /* dynamic shared memory, bytes */
/* Suspends the thread until another wakes the waiters of `what`, an address in the block's shared
 * memory. */
void wf_grid_wait(const void *what);
void wf_grid_wake(const void *what);
/* Runs threads of other warps first, if any is runnable. */
void wf_grid_give_way(void);
/* Runs other blocks for a while at the thread's next wait. */
void wf_grid_interrupt(void);
/* Returns the emulated cuTensorMapEncodeTiled. */
void *wf_hopper_encoder(void);

#endif
