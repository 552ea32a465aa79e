/* SPDX-License-Identifier: MIT */
/*
 * encode_k.c - encodes blocks of 256 elements in groups. Each group has integer scales, which the
 * block's d (and dmin) multiplies.
 *
 * First every group is fitted by itself. Then two steps alternate: each group picks the integer
 * scales with the least error for the current d, among those nearby; and d is fitted to all groups
 * at once. The best block seen is stored.
 *
 * Errors of large elements weigh more, as in other quantizers of these types: large weights tend to
 * meet large activations.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "graph/quant/codec.h"
#include "graph/quant/encode.h"
#include "graph/quant/fit.h"

/* TURNS bounds the refinement; it stops earlier when the error no longer falls. */
enum { BLOCK = 256, TURNS = 3 };

static int clamp(float x, int lo, int hi)
{
    return (int)wf_fit_nearest(x, (float)lo, (float)hi);
}

/* The one with the larger absolute value, sign included. */
static float magnitude(float a, float b)
{
    return fabsf(a) > fabsf(b) ? a : b;
}

/* Returns the next f16 away from zero. Steps between the smallest f16 are large: rounding d down
 * would put the largest scale out of reach. */
static uint16_t away(uint16_t f16)
{
    return (f16 & 0x7FFF) < 0x7BFF ? (uint16_t)(f16 + 1) : f16;
}

/* ---- Groups of 32 with a scale and an offset: q4_K, and others with the same scales ---- */

enum { GROUP_4 = 32, GROUPS_4 = BLOCK / GROUP_4, MOST_SCALE = 63 };
_Static_assert(GROUPS_4 == WF_K_GROUPS, "both must be the number of groups in a block");

/* Weighs each element by its own size and the root mean square of its group. */
static void weigh_4(const float *x, const float *importance, float *w)
{
    for (int g = 0; g < BLOCK; g += GROUP_4) {
        float sum = 0;
        for (int i = 0; i < GROUP_4; i++)
            sum += x[g + i] * x[g + i];
        float mean = sqrtf(sum / GROUP_4);
        for (int i = 0; i < GROUP_4; i++)
            w[g + i] = (mean + fabsf(x[g + i])) * (importance ? importance[g + i] : 1);
    }
}

/* Finds the integers near s and m, which may be fractions, that suit a group best. Returns their
 * error. */
static float choose_4(const float *x, const float *w, int most, float d, float dmin, float s,
                      float m, int *best_s, int *best_m)
{
    float best = INFINITY;
    /* The search looks one step to each side of the rounded fractions. */
    int near_s = clamp(s, 0, MOST_SCALE), near_m = clamp(m, 0, MOST_SCALE);
    for (int i = near_s - 1; i <= near_s + 1; i++)
        for (int k = near_m - 1; k <= near_m + 1; k++) {
            if (i < 0 || i > MOST_SCALE || k < 0 || k > MOST_SCALE)
                continue;
            float e = wf_fit_error(x, w, GROUP_4, d * (float)i, -dmin * (float)k, 0, most);
            if (e < best) {
                best = e;
                *best_s = i;
                *best_m = k;
            }
        }
    return best;
}

/* Chooses the integers of all groups, given d, dmin and each group's best scale and offset. */
static void settle_4(const float *x, const float *w, int most, const float *scale,
                     const float *offset, wf_k_block *b)
{
    float d = wf_f16_to_f32(b->d), dmin = wf_f16_to_f32(b->dmin);
    b->error = 0;
    for (int g = 0; g < GROUPS_4; g++)
        b->error +=
            choose_4(x + g * GROUP_4, w + g * GROUP_4, most, d, dmin, d > 0 ? scale[g] / d : 0,
                     dmin > 0 ? -offset[g] / dmin : 0, &b->s[g], &b->m[g]);
}

/* Fits d and dmin by least squares over all elements, with all integers fixed. */
static void refit_4(const float *x, const float *w, int most, const wf_k_block *b, wf_k_block *next)
{
    double ss = 0, sm = 0, mm = 0, xs = 0, xm = 0;
    /* Rounds all elements with the current scales: the integers of the least-squares problem. */
    float d = wf_f16_to_f32(b->d), dmin = wf_f16_to_f32(b->dmin);
    for (int i = 0; i < BLOCK; i++) {
        int s = b->s[i / GROUP_4];
        float m = (float)b->m[i / GROUP_4], scale = d * (float)s;
        /* The decoder subtracts dmin m, so add it before rounding. */
        float q = scale > 0 ? wf_fit_nearest((x[i] + dmin * m) / scale, 0, (float)most) : 0;
        double a = (double)s * q, c = -m;
        ss += w[i] * a * a;
        sm += w[i] * a * c;
        mm += w[i] * c * c;
        xs += w[i] * a * x[i];
        xm += w[i] * c * x[i];
    }
    /* Solves the 2 x 2 normal equations. A determinant near 0 means that d and dmin cannot be told
     * apart: then only d is fitted. */
    double det = ss * mm - sm * sm;
    *next = *b;
    if (det > 1e-9 * ss * mm && ss > 0 && mm > 0) {
        next->d = wf_fit_store((float)fmax((xs * mm - xm * sm) / det, 0));
        next->dmin = wf_fit_store((float)fmax((xm * ss - xs * sm) / det, 0));
    } else if (ss > 0) {
        next->d = wf_fit_store((float)fmax((xs - sm * dmin) / ss, 0));
    }
}

/* The inverse of wf_q4_k_scales (codec.h): 8 pairs of 6-bit integers in 12 bytes. */
static void store_scales(const wf_k_block *b, uint8_t scales[12])
{
    memset(scales, 0, 12);
    for (int g = 0; g < GROUPS_4; g++) {
        int i = g & 3, s = b->s[g], m = b->m[g];
        scales[g < 4 ? i : i + 8] |= (uint8_t)(g < 4 ? s : (s & 15) | (m & 15) << 4);
        if (g < 4)
            scales[i + 4] |= (uint8_t)m;
        if (g >= 4) {
            scales[i] |= (uint8_t)(s >> 4 << 6);
            scales[i + 4] |= (uint8_t)(m >> 4 << 6);
        }
    }
}

/* The integers of all elements, by the scales as they are stored. */
static void round_4(const float *x, int most, const wf_k_block *b, uint8_t *q)
{
    float d = wf_f16_to_f32(b->d), dmin = wf_f16_to_f32(b->dmin);
    for (int i = 0; i < BLOCK; i++) {
        float scale = d * (float)b->s[i / GROUP_4], offset = -dmin * (float)b->m[i / GROUP_4];
        float inverse = scale > 0 ? 1 / scale : 0;
        q[i] = (uint8_t)clamp((x[i] - offset) * inverse, 0, most);
    }
}

void wf_encode_k_affine(const float *x, const float *importance, int most, wf_k_block *out)
{
    /* Weights of all elements; per group the best scale and offset on their own. */
    float w[BLOCK], scale[GROUPS_4], offset[GROUPS_4], largest = 0, lowest = 0;
    wf_k_block best = {0};
    weigh_4(x, importance, w);
    for (int g = 0; g < GROUPS_4; g++) {
        wf_fit fit = wf_fit_affine(x + g * GROUP_4, w + g * GROUP_4, GROUP_4, most, true);
        scale[g] = fit.scale;
        offset[g] = fit.offset;
        largest = magnitude(largest, fit.scale);
        lowest = magnitude(lowest, fit.offset);
    }
    /* The group with the largest scale gets the largest integer. */
    best.d = wf_fit_store(largest / MOST_SCALE);
    best.dmin = wf_fit_store(-lowest / MOST_SCALE);
    settle_4(x, w, most, scale, offset, &best);
    wf_k_block wider = {.d = away(best.d), .dmin = away(best.dmin)}; /* see away */
    settle_4(x, w, most, scale, offset, &wider);
    if (wider.error < best.error)
        best = wider;
    for (int turn = 0; turn < TURNS; turn++) {
        wf_k_block next;
        refit_4(x, w, most, &best, &next);
        settle_4(x, w, most, scale, offset, &next);
        if (!(next.error < best.error)) /* also ends at NaN */
            break;
        best = next;
    }
    store_scales(&best, best.scales);
    round_4(x, most, &best, best.q);
    *out = best;
}

void wf_encode_q4_k(const float *x, const float *importance, void *block)
{
    wf_block_q4_k *to = block;
    wf_k_block b;
    wf_encode_k_affine(x, importance, 15, &b);
    memset(to, 0, sizeof *to);
    to->d = b.d;
    to->dmin = b.dmin;
    memcpy(to->scales, b.scales, sizeof to->scales);
    for (int i = 0; i < BLOCK; i++)
        /* Two groups of 32 share 32 bytes: the first in the low halves. */
        to->q[i / 64 * 32 + i % 32] |= (uint8_t)(b.q[i] << 4 * (i / 32 & 1));
}

/* ---- q6_K ---- */

enum { GROUP_6 = 16, GROUPS_6 = BLOCK / GROUP_6, LOW_6 = -32, HIGH_6 = 31 };

/* A candidate for the block. */
typedef struct {
    uint16_t d;      /* f16 */
    int s[GROUPS_6]; /* integer scale of each group, -128 .. 127 */
    float error;     /* weighted squared error over the block */
} guess_6;

/* Weighs by squares. A share of the group's mean square keeps small elements from weighing
 * nothing. */
static void weigh_6(const float *x, const float *importance, float *w)
{
    for (int g = 0; g < BLOCK; g += GROUP_6) {
        float sum = 0;
        for (int i = 0; i < GROUP_6; i++)
            sum += x[g + i] * x[g + i];
        for (int i = 0; i < GROUP_6; i++)
            w[g + i] = importance ? importance[g + i] : x[g + i] * x[g + i] + 0.25f * sum / GROUP_6;
    }
}

/* Chooses each group's integer scale for the current d, among the three nearest. */
static void settle_6(const float *x, const float *w, const float *scale, guess_6 *b)
{
    float d = wf_f16_to_f32(b->d);
    b->error = 0;
    for (int g = 0; g < GROUPS_6; g++) {
        float best = INFINITY;
        int near = d != 0 ? clamp(scale[g] / d, -128, 127) : 0;
        for (int s = near - 1; s <= near + 1; s++) {
            if (s < -128 || s > 127)
                continue;
            float e = wf_fit_error(x + g * GROUP_6, w + g * GROUP_6, GROUP_6, d * (float)s, 0,
                                   LOW_6, HIGH_6);
            if (e < best) {
                best = e;
                b->s[g] = s;
            }
        }
        b->error += best;
    }
}

/* Fits d by least squares with all integers fixed. */
static void refit_6(const float *x, const float *w, const guess_6 *b, guess_6 *next)
{
    double ss = 0, xs = 0;
    float d = wf_f16_to_f32(b->d);
    for (int i = 0; i < BLOCK; i++) {
        float s = (float)b->s[i / GROUP_6], scale = d * s;
        float q = scale != 0 ? wf_fit_nearest(x[i] / scale, LOW_6, HIGH_6) : 0;
        double a = (double)s * q;
        ss += w[i] * a * a;
        xs += w[i] * a * x[i];
    }
    *next = *b;
    if (ss > 0)
        next->d = wf_fit_store((float)(xs / ss));
}

/* Splits each 6-bit integer q (0 .. 63) into 4 low and 2 high bits, in the layout of codec.h. */
static void store_6(const float *x, const guess_6 *b, wf_block_q6_k *to)
{
    float d = wf_f16_to_f32(b->d);
    memset(to, 0, sizeof *to);
    to->d = b->d;
    for (int i = 0; i < BLOCK; i++) {
        int half = i / 128, part = i / 32 % 4, at = i % 32, s = b->s[i / GROUP_6];
        float scale = d * (float)s;
        int q = scale != 0 ? clamp(x[i] / scale, LOW_6, HIGH_6) - LOW_6 : -LOW_6;
        to->scales[i / GROUP_6] = (int8_t)s;
        to->low[64 * half + 32 * (part & 1) + at] |= (uint8_t)((q & 15) << 4 * (part >> 1));
        to->high[32 * half + at] |= (uint8_t)(q >> 4 << 2 * part);
    }
}

void wf_encode_q6_k(const float *x, const float *importance, void *block)
{
    float w[BLOCK], scale[GROUPS_6], most = 0;
    guess_6 best = {0};
    weigh_6(x, importance, w);
    for (int g = 0; g < GROUPS_6; g++) {
        scale[g] = wf_fit_scale(x + g * GROUP_6, w + g * GROUP_6, GROUP_6, LOW_6, HIGH_6);
        most = magnitude(most, scale[g]);
    }
    best.d = wf_fit_store(-most / 128); /* -128 is a scale, 128 is not */
    settle_6(x, w, scale, &best);
    guess_6 wider = {.d = away(best.d)};
    settle_6(x, w, scale, &wider);
    if (wider.error < best.error)
        best = wider;
    for (int turn = 0; turn < TURNS; turn++) {
        guess_6 next;
        refit_6(x, w, &best, &next);
        settle_6(x, w, scale, &next);
        if (!(next.error < best.error))
            break;
        best = next;
    }
    store_6(x, &best, block);
}
