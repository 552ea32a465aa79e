/* SPDX-License-Identifier: MIT */
/*
 * head_loss.c - head_loss with the vectorized GEMM and loss rows. The guarantees of
 * device/cpu/head_loss.c about bits hold here, too: this GEMM also sums in blocks of WF_GEMM_BLOCK.
 */
#include "device/cpu/head_loss.h"

#include "device/cpu/simd/gemm.h"
#include "device/cpu/simd/loss.h"

static size_t scratch(int64_t m, int64_t n, int64_t k, wf_type product, int threads)
{
    return WF_SIMD(wf_simd_gemm_scratch)(1, m, n, k, product, threads);
}

static void row(const wf_loss *o, int64_t i, wf_type type, void *z, const wf_launch *l, bool grad)
{
    float lse = WF_SIMD(wf_loss_row)(o, i, type, z, &l->out[0], &l->out[1]);
    const float *dloss = grad ? wf_loss_at(&l->in[3], i) : NULL;
    if (dloss)
        WF_SIMD(wf_loss_row_grad)(o, i, type, z, *dloss, lse, z);
}

static const wf_head_loss_ways ways = {
    .chunk = WF_GEMM_BLOCK,
    .scratch = scratch,
    .multiply = WF_SIMD(wf_simd_gemm_run),
    .row = row,
};

static size_t head_loss_workspace(const wf_device *device, const wf_node *n)
{
    return wf_head_loss_workspace(n, wf_device_threads(device), &ways);
}

static wf_status launch_head_loss(const wf_launch *l)
{
    return wf_head_loss_launch(l, &ways);
}

/* clang-format off */
const wf_kernel WF_SIMD(wf_cpu_head_loss)[] = {
    {.op = WF_OP_head_loss, .name = "simd", .types = WF_TYPES_FLOAT, .weights = WF_TYPES_WEIGHT,
     .strided = true, .workspace = head_loss_workspace, .launch = launch_head_loss},
    {0},
};
