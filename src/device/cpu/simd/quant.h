/* SPDX-License-Identifier: MIT */
/*
 * quant.h - quantized weights in the layout that products want, and activations to go with them.
 *
 * A weight [N, K] of blocks is kept in panels of WF_VL rows, a row to a lane. Of a panel come first
 * what turns integers into numbers, then the integers, both in the order of the file's blocks, and
 * of each thing WF_VL neighbours, one of every row, zeros where there is no row any more:
 *
 *     [block][half][WF_VL] f16, [block][byte][WF_VL] u8     to a whole number of cache lines
 *     [block][word][WF_VL] u32
 *
 * The words are those of the file, but for q6_K: of each 128 numbers, four times 32, come 8 words
 * with the first 32, 8 with the second, 8 with the third, six bits of each byte, and the fourth 32
 * are in the two bits that are left of each, the lowest in the first word's. That takes less to
 * take apart than the file's words.
 *
 * A block of 32 numbers is multiplied as 16 pairs of i16: of each four neighbours the first and
 * third, then the second and fourth, as they come out of a word by shifting and masking. The fours
 * are taken from the lower and the upper half of the block in turn, as two vectors of activations
 * are joined (vp_join). Activations are rounded to 15 bits for each block of 32 and laid out as
 * such pairs. Few of them may be laid out as digits of 8 bits instead, 256 times the one and the
 * other, for products of four bytes at a time: less to do for each weight, but more for each row.
 * Sums of products within a block are exact; they are scaled and added up in the order of blocks. A
 * result therefore depends on its row of x and its row of w alone, not on the rows beside them, on
 * the number of threads or on the width of vectors.
 */
#ifndef WF_DEVICE_CPU_SIMD_QUANT_H
#define WF_DEVICE_CPU_SIMD_QUANT_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/simd.h"

typedef struct {
    int block;   /* numbers of a block */
    int bytes;   /* of a block in a file */
    int halves;  /* f16 of a block */
    int scales;  /* bytes that scale its groups */
    int words;   /* of integers */
    int word_at; /* where they are in a block of the file */
} wf_quant_layout;

#define WF_QUANT_BLOCK 32 /* numbers of a block of activations */
#define WF_QUANT_PAIRS 16 /* pairs of it */
#define WF_QUANT_FOURS 8  /* words of four digits of it */
#define WF_QUANT_FEW 8    /* rows of activations that are multiplied without taking panels apart */
#define WF_QUANT_MOST \
    16383 /* the largest integer that stands for an activation: 32 x 4096 x this, the
                               most a block of q6_K comes to, is less than 2^31 */

/* The four that pair p is of, 0 to 7. */
static inline int wf_quant_four(int p)
{
    return p / 4 + p / 2 % 2 * 4;
}

/* NULL for what is not packed so. */
#define wf_quant_layout_of WF_SIMD(wf_quant_layout_of)
const wf_quant_layout *wf_quant_layout_of(wf_type type);

/* Bytes of a panel of rows of k numbers: of its scales, and of all of it. */
static inline int64_t wf_quant_scale_bytes(const wf_quant_layout *y, int64_t k)
{
    return (k / y->block * (2 * y->halves + y->scales) * WF_VL + 63) / 64 * 64;
}

static inline int64_t wf_quant_panel_bytes(const wf_quant_layout *y, int64_t k)
{
    return wf_quant_scale_bytes(y, k) + k / y->block * y->words * 4 * WF_VL;
}

/* 0 when it cannot be packed; see wf_device_ops. */
#define wf_quant_packed_bytes WF_SIMD(wf_quant_packed_bytes)
#define wf_quant_pack WF_SIMD(wf_quant_pack)
#define wf_quant_unpack WF_SIMD(wf_quant_unpack)
#define wf_quant_unpack_row WF_SIMD(wf_quant_unpack_row)
size_t wf_quant_packed_bytes(wf_type type, const wf_dims *shape);
void wf_quant_pack(void *panels, const void *rows, wf_type type, const wf_dims *shape, int threads);
void wf_quant_unpack(const void *panels, void *rows, wf_type type, const wf_dims *shape,
                     int threads);
/* Blocks of row r, of k numbers, as the file has them. */
void wf_quant_unpack_row(const void *panels, wf_type type, int64_t k, int64_t r, void *to);

/* Rows of activations of k numbers. Of `group` rows the same things lie side by side, so that a
 * tile of rows reads them one after the other; a last group that is not full is filled up with
 * zeros. */
typedef struct {
    int64_t k;
    int group;
    bool digits;   /* pair is [row][k / 32][32 high digits, then 32 low ones], bytes; group is 1 */
    int offset;    /* of the weights' integers as they are stored */
    int32_t *pair; /* [group of rows][k / 2][group] */
    /* [group of rows][k / 32][group]: what an integer of the block is multiplied by */
    float *scale;
    float *total; /* the same: the sum of the block's numbers */
    /* [row][k / 16], with digits alone: sums of 16 neighbouring integers times -offset */
    int32_t *off;
} wf_quant_rows;

#define wf_quant_rows_bytes WF_SIMD(wf_quant_rows_bytes)
#define wf_quant_rows_at WF_SIMD(wf_quant_rows_at)
#define wf_quant_rows_fill WF_SIMD(wf_quant_rows_fill)
size_t wf_quant_rows_bytes(int64_t rows, int64_t k, int group);
wf_quant_rows wf_quant_rows_at(void *memory, int64_t rows, int64_t k, int group);
/* The rows from row r on, a multiple of the group. */
static inline wf_quant_rows wf_quant_rows_from(const wf_quant_rows *q, int64_t r)
{
    int64_t skipped = r * (q->k / 32);
    return (wf_quant_rows){q->k,
                           q->group,
                           q->digits,
                           q->offset,
                           q->pair + 16 * skipped,
                           q->scale + skipped,
                           q->total + skipped,
                           q->off + 2 * skipped};
}
/* Groups [begin, end) from x, of any float type. A block with a NaN or an infinity becomes NaN. */
void wf_quant_rows_fill(const wf_quant_rows *q, const wf_view *x, int64_t begin, int64_t end);

/* Where the products of linear or linear_act go. */
typedef struct {
    int64_t n;                     /* columns */
    const wf_view *bias, *y, *pre; /* NULL when there is none */
    wf_gemm_act *act;
} wf_quant_result;

#define wf_quant_result_of WF_SIMD(wf_quant_result_of)
#define wf_quant_finish WF_SIMD(wf_quant_finish)
wf_quant_result wf_quant_result_of(const wf_launch *l);
/* Row r, columns [j, j + n), at most WF_VL. */
#define wf_quant_finish_columns WF_SIMD(wf_quant_finish_columns)
void wf_quant_finish_columns(const wf_quant_result *o, int64_t r, int64_t j, int n, const float *c);
/* Row r, the columns of panels from p on, as far as there are: from sums c [panels][WF_VL]. */
void wf_quant_finish(const wf_quant_result *o, int64_t r, int64_t p, int panels, const float *c);

#endif
