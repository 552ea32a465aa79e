/* SPDX-License-Identifier: MIT */
/*
 * block.h - quantized blocks: how they are stored, and the way from numbers to blocks and back.
 *
 * A block holds 32 or 256 neighbours of a row: small integers q and what turns them into numbers.
 * The layouts are those of GGUF files, byte for byte:
 *
 *     type   numbers  bytes  a number is          groups of a block
 *     q8_0      32      34   d q
 *     q4_0      32      18   d (q - 8)
 *     q4_1      32      20   d q + m
 *     q4_K     256     144   d s q - dmin m       8 of 32, s and m of 6 bits each
 *     q6_K     256     210   d s (q - 32)         16 of 16, s of 8 bits
 *
 * d, dmin and m of q4_1 are f16. All products are exact in f32, so a number is rounded once at most and
 * is the same however it is computed.
 */
#ifndef WF_GRAPH_QUANT_BLOCK_H
#define WF_GRAPH_QUANT_BLOCK_H

#include "graph/type.h"

/* No padding anywhere; alignment 2. */
typedef struct {
    uint16_t d;
    int8_t q[32];
} wf_block_q8_0;

typedef struct {
    uint16_t d;
    uint8_t q[16]; /* low half: number i, high half: number i + 16; so in q4_1, too */
} wf_block_q4_0;

typedef struct {
    uint16_t d, m;
    uint8_t q[16];
} wf_block_q4_1;

typedef struct {
    uint16_t d, dmin;
    uint8_t scales[12]; /* s and m of the groups: wf_q4_k_scales */
    uint8_t
        q[128]; /* 32 bytes for two groups: low halves are the first one, high ones the second */
} wf_block_q4_k;

typedef struct {
    uint8_t low[128]; /* for each half of 128 numbers 64 bytes: low 4 bits, as in q4_K, of 4 x 32 */
    uint8_t high[64]; /* and 32 bytes: the high 2 bits of numbers i, i + 32, i + 64, i + 96 */
    int8_t scales[16];
    uint16_t d;
} wf_block_q6_k;

/* Groups 0 .. 3 have the low 6 bits of bytes 0 .. 3 (s) and 4 .. 7 (m). Groups 4 .. 7 have their low 4
 * bits in bytes 8 .. 11, s below m, and the high 2 bits on top of bytes 0 .. 3 and 4 .. 7. */
static inline void wf_q4_k_scales(const uint8_t scales[12], int group, int *s, int *m)
{
    int i = group & 3;
    *s = group < 4 ? scales[i] & 63 : (scales[i + 8] & 15) | scales[i] >> 6 << 4;
    *m = group < 4 ? scales[i + 4] & 63 : scales[i + 8] >> 4 | scales[i + 4] >> 6 << 4;
}

/* The least run of numbers that can be decoded by itself: 32; 64 of q4_K, 128 of q6_K. */
int wf_block_part(wf_type type);
/* Numbers [begin, begin + n) of the row that starts at `from`; both are multiples of the part. */
void wf_block_decode(wf_type type, const void *from, int64_t begin, int64_t n, float *to);

/* Rows of numbers to any type, blocks or plain; a row has whole blocks. `importance` [columns], or NULL,
 * says how much the squared error of each column counts: finite and not negative, such as the mean
 * square of what the column is multiplied by. Plain types do not look at it.
 *
 * Of blocks, zeros stay zeros. NaN counts as 0, and what is beyond +-65504, infinity included, as that.
 * Rows are independent: threads may share them out. */
void wf_quantize(wf_type type, const float *from, const float *importance, void *to, int64_t rows,
                 int64_t columns);

#endif
