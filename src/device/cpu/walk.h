/* SPDX-License-Identifier: MIT */
/*
 * walk.h - one way through the elements of several views at once, in row-major order.
 *
 * A walk is an index space and, for each operand, how far it moves along every axis: 0 along an
 * axis where it repeats. Neighbouring axes that every operand passes in one go are made one, so
 * that dense operands of equal shape become a single axis. What is walked comes in runs: stretches
 * of the last axis, along which operand i moves by wf_walk_step(w, i) elements.
 *
 *     wf_walk w = wf_walk_over(out->rank, out->dim);
 *     wf_walk_add(&w, in);
 *     wf_walk_add(&w, out);
 *     wf_walk_fold(&w);
 *     ... in a range [begin, end) of the wf_walk_count(&w) elements:
 *     for (wf_run r = wf_run_over(&w, begin, end); wf_run_next(&r, limit);)
 *         r.n elements, from r.offset[0] in `in` and r.offset[1] in `out`
 */
#ifndef WF_DEVICE_CPU_WALK_H
#define WF_DEVICE_CPU_WALK_H

#include "device/kernel.h"

#define WF_WALK_OPERANDS 5

typedef struct {
    int rank, operands;
    int64_t dim[WF_MAX_RANK];
    int64_t stride[WF_WALK_OPERANDS][WF_MAX_RANK];
} wf_walk;

typedef struct {
    int64_t offset[WF_WALK_OPERANDS]; /* of the run's first element, in elements */
    int64_t n;                        /* its length */
    int64_t left;                     /* elements after it */
    int64_t index[WF_MAX_RANK];
    const wf_walk *walk;
} wf_run;

wf_walk wf_walk_over(int rank, const int64_t *dim);
/* Adds an operand that broadcasts by NumPy's rule. */
void wf_walk_add(wf_walk *w, const wf_view *v);
/* Adds an operand by its strides, one for each axis of the walk. */
void wf_walk_add_strides(wf_walk *w, const int64_t *stride);
/* To be called when all operands are there; the walk then has at least one axis. */
void wf_walk_fold(wf_walk *w);
int64_t wf_walk_count(const wf_walk *w);
static inline int64_t wf_walk_step(const wf_walk *w, int operand)
{
    return w->stride[operand][w->rank - 1];
}

wf_run wf_run_over(const wf_walk *w, int64_t begin, int64_t end);
/* Goes to the next run, of at most `limit` elements; false past the last. */
bool wf_run_next(wf_run *r, int64_t limit);

/* Elements that a kernel handles at a time where they cannot stay in place, on its stack. */
#define WF_CHUNK 256
typedef union {
    float f32[WF_CHUNK];
    int32_t i32[WF_CHUNK];
    uint16_t u16[WF_CHUNK];
    uint8_t u8[WF_CHUNK];
} wf_chunk;

/* n elements of v from offset on, step apart, as they are stored, next to each other: in place if
 * they are so there, otherwise in buf, and then n <= WF_CHUNK. */
const void *wf_chunk_load(const wf_view *v, int64_t offset, int64_t step, int64_t n, wf_chunk *buf);
/* The same, with f16 and bf16 made f32. */
const void *wf_chunk_widen(const wf_view *v, int64_t offset, int64_t step, int64_t n,
                           wf_chunk *buf);

/* What is moved and not looked at: a block of a quantized type is one unit, and so is an element of any
 * other. The view with its last axis and strides in units, and the address of such an offset. */
wf_view wf_view_units(const wf_view *v);
static inline void *wf_unit_at(const wf_view *units, int64_t offset)
{
    return (char *)units->data + offset * wf_type_get(units->type)->block_bytes;
}

/* Copies n elements of so many bytes that are so many elements apart. */
void wf_copy_strided(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t n,
                     int bytes);

/* Items of a loop that make a thread worth its while, each costing about so many elements. */
static inline int64_t wf_grain(int64_t elements)
{
    return elements < 16384 ? 16384 / (elements > 0 ? elements : 1) : 1;
}

#endif
