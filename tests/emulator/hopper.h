/* SPDX-License-Identifier: MIT */
/*
 * hopper.h - Hopper's asynchronous features: barriers in shared memory, the tensor memory
 * accelerator (TMA) and warpgroup MMAs (hopper.c). src/device/cuda/hopper.cuh defines each of them.
 *
 * Background work completes as early or as late as allowed, drawn by the seed. A load completes at
 * once, or when no thread of the block can continue without one. A store reads shared memory at
 * once, or when a thread waits for that. It is delivered at once, or when a thread waits for that,
 * at the end of the block at the latest. MMAs complete only when a thread waits for them. Until
 * then their accumulators are NaN, and a write to them ends the program.
 *
 * Shared memory has 32-bit addresses within the first 256 KiB, as on Hopper. Only dynamic shared
 * memory has such addresses here.
 */
#ifndef WF_TESTS_HOPPER_H
#define WF_TESTS_HOPPER_H

#include "emulator.h"

#ifdef __cplusplus
extern "C" {
#endif

uint32_t wf_emulated_shared_address(const void *p);
/* Returns a pointer to `bytes` bytes at this shared address. */
void *wf_emulated_shared_at(uint32_t address, size_t bytes);

void wf_emulated_mbarrier_init(uint32_t barrier, int arrivals);
void wf_emulated_mbarrier_arrive(uint32_t barrier);
void wf_emulated_mbarrier_expect(uint32_t barrier, int bytes); /* also arrives */
/* Lets other threads run when the phase has not completed. */
bool wf_emulated_mbarrier_passed(uint32_t barrier, uint32_t parity);
void wf_emulated_mbarrier_wait(uint32_t barrier, uint32_t parity);

/* Transfers a box of a CUtensorMap. x: coordinates of its first element, innermost axis first. */
void wf_emulated_tma_load(uint32_t to, const void *map, uint32_t barrier, const int x[4]);
void wf_emulated_tma_store(const void *map, uint32_t from, const int x[4]);
/* Transfers contiguous bytes; the reduction adds f32 elements. */
void wf_emulated_bulk_load(uint32_t to, const void *from, int bytes, uint32_t barrier);
void wf_emulated_bulk_store(void *to, uint32_t from, int bytes, bool add);
void wf_emulated_tma_commit(void);
/* read: waits only until shared memory was read. */
void wf_emulated_tma_wait(int groups, bool read);

enum { WF_EMULATED_SUMS = 128 }; /* per thread, at most: 256 columns */

/* One thread's part of d[64, 2 count] (+)= a[64, 16] b[16, 2 count]. */
typedef struct {
    float *d; /* [count] */
    int count;
    bool add, f16;  /* f16; else bf16 */
    bool a_columns; /* transposed = 1, as in hopper.cuh */
    bool b_columns;
    bool registers;      /* a comes from `row`, not from shared memory */
    uint16_t row[2][16]; /* the thread's two rows of a */
    uint64_t a, b;       /* descriptors */
} wf_emulated_product;
void wf_emulated_wgmma(const wf_emulated_product *p);
void wf_emulated_wgmma_commit(void);
void wf_emulated_wgmma_wait(int groups);

#ifdef __cplusplus
}
#endif
#endif
