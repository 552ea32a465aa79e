/* SPDX-License-Identifier: MIT */
/*
 * attention_decode.h - attention of few queries to many keys in page pools, which costs what reading the
 * keys and values costs.
 *
 * Each row of the pool is read once, as it is stored, for all heads of a group. The keys of a sequence
 * are cut into chunks at multiples of CHUNK, whatever the number of threads; a query that sees several
 * adds up what they gave, in order.
 */
#ifndef WF_DEVICE_CPU_SIMD_ATTENTION_DECODE_H
#define WF_DEVICE_CPU_SIMD_ATTENTION_DECODE_H

#include "device/cpu/simd/attention.h"

enum { CHUNK = 256 };

typedef struct {
    int64_t *first;   /* [S + 1]: chunks before each sequence */
    int64_t *queries; /* [S + 1]: decoded tokens before each sequence */
    float *partial;   /* [tokens][chunks][H][2 + dv_wide]: greatest score, sum of p, sum of p v */
    int64_t chunks;   /* that the longest sequence could have */
    char *scratch;
    size_t scratch_bytes; /* of a thread */
} wf_decode;

/* Tokens of a sequence that are decoded: more of them fill a tile. */
static inline int64_t wf_decode_most(const wf_attention_problem *o)
{
    return o->group < WF_VL ? WF_VL / (o->group > 0 ? o->group : 1) : 1;
}

static inline bool wf_decode_wants(const wf_attention_problem *o, int64_t sequence)
{
    return o->table && o->start[sequence + 1] - o->start[sequence] <= wf_decode_most(o);
}

void WF_SIMD(wf_decode_lay_out)(wf_decode *a, wf_carver *c, const wf_attention_problem *o);
/* Bytes of scratch memory that a thread needs. */
size_t WF_SIMD(wf_decode_scratch)(const wf_attention_problem *o);
/* Does the sequences that wf_decode_wants. */
void WF_SIMD(wf_decode_run)(wf_decode *a, const wf_attention_problem *o);

#endif
