/* SPDX-License-Identifier: MIT */
/*
 * hopper.cu - host code shared by the Hopper kernels: TMA descriptors, and their table rows.
 */
#include "device/cuda/hopper.cuh"
#include "device/cuda/hopper_flash.h"
#include "device/cuda/hopper_rows.h"

/* Gets the driver's function through the runtime, so that nothing links the driver. */
static decltype(&cuTensorMapEncodeTiled) encoder(const wf_launch *l, wf_status *status)
{
    void *entry = NULL;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                         cudaEnableDefault, &found);
    if (error == cudaSuccess && found != cudaDriverEntryPointSuccess)
        error = cudaErrorSymbolNotFound;
    *status = wf_cuda_check(l, error);
    return error == cudaSuccess ? (decltype(&cuTensorMapEncodeTiled))entry : NULL;
}

static int64_t element_bytes(const wf_tensor_box *b)
{
    return b->type == WF_F32 ? 4 : 2;
}

wf_status wf_cuda_tensor_map(const wf_launch *l, const wf_tensor_box *b, CUtensorMap *out)
{
    static decltype(&cuTensorMapEncodeTiled) encode; /* shared by all devices */
    if (!encode) {
        wf_status status;
        encode = encoder(l, &status);
        if (status != WF_OK)
            return status;
    }
    CUtensorMapDataType type = b->type == WF_F32    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                               : b->type == WF_BF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                    : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    cuuint64_t dim[4], stride[3];
    cuuint32_t box[4], step[4];
    for (int i = 0; i < 4; i++) {
        dim[i] = (cuuint64_t)b->dim[i];
        box[i] = (cuuint32_t)b->box[i];
        step[i] = 1;
        if (i > 0)
            stride[i - 1] = (cuuint64_t)(b->stride[i] * element_bytes(b));
    }
    CUresult result = encode(out, type, 4, b->data, dim, stride, box, step,
                             CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return wf_cuda_check(l, result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue);
}

/* ---- Rows ---- */

#define NARROW (WF_TYPE_BIT(WF_BF16) | WF_TYPE_BIT(WF_F16))

/* clang-format off */
extern "C" const wf_kernel wf_cuda_hopper_kernels[] = {
    {.op = WF_OP_attention, .name = "hopper", .types = NARROW, .strided = true,
     .accepts = wf_cuda_hopper_attention_accepts, .workspace = wf_cuda_hopper_attention_workspace,
     .launch = wf_cuda_hopper_attention_launch},
    {.op = WF_OP_attention_grad, .name = "hopper", .types = NARROW, .strided = true, .strided_out = 7,
     .accepts = wf_cuda_hopper_attention_grad_accepts,
     .workspace = wf_cuda_hopper_attention_grad_workspace,
     .launch = wf_cuda_hopper_attention_grad_launch},
    {.op = WF_OP_linear, .name = "rows", .types = NARROW | WF_TYPE_BIT(WF_F32), .weights = NARROW,
     .strided = true, .accepts = wf_cuda_hopper_rows_accepts, .launch = wf_cuda_hopper_rows_launch},
    {},
};
