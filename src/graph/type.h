/* SPDX-License-Identifier: MIT */
/* type.h - element types, sets of types, shapes, and conversions to and from f32. */
#ifndef WF_GRAPH_TYPE_H
#define WF_GRAPH_TYPE_H

#include "weft.h"

typedef enum {
    WF_KIND_NONE,
    WF_KIND_FLOAT,   /* f32 f16 bf16: arithmetic types */
    WF_KIND_STORAGE, /* e4m3 e5m2: storage and casts only */
    WF_KIND_INT,     /* i32 i8 u8 */
    WF_KIND_BLOCK    /* quantized blocks */
} wf_kind;

typedef struct {
    const char *name;
    wf_kind kind;
    int block;       /* elements per block; 1 for plain types */
    int block_bytes; /* bytes per block */
    double roundoff; /* unit roundoff: half the distance from 1 to the next value; 0: int, block */
    bool generic;    /* a block type without kernels of its own: slower generic kernels decode it */
} wf_type_info;

/* Never returns NULL: an unknown type returns the row of WF_TYPE_NONE. */
const wf_type_info *wf_type_get(wf_type type);

/* A set of types: bit t is set when type t is in the set. */
typedef uint64_t wf_type_set;
#define WF_TYPE_BIT(type) (UINT64_C(1) << (type))

static inline wf_type_set wf_type_bit(wf_type type)
{
    return WF_TYPE_BIT(type);
}
#define WF_TYPES_FLOAT (WF_TYPE_BIT(WF_F32) | WF_TYPE_BIT(WF_F16) | WF_TYPE_BIT(WF_BF16))
#define WF_TYPES_NUMBER (WF_TYPES_FLOAT | WF_TYPE_BIT(WF_I32))
#define WF_TYPES_PLAIN                                                                    \
    (WF_TYPES_NUMBER | WF_TYPE_BIT(WF_E4M3) | WF_TYPE_BIT(WF_E5M2) | WF_TYPE_BIT(WF_I8) | \
     WF_TYPE_BIT(WF_U8))
/* Quantized types come last in the enum. */
#define WF_BLOCK_FIRST (WF_U8 + 1)
#define WF_BLOCK_TYPES (WF_TYPE_COUNT - WF_BLOCK_FIRST)
#define WF_TYPES_BLOCK (WF_TYPE_BIT(WF_TYPE_COUNT) - WF_TYPE_BIT(WF_BLOCK_FIRST))
#define WF_TYPES_ALL (WF_TYPES_PLAIN | WF_TYPES_BLOCK)
/* Types of a weight in matmul and linear. */
#define WF_TYPES_WEIGHT (WF_TYPES_FLOAT | WF_TYPES_BLOCK)

/* A shape or a list of axes: n entries of d. Unused entries are 0, so memcmp can compare lists. */
typedef struct {
    int64_t n;
    int64_t d[WF_MAX_RANK];
} wf_dims;

wf_dims wf_dims_make(int rank, const int64_t *d);
bool wf_dims_equal(const wf_dims *a, const wf_dims *b);
/* Element count, 1 for rank 0. wf_node_add rejects shapes whose count overflows. */
int64_t wf_dims_count(const wf_dims *dims);
/* Number of rows (product of all axes but the last) and their length. A scalar is one row of
 * length 1. */
int64_t wf_dims_rows(const wf_dims *dims);
int64_t wf_dims_last(const wf_dims *dims);
/* NumPy broadcasting: shapes are aligned at the last axis; lengths must be equal or 1. Returns
 * false when they are neither; *out is unchanged then. */
bool wf_dims_broadcast(const wf_dims *a, const wf_dims *b, wf_dims *out);

/* Convert `count` elements; for block types count is a multiple of the block. Integers round to
 * nearest even, saturate, and map NaN to 0. i32 is exact only up to 2^24, so integer kernels do not
 * use these. quant/block.h has more functions for blocks. */
void wf_convert_to_f32(wf_type type, const void *from, float *to, int64_t count);
void wf_convert_from_f32(wf_type type, const float *from, void *to, int64_t count);

#endif
