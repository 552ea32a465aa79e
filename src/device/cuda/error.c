/* SPDX-License-Identifier: MIT */
/* error.c - turns CUDA errors into sentences that name the op and its operands. */
#include "device/cuda/cuda.h"

static wf_status status_of(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? WF_ERR_MEMORY : WF_ERR_DEVICE;
}

wf_status wf_cuda_try(wf_ctx *ctx, cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return WF_OK;
    cudaGetLastError(); /* clear it, or the next launch would report it again */
    return wf_fail(ctx, status_of(error), "cuda: %s: %s (%s)", what, cudaGetErrorString(error),
                   cudaGetErrorName(error));
}

wf_status wf_cuda_check(const wf_launch *l, cudaError_t error)
{
    if (error == cudaSuccess)
        return WF_OK;
    char call[256];
    size_t len = 0;
    wf_call_print(wf_node_def(l->node), l->node->in, l->nin, l->attr, call, sizeof call, &len);
    cudaGetLastError();
    return wf_fail(l->ctx, status_of(error), "%s on cuda: %s (%s)", call, cudaGetErrorString(error),
                   cudaGetErrorName(error));
}

wf_status wf_cuda_launched(const wf_launch *l)
{
    return wf_cuda_check(l, cudaGetLastError());
}
