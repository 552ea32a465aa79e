/* SPDX-License-Identifier: MIT */
/* absent.c - empty tables in place of those whose files are not emulated; any other definition is preferred. */
#include "device/cuda/cuda.h"

#define EMPTY(name) __attribute__((weak)) const wf_kernel wf_cuda_##name##_kernels[1]

EMPTY(elementwise);
EMPTY(cast);
EMPTY(shape);
EMPTY(source);
EMPTY(reduce);
EMPTY(softmax);
EMPTY(rows);
EMPTY(norm);
EMPTY(rope);
EMPTY(loss);
EMPTY(update);
EMPTY(product);
EMPTY(head);
EMPTY(attention);
EMPTY(flash);
EMPTY(hopper);
EMPTY(cudnn);

__attribute__((weak)) wf_status wf_cuda_products_new(wf_cuda_device *d, bool tune)
{
    (void)d, (void)tune;
    return WF_OK;
}

__attribute__((weak)) void wf_cuda_products_free(wf_cuda_device *d)
{
    (void)d;
}

__attribute__((weak)) uint64_t wf_cuda_products_choices(const wf_cuda_device *d)
{
    (void)d;
    return 0;
}
