/* SPDX-License-Identifier: MIT */
/* fill.h - fills tensors of any type with reproducible random values. */
#ifndef WF_BENCH_FILL_H
#define WF_BENCH_FILL_H

#include "base/ctx.h"

/* Stores normally distributed values around 0, the same in every call. They repeat with a prime
 * period of about a million, so the rows of a matrix differ. `count` must be whole blocks. */
wf_status wf_bench_fill(wf_ctx *ctx, wf_type type, double deviation, void *to, int64_t count);

#endif
