/* SPDX-License-Identifier: MIT */
/* quant_rows.c - activations rounded to 15 bits, a scale for every 32, in the pairs of quant.h. */
#include "device/cpu/simd/quant_round.h"

/* Each array begins on a cache line of its own. */
static size_t lines(int64_t bytes)
{
    return ((size_t)bytes + 63) / 64 * 64;
}

static int64_t round_up(int64_t rows, int group)
{
    return (rows + group - 1) / group * group;
}

size_t wf_quant_rows_bytes(int64_t rows, int64_t k, int group)
{
    rows = round_up(rows, group);
    return lines(rows * k * 2) + 2 * lines(rows * k / 8) + lines(rows * k / 4);
}

wf_quant_rows wf_quant_rows_at(void *memory, int64_t rows, int64_t k, int group)
{
    wf_quant_rows q = {.k = k, .group = group};
    char *at = memory;
    rows = round_up(rows, group);
    q.pair = (void *)at;
    q.scale = (void *)(at += lines(rows * k * 2));
    q.total = (void *)(at += lines(rows * k / 8));
    q.sum = (void *)(at + lines(rows * k / 8));
    return q;
}

/* Row `lane` of a group, of which `block` blocks come before. */
static inline void store_block(const wf_quant_rows *q, int64_t block, int lane, float scale,
                               const vi integer[WF_QUANT_VECTORS])
{
    const int group = q->group;
    int32_t *to = q->pair + block * WF_QUANT_PAIRS * group + lane, pair[WF_QUANT_PAIRS];
    int32_t sum[2] = {wf_quant_sum_half(integer),
                      wf_quant_sum_half(integer + WF_QUANT_VECTORS / 2)};
    for (int i = 0; i < WF_QUANT_VECTORS / 2; i++)
        vi_store((group == 1 ? to : pair) + i * WF_VL,
                 vp_join(integer[i], integer[i + WF_QUANT_VECTORS / 2]));
    for (int i = 0; i < WF_QUANT_PAIRS && group > 1; i++)
        to[i * group] = pair[i];
    q->scale[block * group + lane] = scale;
    q->total[block * group + lane] = scale * (float)(sum[0] + sum[1]);
    q->sum[2 * block * group + lane] = sum[0];
    q->sum[(2 * block + 1) * group + lane] = sum[1];
}

static void fill_group(const wf_quant_rows *q, const wf_view *x, int64_t group, int lane)
{
    int64_t blocks = q->k / WF_QUANT_BLOCK, r = group * q->group + lane;
    bool none = r >= wf_view_rows(x);
    int64_t row = none ? 0 : wf_view_row(x, r);
    for (int64_t b = 0; b < blocks; b++) {
        vi integer[WF_QUANT_VECTORS];
        float scale = 0;
        vf in[WF_QUANT_VECTORS];
        for (int i = 0; i < WF_QUANT_VECTORS; i++)
            integer[i] = vi_zero();
        for (int i = 0; i < WF_QUANT_VECTORS && !none; i++)
            in[i] = vf_load_as(x->type, wf_view_at(x, row + b * WF_QUANT_BLOCK + i * WF_VL));
        if (!none)
            scale = wf_quant_round(in, integer);
        store_block(q, group * blocks + b, lane, scale, integer);
    }
}

void wf_quant_rows_fill(const wf_quant_rows *q, const wf_view *x, int64_t begin, int64_t end)
{
    for (int64_t g = begin; g < end; g++)
        for (int lane = 0; lane < q->group; lane++)
            fill_group(q, x, g, lane);
}
