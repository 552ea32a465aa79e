/* SPDX-License-Identifier: MIT */
/*
 * block.h - conversions between f32 and quantized blocks. codec.h defines how blocks are stored.
 *
 * A block holds 32 or 256 neighbouring elements of a row: small integers and the scales that turn
 * them into f32.
 */
#ifndef WF_GRAPH_QUANT_BLOCK_H
#define WF_GRAPH_QUANT_BLOCK_H

#include "graph/quant/codec.h"
#include "graph/type.h"

/* The least run of elements that can be decoded by itself: 32 to 128, a divisor of the block. */
int wf_block_part(wf_type type);
/* Decodes elements [begin, begin + n) of the row that starts at `from`. Both are multiples of the
 * part. */
void wf_block_decode(wf_type type, const void *from, int64_t begin, int64_t n, float *to);
/* Decodes elements [8 part, 8 part + 8) of one block by the type's definition (codec.h). */
void wf_block_decode8(wf_type type, const void *block, int part, float *to);

/* Converts rows of f32 to any type, quantized or plain. Of quantized types `columns` is a multiple of
 * the block. `importance` [columns] weighs the squared error of each column, for example by the mean
 * square of the activations that meet it: finite, not negative, NULL for equal weights. Plain types
 * ignore it.
 *
 * In blocks zeros stay zeros, NaN counts as 0, and values beyond +-65504 count as +-65504. Rows are
 * independent: threads may split them. */
void wf_quantize(wf_type type, const float *from, const float *importance, void *to, int64_t rows,
                 int64_t columns);

#endif
