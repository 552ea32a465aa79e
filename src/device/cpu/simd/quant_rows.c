/* SPDX-License-Identifier: MIT */
/* quant_rows.c - activations rounded to 15 bits, a scale for every 32, in the pairs of quant.h. */
#include "device/cpu/simd/quant.h"

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
    q.off = (void *)(at + lines(rows * k / 8));
    return q;
}

enum { VECTORS = WF_QUANT_BLOCK / WF_VL };

/* Integers for the numbers of a block; gives what they are to be multiplied by. */
static inline float round_block(const vf x[VECTORS], vi integer[VECTORS])
{
    vf most = vf_zero(), bad = vf_zero();
    for (int i = 0; i < VECTORS; i++) {
        most = vf_max(vf_abs(x[i]), most);
        bad = vf_fma(x[i], vf_zero(), bad); /* NaN once a number is none, or infinite */
    }
    float largest = vf_most(most), scale = largest * (1.0f / WF_QUANT_MOST) + vf_sum(bad);
    /* What is so small is nothing beside any other number, and has no inverse. */
    float inverse = largest > 0x1p-100f && scale == scale ? WF_QUANT_MOST / largest : 0;
    for (int i = 0; i < VECTORS; i++)
        integer[i] = inverse > 0 ? vf_to_vi(vf_mul(x[i], vf_set(inverse))) : vi_zero();
    return scale;
}

/* Exact in f32: integers of 15 bits, 16 of them. */
static inline int32_t sum_half(const vi *integer)
{
    vf sum = vi_to_vf(integer[0]);
    for (int i = 1; i < VECTORS / 2; i++)
        sum = vf_add(sum, vi_to_vf(integer[i]));
    return (int32_t)vf_sum(sum);
}

/* Of 15 bits: the high digit is within 64 of 0, the low one within 128. */
static inline void store_digits(int8_t *to, const vi integer[VECTORS])
{
    for (int i = 0; i < VECTORS; i++) {
        vi_store_bytes(to + i * WF_VL, vi_sra(vi_add(integer[i], vi_set(128)), 8));
        vi_store_bytes(to + WF_QUANT_BLOCK + i * WF_VL, integer[i]);
    }
}

static inline void store_pairs(int32_t *to, int group, const vi integer[VECTORS])
{
    int32_t pair[WF_QUANT_PAIRS];
    for (int i = 0; i < VECTORS / 2; i++)
        vi_store((group == 1 ? to : pair) + i * WF_VL,
                 vp_join(integer[i], integer[i + VECTORS / 2]));
    for (int i = 0; i < WF_QUANT_PAIRS && group > 1; i++)
        to[i * group] = pair[i];
}

/* Row `lane` of a group, of which `block` blocks come before. */
static inline void store_block(const wf_quant_rows *q, int64_t block, int lane, float scale,
                               const vi integer[VECTORS])
{
    const int group = q->group;
    int32_t *to = q->pair + block * WF_QUANT_PAIRS * group + lane;
    int32_t sum[2] = {sum_half(integer), sum_half(integer + VECTORS / 2)};
    if (q->digits)
        store_digits((int8_t *)to, integer);
    else
        store_pairs(to, group, integer);
    q->scale[block * group + lane] = scale;
    q->total[block * group + lane] = scale * (float)(sum[0] + sum[1]);
    q->off[2 * block * group + lane] = -q->offset * sum[0];
    q->off[(2 * block + 1) * group + lane] = -q->offset * sum[1];
}

static void fill_group(const wf_quant_rows *q, const wf_view *x, int64_t group, int lane)
{
    int64_t blocks = q->k / WF_QUANT_BLOCK, r = group * q->group + lane;
    bool none = r >= wf_view_rows(x);
    int64_t row = none ? 0 : wf_view_row(x, r);
    for (int64_t b = 0; b < blocks; b++) {
        vi integer[VECTORS];
        float scale = 0;
        vf in[VECTORS];
        for (int i = 0; i < VECTORS; i++)
            integer[i] = vi_zero();
        for (int i = 0; i < VECTORS && !none; i++)
            in[i] = vf_load_as(x->type, wf_view_at(x, row + b * WF_QUANT_BLOCK + i * WF_VL));
        if (!none)
            scale = round_block(in, integer);
        store_block(q, group * blocks + b, lane, scale, integer);
    }
}

void wf_quant_rows_fill(const wf_quant_rows *q, const wf_view *x, int64_t begin, int64_t end)
{
    for (int64_t g = begin; g < end; g++)
        for (int lane = 0; lane < q->group; lane++)
            fill_group(q, x, g, lane);
}
