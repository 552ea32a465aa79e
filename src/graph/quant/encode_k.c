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

/* Inserts into a list of `count` values in descending order. */
static void insert_sorted(float *list, int count, float value)
{
    for (; count > 0 && list[count - 1] < value; count--)
        list[count] = list[count - 1];
    list[count] = value;
}

/* ---- Groups with a scale and an offset: q4_K, q5_K, q2_K ---- */

/* Integers of an element are 0 .. most, those of a group 0 .. most_scale. */
typedef struct {
    int group; /* elements of a group */
    int most, most_scale;
    /* Few integer scales: a group's m is fitted to each s, and the search starts from several d. */
    bool coarse;
} affine_form;

/* Weighs each element by its own size and the root mean square of its group. */
static void weigh_sizes(const float *x, const float *importance, int group, float *w)
{
    for (int g = 0; g < BLOCK; g += group) {
        float sum = 0;
        for (int i = 0; i < group; i++)
            sum += x[g + i] * x[g + i];
        float mean = sqrtf(sum / (float)group);
        for (int i = 0; i < group; i++)
            w[g + i] = (mean + fabsf(x[g + i])) * (importance ? importance[g + i] : 1);
    }
}

/* Returns the m that suits a group best with this scale, near `m`. */
static int fit_m(const affine_form *f, const float *x, const float *w, float scale, float dmin,
                 int m)
{
    float offset = wf_fit_offset(x, w, f->group, scale, -dmin * (float)m, f->most);
    return dmin > 0 ? clamp(-offset / dmin, 0, f->most_scale) : 0;
}

/* Finds the integers near s and m, which may be fractions, that suit a group best. Returns their
 * error. */
static float choose_affine(const affine_form *f, const float *x, const float *w, float d,
                           float dmin, float s, float m, int *best_s, int *best_m)
{
    float best = INFINITY;
    /* The search looks one step to each side of the rounded fractions. */
    int near_s = clamp(s, 0, f->most_scale), near_m = clamp(m, 0, f->most_scale);
    int side = f->coarse ? 0 : 1;
    for (int i = near_s - 1; i <= near_s + 1; i++) {
        if (i < 0 || i > f->most_scale)
            continue;
        int middle = f->coarse ? fit_m(f, x, w, d * (float)i, dmin, near_m) : near_m;
        for (int k = middle - side; k <= middle + side; k++) {
            if (k < 0 || k > f->most_scale)
                continue;
            float e = wf_fit_error(x, w, f->group, d * (float)i, -dmin * (float)k, 0, f->most);
            if (e < best) {
                best = e;
                *best_s = i;
                *best_m = k;
            }
        }
    }
    return best;
}

/* Chooses the integers of all groups, given d, dmin and each group's best scale and offset. */
static void settle_affine(const affine_form *f, const float *x, const float *w, const wf_fit *fits,
                          wf_k_block *b)
{
    float d = wf_f16_to_f32(b->d), dmin = wf_f16_to_f32(b->dmin);
    b->error = 0;
    for (int g = 0; g < BLOCK / f->group; g++)
        b->error += choose_affine(f, x + g * f->group, w + g * f->group, d, dmin,
                                  d > 0 ? fits[g].scale / d : 0,
                                  dmin > 0 ? -fits[g].offset / dmin : 0, &b->s[g], &b->m[g]);
}

/* Fits d and dmin by least squares over all elements, with all integers fixed. */
static void refit_affine(const affine_form *f, const float *x, const float *w, const wf_k_block *b,
                         wf_k_block *next)
{
    double ss = 0, sm = 0, mm = 0, xs = 0, xm = 0;
    /* Rounds all elements with the current scales: the integers of the least-squares problem. */
    float d = wf_f16_to_f32(b->d), dmin = wf_f16_to_f32(b->dmin);
    for (int i = 0; i < BLOCK; i++) {
        int s = b->s[i / f->group];
        float m = (float)b->m[i / f->group], scale = d * (float)s;
        /* The decoder subtracts dmin m, so add it before rounding. */
        float q = scale > 0 ? wf_fit_nearest((x[i] + dmin * m) / scale, 0, (float)f->most) : 0;
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

/* The integers of all elements, by the scales as they are stored. */
static void round_affine(const affine_form *f, const float *x, const wf_k_block *b, uint8_t *q)
{
    float d = wf_f16_to_f32(b->d), dmin = wf_f16_to_f32(b->dmin);
    for (int i = 0; i < BLOCK; i++) {
        float scale = d * (float)b->s[i / f->group], offset = -dmin * (float)b->m[i / f->group];
        float inverse = scale > 0 ? 1 / scale : 0;
        q[i] = (uint8_t)clamp((x[i] - offset) * inverse, 0, f->most);
    }
}

/* Replaces *best by a block with these d and dmin if it is better. */
static void try_affine(const affine_form *f, const float *x, const float *w, const wf_fit *fits,
                       uint16_t d, uint16_t dmin, wf_k_block *best)
{
    wf_k_block next = {.d = d, .dmin = dmin};
    settle_affine(f, x, w, fits, &next);
    if (next.error < best->error)
        *best = next;
}

/* Starts from the scales of groups in the middle of the order. The largest one is often an outlier,
 * which leaves the other groups with few steps. */
static void try_ranks(const affine_form *f, const float *x, const float *w, const wf_fit *fits,
                      wf_k_block *best)
{
    static const int ranks[] = {2, 6};
    float scale[WF_K_GROUPS], depth[WF_K_GROUPS];
    for (int g = 0; g < BLOCK / f->group; g++) {
        insert_sorted(scale, g, fits[g].scale);
        insert_sorted(depth, g, -fits[g].offset);
    }
    for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
        /* Without an offset, m still serves to correct the coarse s: steps of d suit that. */
        float d = scale[ranks[i]], dmin = depth[ranks[i]] > 0 ? depth[ranks[i]] : d;
        try_affine(f, x, w, fits, wf_fit_store(d / (float)f->most_scale),
                   wf_fit_store(dmin / (float)f->most_scale), best);
    }
}

static void encode_affine(const affine_form *f, const float *x, const float *importance,
                          wf_k_block *out)
{
    float w[BLOCK], largest = 0, lowest = 0;
    wf_fit fits[WF_K_GROUPS]; /* of each group on its own */
    wf_k_block best = {0};
    weigh_sizes(x, importance, f->group, w);
    for (int g = 0; g < BLOCK / f->group; g++) {
        fits[g] = wf_fit_affine(x + g * f->group, w + g * f->group, f->group, f->most, true);
        largest = magnitude(largest, fits[g].scale);
        lowest = magnitude(lowest, fits[g].offset);
    }
    /* The group with the largest scale gets the largest integer. */
    best.d = wf_fit_store(largest / (float)f->most_scale);
    best.dmin = wf_fit_store(-lowest / (float)f->most_scale);
    settle_affine(f, x, w, fits, &best);
    if (f->coarse)
        try_ranks(f, x, w, fits, &best);
    else
        try_affine(f, x, w, fits, away(best.d), away(best.dmin), &best); /* see away */
    for (int turn = 0; turn < TURNS; turn++) {
        wf_k_block next;
        refit_affine(f, x, w, &best, &next);
        settle_affine(f, x, w, fits, &next);
        if (!(next.error < best.error)) /* also ends at NaN */
            break;
        best = next;
    }
    round_affine(f, x, &best, best.q);
    *out = best;
}

/* The inverse of wf_q4_k_scales (codec.h): 8 pairs of 6-bit integers in 12 bytes. */
static void store_scales(const wf_k_block *b, uint8_t scales[12])
{
    memset(scales, 0, 12);
    for (int g = 0; g < 8; g++) {
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

void wf_encode_k_affine(const float *x, const float *importance, int most, wf_k_block *out)
{
    const affine_form form = {.group = 32, .most = most, .most_scale = 63};
    encode_affine(&form, x, importance, out);
    store_scales(out, out->scales);
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

void wf_encode_q2_k(const float *x, const float *importance, void *block)
{
    const affine_form form = {.group = 16, .most = 3, .most_scale = 15, .coarse = true};
    wf_block_q2_k *to = block;
    wf_k_block b;
    encode_affine(&form, x, importance, &b);
    memset(to, 0, sizeof *to);
    to->d = b.d;
    to->dmin = b.dmin;
    for (int g = 0; g < 16; g++)
        to->scales[g] = (uint8_t)(b.s[g] | b.m[g] << 4);
    for (int i = 0; i < BLOCK; i++)
        to->q[i / 128 * 32 + i % 32] |= (uint8_t)(b.q[i] << 2 * (i / 32 % 4));
}

/* ---- Groups with a scale alone: q6_K, q3_K, iq4_xs ---- */

/* Elements are d s times an integer of [lo, hi], or times a level of iq4. */
typedef struct {
    int group;              /* elements of a group */
    int scale_lo, scale_hi; /* of s; -scale_lo > scale_hi */
    bool levels;
    int lo, hi;
    /* With few integers: starts from so many groups below the one with the largest scale, and at
     * last looks so far for the s of each group. */
    int ranks, reach;
    bool squares; /* elements weigh by their squares, not by their size */
} scaled_form;

enum { GROUPS_MAX = 16 };

/* A candidate for the block. */
typedef struct {
    uint16_t d;        /* f16 */
    int s[GROUPS_MAX]; /* integer scale of each group */
    float error;       /* weighted squared error over the block */
} guess;

/* Weighs by squares. A share of the group's mean square keeps small elements from weighing
 * nothing. */
static void weigh_squares(const float *x, int group, float *w)
{
    for (int g = 0; g < BLOCK; g += group) {
        float sum = 0;
        for (int i = 0; i < group; i++)
            sum += x[g + i] * x[g + i];
        for (int i = 0; i < group; i++)
            w[g + i] = x[g + i] * x[g + i] + 0.25f * sum / (float)group;
    }
}

static void weigh_scaled(const scaled_form *f, const float *x, const float *importance, float *w)
{
    if (importance)
        memcpy(w, importance, BLOCK * sizeof *w);
    else if (f->squares)
        weigh_squares(x, f->group, w);
    else
        weigh_sizes(x, NULL, f->group, w);
}

/* Returns the best scale of one group. */
static float fit_scaled(const scaled_form *f, const float *x, const float *w)
{
    return f->levels ? wf_fit_level_scale(x, w, f->group)
                     : wf_fit_scale(x, w, f->group, f->lo, f->hi);
}

static float error_scaled(const scaled_form *f, const float *x, const float *w, float scale)
{
    return f->levels ? wf_fit_level_error(x, w, f->group, scale)
                     : wf_fit_error(x, w, f->group, scale, 0, f->lo, f->hi);
}

/* Chooses each group's integer scale for the current d, at most `reach` from the nearest. */
static void settle_scaled(const scaled_form *f, const float *x, const float *w, const float *scale,
                          int reach, guess *b)
{
    float d = wf_f16_to_f32(b->d);
    b->error = 0;
    for (int g = 0; g < BLOCK / f->group; g++) {
        float best = INFINITY;
        int near = d != 0 ? clamp(scale[g] / d, f->scale_lo, f->scale_hi) : 0;
        for (int s = near - reach; s <= near + reach; s++) {
            if (s < f->scale_lo || s > f->scale_hi)
                continue;
            float e = error_scaled(f, x + g * f->group, w + g * f->group, d * (float)s);
            if (e < best) {
                best = e;
                b->s[g] = s;
            }
        }
        b->error += best;
    }
}

/* Fits d by least squares with all integers fixed. */
static void refit_scaled(const scaled_form *f, const float *x, const float *w, const guess *b,
                         guess *next)
{
    double ss = 0, xs = 0;
    float d = wf_f16_to_f32(b->d);
    for (int i = 0; i < BLOCK; i++) {
        float s = (float)b->s[i / f->group], scale = d * s, q = 0;
        if (scale != 0)
            q = f->levels ? wf_fit_level(x[i] / scale)
                          : wf_fit_nearest(x[i] / scale, (float)f->lo, (float)f->hi);
        double a = (double)s * q;
        ss += w[i] * a * a;
        xs += w[i] * a * x[i];
    }
    *next = *b;
    if (ss > 0)
        next->d = wf_fit_store((float)(xs / ss));
}

/* Replaces *best by a block with this d if it is better. */
static void try_scaled(const scaled_form *f, const float *x, const float *w, const float *scale,
                       uint16_t d, guess *best)
{
    guess next = {.d = d};
    settle_scaled(f, x, w, scale, 1, &next);
    if (next.error < best->error)
        *best = next;
}

static void encode_scaled(const scaled_form *f, const float *x, const float *importance, guess *out)
{
    float w[BLOCK], scale[GROUPS_MAX], size[GROUPS_MAX], most = 0;
    guess best = {0};
    weigh_scaled(f, x, importance, w);
    for (int g = 0; g < BLOCK / f->group; g++) {
        scale[g] = fit_scaled(f, x + g * f->group, w + g * f->group);
        most = magnitude(most, scale[g]);
        insert_sorted(size, g, fabsf(scale[g]));
    }
    best.d = wf_fit_store(most / (float)f->scale_lo); /* s reaches further below 0 than above */
    settle_scaled(f, x, w, scale, 1, &best);
    try_scaled(f, x, w, scale, away(best.d), &best); /* see away */
    for (int rank = 1; rank <= f->ranks; rank++)     /* see try_ranks */
        try_scaled(f, x, w, scale, wf_fit_store(copysignf(size[rank], most) / (float)f->scale_lo),
                   &best);
    for (int turn = 0; turn < TURNS; turn++) {
        guess next;
        refit_scaled(f, x, w, &best, &next);
        settle_scaled(f, x, w, scale, 1, &next);
        if (!(next.error < best.error))
            break;
        best = next;
    }
    if (f->reach > 1) {
        guess next = best;
        settle_scaled(f, x, w, scale, f->reach, &next);
        if (next.error < best.error)
            best = next;
    }
    *out = best;
}

/* Returns x / (d s), 0 where the scale is 0. */
static float unscaled(const scaled_form *f, const guess *b, const float *x, int i)
{
    float scale = wf_f16_to_f32(b->d) * (float)b->s[i / f->group];
    return scale != 0 ? x[i] / scale : 0;
}

/* Splits each 6-bit integer q (0 .. 63) into 4 low and 2 high bits, in the layout of codec.h. */
void wf_encode_q6_k(const float *x, const float *importance, void *block)
{
    const scaled_form f = {
        .group = 16, .scale_lo = -128, .scale_hi = 127, .lo = -32, .hi = 31, .squares = true};
    wf_block_q6_k *to = block;
    guess b;
    encode_scaled(&f, x, importance, &b);
    memset(to, 0, sizeof *to);
    to->d = b.d;
    for (int g = 0; g < BLOCK / f.group; g++)
        to->scales[g] = (int8_t)b.s[g];
    for (int i = 0; i < BLOCK; i++) {
        int half = i / 128, part = i / 32 % 4, at = i % 32;
        int q = clamp(unscaled(&f, &b, x, i), f.lo, f.hi) - f.lo;
        to->low[64 * half + 32 * (part & 1) + at] |= (uint8_t)((q & 15) << 4 * (part >> 1));
        to->high[32 * half + at] |= (uint8_t)(q >> 4 << 2 * part);
    }
}

void wf_encode_q3_k(const float *x, const float *importance, void *block)
{
    const scaled_form f = {
        .group = 16, .scale_lo = -32, .scale_hi = 31, .lo = -4, .hi = 3, .ranks = 2, .reach = 8};
    wf_block_q3_k *to = block;
    guess b;
    encode_scaled(&f, x, importance, &b);
    memset(to, 0, sizeof *to);
    to->d = b.d;
    for (int g = 0; g < BLOCK / f.group; g++) { /* the inverse of wf_q3_k_scale */
        int s = b.s[g] - f.scale_lo;
        to->scales[g % 8] |= (uint8_t)((s & 15) << 4 * (g / 8));
        to->scales[8 + g % 4] |= (uint8_t)(s >> 4 << 2 * (g / 4));
    }
    for (int i = 0; i < BLOCK; i++) {
        int q = clamp(unscaled(&f, &b, x, i), f.lo, f.hi) - f.lo;
        to->low[i / 128 * 32 + i % 32] |= (uint8_t)((q & 3) << 2 * (i / 32 % 4));
        to->high[i % 32] |= (uint8_t)(q >> 2 << i / 32);
    }
}

void wf_encode_iq4_xs(const float *x, const float *importance, void *block)
{
    const scaled_form f = {.group = 32, .scale_lo = -32, .scale_hi = 31, .levels = true};
    wf_block_iq4_xs *to = block;
    guess b;
    encode_scaled(&f, x, importance, &b);
    memset(to, 0, sizeof *to);
    to->d = b.d;
    for (int g = 0; g < BLOCK / f.group; g++) {
        int s = b.s[g] - f.scale_lo;
        to->scales_low[g / 2] |= (uint8_t)((s & 15) << 4 * (g % 2));
        to->scales_high |= (uint16_t)(s >> 4 << 2 * g);
    }
    for (int i = 0; i < BLOCK; i++)
        to->q[i / 32 * 16 + i % 16] |=
            (uint8_t)(wf_fit_level_index(unscaled(&f, &b, x, i)) << 4 * (i / 16 % 2));
}
