/* SPDX-License-Identifier: MIT */
/* philox.h - Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
 *
 * A block of four words is a pure function of a counter and a key, so any thread or device can
 * compute any part of a stream independently, with equal results. wf_rng reads such a stream
 * sequentially, for host code. */
#ifndef WF_BASE_PHILOX_H
#define WF_BASE_PHILOX_H

#include <math.h>
#include <stdint.h>

/* Computes one block: ten rounds of two 32 x 32 -> 64 bit products, with the constants of the
 * paper. The tests compare it with published vectors. */
static inline void wf_philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u; /* golden ratio */
        k1 += 0xBB67AE85u; /* sqrt(3) - 1 */
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Uniform in [0, 1). Uses the upper 24 bits, which are exact in f32: rounding never reaches 1. */
static inline float wf_u32_to_unit(uint32_t x)
{
    return (float)(x >> 8) * 0x1p-24f;
}

typedef struct {
    uint32_t key[2];     /* the seed */
    uint32_t counter[4]; /* words 0, 1: index of the next block; words 2, 3: the stream */
    uint32_t block[4];   /* the last `left` words are unused */
    int left;
} wf_rng;

/* Different streams of one seed are independent. */
static inline void wf_rng_init(wf_rng *r, uint64_t seed, uint64_t stream)
{
    *r = (wf_rng){
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {0, 0, (uint32_t)stream, (uint32_t)(stream >> 32)},
    };
}

static inline uint32_t wf_rng_u32(wf_rng *r)
{
    if (r->left == 0) {
        wf_philox4x32(r->counter, r->key, r->block);
        r->left = 4;
        /* 64-bit increment. It never carries into the stream, words 2 and 3. */
        if (++r->counter[0] == 0)
            ++r->counter[1];
    }
    return r->block[4 - r->left--];
}

static inline uint64_t wf_rng_u64(wf_rng *r)
{
    uint64_t low = wf_rng_u32(r);
    return (uint64_t)wf_rng_u32(r) << 32 | low;
}

/* Uniform in [0, n), without bias; n > 0. Rejects less than half of the draws, for any n. */
static inline uint64_t wf_rng_below(wf_rng *r, uint64_t n)
{
    uint64_t excess = (0 - n) % n; /* 2^64 mod n: the remaining range is a multiple of n */
    uint64_t x;
    do
        x = wf_rng_u64(r);
    while (x < excess);
    return x % n;
}

/* Uniform in [0, 1), a multiple of 2^-53. */
static inline double wf_rng_unit(wf_rng *r)
{
    return (double)(wf_rng_u64(r) >> 11) * 0x1p-53;
}

/* Standard normal, by Box-Muller. The sine of the pair is dropped: keeping it would make the next
 * value depend on more than the counter. */
static inline double wf_rng_normal(wf_rng *r)
{
    double radius = sqrt(-2.0 * log(1.0 - wf_rng_unit(r))); /* 1 - unit is never 0 */
    return radius * cos(6.283185307179586477 * wf_rng_unit(r));
}

#endif
