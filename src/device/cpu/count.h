/* SPDX-License-Identifier: MIT */
/* count.h - integer helpers for sizes and tilings. Arguments are non-negative tensor sizes, so
 * nothing overflows. */
#ifndef WF_DEVICE_CPU_COUNT_H
#define WF_DEVICE_CPU_COUNT_H

#include <stdint.h>

static inline int64_t wf_min64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t wf_max64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t wf_divide_up(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif
