/* SPDX-License-Identifier: MIT */
/*
 * row.h - the reference kernels compute on rows of f32, whatever the storage type.
 *
 * Reading an f32 row costs nothing: the kernel works on the value's own memory. Other types pass
 * through a buffer of the thread, which the kernel's row in the table asked for as workspace.
 */
#ifndef WF_DEVICE_CPU_ROW_H
#define WF_DEVICE_CPU_ROW_H

#include "device/kernel.h"
#include "graph/quant/block.h"

/* Elements [begin, begin + n) of row r of v as f32, borrowed until buf, of n floats, or v changes. Of
 * quantized types these are whole parts of blocks (wf_block_part). */
static inline const float *wf_row_part(const wf_view *v, int64_t r, int64_t begin, int64_t n,
                                       float *buf)
{
    int64_t row = wf_view_row(v, r);
    if (v->type == WF_F32)
        return wf_view_at(v, row + begin);
    if (wf_type_get(v->type)->kind == WF_KIND_BLOCK)
        wf_block_decode(v->type, wf_view_at(v, row), begin, n, buf);
    else
        wf_convert_to_f32(v->type, wf_view_at(v, row + begin), buf, n);
    return buf;
}

/* The whole row. */
static inline const float *wf_row_read(const wf_view *v, int64_t r, float *buf)
{
    return wf_row_part(v, r, 0, wf_view_last(v), buf);
}

/* Where row r of v is to be written as f32: v's own memory, or buf. wf_row_end stores it. */
static inline float *wf_row_begin(const wf_view *v, int64_t r, float *buf)
{
    return v->type == WF_F32 ? wf_view_at(v, wf_view_row(v, r)) : buf;
}

static inline void wf_row_end(const wf_view *v, int64_t r, const float *y)
{
    if (v->type != WF_F32)
        wf_convert_from_f32(v->type, y, wf_view_at(v, wf_view_row(v, r)), wf_view_last(v));
}

/* Workspace of `buffers` rows of `length` floats for each thread, rounded to whole cache lines. */
size_t wf_row_workspace(int threads, int buffers, int64_t length);
/* Buffer `index` of a thread in such a workspace. */
float *wf_row_buffer(const wf_launch *l, int thread, int buffers, int index, int64_t length);
/* The same where it is but a part of the launch's. */
float *wf_row_buffer_in(void *workspace, int thread, int buffers, int index, int64_t length);

/* The arrays of the table, each in the file of its name. */
extern const wf_kernel wf_cpu_elementwise[], wf_cpu_source[], wf_cpu_shape[], wf_cpu_reduce[],
    wf_cpu_rows[], wf_cpu_matmul[], wf_cpu_norm[], wf_cpu_rope[], wf_cpu_attention[], wf_cpu_loss[],
    wf_cpu_head_loss[], wf_cpu_update[];
#define WF_CPU_REFERENCE_KERNELS                                                                \
    wf_cpu_elementwise, wf_cpu_source, wf_cpu_shape, wf_cpu_reduce, wf_cpu_rows, wf_cpu_matmul, \
        wf_cpu_norm, wf_cpu_rope, wf_cpu_attention, wf_cpu_loss, wf_cpu_head_loss, wf_cpu_update

#endif
