/* SPDX-License-Identifier: MIT */
/*
 * shape.c - ops that move elements without computing, and cast.
 *
 * Each move is one or more box copies: an index space, with a first element and strides for source
 * and target. reshape, permute and slice run here only if the plan could not share the operand's
 * memory.
 */
#include <math.h>
#include <string.h>

#include "base/thread.h"
#include "device/cpu/row.h"
#include "device/walk.h"

/* ---- Boxes ---- */

/* One copy. A unit is an element, or a quantized block. */
typedef struct {
    const wf_view *from, *to;     /* in units */
    int64_t from_first, to_first; /* offsets in units */
    wf_walk walk;                 /* operands: from, to */
} box;

static void copy_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const box *b = arg;
    int bytes = wf_type_get(b->to->type)->block_bytes;
    int64_t from_step = wf_walk_step(&b->walk, 0), to_step = wf_walk_step(&b->walk, 1);
    for (wf_run r = wf_run_over(&b->walk, begin, end); wf_run_next(&r, INT64_MAX);)
        wf_copy_strided(wf_unit_at(b->to, b->to_first + r.offset[1]), to_step,
                        wf_unit_at(b->from, b->from_first + r.offset[0]), from_step, r.n, bytes);
}

/* Runs are contiguous stretches where the fold found them, so dense copies are memcpy. */
static void copy_box(const wf_launch *l, box *b)
{
    wf_walk_fold(&b->walk);
    wf_parallel_for(l->threads, wf_walk_count(&b->walk), wf_grain(1), copy_range, b);
}

static void zero_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const wf_view *out = arg;
    memset(wf_view_at(out, begin), 0, wf_type_bytes(out->type, end - begin));
}

/* ---- Ops that are one box ---- */

/* Iterates over the result's shape; the operand repeats along broadcast axes. */
static wf_status launch_broadcast(const wf_launch *l)
{
    const wf_view in = wf_view_units(&l->in[0]), out = wf_view_units(&l->out[0]);
    if (!out.data)
        return WF_OK;
    box b = {.from = &in, .to = &out, .walk = wf_walk_over(out.rank, out.dim)};
    wf_walk_add(&b.walk, &in);
    wf_walk_add(&b.walk, &out);
    copy_box(l, &b);
    return WF_OK;
}

/* Iterates over the operand's shape; the dense result takes the elements in that order. */
static wf_status launch_reshape(const wf_launch *l)
{
    const wf_view in = wf_view_units(&l->in[0]), out = wf_view_units(&l->out[0]);
    if (!out.data)
        return WF_OK;
    box b = {.from = &in, .to = &out, .walk = wf_walk_over(in.rank, in.dim)};
    int64_t dense[WF_MAX_RANK], stride = 1;
    for (int i = in.rank - 1; i >= 0; i--) {
        dense[i] = stride;
        stride *= in.dim[i];
    }
    wf_walk_add(&b.walk, &in);
    wf_walk_add_strides(&b.walk, dense);
    copy_box(l, &b);
    return WF_OK;
}

static wf_status launch_permute(const wf_launch *l)
{
    const wf_attr_permute *attr = l->attr;
    const wf_view in = wf_view_units(&l->in[0]), out = wf_view_units(&l->out[0]);
    if (!out.data)
        return WF_OK;
    box b = {.from = &in, .to = &out, .walk = wf_walk_over(out.rank, out.dim)};
    int64_t stride[WF_MAX_RANK];
    for (int i = 0; i < out.rank; i++)
        stride[i] = in.stride[attr->order.d[i]];
    wf_walk_add_strides(&b.walk, stride);
    wf_walk_add(&b.walk, &out);
    copy_box(l, &b);
    return WF_OK;
}

static wf_status launch_slice(const wf_launch *l)
{
    const wf_attr_slice *attr = l->attr;
    const wf_view in = wf_view_units(&l->in[0]), out = wf_view_units(&l->out[0]);
    if (!out.data)
        return WF_OK;
    bool last = attr->axis == in.rank - 1; /* the last axis counts blocks */
    int64_t begin = last ? attr->begin / wf_type_get(in.type)->block : attr->begin;
    box b = {.from = &in,
             .to = &out,
             .from_first = begin * in.stride[attr->axis],
             .walk = wf_walk_over(out.rank, out.dim)};
    wf_walk_add_strides(&b.walk, in.stride);
    wf_walk_add(&b.walk, &out);
    copy_box(l, &b);
    return WF_OK;
}

/* ---- Ops that put boxes into a larger result ---- */

/* Copies `in` into the result from index `begin` of the axis on. */
static void put(const wf_launch *l, const wf_view *in, int64_t axis, int64_t begin)
{
    const wf_view *out = &l->out[0];
    box b = {.from = in,
             .to = out,
             .to_first = begin * out->stride[axis],
             .walk = wf_walk_over(in->rank, in->dim)};
    wf_walk_add_strides(&b.walk, in->stride);
    wf_walk_add_strides(&b.walk, out->stride);
    copy_box(l, &b);
}

static wf_status launch_pad(const wf_launch *l)
{
    const wf_attr_pad *attr = l->attr;
    const wf_view *out = &l->out[0];
    if (!out->data)
        return WF_OK;
    /* Zero bits are 0 in every plain type. */
    wf_parallel_for(l->threads, wf_view_count(out), wf_grain(1), zero_range, (void *)out);
    put(l, &l->in[0], attr->axis, attr->before);
    return WF_OK;
}

static wf_status launch_concat(const wf_launch *l)
{
    const wf_attr_axis *attr = l->attr;
    int64_t begin = 0;
    for (int i = 0; i < l->nin && l->out[0].data; i++) {
        put(l, &l->in[i], attr->axis, begin);
        begin += l->in[i].dim[attr->axis];
    }
    return WF_OK;
}

/* ---- cast ---- */

/* Integers convert through i32 and floats through f32, so integer to integer is exact. Out-of-range
 * values saturate; float to integer truncates, and NaN becomes 0. */

typedef struct {
    const wf_view *in, *out;
    wf_walk walk; /* operand: in; the result is dense */
} cast_job;

static bool is_int(wf_type type)
{
    return wf_type_get(type)->kind == WF_KIND_INT;
}

static void ints_load(wf_type type, const void *from, int32_t *to, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = type == WF_I32  ? ((const int32_t *)from)[i]
                : type == WF_I8 ? ((const int8_t *)from)[i]
                                : ((const uint8_t *)from)[i];
}

static int32_t clamp(int32_t x, int32_t low, int32_t high)
{
    return x < low ? low : x > high ? high : x;
}

static void ints_store(wf_type type, const int32_t *from, void *to, int64_t n)
{
    if (type == WF_I32)
        memcpy(to, from, (size_t)n * sizeof *from);
    else if (type == WF_I8)
        for (int64_t i = 0; i < n; i++)
            ((int8_t *)to)[i] = (int8_t)clamp(from[i], INT8_MIN, INT8_MAX);
    else
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)to)[i] = (uint8_t)clamp(from[i], 0, UINT8_MAX);
}

static int32_t whole(float x)
{
    if (isnan(x))
        return 0;
    /* 2^31 is exact in f32, INT32_MAX is not. */
    return x >= 0x1p31f ? INT32_MAX : x <= -0x1p31f ? INT32_MIN : (int32_t)x;
}

/* Converts n <= WF_CHUNK contiguous elements. */
static void cast_chunk(wf_type from_type, const void *from, wf_type to_type, void *to, int64_t n)
{
    wf_chunk ints, floats; /* only one of the two is used, unless the kinds differ */
    if (is_int(from_type))
        ints_load(from_type, from, ints.i32, n);
    else
        wf_convert_to_f32(from_type, from, floats.f32, n);

    if (is_int(from_type) && !is_int(to_type))
        for (int64_t i = 0; i < n; i++)
            floats.f32[i] = (float)ints.i32[i];
    if (!is_int(from_type) && is_int(to_type))
        for (int64_t i = 0; i < n; i++)
            ints.i32[i] = whole(floats.f32[i]);

    if (is_int(to_type))
        ints_store(to_type, ints.i32, to, n);
    else
        wf_convert_from_f32(to_type, floats.f32, to, n);
}

static void cast_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const cast_job *j = arg;
    int64_t step = wf_walk_step(&j->walk, 0), at = begin;
    wf_chunk buf;
    for (wf_run r = wf_run_over(&j->walk, begin, end); wf_run_next(&r, WF_CHUNK); at += r.n)
        cast_chunk(j->in->type, wf_chunk_load(j->in, r.offset[0], step, r.n, &buf), j->out->type,
                   wf_view_at(j->out, at), r.n);
}

/* Decodes rows of quantized blocks. */
static void cast_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const cast_job *j = arg;
    int64_t length = wf_view_last(j->in);
    wf_chunk buf;
    for (int64_t r = begin; r < end; r++)
        for (int64_t at = 0; at < length; at += WF_CHUNK) {
            int64_t n = length - at < WF_CHUNK ? length - at : WF_CHUNK;
            wf_convert_from_f32(j->out->type, wf_row_part(j->in, r, at, n, buf.f32),
                                wf_view_at(j->out, r * length + at), n);
        }
}

static wf_status launch_cast_blocks(const wf_launch *l)
{
    cast_job j = {.in = &l->in[0], .out = &l->out[0]};
    if (j.out->data)
        wf_parallel_for(l->threads, wf_view_rows(j.in), wf_grain(wf_view_last(j.in)), cast_rows,
                        &j);
    return WF_OK;
}

static wf_status launch_cast(const wf_launch *l)
{
    cast_job j = {.in = &l->in[0], .out = &l->out[0]};
    if (!j.out->data)
        return WF_OK;
    if (j.in->type == j.out->type)
        return launch_broadcast(l);
    j.walk = wf_walk_over(j.in->rank, j.in->dim);
    wf_walk_add(&j.walk, j.in);
    wf_walk_fold(&j.walk);
    wf_parallel_for(l->threads, wf_walk_count(&j.walk), wf_grain(1), cast_range, &j);
    return WF_OK;
}

/* clang-format off */
#define ROW(name_, types_, launch_)                                                                \
    {.op = WF_OP_##name_, .name = "reference", .types = types_, .strided = true, .launch = launch_}
const wf_kernel wf_cpu_shape[] = {
    ROW(cast, WF_TYPES_PLAIN, launch_cast),
    ROW(cast, WF_TYPES_BLOCK, launch_cast_blocks),
    ROW(copy, WF_TYPES_ALL, launch_broadcast), /* onto its own shape */
    ROW(reshape, WF_TYPES_ALL, launch_reshape),
    ROW(permute, WF_TYPES_ALL, launch_permute),
    ROW(slice, WF_TYPES_ALL, launch_slice),
    ROW(pad, WF_TYPES_PLAIN, launch_pad),
    ROW(concat, WF_TYPES_PLAIN, launch_concat),
    ROW(broadcast, WF_TYPES_PLAIN, launch_broadcast),
    {0},
};
