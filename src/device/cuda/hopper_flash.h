/* SPDX-License-Identifier: MIT */
/*
 * hopper_flash.h - attention on Hopper: what its rows (hopper.cu) are made of. What it cannot take at launch, operands
 * that are not aligned, and positions that go backwards, are left to the kernels for all GPUs.
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

/* The kernel alone: operands are aligned, low and high are there if length is 0, and the workspace begins
 * with 256 bytes for it. */
wf_status wf_cuda_hopper_attention(const wf_launch *l, const wf_flash *f);

/* The same for attention_grad. dq is summed up in a fixed order. */
bool wf_cuda_hopper_attention_grad_accepts(const wf_device *device, const wf_node *n);
size_t wf_cuda_hopper_attention_grad_workspace(const wf_device *device, const wf_node *n);
wf_status wf_cuda_hopper_attention_grad_launch(const wf_launch *l);

#ifdef __cplusplus
}
#endif
#endif
