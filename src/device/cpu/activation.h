/* SPDX-License-Identifier: MIT */
/*
 * activation.h - unary ops of one f32, and gelu's derivative. The expressions come from ops.def. A
 * kernel that fuses an activation must produce the bits of the op itself, so it calls wf_apply_NAME.
 */
#ifndef WF_DEVICE_CPU_ACTIVATION_H
#define WF_DEVICE_CPU_ACTIVATION_H

#include "device/expression.h"

static inline float wf_sigmoid_f32(float x)
{
    float e = expf(-fabsf(x)); /* never overflows */
    return (x < 0 ? e : 1) / (1 + e);
}

#define WF_SQRT_2_OVER_PI 0.7978845608028654f
#define WF_SQRT_HALF 0.7071067811865476f
#define WF_GELU_CUBIC 0.044715f

/* (1 + tanh(u)) / 2 = sigmoid(2 u), which stays accurate where tanh(u) is close to -1. */
static inline float wf_gelu_gate_f32(float x)
{
    return wf_sigmoid_f32(2 * WF_SQRT_2_OVER_PI * (x + WF_GELU_CUBIC * x * x * x));
}

/* (1 + erf(u)) / 2, accurate where erf(u) is close to -1. */
static inline float wf_gelu_erf_gate_f32(float x)
{
    return 0.5f * erfcf(-x * WF_SQRT_HALF);
}

static inline float wf_gelu_slope_f32(float x)
{
    float gate = wf_gelu_gate_f32(x),
          bend = gate * (1 - gate); /* becomes 0 long before x * x overflows */
    float slope = 2 * WF_SQRT_2_OVER_PI * (1 + 3 * WF_GELU_CUBIC * x * x);
    return gate + (bend > 0 ? x * bend * slope : 0);
}

static inline float wf_relu_f32(float x)
{
    return x < 0 ? 0 : x; /* keeps NaN */
}

/* wf_apply_exp(x), wf_apply_gelu(x), ...: the expression of each unary op. */
#define WF_UNARY(name, doc, f32, ...)            \
    static inline float wf_apply_##name(float x) \
    {                                            \
        return f32;                              \
    }
#define WF_BINARY(...)
#define WF_OP(...)
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP

#endif
