/* SPDX-License-Identifier: MIT */
/* type.h - element types and shapes: what a value is made of. */
#ifndef WF_GRAPH_TYPE_H
#define WF_GRAPH_TYPE_H

#include "weft.h"

typedef enum {
    WF_KIND_NONE,
    WF_KIND_FLOAT,   /* f32 f16 bf16: ops compute on these */
    WF_KIND_STORAGE, /* e4m3 e5m2: only stored and cast */
    WF_KIND_INT,     /* i32 i8 u8 */
    WF_KIND_BLOCK    /* quantized blocks */
} wf_kind;

typedef struct {
    const char *name;
    wf_kind kind;
    int block;       /* elements that are stored together; 1 for plain types */
    int block_bytes; /* bytes they take */
    double roundoff; /* half the distance from 1 to the next number; 0 for integers and blocks */
    bool generic;    /* blocks without kernels of their own: generic kernels decode them, slower */
} wf_type_info;

/* Never NULL: an unknown type gives the row of WF_TYPE_NONE. */
const wf_type_info *wf_type_get(wf_type type);

/* A set of types: bit t stands for type t. */
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
/* Quantized types are the last of the enum. */
#define WF_BLOCK_FIRST (WF_U8 + 1)
#define WF_BLOCK_TYPES (WF_TYPE_COUNT - WF_BLOCK_FIRST)
#define WF_TYPES_BLOCK (WF_TYPE_BIT(WF_TYPE_COUNT) - WF_TYPE_BIT(WF_BLOCK_FIRST))
#define WF_TYPES_ALL (WF_TYPES_PLAIN | WF_TYPES_BLOCK)
/* What a matrix product takes as its weight. */
#define WF_TYPES_WEIGHT (WF_TYPES_FLOAT | WF_TYPES_BLOCK)

/* A list of dimensions, axes or the like. Unused entries are 0, so that memcmp compares lists. */
typedef struct {
    int64_t n;
    int64_t d[WF_MAX_RANK];
} wf_dims;

wf_dims wf_dims_make(int rank, const int64_t *d);
bool wf_dims_equal(const wf_dims *a, const wf_dims *b);
/* Product of all; the graph has checked that it does not overflow. 1 for rank 0. */
int64_t wf_dims_count(const wf_dims *dims);
/* Number of rows (all axes but the last) and their length; a scalar is one row of one. */
int64_t wf_dims_rows(const wf_dims *dims);
int64_t wf_dims_last(const wf_dims *dims);
/* NumPy's rule: aligned at the last axis, lengths equal or 1. false when the two do not fit. */
bool wf_dims_broadcast(const wf_dims *a, const wf_dims *b, wf_dims *out);

/* Conversions, used by kernels and by the public wf_type_*_f32; of blocks, count is whole ones
 * (quant/block.h has more). i32 goes through f32 too, so it is exact only up to 2^24: integer kernels do
 * not use these. */
void wf_convert_to_f32(wf_type type, const void *from, float *to, int64_t count);
void wf_convert_from_f32(wf_type type, const float *from, void *to, int64_t count);

#endif
