/* SPDX-License-Identifier: MIT */
/*
 * quant.h - layouts of the vector kernels for quantized weights: packed panels of weights, and
 * rounded activations.
 *
 * Weights. A weight [N, K] of blocks is packed into panels of WF_VL rows, one row per lane. A panel
 * holds the scales of all blocks first, then their integers. Both are in the order of the file's
 * blocks, interleaved so that a vector load reads the same item of WF_VL rows. Missing rows are
 * zeros.
 *
 *     [block][half][WF_VL] f16, [block][byte][WF_VL] u8     padded to whole cache lines
 *     [block][word][WF_VL] u32
 *
 * The words are those of the file, except in two cases, where they unpack with fewer instructions:
 *
 *     6 bits  128 elements become 24 words. Words 0 to 7 hold elements 0 to 31 in the low six bits
 *             of each byte, words 8 to 15 elements 32 to 63, words 16 to 23 elements 64 to 95. The
 *             top two bits of words u, u + 8 and u + 16 hold elements 96 to 127, low bits first.
 *     3 or 5  Files store the highest bits apart from the others, one word per 32 elements. A panel
 *             has these words first. `run` parts share as many of them: the highest bits of elements
 *             [4 u, 4 u + 4) of the i-th of these parts are in word u % run, one per byte, at bit
 *             u - u % run + i.
 *
 * Activations. Each block of 32 is rounded to 15-bit integers with one scale. There are two
 * layouts:
 *
 *     pairs   16 pairs of i16. A word of weights holds four neighbours. Shifting and masking yields
 *             the first and third, then the second and fourth, so activations are paired the same
 *             way. The fours alternate between the lower and the upper half of the block, as
 *             vp_join orders them.
 *     digits  an integer is 256 high + low, two 8-bit digits, for instructions that multiply four
 *             bytes at a time. This costs less per weight and more per row, so only small batches
 *             use it.
 *
 * Sums within a block are exact integers. They are scaled and added in the order of the blocks. A
 * result therefore depends only on its row of x and its row of w: not on the other rows, the number
 * of threads or the vector width.
 */
#ifndef WF_DEVICE_CPU_SIMD_QUANT_H
#define WF_DEVICE_CPU_SIMD_QUANT_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/simd.h"

/* The integer scales that a block has besides its f16 values, one byte each in a panel. A part is a
 * run of 32 elements, a group one of 16. */
typedef enum {
    WF_QUANT_BY_BLOCK,     /* none */
    WF_QUANT_BY_PART_MIN,  /* per part: a scale, then a minimum, both u8 */
    WF_QUANT_BY_PART,      /* per part: a scale, i8 */
    WF_QUANT_BY_GROUP,     /* per group: a scale, i8 */
    WF_QUANT_BY_GROUP_MIN, /* per group: a scale in the low four bits, a minimum in the high ones */
} wf_quant_scaling;

/* How a type is stored, in files and in panels. */
typedef struct {
    int block;                /* elements per block */
    int bytes;                /* bytes per block in a file */
    int half_at, word_at;     /* offsets of the f16 values and the words in a block of the file */
    int halves;               /* f16 values per block: scale, and minimum where the type has one */
    int scales;               /* bytes per block with integer scales, in a panel */
    wf_quant_scaling scaling; /* what these are */
    int words;                /* 32-bit words of integers per block */
    int bits;                 /* bits per integer. Integers of 8 bits are signed, others are not */
    int run;                  /* neighbouring parts that share words */
    int offset;               /* constant to subtract from the integers as stored */
    int mins;                 /* minima per part: an element is scale x integer + minimum */
    bool levels;              /* integers are indices of the signed levels of iq4_nl */
} wf_quant_layout;

#define WF_QUANT_BLOCK 32 /* elements per block of activations */
#define WF_QUANT_PAIRS 16 /* pairs per block of activations */
#define WF_QUANT_FOURS 8  /* words per block of activations, four elements each */
#define WF_QUANT_FEW 8 /* largest batch (rows of x) that multiplies panels without unpacking them */
#define WF_QUANT_MOST \
    16383 /* largest integer of an activation: the largest sum of a q6_K block, 32 x 4096 x
                               16383, is less than 2^31 */

/* Returns the word, 0 to 7, that pair p (0 to 15) comes from. */
static inline int wf_quant_four(int p)
{
    return p / 4 + p / 2 % 2 * 4;
}

/* Bytes of the scales of a panel, and of the whole panel, for rows of k elements. */
static inline int64_t wf_quant_scale_bytes(const wf_quant_layout *y, int64_t k)
{
    return (k / y->block * (2 * y->halves + y->scales) * WF_VL + 63) / 64 * 64;
}

static inline int64_t wf_quant_panel_bytes(const wf_quant_layout *y, int64_t k)
{
    return wf_quant_scale_bytes(y, k) + k / y->block * y->words * 4 * WF_VL;
}

/* Packed size in bytes; 0 if the weight cannot be packed. Packing and unpacking lose no bit. */
#define wf_quant_packed_bytes WF_SIMD(wf_quant_packed_bytes)
#define wf_quant_pack WF_SIMD(wf_quant_pack)
#define wf_quant_unpack WF_SIMD(wf_quant_unpack)
#define wf_quant_unpack_row WF_SIMD(wf_quant_unpack_row)
size_t wf_quant_packed_bytes(wf_type type, const wf_dims *shape);
void wf_quant_pack(void *panels, const void *rows, wf_type type, const wf_dims *shape, int threads);
void wf_quant_unpack(const void *panels, void *rows, wf_type type, const wf_dims *shape,
                     int threads);
/* Writes row r, of k elements, to `to` in the file's layout. */
void wf_quant_unpack_row(const void *panels, wf_type type, int64_t k, int64_t r, void *to);

/* Rounded activations: rows of k elements. Rows are interleaved in groups of `group`, so that a
 * tile reads them sequentially. The last group is padded with rows of zeros. */
typedef struct {
    int64_t k;
    int group;
    bool digits;   /* pair is i8 [row][k / 32][32 high digits, then 32 low ones]; group is 1 */
    int offset;    /* constant that `off` subtracts from the weights' integers; group is 1 */
    int totals;    /* totals per block: 1 or 2 */
    int32_t *pair; /* [groups][k / 2][group], each two i16 */
    /* [groups][k / 32][group]: scale of a block's integers */
    float *scale;
    /* [groups][k / 32][totals][group]: sum of a block's rounded activations, or of each half's */
    float *total;
    /* [row][k / 16], only with an offset: -offset times the sum of 16 neighbouring integers */
    int32_t *off;
} wf_quant_rows;

#define wf_quant_rows_bytes WF_SIMD(wf_quant_rows_bytes)
#define wf_quant_rows_at WF_SIMD(wf_quant_rows_at)
#define wf_quant_rows_fill WF_SIMD(wf_quant_rows_fill)
size_t wf_quant_rows_bytes(int64_t rows, int64_t k, int group, int totals);
wf_quant_rows wf_quant_rows_at(void *memory, int64_t rows, int64_t k, int group, int totals);
/* Returns the rows from r on. r is a multiple of the group. */
static inline wf_quant_rows wf_quant_rows_from(const wf_quant_rows *q, int64_t r)
{
    int64_t skipped = r * (q->k / 32);
    return (wf_quant_rows){q->k,
                           q->group,
                           q->digits,
                           q->offset,
                           q->totals,
                           q->pair + 16 * skipped,
                           q->scale + skipped,
                           q->total + q->totals * skipped,
                           q->off + 2 * skipped};
}
/* Fills groups [begin, end) from x, of any float type. A block with a NaN or an infinity gets a NaN
 * scale, so its results are NaN. Threads may fill different groups at once. */
void wf_quant_rows_fill(const wf_quant_rows *q, const wf_view *x, int64_t begin, int64_t end);

/* Where a matmul's results go: the epilogue of linear and linear_act. */
typedef struct {
    int64_t n;                     /* columns */
    const wf_view *bias, *y, *pre; /* NULL if absent; pre: before the activation */
    wf_gemm_act *act;
} wf_quant_result;

#define wf_quant_result_of WF_SIMD(wf_quant_result_of)
#define wf_quant_finish WF_SIMD(wf_quant_finish)
wf_quant_result wf_quant_result_of(const wf_launch *l);
/* Adds the bias to the sums c [n], applies the activation and stores row r, columns [j, j + n).
 * n is at most WF_VL. */
#define wf_quant_finish_columns WF_SIMD(wf_quant_finish_columns)
void wf_quant_finish_columns(const wf_quant_result *o, int64_t r, int64_t j, int n, const float *c);
/* The same for sums c [panels][WF_VL] of panels from p on. Ignores columns past the last one. */
void wf_quant_finish(const wf_quant_result *o, int64_t r, int64_t p, int panels, const float *c);

#endif
