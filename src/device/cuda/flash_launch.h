/* SPDX-License-Identifier: MIT */
/*
 * flash_launch.h - builds a wf_flash from a launch of attention or attention_grad, for all kernels
 * on tensor cores.
 *
 * A kernel for newer GPUs delegates what it cannot do at launch, when pointers and strides are
 * known:
 *
 *     wf_flash f = wf_flash_of(l);
 *     if (!wf_flash_aligned(&f))
 *         return wf_flash_launch(l);
 *
 * Its workspace must then have at least wf_flash_workspace bytes.
 */
#ifndef WF_DEVICE_CUDA_FLASH_LAUNCH_H
#define WF_DEVICE_CUDA_FLASH_LAUNCH_H

#include "device/cuda/flash.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whether a node has packed sequences, one narrow type for q, k and v, and D, Dv from 8 to 256. */
bool wf_flash_accepts(const wf_device *device, const wf_node *n);

/* Works for attention and attention_grad. Leaves low, high and irregular NULL: see
 * wf_flash_ranges. */
wf_flash wf_flash_of(const wf_launch *l);

/* Whether all rows of all present operands are 16-byte aligned. */
bool wf_flash_aligned(const wf_flash *f);

/* Computes low, high and irregular on the device, in `workspace` (wf_flash_ranges_bytes bytes,
 * 256-byte aligned). Does nothing if f->length > 0. */
size_t wf_flash_ranges_bytes(const wf_node *n);
void wf_flash_ranges(const wf_launch *l, wf_flash *f, void *workspace);

/* Run attention or attention_grad by flash.cu or flash_grad.cu: all nodes that wf_flash_accepts. */
size_t wf_flash_workspace(const wf_device *device, const wf_node *n);
wf_status wf_flash_launch(const wf_launch *l);

/* The parts: flash.cu, and flash_grad.cu with a workspace of wf_flash_stats_bytes. */
void wf_flash_forward(const wf_launch *l, const wf_flash *f);
size_t wf_flash_stats_bytes(const wf_node *n);
void wf_flash_backward(const wf_launch *l, const wf_flash *f, void *workspace);

/* The general kernels (attention.cu), which accept every node. With `irregular` not NULL they run
 * only if it is set. */
size_t wf_attention_workspace(const wf_device *device, const wf_node *n);
void wf_attention_run(const wf_launch *l, void *workspace, const int32_t *irregular);

#ifdef __cplusplus
}
#endif
#endif
