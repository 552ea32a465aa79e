/* SPDX-License-Identifier: MIT */
/* absent.c - replaces the cuda device in builds without CUDA: opening it fails with the reason. */
#include "device/device.h"

extern const wf_device_ops wf_cuda_device_ops;

static wf_status cuda_open(wf_ctx *ctx, const char *options, wf_device **out)
{
    (void)options;
    *out = NULL;
    return wf_fail(
        ctx, WF_ERR_UNSUPPORTED,
        WF_STATIC
            ? "this is a static build, without the cuda and pjrt devices; use a build made by 'make'"
            : "this build has no CUDA kernels: it was configured without nvcc or with "
              "WEFT_CUDA=OFF");
}

const wf_device_ops wf_cuda_device_ops = {
    .kind = "cuda",
    .automatic = true,
    .doc = "an NVIDIA GPU",
    .open = cuda_open,
};
