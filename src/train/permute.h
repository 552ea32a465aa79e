/* SPDX-License-Identifier: MIT */
/*
 * permute.h - a random permutation of 0 .. n - 1 with random access and without a table.
 *
 * A Feistel network over the next power of four, with Philox as round function, iterated until the
 * result is below n (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002): below four
 * iterations on average.
 */
#ifndef WF_TRAIN_PERMUTE_H
#define WF_TRAIN_PERMUTE_H

#include <stdint.h>

typedef struct {
    uint64_t n;
    uint64_t stream;
    uint32_t key[2];
    int half; /* bits in each half of a number */
} wf_permutation;

/* n >= 1. Each (seed, stream) is an independent permutation. */
wf_permutation wf_permutation_make(uint64_t n, uint64_t seed, uint64_t stream);
/* Returns element i < n of the permutation. */
uint64_t wf_permutation_at(const wf_permutation *p, uint64_t i);

#endif
