/* SPDX-License-Identifier: MIT */
/*
 * row.h - the reference kernels compute on rows of f32, for any storage type.
 *
 * An f32 row is used in place. Other types go through a buffer per thread, which the kernel's table
 * row requests as workspace.
 */
#ifndef WF_DEVICE_CPU_ROW_H
#define WF_DEVICE_CPU_ROW_H

#include "device/kernel.h"
#include "graph/quant/block.h"

/* Returns elements [begin, begin + n) of row r of v as f32, valid until buf (n floats) or v
 * changes. For quantized types the range must be whole block parts (wf_block_part). */
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

/* Returns where to write row r of v as f32: v's memory, or buf. wf_row_end stores it. */
static inline float *wf_row_begin(const wf_view *v, int64_t r, float *buf)
{
    return v->type == WF_F32 ? wf_view_at(v, wf_view_row(v, r)) : buf;
}

static inline void wf_row_end(const wf_view *v, int64_t r, const float *y)
{
    if (v->type != WF_F32)
        wf_convert_from_f32(v->type, y, wf_view_at(v, wf_view_row(v, r)), wf_view_last(v));
}

/* Bytes of workspace for `buffers` rows of `length` floats per thread, in whole cache lines. */
size_t wf_row_workspace(int threads, int buffers, int64_t length);
/* Buffer `index` of a thread in such a workspace. */
float *wf_row_buffer(const wf_launch *l, int thread, int buffers, int index, int64_t length);
/* The same for a workspace that is part of the launch's. */
float *wf_row_buffer_in(void *workspace, int thread, int buffers, int index, int64_t length);

/* The table's arrays, each in the file of its name. */
extern const wf_kernel wf_cpu_elementwise[], wf_cpu_source[], wf_cpu_shape[], wf_cpu_reduce[],
    wf_cpu_rows[], wf_cpu_matmul[], wf_cpu_norm[], wf_cpu_rope[], wf_cpu_attention[], wf_cpu_loss[],
    wf_cpu_head_loss[], wf_cpu_update[];
#define WF_CPU_REFERENCE_KERNELS                                                                \
    wf_cpu_elementwise, wf_cpu_source, wf_cpu_shape, wf_cpu_reduce, wf_cpu_rows, wf_cpu_matmul, \
        wf_cpu_norm, wf_cpu_rope, wf_cpu_attention, wf_cpu_loss, wf_cpu_head_loss, wf_cpu_update

#endif
