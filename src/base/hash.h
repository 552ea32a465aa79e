/* SPDX-License-Identifier: MIT */
/*
 * hash.h - hashing of what comes from outside.
 *
 * Who writes a file chooses what is put into tables. So that no choice makes these slow, hashes depend on
 * a number that is drawn once in every process: nothing that is written or shown may follow their order.
 */
#ifndef WF_BASE_HASH_H
#define WF_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Odd, the same until the program ends. */
uint64_t wf_hash_key(void);

/* The halves of the whole product, on each other. Which numbers collide depends on the key. */
static inline uint64_t wf_hash_mix(uint64_t x, uint64_t key)
{
    __extension__ unsigned __int128 product = (unsigned __int128)x * key;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint32_t wf_hash_u64(uint64_t x)
{
    uint64_t key = wf_hash_key();
    return (uint32_t)(wf_hash_mix(x ^ key, key) >> 32);
}

uint32_t wf_hash_bytes(const char *bytes, size_t count);

#endif
