/* SPDX-License-Identifier: MIT */
/* reduce.h - column sums, for fused kernels. */
#ifndef WF_DEVICE_CPU_REDUCE_H
#define WF_DEVICE_CPU_REDUCE_H

#include "device/kernel.h"

/* y [columns] = sum of the rows of x [rows, columns], with the bits of the op sum; both are floats.
 * Uses the launch's threads and workspace. Does nothing if y has no data. */
void wf_sum_rows(const wf_launch *l, const wf_view *x, const wf_view *y);
size_t wf_sum_rows_workspace(int64_t rows, int64_t columns);

/* Reshapes a dense view [..., columns] to [rows, columns]. */
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
