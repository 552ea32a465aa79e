/* SPDX-License-Identifier: MIT */
/*
 * rope.c - rotary position embedding of x [N, H, D].
 *
 * Rotates pair i of a head by the angle positions[n] * inv_freq[i]. Sines and cosines are computed
 * once per token for all heads. The angle is reduced to [-pi/4, pi/4] in f64; the rest is accurate
 * in f32.
 */
#include <math.h>

#include "base/thread.h"
#include "device/cpu/row.h"
#include "device/cpu/simd/lanes.h"
#include "device/walk.h"

/* The largest angle that the two-part reduction handles accurately; libm handles larger ones. */
#define ANGLE_MOST 0x1p30

enum { COSINE, SINE, BUFFERS };

typedef struct {
    const wf_launch *l;
    int64_t heads, width, pairs;
    double most; /* the largest frequency; Inf if any is NaN */
} rope_arg;

/* sin and cos of r for |r| <= pi/4, by polynomials. */
static inline void sin_cos_near(vf r, vf *sine, vf *cosine)
{
    vf z = vf_mul(r, r);
    vf s = vf_fma(vf_set(-1.9515295891e-4f), z, vf_set(8.3321608736e-3f));
    s = vf_fma(s, z, vf_set(-1.6666654611e-1f));
    *sine = vf_fma(vf_mul(s, z), r, r);
    vf c = vf_fma(vf_set(2.443315711809948e-5f), z, vf_set(-1.388731625493765e-3f));
    c = vf_fma(c, z, vf_set(4.166664568298827e-2f));
    *cosine = vf_fma(vf_mul(c, z), z, vf_fnma(vf_set(0.5f), z, vf_set(1)));
}

/* angle = quarters * pi/2 + rest, with quarters reduced modulo 4 to [-2, 2]. */
static inline void take_apart(vd angle, vd *quarters, vd *rest)
{
    vd q = vd_round(vd_mul(angle, vd_set(0x1.45f306dc9c883p-1)));
    *rest =
        vd_fnma(q, vd_set(0x1.1a62633145c07p-54), vd_fnma(q, vd_set(0x1.921fb54442d18p+0), angle));
    *quarters = vd_fnma(vd_set(4), vd_round(vd_mul(q, vd_set(0.25))), q);
}

/* sin and cos of position * inv_freq, within 2 ulp where the angle is at most ANGLE_MOST. */
static inline void sin_cos(double position, vf inv_freq, vf *sine, vf *cosine)
{
    vd ql, qh, rl, rh, p = vd_set(position);
    take_apart(vd_mul(p, vd_low(inv_freq)), &ql, &rl);
    take_apart(vd_mul(p, vd_high(inv_freq)), &qh, &rh);
    vf s, c;
    sin_cos_near(vd_to_vf(rl, rh), &s, &c);
    vi q = vf_to_vi(vd_to_vf(ql, qh)), one = vi_set(1), two = vi_set(2);
    vm odd = vf_lt(vf_zero(), vi_to_vf(vi_and(q, one)));
    vi sine_sign = vi_shl(vi_and(q, two), 30),
       cosine_sign = vi_shl(vi_and(vi_add(q, one), two), 30);
    *sine = vi_as_vf(vi_xor(vf_as_vi(vf_select(odd, c, s)), sine_sign));
    *cosine = vi_as_vf(vi_xor(vf_as_vi(vf_select(odd, s, c)), cosine_sign));
}

/* Cosines and sines of one position, times the magnitude. */
static void turn(const rope_arg *o, int64_t n, float *cosine, float *sine)
{
    const wf_attr_rope *attr = o->l->attr;
    double position = ((const int32_t *)o->l->in[1].data)[n];
    const float *inv_freq = o->l->in[2].data;
    float magnitude = (float)attr->magnitude, back = attr->inverse ? -magnitude : magnitude;
    if (!(o->most * fabs(position) <= ANGLE_MOST)) {
        for (int64_t i = 0; i < o->pairs; i++) {
            double angle = position * inv_freq[i];
            cosine[i] = (float)(attr->magnitude * cos(angle));
            sine[i] = (float)(attr->magnitude * (attr->inverse ? -sin(angle) : sin(angle)));
        }
        return;
    }
    for (int64_t i = 0; i < o->pairs; i += WF_VL) {
        vf s, c;
        sin_cos(position, lanes_load(WF_F32, inv_freq, i, o->pairs), &s, &c);
        lanes_store(WF_F32, cosine, i, o->pairs, vf_mul(c, vf_set(magnitude)));
        lanes_store(WF_F32, sine, i, o->pairs, vf_mul(s, vf_set(back)));
    }
}

/* Duplicates cosines and sines for interleaved pairs 2 i and 2 i + 1, with a negative sine for the
 * first. Runs backwards, since elements move up. */
static void spread(float *cosine, float *sine, int64_t pairs)
{
    for (int64_t i = pairs; i-- > 0;) {
        float c = cosine[i], s = sine[i];
        cosine[2 * i] = cosine[2 * i + 1] = c;
        sine[2 * i] = -s;
        sine[2 * i + 1] = s;
    }
}

static inline void turn_neighbours(wf_type type, const void *x, void *y, int64_t n, const float *c,
                                   const float *s)
{
    for (int64_t i = 0; i < n; i += WF_VL) {
        vf v = lanes_load(type, x, i, n);
        vf rotated =
            vf_fma(vf_swap(v), lanes_load(WF_F32, s, i, n), vf_mul(v, lanes_load(WF_F32, c, i, n)));
        lanes_store(type, y, i, n, rotated);
    }
}

static inline void turn_halves(wf_type type, const void *x, void *y, int64_t pairs, const float *c,
                               const float *s)
{
    const void *x2 = lanes_at(type, x, pairs);
    void *y2 = lanes_at(type, y, pairs);
    for (int64_t i = 0; i < pairs; i += WF_VL) {
        vf a = lanes_load(type, x, i, pairs), b = lanes_load(type, x2, i, pairs);
        vf cosine = lanes_load(WF_F32, c, i, pairs), sine = lanes_load(WF_F32, s, i, pairs);
        lanes_store(type, y, i, pairs, vf_fnma(b, sine, vf_mul(a, cosine)));
        lanes_store(type, y2, i, pairs, vf_fma(a, sine, vf_mul(b, cosine)));
    }
}

static inline void rope_of(wf_type type, const rope_arg *o, int64_t begin, int64_t end, int thread)
{
    const wf_attr_rope *attr = o->l->attr;
    int64_t rotated = 2 * o->pairs;
    float *c = wf_row_buffer(o->l, thread, BUFFERS, COSINE, o->width);
    float *s = wf_row_buffer(o->l, thread, BUFFERS, SINE, o->width);
    size_t rest = (size_t)(o->width - rotated) * (type == WF_F32 ? 4 : 2);

    for (int64_t n = begin; n < end; n++) {
        turn(o, n, c, s);
        if (attr->interleaved)
            spread(c, s, o->pairs);
        for (int64_t r = n * o->heads; r < (n + 1) * o->heads; r++) {
            const void *x = lanes_row(&o->l->in[0], r);
            void *y = lanes_row(&o->l->out[0], r);
            if (attr->interleaved)
                turn_neighbours(type, x, y, rotated, c, s);
            else
                turn_halves(type, x, y, o->pairs, c, s);
            memcpy(lanes_at(type, y, rotated), lanes_at(type, x, rotated), rest);
        }
    }
}

static void rope_tokens(void *arg, int64_t begin, int64_t end, int thread)
{
    const rope_arg *o = arg;
    LANES_BY_TYPE(o->l->in[0].type, rope_of, o, begin, end, thread);
}

static size_t rope_workspace(const wf_device *device, const wf_node *n)
{
    return wf_row_workspace(wf_device_threads(device), BUFFERS, wf_dims_last(&n->in[0]->shape));
}

/* rope: (x [N, H, D], positions i32[N], inv_freq f32[R/2]) -> [N, H, D] */
static wf_status launch_rope(const wf_launch *l)
{
    const wf_view *x = &l->in[0];
    rope_arg o = {.l = l, .heads = x->dim[1], .width = x->dim[2], .pairs = l->in[2].dim[0]};
    const float *inv_freq = l->in[2].data;
    for (int64_t i = 0; i < o.pairs; i++)
        o.most = fabs(inv_freq[i]) <= o.most ? o.most
                 : isnan(inv_freq[i])        ? INFINITY
                                             : fabs(inv_freq[i]);
    if (l->out[0].data)
        wf_parallel_for(l->threads, x->dim[0], wf_grain(x->dim[1] * x->dim[2]), rope_tokens, &o);
    return WF_OK;
}

/* clang-format off */
const wf_kernel WF_SIMD(wf_cpu_rope)[] = {
    {.op = WF_OP_rope, .name = "simd", .types = WF_TYPES_FLOAT, .strided = true,
     .workspace = rope_workspace, .launch = launch_rope},
    {0},
};
