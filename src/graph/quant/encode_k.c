/* SPDX-License-Identifier: MIT */
/*
 * encode_k.c - the types whose blocks of 256 have groups with scales of their own, small integers that
 * the block's d (and dmin) multiplies.
 *
 * Every group is fitted by itself. Then, by turns, each group takes the integers for its scales that
 * give the least error with d as it is, looking at their neighbours, too; and d is fitted to all groups
 * at once. The best that was seen is stored.
 *
 * The errors of large numbers count more: they meet large activations more often than chance would have
 * it, and this is what such blocks are usually made with.
 */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "graph/quant/encode.h"
#include "graph/quant/fit.h"

enum { BLOCK = 256, TURNS = 3 };

static int clamp(float x, int lo, int hi)
{
    return (int)wf_fit_nearest(x, (float)lo, (float)hi);
}

static float magnitude(float a, float b)
{
    return fabsf(a) > fabsf(b) ? a : b;
}

/* The next f16 away from zero. Among the least ones it is a good deal larger, and rounding down would put
 * the largest scale out of reach. */
static uint16_t away(uint16_t f16)
{
    return (f16 & 0x7FFF) < 0x7BFF ? (uint16_t)(f16 + 1) : f16;
}

/* ---- q4_K ---- */

enum { GROUP_4 = 32, GROUPS_4 = BLOCK / GROUP_4, MOST_SCALE = 63, MOST_4 = 15 };

/* A block in the making: groups of d s q - dmin m. */
typedef struct {
    uint16_t d, dmin;
    int s[GROUPS_4], m[GROUPS_4];
    float error;
} guess_4;

/* Each number by its own size and that of its group. */
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

/* The integers near s and m, which may be fractions, that suit a group best. Returns their error. */
static float choose_4(const float *x, const float *w, float d, float dmin, float s, float m,
                      int *best_s, int *best_m)
{
    float best = INFINITY;
    int near_s = clamp(s, 0, MOST_SCALE), near_m = clamp(m, 0, MOST_SCALE);
    for (int i = near_s - 1; i <= near_s + 1; i++)
        for (int k = near_m - 1; k <= near_m + 1; k++) {
            if (i < 0 || i > MOST_SCALE || k < 0 || k > MOST_SCALE)
                continue;
            float e = wf_fit_error(x, w, GROUP_4, d * (float)i, -dmin * (float)k, 0, MOST_4);
            if (e < best) {
                best = e;
                *best_s = i;
                *best_m = k;
            }
        }
    return best;
}

/* Gives all groups their integers, from scales and offsets as they should be. */
static void settle_4(const float *x, const float *w, const float *scale, const float *offset,
                     guess_4 *b)
{
    float d = wf_f16_to_f32(b->d), dmin = wf_f16_to_f32(b->dmin);
    b->error = 0;
    for (int g = 0; g < GROUPS_4; g++)
        b->error += choose_4(x + g * GROUP_4, w + g * GROUP_4, d, dmin, d > 0 ? scale[g] / d : 0,
                             dmin > 0 ? -offset[g] / dmin : 0, &b->s[g], &b->m[g]);
}

/* d and dmin by least squares over all numbers, with all integers as they are. */
static void refit_4(const float *x, const float *w, const guess_4 *b, guess_4 *next)
{
    double ss = 0, sm = 0, mm = 0, xs = 0, xm = 0;
    float d = wf_f16_to_f32(b->d), dmin = wf_f16_to_f32(b->dmin);
    for (int i = 0; i < BLOCK; i++) {
        int s = b->s[i / GROUP_4];
        float m = (float)b->m[i / GROUP_4], scale = d * (float)s;
        float q = scale > 0 ? wf_fit_nearest((x[i] + dmin * m) / scale, 0, MOST_4) : 0;
        double a = (double)s * q, c = -m;
        ss += w[i] * a * a;
        sm += w[i] * a * c;
        mm += w[i] * c * c;
        xs += w[i] * a * x[i];
        xm += w[i] * c * x[i];
    }
    double det = ss * mm - sm * sm;
    *next = *b;
    if (det > 1e-9 * ss * mm && ss > 0 && mm > 0) {
        next->d = wf_fit_store((float)fmax((xs * mm - xm * sm) / det, 0));
        next->dmin = wf_fit_store((float)fmax((xm * ss - xs * sm) / det, 0));
    } else if (ss > 0) {
        next->d = wf_fit_store((float)fmax((xs - sm * dmin) / ss, 0));
    }
}

static void store_4(const float *x, const guess_4 *b, wf_block_q4_k *to)
{
    float d = wf_f16_to_f32(b->d), dmin = wf_f16_to_f32(b->dmin);
    memset(to, 0, sizeof *to);
    to->d = b->d;
    to->dmin = b->dmin;
    for (int g = 0; g < GROUPS_4; g++) {
        int i = g & 3, s = b->s[g], m = b->m[g];
        to->scales[g < 4 ? i : i + 8] |= (uint8_t)(g < 4 ? s : (s & 15) | (m & 15) << 4);
        if (g < 4)
            to->scales[i + 4] |= (uint8_t)m;
        if (g >= 4) {
            to->scales[i] |= (uint8_t)(s >> 4 << 6);
            to->scales[i + 4] |= (uint8_t)(m >> 4 << 6);
        }
        float scale = d * (float)s, offset = -dmin * (float)m, inverse = scale > 0 ? 1 / scale : 0;
        for (int k = 0; k < GROUP_4; k++) {
            int q = clamp((x[g * GROUP_4 + k] - offset) * inverse, 0, MOST_4);
            to->q[g / 2 * GROUP_4 + k] |= (uint8_t)(q << 4 * (g & 1));
        }
    }
}

void wf_encode_q4_k(const float *x, const float *importance, void *block)
{
    float w[BLOCK], scale[GROUPS_4], offset[GROUPS_4], most = 0, lowest = 0;
    guess_4 best = {0};
    weigh_4(x, importance, w);
    for (int g = 0; g < GROUPS_4; g++) {
        wf_fit fit = wf_fit_affine(x + g * GROUP_4, w + g * GROUP_4, GROUP_4, MOST_4, true);
        scale[g] = fit.scale;
        offset[g] = fit.offset;
        most = magnitude(most, fit.scale);
        lowest = magnitude(lowest, fit.offset);
    }
    best.d = wf_fit_store(most / MOST_SCALE);
    best.dmin = wf_fit_store(-lowest / MOST_SCALE);
    settle_4(x, w, scale, offset, &best);
    guess_4 wider = {.d = away(best.d), .dmin = away(best.dmin)};
    settle_4(x, w, scale, offset, &wider);
    if (wider.error < best.error)
        best = wider;
    for (int turn = 0; turn < TURNS; turn++) {
        guess_4 next;
        refit_4(x, w, &best, &next);
        settle_4(x, w, scale, offset, &next);
        if (!(next.error < best.error))
            break;
        best = next;
    }
    store_4(x, &best, block);
}

/* ---- q6_K ---- */

enum { GROUP_6 = 16, GROUPS_6 = BLOCK / GROUP_6, LOW_6 = -32, HIGH_6 = 31 };

typedef struct {
    uint16_t d;
    int s[GROUPS_6];
    float error;
} guess_6;

/* By squares, with a share for the small ones of a group, which would not count at all otherwise. */
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
