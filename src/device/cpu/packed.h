/* SPDX-License-Identifier: MIT */
/*
 * packed.h - packed sequences: rows [seq_start[s], seq_start[s + 1]) of a packed value are sequence
 * s. Rows before the first start and after the last belong to no sequence.
 */
#ifndef WF_DEVICE_CPU_PACKED_H
#define WF_DEVICE_CPU_PACKED_H

#include "device/kernel.h"

/* Fails unless seq_start i32[S+1], which is user input, does not decrease and stays within
 * `rows`. */
static inline wf_status wf_packed_check(const wf_launch *l, const wf_view *seq_start, int64_t rows)
{
    const int32_t *start = seq_start->data;
    for (int64_t s = 0; s < seq_start->dim[0]; s++) {
        if (start[s] < (s > 0 ? start[s - 1] : 0) || start[s] > rows)
            return wf_fail(
                l->ctx, WF_ERR_DEVICE,
                "%s: seq_start[%lld] is %d; starts must not decrease or exceed %lld, the number of "
                "rows",
                wf_op_get(l->node->op)->name, (long long)s, start[s], (long long)rows);
    }
    return WF_OK;
}

/* Returns the sequence of a row, or -1. */
static inline int64_t wf_packed_find(const wf_view *seq_start, int64_t row)
{
    const int32_t *start = seq_start->data;
    int64_t low = 0,
            high =
                seq_start->dim[0]; /* invariant: starts [0, low) are <= row, [high, ..) are > row */
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (start[middle] <= row)
            low = middle + 1;
        else
            high = middle;
    }
    return low < seq_start->dim[0] ? low - 1 : -1;
}

#endif
