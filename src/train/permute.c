/* SPDX-License-Identifier: MIT */
/* permute.c - a Feistel network as a random permutation. */
#include "train/permute.h"

#include "base/philox.h"

/* Four rounds are pseudorandom (Luby and Rackoff); small domains mix less per round. */
#define ROUNDS 8

wf_permutation wf_permutation_make(uint64_t n, uint64_t seed, uint64_t stream)
{
    wf_permutation p = {
        .n = n, .stream = stream, .key = {(uint32_t)seed, (uint32_t)(seed >> 32)}, .half = 1};
    while (p.half < 32 && n > UINT64_C(1) << 2 * p.half)
        p.half++;
    return p;
}

/* One pass of the Feistel network: a bijection on 2 * half bits for any round function. */
static uint64_t mix(const wf_permutation *p, uint64_t x)
{
    const uint32_t mask = (uint32_t)((UINT64_C(1) << p->half) - 1);
    uint32_t left = (uint32_t)(x >> p->half) & mask, right = (uint32_t)x & mask;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        const uint32_t counter[4] = {right, round, (uint32_t)p->stream,
                                     (uint32_t)(p->stream >> 32)};
        uint32_t random[4];
        wf_philox4x32(counter, p->key, random);
        uint32_t next = left ^ (random[0] & mask);
        left = right;
        right = next;
    }
    return (uint64_t)left << p->half | right;
}

/* Cycle walking: repeats until the value is in range, which keeps the map a bijection on 0 .. n -
 * 1. */
uint64_t wf_permutation_at(const wf_permutation *p, uint64_t i)
{
    do
        i = mix(p, i);
    while (i >= p->n);
    return i;
}
