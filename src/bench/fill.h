/* SPDX-License-Identifier: MIT */
/* fill.h - numbers to compute with, of any type and quickly. */
#ifndef WF_BENCH_FILL_H
#define WF_BENCH_FILL_H

#include "base/ctx.h"

/* Normally distributed numbers around 0, always the same. They come round again after a million or so, but
 * never at the same place of a row: the rows of a matrix differ. `count` is whole blocks. */
wf_status wf_bench_fill(wf_ctx *ctx, wf_type type, double deviation, void *to, int64_t count);

#endif
