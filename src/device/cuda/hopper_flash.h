/* SPDX-License-Identifier: MIT */
/*
 * hopper_flash.h - the functions of Hopper's attention rows (hopper.cu). Unaligned operands and
 * decreasing positions, which show at launch, are left to the kernels for all GPUs.
 */
#ifndef WF_DEVICE_CUDA_HOPPER_FLASH_H
#define WF_DEVICE_CUDA_HOPPER_FLASH_H

#include "device/cuda/flash_launch.h"

#ifdef __cplusplus
extern "C" {
#endif

/* D = Dv = 64 or 128, no softcap. */
bool wf_cuda_hopper_attention_accepts(const wf_device *device, const wf_node *n);
size_t wf_cuda_hopper_attention_workspace(const wf_device *device, const wf_node *n);
wf_status wf_cuda_hopper_attention_launch(const wf_launch *l);

/* Launches the kernel. Operands are aligned, low and high are set if length is 0, and the workspace
 * starts with 256 bytes for the counter. */
wf_status wf_cuda_hopper_attention(const wf_launch *l, const wf_flash *f);

/* The same for attention_grad. dq is summed in a fixed order. */
bool wf_cuda_hopper_attention_grad_accepts(const wf_device *device, const wf_node *n);
size_t wf_cuda_hopper_attention_grad_workspace(const wf_device *device, const wf_node *n);
wf_status wf_cuda_hopper_attention_grad_launch(const wf_launch *l);

#ifdef __cplusplus
}
#endif
#endif
