/* SPDX-License-Identifier: MIT */
/* grid.h - running a grid, for the emulated runtime. */
#ifndef WF_TESTS_GRID_H
#define WF_TESTS_GRID_H

#include "emulator.h"

/* Runs all blocks, now. One at a time: the caller holds a lock. */
void wf_grid_run(const wf_emulated_grid *grid);
/* The next number of a sequence that follows from the seed. */
uint64_t wf_grid_random(void);

/* Ends the program with a sentence that begins with the thread that runs. */
_Noreturn void wf_grid_stop(const char *what);

/* What runs, for race.c and hopper.c. */
typedef struct {
    const char *kernel;
    uint64_t first;      /* serial of the grid's first block */
    uint64_t block;      /* serial of the block; 0: no kernel runs */
    unsigned phase;      /* barriers that it has passed */
    unsigned warp_phase; /* functions of warps that the warp has passed */
    int thread;          /* of the block */
    const char *stack, *stack_end;
} wf_grid_place;
extern wf_grid_place wf_grid_here;
/* Looks at what the thread wrote last, before another runs; only if there is something. */
extern bool wf_race_pending;
void wf_race_settle(void);
/* Memory that begins anew. */
void wf_race_forget(const void *data, size_t bytes);

/* ---- For hopper.c ---- */

/* What a block and its threads have under way; NULL until somebody makes it. */
typedef struct wf_async wf_async;
wf_async **wf_grid_async(void);
/* Gets something done when no thread can go on; false: there is nothing. */
bool wf_async_advance(wf_async *a);
/* The thread that runs ends; the block has. */
void wf_async_thread_ends(const wf_async *a);
void wf_async_end(wf_async *a);
size_t wf_grid_shared(void); /* bytes that are dynamic */
/* The thread waits until somebody wakes those that wait at `what`, in shared memory of the block. */
void wf_grid_wait(const void *what);
void wf_grid_wake(const void *what);
/* Threads of other warps run first, if some can. */
void wf_grid_give_way(void);
/* When the thread waits next, other blocks run for a while. */
void wf_grid_interrupt(void);
/* cuTensorMapEncodeTiled */
void *wf_hopper_encoder(void);

#endif
