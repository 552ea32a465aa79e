/* SPDX-License-Identifier: MIT */
/*
 * gemm.c - the GEMM ops: matmul, linear, and their fused forms.
 *
 * Sizes and operands come from cpu/matmul.h, shared with the reference kernels; gemm_run.c
 * multiplies. Every op also takes packed or quantized weights where its rows say so. Results have
 * the same bits for any number of threads and, per row, for any batch.
 */
#include "device/cpu/simd/gemm.h"

#include "device/cpu/matmul.h"
#include "device/cpu/simd/math.h"
#include "device/cpu/simd/reduce.h"

/* Depends on shapes, types and threads only. */
static size_t scratch(wf_gemm g, const wf_node *n, int threads)
{
    return WF_SIMD(wf_simd_gemm_scratch)(g.batch, g.m, g.n, g.k, n->out[0].type, threads);
}

static size_t matmul_workspace(const wf_device *device, const wf_node *n)
{
    return scratch(wf_matmul_sizes(n), n, wf_device_threads(device));
}

static size_t linear_workspace(const wf_device *device, const wf_node *n)
{
    return scratch(wf_linear_sizes(n), n, wf_device_threads(device));
}

static wf_status launch_matmul(const wf_launch *l)
{
    wf_gemm g = wf_matmul_product(l);
    WF_SIMD(wf_simd_gemm_run)(&g);
    return WF_OK;
}

static wf_status launch_linear(const wf_launch *l)
{
    wf_gemm g = wf_linear_product(l);
    WF_SIMD(wf_simd_gemm_run)(&g);
    return WF_OK;
}

/* Activations read and write whole vectors: rows are padded buffers (WF_GEMM_CHUNK). */
#define ACTIVATE_ROW(act, name)                                    \
    static void name##_row(const float *in, float *out, int64_t n) \
    {                                                              \
        for (int64_t i = 0; i < n; i += WF_VL)                     \
            vf_store(out + i, vf_##name(vf_load(in + i)));         \
    }
WF_ACTIVATIONS(ACTIVATE_ROW)

#define ROW_OF_ACT(act, name) [WF_ACT_##act] = name##_row,
static wf_gemm_act *const activations[WF_ACT_COUNT] = {WF_ACTIVATIONS(ROW_OF_ACT)};

wf_gemm_act *WF_SIMD(wf_simd_activation)(wf_act act)
{
    return activations[act];
}

static wf_status launch_linear_act(const wf_launch *l)
{
    const wf_attr_linear_act *attr = l->attr;
    wf_gemm g = wf_linear_product(l);
    g.act = WF_SIMD(wf_simd_activation)(attr->act);
    WF_SIMD(wf_simd_gemm_run)(&g);
    return WF_OK;
}

/* ---- Gradients: a GEMM, then a sum, in one workspace ---- */

static size_t matmul_act_grad_workspace(const wf_device *device, const wf_node *n)
{
    wf_gemm g = wf_matmul_act_grad_sizes(n);
    size_t product = scratch(g, n, wf_device_threads(device)),
           sum = WF_SIMD(wf_simd_sum_rows_workspace)(g.m, g.n);
    return product > sum ? product : sum;
}

/* y *= gelu'(x) */
static void gelu_slope_row(const float *x, float *y, int64_t n)
{
    for (int64_t i = 0; i < n; i += WF_VL) {
        vf at = vf_load(x + i);
        vf_store(y + i, vf_mul(vf_load(y + i), vf_gelu_slope(at, vf_gelu_gate(at))));
    }
}

wf_gemm_slope *WF_SIMD(wf_simd_slope)(wf_act act)
{
    return act == WF_ACT_GELU ? gelu_slope_row : NULL;
}

static wf_status launch_matmul_act_grad(const wf_launch *l)
{
    wf_gemm g = wf_matmul_act_grad_product(l);
    g.slope = gelu_slope_row;
    WF_SIMD(wf_simd_gemm_run)(&g);
    WF_SIMD(wf_simd_sum_rows)(l, &l->out[0], &l->out[1]); /* of the rounded result */
    return WF_OK;
}

static size_t linear_grad_weight_workspace(const wf_device *device, const wf_node *n)
{
    wf_gemm g = wf_linear_grad_weight_sizes(n);
    size_t product = scratch(g, n, wf_device_threads(device)),
           sum = WF_SIMD(wf_simd_sum_rows_workspace)(g.k, g.m);
    return product > sum ? product : sum;
}

static wf_status launch_linear_grad_weight(const wf_launch *l)
{
    wf_gemm g = wf_linear_grad_weight_product(l);
    WF_SIMD(wf_simd_gemm_run)(&g);
    WF_SIMD(wf_simd_sum_rows)(l, &l->in[0], &l->out[1]);
    return WF_OK;
}

/* clang-format off */
#define ROW(name_, workspace_)                                                                     \
    {.op = WF_OP_##name_, .name = "simd", .types = WF_TYPES_FLOAT, .weights = WF_TYPES_WEIGHT,     \
     .strided = true, .workspace = workspace_, .launch = launch_##name_}
#define PACKED(name_)                                                                              \
    {.op = WF_OP_##name_, .name = "simd packed", .types = WF_TYPES_FLOAT,                          \
     .weights = WF_TYPES_FLOAT, .strided = true, .packed = 1u << 1, .workspace = linear_workspace, \
     .launch = launch_##name_}
#define GRAD(name_, weights_, ...)                                                                 \
    {.op = WF_OP_##name_, .name = "simd", .types = WF_TYPES_FLOAT, .weights = weights_,            \
     .strided = true, .workspace = name_##_workspace, .launch = launch_##name_, __VA_ARGS__}
const wf_kernel WF_SIMD(wf_cpu_gemm)[] = {
    ROW(matmul, matmul_workspace),
    ROW(linear, linear_workspace),
    PACKED(linear),
    ROW(linear_act, linear_workspace),
    PACKED(linear_act),
    GRAD(matmul_act_grad, WF_TYPES_WEIGHT, .from_first = 1u << 1),
    GRAD(linear_grad_weight, WF_TYPES_FLOAT),
    {0},
};
