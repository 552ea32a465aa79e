/* SPDX-License-Identifier: MIT */
/* hash.c - see hash.h. */
#define _DEFAULT_SOURCE /* getentropy */
#include "base/hash.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

static _Atomic uint64_t drawn; /* 0: not drawn yet */

/* Of threads that race here, the first one's key wins. */
static uint64_t draw(void)
{
    uint64_t key, none = 0;
    if (getentropy(&key, sizeof key) != 0) /* no system entropy: clock and stack address */
        key = ((uint64_t)wf_clock_ns() ^ (uintptr_t)&key) * UINT64_C(0x9E3779B97F4A7C15);
    /* Odd, so that it is never 0, which means "not drawn yet". */
    key |= 1;
    return atomic_compare_exchange_strong(&drawn, &none, key) ? key : none;
}

uint64_t wf_hash_key(void)
{
    uint64_t key = atomic_load_explicit(&drawn, memory_order_relaxed);
    return key ? key : draw();
}

uint32_t wf_hash_bytes(const char *bytes, size_t count)
{
    /* The length takes part, so zero padding of the last word cannot make two strings equal. */
    uint64_t key = wf_hash_key(), h = key ^ count, word = 0;
    for (; count >= 8; bytes += 8, count -= 8) {
        memcpy(&word, bytes, 8);
        h = wf_hash_mix(h ^ word, key);
    }
    word = 0;
    if (count > 0)
        memcpy(&word, bytes, count);
    h = wf_hash_mix(h ^ word, key);
    return (uint32_t)(wf_hash_mix(h ^ key, key) >> 32);
}

uint64_t wf_hash_fnv1a(uint64_t h, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++)
        h = (h ^ at[i]) * UINT64_C(0x100000001b3);
    return h;
}

uint64_t wf_hash_fnv1a_string(uint64_t h, const char *s)
{
    return wf_hash_fnv1a(h, s, strlen(s));
}
