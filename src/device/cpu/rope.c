/* SPDX-License-Identifier: MIT */
/*
 * rope.c - rotary position embedding of x [N, H, D].
 *
 * Rotates pair i of a head by the angle positions[n] * inv_freq[i], or back for the inverse. The
 * first R = 2 * len(inv_freq) dimensions form pairs; the rest are copied.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/row.h"
#include "device/walk.h"

enum { X, Y, COSINE, SINE, BUFFERS };

typedef struct {
    const wf_launch *l;
    int64_t heads, pairs;
} rope_arg;

/* Cosines and sines of one position, times the magnitude. The angle is f64: positions exceed 10^5,
 * where an f32 angle would be off by 0.01. */
static void turn(const rope_arg *o, int64_t n, float *cosine, float *sine)
{
    const wf_attr_rope *attr = o->l->attr;
    double position = ((const int32_t *)o->l->in[1].data)[n];
    const float *inv_freq = o->l->in[2].data;
    for (int64_t i = 0; i < o->pairs; i++) {
        double angle = position * inv_freq[i];
        cosine[i] = (float)(attr->magnitude * cos(angle));
        sine[i] = (float)(attr->magnitude * (attr->inverse ? -sin(angle) : sin(angle)));
    }
}

static void rope_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const rope_arg *o = arg;
    const wf_view *in = &o->l->in[0], *out = &o->l->out[0];
    const wf_attr_rope *attr = o->l->attr;
    int64_t d = wf_view_last(in);
    /* The elements of pair i are step * i and step * i + apart. */
    int64_t step = attr->interleaved ? 2 : 1, apart = attr->interleaved ? 1 : o->pairs;
    float *buf[BUFFERS];
    for (int i = 0; i < BUFFERS; i++)
        buf[i] = wf_row_buffer(o->l, thread, BUFFERS, i, d);
    const float *c = buf[COSINE], *s = buf[SINE];

    for (int64_t n = begin; n < end; n++) {
        turn(o, n, buf[COSINE], buf[SINE]);
        for (int64_t r = n * o->heads; r < (n + 1) * o->heads; r++) {
            const float *x = wf_row_read(in, r, buf[X]);
            float *y = wf_row_begin(out, r, buf[Y]);
            for (int64_t i = 0; i < o->pairs; i++) {
                float a = x[step * i], b = x[step * i + apart];
                y[step * i] = a * c[i] - b * s[i];
                y[step * i + apart] = a * s[i] + b * c[i];
            }
            for (int64_t i = 2 * o->pairs; i < d; i++)
                y[i] = x[i];
            wf_row_end(out, r, y);
        }
    }
}

static size_t rope_workspace(const wf_device *device, const wf_node *n)
{
    return wf_row_workspace(wf_device_threads(device), BUFFERS, wf_dims_last(&n->in[0]->shape));
}

/* rope: (x [N, H, D], positions i32[N], inv_freq f32[R/2]) -> [N, H, D] */
static wf_status launch_rope(const wf_launch *l)
{
    const wf_view *x = &l->in[0];
    rope_arg o = {.l = l, .heads = x->dim[1], .pairs = l->in[2].dim[0]};
    if (l->out[0].data)
        wf_parallel_for(l->threads, x->dim[0], wf_grain(x->dim[1] * x->dim[2]), rope_tokens, &o);
    return WF_OK;
}

/* clang-format off */
const wf_kernel wf_cpu_rope[] = {
    {.op = WF_OP_rope, .name = "reference", .types = WF_TYPES_FLOAT, .strided = true,
     .workspace = rope_workspace, .launch = launch_rope},
    {0},
};
