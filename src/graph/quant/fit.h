/* SPDX-License-Identifier: MIT */
/*
 * fit.h - fits a scale, or a scale and an offset, to a group of elements stored as small integers
 * q.
 *
 * The functions minimise the sum of w (x - scale q - offset)^2 over the group. A group has 16 or 32
 * elements x, finite and at most 65504 in magnitude. The weights w are finite and not negative.
 */
#ifndef WF_GRAPH_QUANT_FIT_H
#define WF_GRAPH_QUANT_FIT_H

#include <stdbool.h>
#include <stdint.h>

#define WF_FIT_MOST 65504.f /* the largest f16 */

/* Rounds x to the nearest integer in [lo, hi], ties to even. */
static inline float wf_fit_nearest(float x, float lo, float hi)
{
    const float shift = 0x1.8p23f; /* adding it rounds to an integer, for |x| far below 2^23 */
    x = x < lo ? lo : x > hi ? hi : x;
    return (x + shift) - shift;
}

/* Returns the best scale for q in [lo, hi], lo < 0 < hi. It may be negative, and is 0 if all
 * elements are negligible. */
float wf_fit_scale(const float *x, const float *w, int n, int lo, int hi);

/* Rounds by `scale`, then returns the least-squares scale for those integers, or `scale` if none is
 * better. */
float wf_fit_improve(const float *x, const float *w, int n, float scale, int lo, int hi);

typedef struct {
    float scale, offset; /* scale >= 0 */
} wf_fit;
/* Returns the best scale and offset for q in [0, most]. below: the offset must not be positive. */
wf_fit wf_fit_affine(const float *x, const float *w, int n, int most, bool below);

/* Rounds by `scale` and `offset` to integers in [0, most], then returns the best offset for those
 * integers. */
float wf_fit_offset(const float *x, const float *w, int n, float scale, float offset, int most);

/* Rounds a scale to a finite f16. The result is 0 only for scales below 2^-28; the smallest f16 is
 * 2^-24. */
uint16_t wf_fit_store(float scale);

/* Returns the weighted squared error of rounding to the nearest integers. */
float wf_fit_error(const float *x, const float *w, int n, float scale, float offset, int lo,
                   int hi);

/* ---- The levels of iq4_nl and iq4_xs (wf_iq4_level of codec.h) in place of integers ---- */

/* Returns the index of the level nearest to x, 0 .. 15. */
int wf_fit_level_index(float x);
/* Returns the level nearest to x. */
float wf_fit_level(float x);
/* As wf_fit_scale and wf_fit_error. */
float wf_fit_level_scale(const float *x, const float *w, int n);
float wf_fit_level_error(const float *x, const float *w, int n, float scale);

#endif
