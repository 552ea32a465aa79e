/* SPDX-License-Identifier: MIT */
/* quant_rows.c - rounds activations to 15 bits, with one scale per 32 elements, and stores them as
 * pairs or digits (quant.h). */
#include "device/cpu/simd/lanes.h"
#include "device/cpu/simd/quant.h"

/* Rounds up to cache lines: each array starts on a line. */
static size_t lines(int64_t bytes)
{
    return ((size_t)bytes + 63) / 64 * 64;
}

static int64_t round_up(int64_t rows, int group)
{
    return (rows + group - 1) / group * group;
}

size_t wf_quant_rows_bytes(int64_t rows, int64_t k, int group, int totals)
{
    rows = round_up(rows, group);
    return lines(rows * k * 2) + lines(rows * k / 8) + lines(rows * k / 8 * totals) +
           lines(rows * k / 4);
}

wf_quant_rows wf_quant_rows_at(void *memory, int64_t rows, int64_t k, int group, int totals)
{
    wf_quant_rows q = {.k = k, .group = group, .totals = totals};
    char *at = memory;
    rows = round_up(rows, group);
    q.pair = (void *)at;
    q.scale = (void *)(at += lines(rows * k * 2));
    q.total = (void *)(at += lines(rows * k / 8));
    q.off = (void *)(at + lines(rows * k / 8 * totals));
    return q;
}

enum { VECTORS = WF_QUANT_BLOCK / WF_VL };

/* Scales and sums of WF_VL blocks, one block per lane. */
typedef struct {
    float inverse[WF_VL]; /* integer = element x inverse; 0 makes all integers 0 */
    vf scale;             /* element = integer x scale */
    vf sum[2][WF_VL];     /* [half of a block][block]: sums of integers, still spread over lanes */
} rounding;

/* Finds the scales of `count` blocks of x. The largest magnitude is found by comparing bits as
 * integers: infinity is above all finite values, and NaN above infinity. */
WF_INLINE void find_scales(wf_type type, const char *x, int count, rounding *to)
{
    vf most[WF_VL];
    for (int b = 0; b < WF_VL; b++) {
        vi bits = vi_zero();
        for (int i = 0; i < VECTORS && b < count; i++)
            bits = vi_max(bits, vf_as_vi(vf_abs(vf_load_as(
                                    type, lanes_at(type, x, b * WF_QUANT_BLOCK + i * WF_VL)))));
        most[b] = vi_as_vf(bits);
    }
    vf_transpose(most);
    vi bits = vf_as_vi(most[0]);
    for (int i = 1; i < WF_VL; i++)
        bits = vi_max(bits, vf_as_vi(most[i]));
    vf largest = vi_as_vf(bits), inverse = vf_div(vf_set(WF_QUANT_MOST), largest);
    /* The term largest x 0 makes the scale NaN unless largest is finite. */
    to->scale = vf_fma(largest, vf_zero(), vf_mul(largest, vf_set(1.0f / WF_QUANT_MOST)));
    /* Blocks this small count as zeros: their inverse would overflow. */
    inverse = vf_select(vf_lt(vf_set(0x1p-100f), largest), inverse, vf_zero());
    vf_store(to->inverse, inverse);
}

/* Stores integers of 15 bits as digits: high is in [-64, 64], low in [-128, 127]. */
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

/* Rounds block b to integers and sums each half. A sum of 16 integers of 15 bits is exact in
 * f32. */
WF_INLINE void round_block(wf_type type, const char *x, int b, rounding *by, vi integer[VECTORS])
{
    vf inverse = vf_set(by->inverse[b]);
    for (int half = 0; half < 2; half++) {
        vf sum = vf_zero();
        for (int i = half * VECTORS / 2; i < (half + 1) * VECTORS / 2; i++) {
            vf in = vf_load_as(type, lanes_at(type, x, b * WF_QUANT_BLOCK + i * WF_VL));
            integer[i] = by->inverse[b] > 0 ? vf_to_vi(vf_mul(in, inverse)) : vi_zero();
            sum = vf_add(sum, vi_to_vf(integer[i]));
        }
        by->sum[half][b] = sum;
    }
}

/* Stores scales and sums of `count` blocks of row `lane` of a group. `block` counts blocks from the
 * first group on. */
static inline void store_scales(const wf_quant_rows *q, int64_t block, int lane, int count,
                                rounding *by)
{
    float scale[WF_VL], total[2][WF_VL], half[2][WF_VL];
    vf low = vf_sums(by->sum[0]), high = vf_sums(by->sum[1]);
    vf_store(scale, by->scale);
    vf_store(total[0], vf_mul(by->scale, q->totals == 2 ? low : vf_add(low, high)));
    vf_store(total[1], vf_mul(by->scale, high));
    vf_store(half[0], low);
    vf_store(half[1], high);
    for (int b = 0; b < count; b++) {
        q->scale[(block + b) * q->group + lane] = scale[b];
        for (int i = 0; i < q->totals; i++)
            q->total[((block + b) * q->totals + i) * q->group + lane] = total[i][b];
    }
    for (int b = 0; b < count && q->offset; b++)
        for (int i = 0; i < 2; i++)
            q->off[2 * (block + b) + i] = -q->offset * (int32_t)half[i][b];
}

WF_INLINE void fill_row(wf_type type, const wf_quant_rows *q, const wf_view *x, int64_t group,
                        int lane)
{
    const int64_t blocks = q->k / WF_QUANT_BLOCK;
    const char *row = wf_view_at(x, wf_view_row(x, group * q->group + lane));
    for (int64_t first = 0; first < blocks; first += WF_VL) {
        rounding by;
        const char *in = lanes_at(type, row, first * WF_QUANT_BLOCK);
        int64_t block = group * blocks + first;
        int count = (int)(blocks - first < WF_VL ? blocks - first : WF_VL);
        find_scales(type, in, count, &by);
        for (int b = count; b < WF_VL; b++)
            by.sum[0][b] = by.sum[1][b] = vf_zero();
        for (int b = 0; b < count; b++) {
            vi integer[VECTORS];
            int32_t *to = q->pair + (block + b) * WF_QUANT_PAIRS * q->group + lane;
            round_block(type, in, b, &by, integer);
            if (q->digits)
                store_digits((int8_t *)to, integer);
            else
                store_pairs(to, q->group, integer);
        }
        store_scales(q, block, lane, count, &by);
    }
}

/* Fills a row past the last one with zeros. */
static void clear_row(const wf_quant_rows *q, int64_t group, int lane)
{
    const int64_t blocks = q->k / WF_QUANT_BLOCK;
    for (int64_t b = group * blocks; b < (group + 1) * blocks; b++) {
        for (int i = 0; i < WF_QUANT_PAIRS; i++)
            q->pair[(b * WF_QUANT_PAIRS + i) * q->group + lane] = 0;
        q->scale[b * q->group + lane] = 0;
        for (int i = 0; i < q->totals; i++)
            q->total[(b * q->totals + i) * q->group + lane] = 0;
    }
}

void wf_quant_rows_fill(const wf_quant_rows *q, const wf_view *x, int64_t begin, int64_t end)
{
    for (int64_t g = begin; g < end; g++)
        for (int lane = 0; lane < q->group; lane++)
            if (g * q->group + lane < wf_view_rows(x))
                LANES_BY_TYPE(x->type, fill_row, q, x, g, lane);
            else
                clear_row(q, g, lane);
}
