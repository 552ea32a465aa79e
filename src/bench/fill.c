/* SPDX-License-Identifier: MIT */
/* fill.c - see fill.h. Drawing 124 million values takes seconds and quantizing them minutes, so a
 * prime number of values is drawn once and repeated. No matrix has that width. */
#include "bench/fill.h"

#include <string.h>

#include "base/mem.h"
#include "graph/type.h"

#define SEED 20
#define PLAIN 1000003 /* values of plain types; a prime */
#define BLOCKS 257    /* of quantized types, which are slow to encode; a prime */

wf_status wf_bench_fill(wf_ctx *ctx, wf_type type, double deviation, void *to, int64_t count)
{
    const wf_type_info *info = wf_type_get(type);
    const int64_t drawn = info->kind == WF_KIND_BLOCK ? (int64_t)BLOCKS * info->block : PLAIN;
    const int64_t n = count < drawn ? count : drawn;
    const size_t bytes = wf_type_bytes(type, count);
    size_t done = wf_type_bytes(type, n);
    float *numbers = wf_mem_array(ctx, (size_t)n, sizeof *numbers);
    if (!numbers)
        return WF_ERR_MEMORY;
    wf_random_normal(SEED, 0, 0, (float)deviation, numbers, n);
    wf_status status = wf_type_from_f32(ctx, type, numbers, to, n);
    wf_mem_free(ctx, numbers);
    /* n is a whole number of blocks, so `period` is, too. */
    for (const size_t period = done; status == WF_OK && done < bytes; done += period)
        memcpy((char *)to + done, to, bytes - done < period ? bytes - done : period);
    return status;
}
