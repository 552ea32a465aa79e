/* SPDX-License-Identifier: MIT */
/* rows.cuh - scatter_add_rows (scatter.cu), for the table of rows.cu. */
#ifndef WF_DEVICE_CUDA_ROWS_CUH
#define WF_DEVICE_CUDA_ROWS_CUH

#include "device/cuda/each.cuh"

wf_status wf_cuda_launch_scatter(const wf_launch *l);
size_t wf_cuda_scatter_workspace(const wf_device *device, const wf_node *n);

#endif
