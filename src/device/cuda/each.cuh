/* SPDX-License-Identifier: MIT */
/*
 * each.cuh - lets threads iterate over the elements of several views at once: a walk
 * (device/walk.h) cut into items, one per thread.
 *
 * An item is a pack of `wide` elements along the last axis, so index arithmetic is done once per 16
 * bytes. In the pack of an operand the elements are contiguous, or one element repeated where the
 * operand broadcasts along that axis. Divisions by axis lengths become multiplications while there
 * are fewer than 2^31 items.
 */
#ifndef WF_DEVICE_CUDA_EACH_CUH
#define WF_DEVICE_CUDA_EACH_CUH

extern "C" {
#include "device/walk.h"
}
#include "device/cuda/kernels.cuh"

/* ---- Division of numbers below 2^31 by one that all threads share ---- */

/* n / by = (n * magic / 2^32 + n) >> shift, exact for n < 2^31: shift is ceil(log2(by)), and magic
 * is 2^32 (2^shift - by) / by + 1. */
typedef struct {
    uint32_t by, magic, shift;
} wf_divisor;

static inline wf_divisor wf_divisor_of(int64_t by)
{
    uint32_t shift = 0;
    by = by > 0 ? by : 1; /* an empty axis, which no thread visits */
    while ((int64_t)1 << shift < by)
        shift++;
    uint64_t excess = ((uint64_t)1 << shift) - (uint64_t)by;
    return (wf_divisor){(uint32_t)by, (uint32_t)((excess << 32) / (uint64_t)by + 1), shift};
}

static __device__ __forceinline__ uint32_t wf_divide(uint32_t n, wf_divisor d)
{
    /* The sum is below 2^32, as both terms are below 2^31 and magic is below 2^32. */
    return ((uint32_t)((uint64_t)n * d.magic >> 32) + n) >> d.shift;
}

/* ---- Items ---- */

template <int N> struct wf_each {
    int64_t count;    /* number of items */
    int rank;         /* at least 1 */
    bool small;       /* count < 2^31 */
    uint32_t repeats; /* bit i: the pack of operand i is one element */
    wf_divisor by[WF_MAX_RANK];
    int64_t dim[WF_MAX_RANK];       /* in items; the last axis counts packs */
    int64_t stride[N][WF_MAX_RANK]; /* in elements; the last axis steps by a whole pack */
};

template <int N> struct wf_places {
    int64_t at[N]; /* the pack's first element in each operand */
};

template <int N>
/* Splits the linear item number into one index per axis, from the last axis up. Axis 0 takes the
 * rest, so a single axis needs no division. */
static __device__ __forceinline__ wf_places<N> wf_each_at(const wf_each<N> &w, int64_t item)
{
    wf_places<N> p;
    if (w.small) {
        uint32_t rest = (uint32_t)item;
#pragma unroll
        for (int i = 0; i < N; i++)
            p.at[i] = 0;
#pragma unroll 1 /* the rank is known at run time only; unrolling would cost registers */
        for (int a = w.rank - 1; a > 0; a--) {
            const uint32_t next = wf_divide(rest, w.by[a]);
            const int64_t index = rest - next * w.by[a].by;
#pragma unroll
            for (int i = 0; i < N; i++)
                p.at[i] += index * w.stride[i][a];
            rest = next;
        }
        item = rest;
    } else {
#pragma unroll
        for (int i = 0; i < N; i++)
            p.at[i] = 0;
#pragma unroll 1
        for (int a = w.rank - 1; a > 0; a--) {
            const int64_t index = item % w.dim[a];
#pragma unroll
            for (int i = 0; i < N; i++)
                p.at[i] += index * w.stride[i][a];
            item /= w.dim[a];
        }
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        p.at[i] += item * w.stride[i][0];
    return p;
}

/* The first N operands of a folded walk. The last axis must be a multiple of `wide`. */
template <int N> static inline wf_each<N> wf_each_of(const wf_walk *w, int wide)
{
    wf_each<N> e = {};
    const int last = w->rank - 1;
    e.rank = w->rank;
    e.count = wf_walk_count(w) / wide;
    e.small = e.count < (int64_t)1 << 31;
    for (int a = 0; a < w->rank; a++) {
        e.dim[a] = a == last ? w->dim[a] / wide : w->dim[a];
        e.by[a] = wf_divisor_of(e.small ? e.dim[a] : 1);
        for (int i = 0; i < N; i++)
            e.stride[i][a] = a == last ? w->stride[i][a] * wide : w->stride[i][a];
    }
    for (int i = 0; i < N; i++)
        e.repeats |= (uint32_t)(w->stride[i][last] == 0) << i;
    return e;
}

/* Whether packs of `wide` elements of `bytes` bytes can be loaded from an operand at `data`: it
 * repeats along the last axis, or is contiguous there and every pack is aligned to its size. */
static inline bool wf_walk_packs(const wf_walk *w, int operand, const void *data, int bytes,
                                 int wide)
{
    const int64_t *stride = w->stride[operand];
    const int last = w->rank - 1;
    if (wide == 1 || stride[last] == 0)
        return true;
    for (int a = 0; a < last; a++)
        if (stride[a] % wide != 0)
            return false;
    return stride[last] == 1 && (uintptr_t)data % ((uintptr_t)wide * (uintptr_t)bytes) == 0;
}

/* A pack of operand i at p; one element stands for all where it repeats. */
template <typename T, int V, int N>
static __device__ __forceinline__ wf_pack<T, V> wf_each_load(const wf_each<N> &w, int i,
                                                             const T *data, int64_t at)
{
    if (V == 1 || !(w.repeats >> i & 1))
        return wf_load_pack<T, V>(data + at);
    wf_pack<T, V> x;
    const T one = data[at];
#pragma unroll
    for (int k = 0; k < V; k++)
        x.x[k] = one;
    return x;
}

/* Returns `item`, or the thread's own item `first` if `item` does not exist. Threads load
 * unconditionally and test before they store: a condition around both would make the compiler place
 * each load next to its store and wait for them one by one. Another thread's item would not do:
 * results may overwrite operands, so it may already be written. */
static __device__ __forceinline__ int64_t wf_each_within(int64_t item, int64_t count, int64_t first)
{
    return item < count ? item : first;
}

/* ---- Copies (shape.cu) ---- */

/* Moves elements of `bytes` bytes (1, 2 or 4) along a folded walk with the operands from, to. */
void wf_cuda_copy_walk(const wf_launch *l, const wf_walk *w, const void *from, void *to, int bytes);
/* Makes a dense copy of a view of a plain type. */
void wf_cuda_copy_dense(const wf_launch *l, const wf_view *from, void *to);

#endif
