/* SPDX-License-Identifier: MIT */
/* checksum.c - see checksum.h. Names follow the XXH64 specification (lanes, stripes, rounds). */
#include "base/checksum.h"

#include <string.h>

#define STRIPE 32 /* bytes that the four lanes consume per round */

static const uint64_t prime1 = UINT64_C(0x9E3779B185EBCA87), prime2 = UINT64_C(0xC2B2AE3D27D4EB4F),
                      prime3 = UINT64_C(0x165667B19E3779F9), prime4 = UINT64_C(0x85EBCA77C2B2AE63),
                      prime5 = UINT64_C(0x27D4EB2F165667C5);

static inline uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

/* Little endian on every machine; compilers turn this into a single load. */
static inline uint32_t load32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline uint64_t load64(const uint8_t *p)
{
    return (uint64_t)load32(p) | (uint64_t)load32(p + 4) << 32;
}

static inline uint64_t xxh_round(uint64_t lane, uint64_t word)
{
    return rotate(lane + word * prime2, 31) * prime1;
}

/* Consumes `count` whole stripes and returns the end of them. */
static const uint8_t *stripes(uint64_t lane[4], const uint8_t *p, size_t count)
{
    uint64_t a = lane[0], b = lane[1], c = lane[2], d = lane[3];
    for (; count > 0; count--, p += STRIPE) {
        a = xxh_round(a, load64(p));
        b = xxh_round(b, load64(p + 8));
        c = xxh_round(c, load64(p + 16));
        d = xxh_round(d, load64(p + 24));
    }
    lane[0] = a, lane[1] = b, lane[2] = c, lane[3] = d;
    return p;
}

void wf_checksum_begin(wf_checksum_state *s)
{
    *s = (wf_checksum_state){.lane = {prime1 + prime2, prime2, 0, 0 - prime1}};
}

/* total % STRIPE bytes are held between calls. A call first completes that stripe, then consumes
 * whole stripes directly from the caller's memory, then holds the rest. */
void wf_checksum_add(wf_checksum_state *s, const void *bytes, size_t count)
{
    const uint8_t *p = bytes;
    size_t held = (size_t)(s->total % STRIPE);
    s->total += count;
    if (held > 0) {
        size_t take = count < STRIPE - held ? count : STRIPE - held;
        memcpy(s->held + held, p, take);
        p += take;
        count -= take;
        if (held + take < STRIPE)
            return;
        stripes(s->lane, s->held, 1);
    }
    p = stripes(s->lane, p, count / STRIPE);
    if (count % STRIPE > 0)
        memcpy(s->held, p, count % STRIPE);
}

/* Mixes the four lanes into one word. Only for inputs of at least one stripe; shorter ones start
 * from prime5. */
static uint64_t converge(const uint64_t lane[4])
{
    uint64_t h =
        rotate(lane[0], 1) + rotate(lane[1], 7) + rotate(lane[2], 12) + rotate(lane[3], 18);
    for (int i = 0; i < 4; i++)
        h = (h ^ xxh_round(0, lane[i])) * prime1 + prime4;
    return h;
}

uint64_t wf_checksum_end(const wf_checksum_state *s)
{
    uint64_t h = (s->total >= STRIPE ? converge(s->lane) : prime5) + s->total;
    const uint8_t *p = s->held;
    size_t left = (size_t)(s->total % STRIPE);
    for (; left >= 8; left -= 8, p += 8)
        h = rotate(h ^ xxh_round(0, load64(p)), 27) * prime1 + prime4;
    if (left >= 4) {
        h = rotate(h ^ load32(p) * prime1, 23) * prime2 + prime3;
        left -= 4;
        p += 4;
    }
    for (; left > 0; left--, p++)
        h = rotate(h ^ *p * prime5, 11) * prime1;
    /* Avalanche: every input bit affects every output bit. */
    h = (h ^ h >> 33) * prime2;
    h = (h ^ h >> 29) * prime3;
    return h ^ h >> 32;
}

uint64_t wf_checksum(const void *bytes, size_t count)
{
    wf_checksum_state s;
    wf_checksum_begin(&s);
    wf_checksum_add(&s, bytes, count);
    return wf_checksum_end(&s);
}
