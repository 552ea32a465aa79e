/* SPDX-License-Identifier: MIT */
/*
 * attention_decode.h - decode attention: few queries, many keys in page pools. Its cost is that of
 * reading the keys and values once.
 *
 * Each row of the pool is read once, in its stored type, for all heads of a group. The keys of a
 * sequence are cut into chunks at multiples of CHUNK, for any number of threads. Results have the
 * bits of tiles (attention.c), so the choice between the two is one of speed.
 */
#ifndef WF_DEVICE_CPU_SIMD_ATTENTION_DECODE_H
#define WF_DEVICE_CPU_SIMD_ATTENTION_DECODE_H

#include "device/cpu/simd/attention.h"

typedef struct {
    int64_t *first;   /* [S + 1]: chunks before each sequence */
    int64_t *queries; /* [S + 1]: decoded tokens before each sequence */
    float *partial;   /* [tokens][chunks][H][2 + dv_wide]: maximum, sum of p, sum of p v */
    int64_t chunks;   /* most chunks of a sequence */
    char *scratch;
    size_t scratch_bytes; /* per thread */
} wf_decode;

/* Most tokens of a sequence that use decode; more tokens fill a tile. */
static inline int64_t wf_decode_most(const wf_attention_problem *o)
{
    return o->group < WF_VL ? WF_VL / (o->group > 0 ? o->group : 1) : 1;
}

static inline bool wf_decode_wants(const wf_attention_problem *o, int64_t sequence)
{
    return o->table && o->start[sequence + 1] - o->start[sequence] <= wf_decode_most(o);
}

void WF_SIMD(wf_decode_lay_out)(wf_decode *a, wf_carver *c, const wf_attention_problem *o);
/* Bytes of scratch per thread. */
size_t WF_SIMD(wf_decode_scratch)(const wf_attention_problem *o);
/* Processes the sequences for which wf_decode_wants holds. */
void WF_SIMD(wf_decode_run)(wf_decode *a, const wf_attention_problem *o);

#endif
