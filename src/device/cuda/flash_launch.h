/* SPDX-License-Identifier: MIT */
/*
 * flash_launch.h - from a launch of attention or attention_grad to the wf_flash that kernels take, for all rows
 * that run on tensor cores.
 *
 * A row for newer GPUs takes what it can and hands the rest on at launch, when pointers and strides are
 * known:
 *
 *     wf_flash f = wf_flash_of(l);
 *     if (!wf_flash_aligned(&f))
 *         return wf_flash_launch(l);
 *
 * for which its workspace must be at least wf_flash_workspace.
 */
#ifndef WF_DEVICE_CUDA_FLASH_LAUNCH_H
#define WF_DEVICE_CUDA_FLASH_LAUNCH_H

#include "device/cuda/flash.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Packed sequences, q, k and v of one narrow type, D and Dv from 8 to 256. */
bool wf_flash_accepts(const wf_device *device, const wf_node *n);

/* The same for attention and attention_grad. low, high and irregular are NULL: see wf_flash_ranges. */
wf_flash wf_flash_of(const wf_launch *l);

/* Whether all operands that there are begin at multiples of 16 bytes, with strides that keep it so. */
bool wf_flash_aligned(const wf_flash *f);

/* With f->length > 0 there is nothing to do. Otherwise fills low, high and irregular on the device, in
 * `workspace`, which has wf_flash_ranges_bytes and is aligned to 256 bytes. */
size_t wf_flash_ranges_bytes(const wf_node *n);
void wf_flash_ranges(const wf_launch *l, wf_flash *f, void *workspace);

/* attention and attention_grad by the kernels for all GPUs with tensor cores for bf16 (flash.cu, flash_grad.cu):
 * everything that wf_flash_accepts. */
size_t wf_flash_workspace(const wf_device *device, const wf_node *n);
wf_status wf_flash_launch(const wf_launch *l);

/* Parts of these: flash.cu, and flash_grad.cu, whose workspace has wf_flash_stats_bytes. */
void wf_flash_forward(const wf_launch *l, const wf_flash *f);
size_t wf_flash_stats_bytes(const wf_node *n);
void wf_flash_backward(const wf_launch *l, const wf_flash *f, void *workspace);

/* The plain kernels (attention.cu), which take everything. When `irregular` is not NULL they do nothing
 * unless it is set. */
size_t wf_attention_workspace(const wf_device *device, const wf_node *n);
void wf_attention_run(const wf_launch *l, void *workspace, const int32_t *irregular);

#ifdef __cplusplus
}
#endif
#endif
