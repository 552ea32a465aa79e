/* SPDX-License-Identifier: MIT */
/* absent.c - replaces source files that are not emulated: kernel tables without kernels, and
 * libraries that cannot be loaded. */
#include <stdio.h>

#include "device/cuda/cuda.h"
#include "device/cuda/library.h"

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

__attribute__((weak)) void wf_cuda_products_begin(const wf_cuda_device *d)
{
    (void)d;
}

__attribute__((weak)) uint64_t wf_cuda_products_choices(const wf_cuda_device *d)
{
    (void)d;
    return 0;
}

__attribute__((weak)) bool wf_cuda_library_load(const wf_cuda_library *library, void *table,
                                                char *why, size_t bytes)
{
    (void)table;
    snprintf(why, bytes, "%s needs a GPU, and this one is emulated", library->what);
    return false;
}
