/* SPDX-License-Identifier: MIT */
/*
 * hash.h - keyed hashes for hash tables, and FNV-1a for values that must not change between runs.
 *
 * The author of an input file chooses the keys of our tables. The keyed hashes depend on a random
 * key that each process draws once, so a file cannot be crafted to make every key collide. Their
 * values differ between runs: no output may depend on them. FNV-1a has no key: it names random
 * streams and cache entries.
 */
#ifndef WF_BASE_HASH_H
#define WF_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Returns this process's key, an odd number. */
uint64_t wf_hash_key(void);

/* Multiplies to 128 bits and xors the two halves. */
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

/* FNV-1a, 64 bits: continues the hash h, which starts as WF_FNV1A, with more bytes. Equal on every
 * machine. */
#define WF_FNV1A UINT64_C(0xcbf29ce484222325)
uint64_t wf_hash_fnv1a(uint64_t h, const void *bytes, size_t count);
uint64_t wf_hash_fnv1a_string(uint64_t h, const char *s); /* without the NUL */

#endif
