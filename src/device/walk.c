/* SPDX-License-Identifier: MIT */
/*
 * walk.c - iterates over strided and broadcast operands together.
 *
 * Offsets are in elements. A run is a stretch of the last (innermost) axis, so kernels have one
 * tight loop per run and the odometer below moves once per run, not once per element. A walk is
 * computed per launch; each thread starts its own wf_run anywhere in it.
 */
#include "device/walk.h"

#include <string.h>

wf_walk wf_walk_over(int rank, const int64_t *dim)
{
    wf_walk w = {.rank = rank};
    for (int i = 0; i < rank; i++)
        w.dim[i] = dim[i];
    return w;
}

void wf_walk_add(wf_walk *w, const wf_view *v)
{
    int64_t *stride = w->stride[w->operands++];
    for (int i = 1; i <= w->rank; i++) { /* counted from the last axis */
        bool repeats = i > v->rank || v->dim[v->rank - i] == 1;
        stride[w->rank - i] = repeats ? 0 : v->stride[v->rank - i];
    }
}

void wf_walk_add_strides(wf_walk *w, const int64_t *stride)
{
    memcpy(w->stride[w->operands++], stride, (size_t)w->rank * sizeof *stride);
}

/* Whether one step along axis a equals dim[b] steps along axis b, for every operand. */
static bool continues(const wf_walk *w, int a, int b)
{
    for (int i = 0; i < w->operands; i++)
        if (w->stride[i][a] != w->stride[i][b] * w->dim[b])
            return false;
    return true;
}

/* Drops axes of length 1. Each other axis moves to index `rank`, or merges with the axis before it.
 * Works in place: `rank` never exceeds `a`, so no axis is overwritten before it was read. */
void wf_walk_fold(wf_walk *w)
{
    int rank = 0;
    for (int a = 0; a < w->rank; a++) {
        if (w->dim[a] == 1)
            continue;
        int64_t before = 1;
        if (rank > 0 && continues(w, rank - 1, a))
            before = w->dim[--rank];
        w->dim[rank] = before * w->dim[a];
        for (int i = 0; i < w->operands; i++)
            w->stride[i][rank] = w->stride[i][a];
        rank++;
    }
    if (rank == 0) { /* a single element */
        w->dim[rank] = 1;
        for (int i = 0; i < w->operands; i++)
            w->stride[i][rank] = 1;
        rank++;
    }
    w->rank = rank;
}

void wf_walk_split(const wf_view *v, int64_t axes, wf_walk *kept, wf_walk *gone)
{
    wf_walk *const side[2] = {kept, gone};
    *kept = *gone = (wf_walk){.operands = 1};
    /* Axes keep their order on both sides, so a reduction visits its terms in row-major order. */
    for (int i = 0; i < v->rank; i++) {
        wf_walk *w = side[axes >> i & 1];
        w->dim[w->rank] = v->dim[i];
        w->stride[0][w->rank++] = v->stride[i];
    }
    wf_walk_fold(kept);
    wf_walk_fold(gone);
}

int64_t wf_walk_count(const wf_walk *w)
{
    int64_t count = 1;
    for (int i = 0; i < w->rank; i++)
        count *= w->dim[i];
    return count;
}

wf_run wf_run_over(const wf_walk *w, int64_t begin, int64_t end)
{
    /* n is 0, so the first wf_run_next does not move. */
    wf_run r = {.left = end - begin, .walk = w};
    /* Splits the linear index `begin` into one index per axis; an empty walk may have dims of 0. */
    for (int a = w->rank - 1; a >= 0 && r.left > 0; a--) {
        r.index[a] = begin % w->dim[a];
        begin /= w->dim[a];
        for (int i = 0; i < w->operands; i++)
            r.offset[i] += r.index[a] * w->stride[i][a];
    }
    return r;
}

static void move(wf_run *r, int axis, int64_t by)
{
    r->index[axis] += by;
    for (int i = 0; i < r->walk->operands; i++)
        r->offset[i] += by * r->walk->stride[i][axis];
}

bool wf_run_next(wf_run *r, int64_t limit)
{
    const wf_walk *w = r->walk;
    int last = w->rank - 1;
    if (r->left <= 0)
        return false;
    move(r, last, r->n);
    /* Carry like an odometer. The last axis wraps only if the run before ended there. */
    for (int a = last; a > 0 && r->index[a] == w->dim[a]; a--) {
        move(r, a, -w->dim[a]);
        move(r, a - 1, 1);
    }
    int64_t n = w->dim[last] - r->index[last];
    n = n < limit ? n : limit;
    r->n = n < r->left ? n : r->left;
    r->left -= r->n;
    return true;
}

/* Typed loops, which compilers vectorize; memcpy per element would not be. */
#define COPY_STRIDED(type)                                                                  \
    static void copy_##type(type *to, int64_t to_step, const type *from, int64_t from_step, \
                            int64_t n)                                                      \
    {                                                                                       \
        for (int64_t i = 0; i < n; i++)                                                     \
            to[i * to_step] = from[i * from_step];                                          \
    }
COPY_STRIDED(uint8_t)
COPY_STRIDED(uint16_t)
COPY_STRIDED(uint32_t)

void wf_copy_strided(void *to, int64_t to_step, const void *from, int64_t from_step, int64_t n,
                     int bytes)
{
    if (to_step == 1 && from_step == 1)
        memcpy(to, from, (size_t)(n * bytes));
    else if (bytes == 1)
        copy_uint8_t(to, to_step, from, from_step, n);
    else if (bytes == 2)
        copy_uint16_t(to, to_step, from, from_step, n);
    else if (bytes == 4)
        copy_uint32_t(to, to_step, from, from_step, n);
    else
        for (int64_t i = 0; i < n; i++)
            memcpy((char *)to + i * to_step * bytes, (const char *)from + i * from_step * bytes,
                   (size_t)bytes);
}

/* Only the last axis is in blocks, so the other strides are multiples of the block. */
wf_view wf_view_units(const wf_view *v)
{
    wf_view u = *v;
    int64_t block = wf_type_get(v->type)->block;
    if (block == 1 || v->rank == 0)
        return u;
    u.dim[u.rank - 1] /= block;
    for (int i = 0; i + 1 < u.rank; i++)
        u.stride[i] /= block;
    return u;
}

const void *wf_chunk_load(const wf_view *v, int64_t offset, int64_t step, int64_t n, wf_chunk *buf)
{
    const void *at = wf_view_at(v, offset);
    if (step == 1 || n == 1)
        return at;
    wf_copy_strided(buf, 1, at, step, n, wf_type_get(v->type)->block_bytes);
    return buf;
}

const void *wf_chunk_widen(const wf_view *v, int64_t offset, int64_t step, int64_t n, wf_chunk *buf)
{
    if (v->type != WF_F16 && v->type != WF_BF16)
        return wf_chunk_load(v, offset, step, n, buf);
    wf_chunk narrow; /* widening needs a second buffer: buf receives the f32 values */
    wf_convert_to_f32(v->type, wf_chunk_load(v, offset, step, n, &narrow), buf->f32, n);
    return buf;
}
