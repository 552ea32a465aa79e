/* SPDX-License-Identifier: MIT */
/* hopper_rows.h - linear with few rows of x on Hopper (hopper_rows.cu). */
#ifndef WF_DEVICE_CUDA_HOPPER_ROWS_H
#define WF_DEVICE_CUDA_HOPPER_ROWS_H

#include "device/cuda/product.h"

#ifdef __cplusplus
extern "C" {
#endif

bool wf_cuda_hopper_rows_accepts(const wf_device *device, const wf_node *n);
wf_status wf_cuda_hopper_rows_launch(const wf_launch *l);

#ifdef __cplusplus
}
#endif
#endif
