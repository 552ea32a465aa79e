/* SPDX-License-Identifier: MIT */
/* shape.c - casts between float types. Ops that only move elements already use memcpy by rows. */
#include "base/thread.h"
#include "device/cpu/simd/simd.h"
#include "device/walk.h"

typedef struct {
    const wf_view *in, *out;
    wf_walk walk; /* operand: in; the result is dense */
} cast_job;

/* Converts n contiguous elements. Testing the types per vector costs less than the store's
 * latency. */
static void cast_run(wf_type from_type, const char *from, wf_type to_type, char *to, int64_t n)
{
    const int from_bytes = wf_type_get(from_type)->block_bytes;
    const int to_bytes = wf_type_get(to_type)->block_bytes;
    int64_t i = 0;
    for (; i + WF_VL <= n; i += WF_VL)
        vf_store_as(to_type, to + i * to_bytes, vf_load_as(from_type, from + i * from_bytes));
    if (i < n) {
        vf x = vf_load_as_n(from_type, from + i * from_bytes, (int)(n - i));
        vf_store_as_n(to_type, to + i * to_bytes, x, (int)(n - i));
    }
}

static void cast_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    const cast_job *j = arg;
    const wf_type from = j->in->type, to = j->out->type;
    int64_t step = wf_walk_step(&j->walk, 0), at = begin;
    wf_chunk buf;
    wf_run r = wf_run_over(&j->walk, begin, end);
    for (; wf_run_next(&r, step == 1 ? INT64_MAX : WF_CHUNK); at += r.n)
        cast_run(from, wf_chunk_load(j->in, r.offset[0], step, r.n, &buf), to,
                 wf_view_at(j->out, at), r.n);
}

static wf_status launch_cast(const wf_launch *l)
{
    cast_job j = {.in = &l->in[0], .out = &l->out[0]};
    if (!j.out->data)
        return WF_OK;
    j.walk = wf_walk_over(j.in->rank, j.in->dim);
    wf_walk_add(&j.walk, j.in);
    wf_walk_fold(&j.walk);
    wf_parallel_for(l->threads, wf_walk_count(&j.walk), wf_grain(1), cast_range, &j);
    return WF_OK;
}

/* Equal types are excluded: the reference copies them bitwise. */
static bool is_float_to_float(const wf_device *device, const wf_node *n)
{
    (void)device;
    const wf_type_set both = wf_type_bit(n->in[0]->type) | wf_type_bit(n->out[0].type);
    return n->in[0]->type != n->out[0].type && (both & ~WF_TYPES_FLOAT) == 0;
}

const wf_kernel WF_SIMD(wf_cpu_shape)[] = {
    {.op = WF_OP_cast,
     .name = "simd",
     .types = WF_TYPES_FLOAT,
     .strided = true,
     .accepts = is_float_to_float,
     .launch = launch_cast},
    {0},
};
