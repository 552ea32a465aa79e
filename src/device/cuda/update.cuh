/* SPDX-License-Identifier: MIT */
/* update.cuh - kv_append (append.cu), for the table of update.cu. */
#ifndef WF_DEVICE_CUDA_UPDATE_CUH
#define WF_DEVICE_CUDA_UPDATE_CUH

#include "device/cuda/row.cuh"

/* append.cu */
extern "C" size_t wf_cuda_kv_append_workspace(const wf_device *device, const wf_node *n);
extern "C" wf_status wf_cuda_kv_append(const wf_launch *l);

#endif
