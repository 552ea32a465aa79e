/* SPDX-License-Identifier: MIT */
/* row.c - addresses of each thread's row buffers in a kernel's workspace. */
#include "device/cpu/row.h"

#define CACHE_LINE 64

static size_t buffer_bytes(int64_t length)
{
    return ((size_t)length * sizeof(float) + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

size_t wf_row_workspace(int threads, int buffers, int64_t length)
{
    return (size_t)threads * (size_t)buffers * buffer_bytes(length);
}

float *wf_row_buffer_in(void *workspace, int thread, int buffers, int index, int64_t length)
{
    if (!workspace) /* not requested: the kernel works on the values' own memory */
        return NULL;
    size_t before = (size_t)thread * (size_t)buffers + (size_t)index;
    return (void *)((char *)workspace + before * buffer_bytes(length));
}

float *wf_row_buffer(const wf_launch *l, int thread, int buffers, int index, int64_t length)
{
    return wf_row_buffer_in(l->workspace, thread, buffers, index, length);
}
