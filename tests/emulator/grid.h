/* SPDX-License-Identifier: MIT */
/* grid.h - running a grid, for the emulated runtime. */
#ifndef WF_TESTS_GRID_H
#define WF_TESTS_GRID_H

#include "emulator.h"

/* Runs all blocks, now. One at a time: the caller holds a lock. */
void wf_grid_run(const wf_emulated_grid *grid);
/* The next number of a sequence that follows from the seed. */
uint64_t wf_grid_random(void);

#endif
