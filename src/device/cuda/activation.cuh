/* SPDX-License-Identifier: MIT */
/*
 * activation.cuh - unary ops of one f32, and derivatives of activations. The expressions come from
 * ops.def. A kernel that fuses an activation must produce the bits of the op itself, so it calls
 * wf_apply_NAME.
 */
#ifndef WF_DEVICE_CUDA_ACTIVATION_CUH
#define WF_DEVICE_CUDA_ACTIVATION_CUH

#include "device/cuda/kernels.cuh"
#include "device/expression.h"

#define WF_SQRT_2_OVER_PI 0.7978845608028654f
#define WF_SQRT_HALF 0.7071067811865476f
#define WF_INV_SQRT_2PI 0.3989422804014327f
#define WF_GELU_CUBIC 0.044715f

/* 2^x with a relative error of 2^-22; results below 2^-126 become 0. */
static __device__ __forceinline__ float wf_quick_exp2(float x)
{
#if WF_CUDA_EMULATED
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* 1 / x with a relative error of 2^-23; 0 for |x| > 2^126. */
static __device__ __forceinline__ float wf_quick_reciprocal(float x)
{
#if WF_CUDA_EMULATED
    return 1 / x;
#else
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* Correct where e^-x overflows: 1 / (1 + Inf) is 0. */
static __device__ __forceinline__ float wf_sigmoid_f32(float x)
{
    return wf_quick_reciprocal(1 + expf(-x));
}

/* (1 + tanh(u)) / 2 = sigmoid(2 u), which stays accurate where tanh(u) is close to -1. The
 * constants are the factors of x and x^3 in -2 u / ln 2. The fast 2^x suffices: where gelu is
 * large, its error is no larger than u's. */
static __device__ __forceinline__ float wf_gelu_gate_f32(float x)
{
    constexpr float linear = (float)(-2 * 0.7978845608028654 * 1.4426950408889634);
    constexpr float cubic = (float)(-2 * 0.7978845608028654 * 1.4426950408889634 * 0.044715);
    return wf_quick_reciprocal(1 + wf_quick_exp2(x * (linear + cubic * x * x)));
}

/* (1 + erf(u)) / 2, accurate where erf(u) is close to -1. */
static __device__ __forceinline__ float wf_gelu_erf_gate_f32(float x)
{
    return 0.5f * erfcf(-x * WF_SQRT_HALF);
}

static __device__ __forceinline__ float wf_relu_f32(float x)
{
    return x < 0 ? 0 : x; /* keeps NaN */
}

/* wf_apply_exp(x), wf_apply_gelu(x), ...: the expression of each unary op. */
#define WF_UNARY(name, doc, f32, ...)                                \
    static __device__ __forceinline__ float wf_apply_##name(float x) \
    {                                                                \
        return f32;                                                  \
    }
#define WF_BINARY(...)
#define WF_OP(...)
#include "graph/ops.def"
#undef WF_UNARY
#undef WF_BINARY
#undef WF_OP

static __device__ __forceinline__ float wf_gelu_slope(float x)
{
    const float gate = wf_gelu_gate_f32(x);
    const float bend = fmaf(-gate, gate, gate); /* becomes 0 long before x * x overflows */
    const float slope = 2 * WF_SQRT_2_OVER_PI * (1 + 3 * WF_GELU_CUBIC * x * x);
    return gate + (bend > 0 ? x * bend * slope : 0);
}

static __device__ __forceinline__ float wf_gelu_erf_slope(float x)
{
    return wf_gelu_erf_gate_f32(x) + x * WF_INV_SQRT_2PI * expf(-0.5f * x * x);
}

static __device__ __forceinline__ float wf_silu_slope(float x)
{
    const float gate = wf_sigmoid_f32(x);
    return gate * (1 + x * (1 - gate));
}

/* Selected by the attribute's value. */
template <wf_act ACT> static __device__ __forceinline__ float wf_activate(float x)
{
    return ACT == WF_ACT_GELU       ? wf_apply_gelu(x)
           : ACT == WF_ACT_GELU_ERF ? wf_apply_gelu_erf(x)
           : ACT == WF_ACT_SILU     ? wf_apply_silu(x)
           : ACT == WF_ACT_RELU     ? wf_apply_relu(x)
                                    : wf_apply_relu2(x);
}

#endif
