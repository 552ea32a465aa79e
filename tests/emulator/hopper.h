/* SPDX-License-Identifier: MIT */
/*
 * hopper.h - what threads ask for that only Hopper has: barriers in shared memory, the tensor memory accelerator (TMA)
 * and products of warpgroups (hopper.c). src/device/cuda/hopper.cuh says what each of them is.
 *
 * What happens in the background happens as early or as late as it may, as the seed has it: a load at once, or when no
 * thread of the block can go on without one; a store reads shared memory at once, or when that is waited for, and is
 * delivered at once, or when this is waited for, at the end of the block at the latest; products always when they are
 * waited for. Until then their sums are NaN, and who changes them is stopped.
 *
 * Shared memory is known by addresses as Hopper has them: 32 bits, within the first 256 KiB. Only dynamic memory
 * has one here.
 */
#ifndef WF_TESTS_HOPPER_H
#define WF_TESTS_HOPPER_H

#include "emulator.h"

#ifdef __cplusplus
extern "C" {
#endif

uint32_t wf_emulated_shared_address(const void *p);
/* So many bytes that lie there. */
void *wf_emulated_shared_at(uint32_t address, size_t bytes);

void wf_emulated_mbarrier_init(uint32_t barrier, int arrivals);
void wf_emulated_mbarrier_arrive(uint32_t barrier);
void wf_emulated_mbarrier_expect(uint32_t barrier, int bytes); /* and arrives */
/* Lets others run when it has not. */
bool wf_emulated_mbarrier_passed(uint32_t barrier, uint32_t parity);
void wf_emulated_mbarrier_wait(uint32_t barrier, uint32_t parity);

/* A box of a CUtensorMap; x: its first element, the innermost axis first. */
void wf_emulated_tma_load(uint32_t to, const void *map, uint32_t barrier, const int x[4]);
void wf_emulated_tma_store(const void *map, uint32_t from, const int x[4]);
/* Bytes that lie together; or f32 to be added. */
void wf_emulated_bulk_load(uint32_t to, const void *from, int bytes, uint32_t barrier);
void wf_emulated_bulk_store(void *to, uint32_t from, int bytes, bool add);
void wf_emulated_tma_commit(void);
/* read: until shared memory was read. */
void wf_emulated_tma_wait(int groups, bool read);

enum { WF_EMULATED_SUMS = 128 }; /* of a thread, at most: 256 columns */

/* d[64, 2 count] (+)= a[64, 16] b[16, 2 count], the part of one thread. */
typedef struct {
    float *d; /* [count] */
    int count;
    bool add, f16;  /* f16, or bf16 */
    bool a_columns; /* transposed = 1, as hopper.cuh has it */
    bool b_columns;
    bool registers;      /* a is `row`, not in shared memory */
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
