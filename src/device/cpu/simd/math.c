/* SPDX-License-Identifier: MIT */
/* math.c - the functions of math.h over arrays, by name, for tests of their error bounds. */
#include "device/cpu/simd/math.h"

static inline void apply(const float *x, float *y, int64_t n, vf (*fn)(vf x))
{
    int64_t i = 0;
    for (; i + WF_VL <= n; i += WF_VL)
        vf_store(y + i, fn(vf_load(x + i)));
    vf_store_n(y + i, fn(vf_load_n(x + i, (int)(n - i))), (int)(n - i));
}

#define APPLY(name)                                             \
    static void name##_all(const float *x, float *y, int64_t n) \
    {                                                           \
        apply(x, y, n, vf_##name);                              \
    }
#define APPLY_SLOPE(name)                                             \
    static inline vf name##_slope(vf x)                               \
    {                                                                 \
        return vf_##name##_slope(x, vf_##name##_gate(x));             \
    }                                                                 \
    static void name##_slope_all(const float *x, float *y, int64_t n) \
    {                                                                 \
        apply(x, y, n, name##_slope);                                 \
    }
WF_SIMD_UNARY(APPLY)
WF_SIMD_GATED(APPLY_SLOPE)

/* clang-format off */
#define FUNCTION(name) {#name, name##_all},
#define FUNCTION_SLOPE(name) {#name "_slope", name##_slope_all},
const wf_cpu_function WF_SIMD(wf_cpu_functions)[] = {
    WF_SIMD_UNARY(FUNCTION)
    WF_SIMD_GATED(FUNCTION_SLOPE)
    {0},
};
