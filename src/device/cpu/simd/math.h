/* SPDX-License-Identifier: MIT */
/*
 * math.h - vector math functions.
 *
 * Each states its largest error in ulp of the exact value (of the smallest normal number for
 * subnormals). tests/test_simd_math.c checks these bounds, and the results for NaN, infinities and
 * zeros. All lanes take the same path, so a lane's result does not depend on its neighbours.
 */
#ifndef WF_DEVICE_CPU_SIMD_MATH_H
#define WF_DEVICE_CPU_SIMD_MATH_H

#include <math.h>

#include "device/cpu/simd/simd.h"

/* p[0] + p[1] x + ... + p[n - 1] x^(n-1). */
static inline vf vf_poly(const float *p, int n, vf x)
{
    vf y = vf_set(p[n - 1]);
    for (int i = n - 2; i >= 0; i--)
        y = vf_fma(y, x, vf_set(p[i]));
    return y;
}
#define VF_POLY(x, ...) \
    vf_poly((const float[]){__VA_ARGS__}, sizeof(float[]){__VA_ARGS__} / sizeof(float), x)

/* |a| with the sign of b. */
static inline vf vf_with_sign(vf a, vf b)
{
    vi sign = vi_and(vf_as_vi(b), vi_set(INT32_MIN));
    return vi_as_vf(vi_or(vf_as_vi(vf_abs(a)), sign));
}

/* x * 2^n for -150 <= n <= 128, by two factors, since one alone may overflow. */
static inline vf vf_scale2(vf x, vi n)
{
    vi half = vi_sra(n, 1), rest = vi_sub(n, half), bias = vi_set(127);
    x = vf_mul(x, vi_as_vf(vi_shl(vi_add(half, bias), 23)));
    return vf_mul(x, vi_as_vf(vi_shl(vi_add(rest, bias), 23)));
}

/* e^x within 1.5 ulp, also for subnormal results. x = n ln 2 + r, e^x = 2^n e^r. */
static inline vf vf_exp(vf x)
{
    x = vf_min(vf_set(89),
               vf_max(vf_set(-104), x)); /* beyond these the result is 0 or Inf; keeps NaN */
    vf n = vf_round(vf_mul(x, vf_set(0x1.715476p+0f)));
    vf r = vf_fnma(n, vf_set(0x1.62e4p-1f), x);
    r = vf_fnma(n, vf_set(0x1.7f7d1cp-20f), r);
    vf p = VF_POLY(r, 0.5f, 0x1.555554p-3f, 0x1.555502p-5f, 0x1.111318p-7f, 0x1.6e879cp-10f,
                   0x1.a0d2cep-13f);
    p = vf_fma(vf_mul(r, r), p, vf_add(r, vf_set(1)));
    return vf_scale2(p, vf_to_vi(n));
}

/* Within 1 ulp. x = 2^n (1 + f), sqrt(1/2) <= 1 + f < sqrt(2). */
static inline vf vf_log(vf x)
{
    vm tiny = vf_lt(x, vf_set(0x1p-126f));
    vi bits = vf_as_vi(vf_select(tiny, vf_mul(x, vf_set(0x1p23f)), x));
    vi e = vi_sra(vi_sub(bits, vi_set(0x3f3504f3)), 23);
    vf f = vf_sub(vi_as_vf(vi_sub(bits, vi_shl(e, 23))), vf_set(1)), s = vf_mul(f, f);
    vf n = vf_sub(vi_to_vf(e), vf_select(tiny, vf_set(23), vf_zero()));
    vf p = VF_POLY(f, 0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a01cp-3f, -0x1.54728ap-3f,
                   0x1.22d93p-3f, -0x1.0d8246p-3f, 0x1.055eaep-3f, -0x1.38c974p-4f);
    vf y = vf_fma(n, vf_set(0x1.7f7d1cp-20f), vf_mul(p, vf_mul(s, f)));
    y = vf_fma(n, vf_set(0x1.62e4p-1f), vf_add(f, vf_fnma(s, vf_set(0.5f), y)));
    y = vf_select(vf_lt(x, vf_set(INFINITY)), y, x); /* NaN, too */
    y = vf_select(vf_lt(x, vf_zero()), vf_set(NAN), y);
    return vf_select(vf_eq(x, vf_zero()), vf_set(-INFINITY), y);
}

/* Within 1.5 ulp. */
static inline vf vf_rsqrt(vf x)
{
    return vf_div(vf_set(1), vf_sqrt(x));
}

/* Within 1.5 ulp: a polynomial near 0, elsewhere 1 - 2 / (e^2x + 1). */
static inline vf vf_tanh(vf x)
{
    vf a = vf_abs(x), s = vf_mul(a, a);
    vf p = VF_POLY(s, -0x1.555532p-2f, 0x1.1106f6p-3f, -0x1.b835a4p-5f, 0x1.51f8cep-6f,
                   -0x1.750ce2p-8f);
    vf near = vf_fma(vf_mul(s, p), a, a);
    vf far = vf_div(vf_set(2), vf_add(vf_exp(vf_add(a, a)), vf_set(1)));
    return vf_with_sign(vf_select(vf_lt(a, vf_set(0.625f)), near, vf_sub(vf_set(1), far)), x);
}

/* Within 1.5 ulp: a polynomial near 0, elsewhere 1 - e^p(|x|). */
static inline vf vf_erf(vf x)
{
    vf a = vf_abs(x), s = vf_mul(a, a);
    vf p = VF_POLY(s, 0x1.06eba8p-3f, -0x1.8127p-2f, 0x1.ce1c44p-4f, -0x1.b691b2p-6f,
                   0x1.471a58p-8f, -0x1.38ep-11f);
    vf near = vf_fma(p, a, a), t = vf_min(vf_set(4), a); /* erf(4) is 1 - 2^-26 */
    p = VF_POLY(t, -0x1.079d0cp-3f, -0x1.450aap-1f, -0x1.b55cb8p-4f, 0x1.8d6342p-6f,
                -0x1.fd1438p-9f, 0x1.91cfb2p-12f, -0x1.22p-16f);
    vf far = vf_sub(vf_set(1), vf_exp(vf_sub(vf_mul(p, t), t)));
    return vf_with_sign(vf_select(vf_lt(a, vf_set(0.927734375f)), near, far), x);
}

/* 1 / (1 + e^-x) within 3 ulp. */
static inline vf vf_sigmoid(vf x)
{
    vf e = vf_exp(vf_neg(vf_abs(x))); /* never overflows */
    return vf_div(vf_select(vf_lt(x, vf_zero()), e, vf_set(1)), vf_add(vf_set(1), e));
}

/* ---- Activations: x times a gate ---- */

/* sigmoid(u) with u = sqrt(8 / pi) (x + 0.044715 x^3), within 3 ulp, times 1 + |u| where u < 0. */
static inline vf vf_gelu_gate(vf x)
{
    vf s = vf_mul(x, x);
    vf c = vf_fma(s, vf_set(2 * 0.7978845608028654 * 0.044715), vf_set(2 * 0.7978845608028654));
    return vf_sigmoid(vf_mul(x, c));
}

/* e^(-x^2 / 2) within 3 ulp. */
static inline vf vf_bell(vf x)
{
    x = vf_min(vf_set(15), vf_abs(x)); /* the result is 0 beyond; the square stays finite */
    vf s = vf_mul(x, x), lost = vf_fma(x, x, vf_neg(s));
    vf e = vf_exp(vf_mul(s, vf_set(-0.5f)));
    return vf_fnma(vf_mul(e, lost), vf_set(0.5f), e);
}

/* The normal distribution, within 6 ulp: for x < 0 the bell times a rational function of x. */
static inline vf vf_gelu_erf_gate(vf x)
{
    vf r = vf_div(vf_set(1), vf_add(vf_abs(x), vf_set(2.5f)));
    vf q = vf_fnma(r, vf_set(5), vf_set(1)); /* (|x| - 2.5) / (|x| + 2.5) */
    vf p = VF_POLY(q, 0x1.69cee6p-1f, -0x1.bc19cap-2f, 0x1.0e4fb4p-3f, 0x1.2eb3ecp-7f,
                   -0x1.0c95c4p-6f, -0x1.a61418p-10f, 0x1.4cfc98p-9f, 0x1.708deep-11f,
                   -0x1.5410ep-12f, -0x1.6660aep-13f);
    vf tail = vf_mul(vf_mul(p, r), vf_bell(x));
    return vf_select(vf_lt(x, vf_zero()), tail, vf_sub(vf_set(1), tail));
}

static inline vf vf_silu_gate(vf x)
{
    return vf_sigmoid(x);
}

/* The rows of WF_ACTIVATIONS. gelu is within 3 ulp, times 1 + |u| where u < 0, gelu_erf within 8,
 * silu within 4, relu exact, relu2 within 0.5. A subnormal gate has lost bits, which a large x
 * amplifies to |x| ulp. */
static inline vf vf_gelu(vf x)
{
    return vf_mul(vf_gelu_gate(x), x);
}

static inline vf vf_gelu_erf(vf x)
{
    return vf_mul(vf_gelu_erf_gate(x), x);
}

static inline vf vf_silu(vf x)
{
    return vf_mul(vf_silu_gate(x), x);
}

static inline vf vf_relu(vf x)
{
    return vf_max(vf_zero(), x); /* keeps NaN */
}

static inline vf vf_relu2(vf x)
{
    x = vf_relu(x);
    return vf_mul(x, x);
}

/* ---- Derivatives at x, given its gate, within 2^-18 of the largest term: near the derivative's zero, and
 * where 1 - gate cancels, the terms are accurate but not their sum ---- */

static inline vf vf_gelu_slope(vf x, vf gate)
{
    vf bend = vf_mul(gate, vf_sub(vf_set(1), gate)); /* becomes 0 long before x * x overflows */
    vf c = vf_fma(vf_mul(x, x), vf_set(6 * 0.7978845608028654 * 0.044715),
                  vf_set(2 * 0.7978845608028654));
    vf more = vf_mul(vf_mul(x, bend), c);
    return vf_add(gate, vf_select(vf_lt(vf_zero(), bend), more, vf_zero()));
}

static inline vf vf_gelu_erf_slope(vf x, vf gate)
{
    vf bell = vf_bell(x), more = vf_mul(vf_mul(x, vf_set(0.3989422804014327f)), bell);
    return vf_add(gate, vf_select(vf_lt(vf_zero(), bell), more, vf_zero()));
}

static inline vf vf_silu_slope(vf x, vf gate)
{
    vf bend = vf_mul(gate, vf_sub(vf_set(1), gate));
    return vf_add(gate, vf_select(vf_lt(vf_zero(), bend), vf_mul(x, bend), vf_zero()));
}

/* The functions above that are ops, by name; and the activations with a gate. */
#define WF_SIMD_UNARY(X) \
    X(neg)               \
    X(exp)               \
    X(log)               \
    X(sqrt)              \
    X(rsqrt)             \
    X(tanh)              \
    X(sigmoid)           \
    X(erf)               \
    X(gelu)              \
    X(gelu_erf)          \
    X(silu)              \
    X(relu)              \
    X(relu2)
#define WF_SIMD_GATED(X) \
    X(silu)              \
    X(gelu)              \
    X(gelu_erf)

#endif
