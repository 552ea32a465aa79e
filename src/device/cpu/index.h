/* SPDX-License-Identifier: MIT */
/* index.h - rows selected by index: input 1 of a launch holds indices of rows of input 0. */
#ifndef WF_DEVICE_CPU_INDEX_H
#define WF_DEVICE_CPU_INDEX_H

#include "device/kernel.h"

/* Returns index i in row-major order. */
static inline int64_t wf_index_at(const wf_view *indices, int64_t i)
{
    int64_t last = wf_view_last(indices);
    return *(const int32_t *)wf_view_at(indices, wf_view_row(indices, i / last) + i % last);
}

/* Fails unless every index is in range. */
wf_status wf_index_check(const wf_launch *l);

#endif
