/* SPDX-License-Identifier: MIT */
/* grid.h - running a grid, for the emulated runtime. */
#ifndef WF_TESTS_GRID_H
#define WF_TESTS_GRID_H

#include "emulator.h"

/* Runs all blocks, now. One at a time: the caller holds a lock. */
void wf_grid_run(const wf_emulated_grid *grid);
/* The next number of a sequence that follows from the seed. */
uint64_t wf_grid_random(void);

/* What runs, for race.c. */
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

#endif
