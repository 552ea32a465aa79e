/* SPDX-License-Identifier: MIT */
/* number.c - converts single elements, and compares them within bounds. */
#include "selftest/number.h"

#include <math.h>

#include "base/half.h"

/* Rounds to the nearest integer within [lo, hi]; NaN becomes 0. */
static double saturate(double v, double lo, double hi)
{
    v = isnan(v) ? 0 : rint(v);
    return v < lo ? lo : v > hi ? hi : v;
}

double wf_number_round(wf_type type, double v)
{
    switch (type) {
    case WF_F32: return (float)v;
    case WF_F16: return wf_f16_to_f32(wf_f32_to_f16((float)v));
    case WF_BF16: return wf_bf16_to_f32(wf_f32_to_bf16((float)v));
    case WF_E4M3: return wf_e4m3_to_f32(wf_f32_to_e4m3((float)v));
    case WF_E5M2: return wf_e5m2_to_f32(wf_f32_to_e5m2((float)v));
    case WF_I32: return saturate(v, INT32_MIN, INT32_MAX);
    case WF_I8: return saturate(v, INT8_MIN, INT8_MAX);
    case WF_U8: return saturate(v, 0, UINT8_MAX);
    default: return v;
    }
}

void wf_numbers_store(wf_type type, const double *from, void *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        double v = from[i];
        switch (type) {
        case WF_F32: ((float *)to)[i] = (float)v; break;
        case WF_F16: ((uint16_t *)to)[i] = wf_f32_to_f16((float)v); break;
        case WF_BF16: ((uint16_t *)to)[i] = wf_f32_to_bf16((float)v); break;
        case WF_E4M3: ((uint8_t *)to)[i] = wf_f32_to_e4m3((float)v); break;
        case WF_E5M2: ((uint8_t *)to)[i] = wf_f32_to_e5m2((float)v); break;
        case WF_I32: ((int32_t *)to)[i] = (int32_t)wf_number_round(type, v); break;
        case WF_I8: ((int8_t *)to)[i] = (int8_t)wf_number_round(type, v); break;
        case WF_U8: ((uint8_t *)to)[i] = (uint8_t)wf_number_round(type, v); break;
        default: wf_assert(!"a type without single elements"); break;
        }
    }
}

double wf_number_load(wf_type type, const void *from, int64_t i)
{
    switch (type) {
    case WF_F32: return ((const float *)from)[i];
    case WF_F16: return wf_f16_to_f32(((const uint16_t *)from)[i]);
    case WF_BF16: return wf_bf16_to_f32(((const uint16_t *)from)[i]);
    case WF_E4M3: return wf_e4m3_to_f32(((const uint8_t *)from)[i]);
    case WF_E5M2: return wf_e5m2_to_f32(((const uint8_t *)from)[i]);
    case WF_I32: return ((const int32_t *)from)[i];
    case WF_I8: return ((const int8_t *)from)[i];
    case WF_U8: return ((const uint8_t *)from)[i];
    default: return wf_number_of_block(type, from, i);
    }
}

double wf_number_poison(wf_type type)
{
    switch (type) {
    case WF_I32: return -1234567890;
    case WF_I8: return -99;
    case WF_U8: return 199;
    default: return NAN;
    }
}

/* Returns the smallest positive value of a float type, its smallest subnormal number. */
static double smallest(wf_type type)
{
    switch (type) {
    case WF_F32: return 0x1p-149;
    case WF_F16: return 0x1p-24;
    case WF_BF16: return 0x1p-133;
    case WF_E4M3: return 0x1p-9;
    case WF_E5M2: return 0x1p-16;
    default: return 0;
    }
}

double wf_number_bound(wf_type type, double c, double v, double mag)
{
    double roundoff = wf_type_get(type)->roundoff;
    if (mag == 0 || roundoff == 0)
        return 0;
    return c * (WF_ROUNDOFF_F32 * mag + smallest(WF_F32)) + roundoff * fabs(v) + smallest(type);
}

static bool same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

/* Returns error / bound of one element; above 1 it fails. */
static double judge(wf_type type, double got, double v, double bound)
{
    if (bound > 0 && isfinite(v) && isfinite(got))
        return fabs(got - v) / bound;
    if (same(got, wf_number_round(type, v)))
        return 0;
    if (!isfinite(v) || isnan(got) || !(bound > 0))
        return INFINITY;
    /* Infinity is correct if a value within the bound overflows. */
    return same(got, wf_number_round(type, v + copysign(bound, got))) ? 1 : INFINITY;
}

wf_verdict wf_compare(const void *got, const wf_ref *want, double c)
{
    wf_verdict worst = {.ratio = -1};
    int64_t count = wf_dims_count(&want->shape);
    for (int64_t i = 0; i < count; i++) {
        double x = wf_number_load(want->type, got, i);
        double bound = wf_number_bound(want->type, c, want->v[i], want->mag[i]);
        double ratio = judge(want->type, x, want->v[i], bound);
        if (!(ratio <= worst.ratio))
            worst = (wf_verdict){!(ratio <= 1), ratio, i, x, want->v[i], bound};
    }
    if (worst.ratio < 0)
        worst.ratio = 0;
    return worst;
}

/* The share of `most` covers elements with small terms next to large ones: near its limit, tanh
 * loses digits to the cancellation in 1 - y^2. A gradient that is wrong by 0.1% still fails. */
wf_verdict wf_compare_gradient(double got, double numeric, double terms, double most, double c)
{
    double bound = c * WF_ROUNDOFF_F32 * (terms + 0.02 * most) + 1e-6;
    double ratio = fabs(got - numeric) / bound;
    return (wf_verdict){!(ratio <= 1), ratio, 0, got, numeric, bound};
}
