/* SPDX-License-Identifier: MIT */
/*
 * lanes.h - iterates over rows of any float type, one vector at a time.
 *
 *     for (int64_t i = 0; i < n; i += WF_VL)
 *         vf x = lanes_load(type, row, i, n);
 *
 * The last vector may be partial: lanes past the row's end read as 0 and are not written. Functions
 * that take a type are inlined with a constant (LANES_BY_TYPE), so that loops do not test it.
 */
#ifndef WF_DEVICE_CPU_SIMD_LANES_H
#define WF_DEVICE_CPU_SIMD_LANES_H

#include "device/cpu/simd/simd.h"

/* Calls fn(type, ...) with a constant type. */
#define LANES_BY_TYPE(type, fn, ...)  \
    do {                              \
        if ((type) == WF_F32)         \
            fn(WF_F32, __VA_ARGS__);  \
        else if ((type) == WF_F16)    \
            fn(WF_F16, __VA_ARGS__);  \
        else                          \
            fn(WF_BF16, __VA_ARGS__); \
    } while (0)

static inline void *lanes_at(wf_type type, const void *row, int64_t i)
{
    return (char *)row + i * (type == WF_F32 ? 4 : 2);
}

static inline vf lanes_load(wf_type type, const void *row, int64_t i, int64_t n)
{
    const void *p = lanes_at(type, row, i);
    return n - i >= WF_VL ? vf_load_as(type, p) : vf_load_as_n(type, p, (int)(n - i));
}

static inline void lanes_store(wf_type type, void *row, int64_t i, int64_t n, vf x)
{
    void *p = lanes_at(type, row, i);
    if (n - i >= WF_VL)
        vf_store_as(type, p, x);
    else
        vf_store_as_n(type, p, x, (int)(n - i));
}

/* x within the row, `rest` past its end. */
static inline vf lanes_or(vf x, int64_t i, int64_t n, vf rest)
{
    return n - i >= WF_VL ? x : vf_select(vm_first((int)(n - i)), x, rest);
}

/* Address of row r of v. */
static inline void *lanes_row(const wf_view *v, int64_t r)
{
    return lanes_at(v->type, v->data, wf_view_row(v, r));
}

/* Returns a row of n elements as f32: the row itself, or buf. */
static inline const float *lanes_widen(wf_type type, const void *row, int64_t n, float *buf)
{
    if (type == WF_F32)
        return row;
    for (int64_t i = 0; i < n; i += WF_VL)
        lanes_store(WF_F32, buf, i, n, lanes_load(type, row, i, n));
    return buf;
}

/* Address of element i, in row-major order, of an f32 or i32 value with one element per row. */
static inline void *lanes_item(const wf_view *v, int64_t i)
{
    int64_t last = wf_view_last(v);
    return (char *)v->data + (wf_view_row(v, i / last) + i % last) * 4;
}

/* f64 sums of f32 vectors. */
typedef struct {
    vd low, high;
} lanes_sum;

static inline lanes_sum lanes_sum_zero(void)
{
    return (lanes_sum){vd_zero(), vd_zero()};
}

static inline void lanes_sum_add(lanes_sum *s, vf x)
{
    s->low = vd_add(s->low, vd_low(x));
    s->high = vd_add(s->high, vd_high(x));
}

/* Adds x * y. */
static inline void lanes_sum_fma(lanes_sum *s, vf x, vf y)
{
    s->low = vd_fma(vd_low(x), vd_low(y), s->low);
    s->high = vd_fma(vd_high(x), vd_high(y), s->high);
}

static inline double lanes_sum_end(const lanes_sum *s)
{
    return vd_sum(vd_add(s->low, s->high));
}

#endif
