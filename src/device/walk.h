/* SPDX-License-Identifier: MIT */
/*
 * walk.h - iterates over the elements of several views at once, in row-major order. Host code only;
 * every kernel device uses it.
 *
 * A walk is an index space and, for each operand, its stride along every axis: 0 where the operand
 * repeats. wf_walk_fold merges neighbouring axes that are contiguous in every operand, so that
 * dense operands of equal shape become a single axis. Elements come in runs: stretches of the last
 * axis, along which operand i moves by wf_walk_step(w, i) elements.
 *
 *     wf_walk w = wf_walk_over(out->rank, out->dim);
 *     wf_walk_add(&w, in);
 *     wf_walk_add(&w, out);
 *     wf_walk_fold(&w);
 *     ... in a range [begin, end) of the wf_walk_count(&w) elements:
 *     for (wf_run r = wf_run_over(&w, begin, end); wf_run_next(&r, limit);)
 *         r.n elements, from r.offset[0] in `in` and r.offset[1] in `out`
 */
#ifndef WF_DEVICE_WALK_H
#define WF_DEVICE_WALK_H

#include "device/kernel.h"

#define WF_WALK_OPERANDS 5

typedef struct {
    int rank, operands;
    int64_t dim[WF_MAX_RANK];
    int64_t stride[WF_WALK_OPERANDS][WF_MAX_RANK];
} wf_walk;

typedef struct {
    int64_t offset[WF_WALK_OPERANDS]; /* of the run's first element, in elements */
    int64_t n;                        /* length in elements */
    int64_t left;                     /* elements after this run */
    int64_t index[WF_MAX_RANK];
    const wf_walk *walk;
} wf_run;

wf_walk wf_walk_over(int rank, const int64_t *dim);
/* Adds an operand that broadcasts by NumPy's rule. */
void wf_walk_add(wf_walk *w, const wf_view *v);
/* Adds an operand by its strides, one for each axis of the walk. */
void wf_walk_add_strides(wf_walk *w, const int64_t *stride);
/* Merges axes. Call it after the last operand was added; the walk then has at least one axis. */
void wf_walk_fold(wf_walk *w);
/* Splits the axes of a view into those that a reduction keeps and those in the bit set `axes`, as
 * two folded walks with the view as operand 0. */
void wf_walk_split(const wf_view *v, int64_t axes, wf_walk *kept, wf_walk *gone);
int64_t wf_walk_count(const wf_walk *w);
static inline int64_t wf_walk_step(const wf_walk *w, int operand)
{
    return w->stride[operand][w->rank - 1];
}

wf_run wf_run_over(const wf_walk *w, int64_t begin, int64_t end);
/* Advances to the next run, of at most `limit` elements. Returns false past the last. */
bool wf_run_next(wf_run *r, int64_t limit);

/* Elements of an operand that needs a buffer are copied in chunks of this size, on the stack. */
#define WF_CHUNK 256
typedef union {
    float f32[WF_CHUNK];
    int32_t i32[WF_CHUNK];
    uint16_t u16[WF_CHUNK];
    uint8_t u8[WF_CHUNK];
} wf_chunk;

/* Returns n elements of v, from `offset` on and `step` apart, as a contiguous array in v's type: in
 * place where they are contiguous, otherwise copied to buf, which needs n <= WF_CHUNK. */
const void *wf_chunk_load(const wf_view *v, int64_t offset, int64_t step, int64_t n, wf_chunk *buf);
/* The same, with f16 and bf16 converted to f32. */
const void *wf_chunk_widen(const wf_view *v, int64_t offset, int64_t step, int64_t n,
                           wf_chunk *buf);

/* For ops that only move data. A unit is one block of a quantized type, or one element of any other
 * type. wf_view_units returns the view with its last axis and strides in units. */
wf_view wf_view_units(const wf_view *v);
static inline void *wf_unit_at(const wf_view *units, int64_t offset)
{
    return (char *)units->data + offset * wf_type_get(units->type)->block_bytes;
}

/* Copies n elements of `bytes` bytes each; steps are in elements. */
void wf_copy_strided(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t n,
                     int bytes);

/* Returns the least items per thread of a parallel loop whose item costs about `elements`
 * elements. */
static inline int64_t wf_grain(int64_t elements)
{
    return elements < 16384 ? 16384 / (elements > 0 ? elements : 1) : 1;
}

#endif
