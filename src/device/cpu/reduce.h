/* SPDX-License-Identifier: MIT */
/* reduce.h - the sum over rows, for kernels that make more than that. */
#ifndef WF_DEVICE_CPU_REDUCE_H
#define WF_DEVICE_CPU_REDUCE_H

#include "device/kernel.h"

/* y [columns] := the sum over the rows of x [rows, columns], both floats, as the op sum has it but for the
 * type of y. Takes the threads and the workspace of the launch. Does nothing when y has no data. */
void wf_sum_rows(const wf_launch *l, const wf_view *x, const wf_view *y);
size_t wf_sum_rows_workspace(int64_t rows, int64_t columns);

/* A dense view [..., columns] as [rows, columns]. */
static inline wf_view wf_flat_rows(const wf_view *v)
{
    wf_view flat = *v;
    wf_assert(v->dense);
    flat.rank = 2;
    flat.dim[0] = wf_view_rows(v);
    flat.dim[1] = flat.stride[0] = wf_view_last(v);
    flat.stride[1] = 1;
    return flat;
}

#endif
