/* SPDX-License-Identifier: MIT */
/* reduce.h - the vectorized column sum of device/cpu/reduce.h. */
#ifndef WF_DEVICE_CPU_SIMD_REDUCE_H
#define WF_DEVICE_CPU_SIMD_REDUCE_H

#include "device/cpu/simd/simd.h"

void WF_SIMD(wf_simd_sum_rows)(const wf_launch *l, const wf_view *x, const wf_view *y);
size_t WF_SIMD(wf_simd_sum_rows_workspace)(int64_t rows, int64_t columns);

#endif
