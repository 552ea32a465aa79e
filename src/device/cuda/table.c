/* SPDX-License-Identifier: MIT */
/* table.c - the kernel tables of each GPU generation. The planner takes the first row that fits. */
#include "device/cuda/cuda.h"

#define EVERYWHERE                                                                              \
    wf_cuda_flash_kernels, wf_cuda_attention_parts_kernels, wf_cuda_attention_few_kernels,      \
        wf_cuda_attention_kernels, wf_cuda_product_kernels, wf_cuda_head_kernels,               \
        wf_cuda_elementwise_kernels, wf_cuda_cast_kernels, wf_cuda_shape_kernels,               \
        wf_cuda_source_kernels, wf_cuda_reduce_kernels, wf_cuda_softmax_kernels,                \
        wf_cuda_rows_kernels, wf_cuda_norm_kernels, wf_cuda_rope_kernels, wf_cuda_loss_kernels, \
        wf_cuda_update_kernels, NULL

static const wf_kernel *const common[] = {wf_cuda_cudnn_kernels, EVERYWHERE};

#if WF_CUDA_HOPPER
/* Before cuDNN's: measured faster, forward and backward (docs/performance.md). */
static const wf_kernel *const hopper[] = {wf_cuda_hopper_kernels, wf_cuda_cudnn_kernels,
                                          EVERYWHERE};
#endif

const wf_kernel *const *wf_cuda_kernels(int major, int minor)
{
#if WF_CUDA_HOPPER
    if (major == 9 && minor == 0)
        return hopper;
#endif
    (void)major, (void)minor;
    return common;
}
