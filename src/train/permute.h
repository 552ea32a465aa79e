/* SPDX-License-Identifier: MIT */
/*
 * permute.h - a random order of 0 .. n - 1 of which any place can be asked for, without a table.
 *
 * A Feistel network over the next power of four, whose rounds are Philox, followed until it lands below n
 * (Black and Rogaway, "Ciphers with arbitrary finite domains", 2002): less than four steps on average.
 */
#ifndef WF_TRAIN_PERMUTE_H
#define WF_TRAIN_PERMUTE_H

#include <stdint.h>

typedef struct {
    uint64_t n;
    uint64_t stream;
    uint32_t key[2];
    int half; /* bits of each of the two halves of a number */
} wf_permutation;

/* n >= 1. Each (seed, stream) is an order of its own. */
wf_permutation wf_permutation_make(uint64_t n, uint64_t seed, uint64_t stream);
/* What stands at place i < n. */
uint64_t wf_permutation_at(const wf_permutation *p, uint64_t i);

#endif
