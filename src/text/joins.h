/* SPDX-License-Identifier: MIT */
/*
 * joins.h - a Bloom filter of the pairs of characters that are adjacent inside a token. A word can
 * be cut between two characters that no token joins.
 */
#ifndef WF_TEXT_JOINS_H
#define WF_TEXT_JOINS_H

#include <string.h>

#include "base/arena.h"

#define WF_JOINS_BITS (1u << 20) /* 128 KiB */

typedef struct {
    uint64_t *bits; /* [WF_JOINS_BITS / 64] */
} wf_joins;

static inline wf_status wf_joins_init(wf_joins *j, wf_arena *arena)
{
    j->bits = wf_arena_alloc(arena, WF_JOINS_BITS / 8);
    return j->bits ? WF_OK : WF_ERR_MEMORY;
}

/* One hash per pair. A false positive only delays a cut. */
static inline uint32_t wf_joins_bit(uint32_t left, uint32_t right)
{
    uint64_t mixed = ((uint64_t)left << 32 | right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(mixed >> 40) & (WF_JOINS_BITS - 1);
}

static inline void wf_joins_add(wf_joins *j, uint32_t left, uint32_t right)
{
    uint32_t bit = wf_joins_bit(left, right);
    j->bits[bit / 64] |= (uint64_t)1 << bit % 64;
}

/* Adds all pairs, so that nothing is cut. */
static inline void wf_joins_add_all(wf_joins *j)
{
    memset(j->bits, 0xFF, WF_JOINS_BITS / 8);
}

/* Adds the pairs of a token, valid UTF-8. */
void wf_joins_add_token(wf_joins *j, const char *text, size_t bytes);

/* May be true wrongly. */
static inline bool wf_joins_has(const wf_joins *j, uint32_t left, uint32_t right)
{
    uint32_t bit = wf_joins_bit(left, right);
    return j->bits[bit / 64] >> bit % 64 & 1;
}

#endif
