/* SPDX-License-Identifier: MIT */
/*
 * fit.h - which scale, or scale and offset, lets small integers come nearest to a group of numbers.
 *
 * What is minimised is the sum of w (x - scale q - offset)^2 over the group. Groups have 16 or 32
 * numbers, all of them finite and at most 65504; weights are finite and not negative.
 */
#ifndef WF_GRAPH_QUANT_FIT_H
#define WF_GRAPH_QUANT_FIT_H

#include <stdbool.h>
#include <stdint.h>

#define WF_FIT_MOST 65504.f /* the largest f16 */

/* x to the nearest integer of [lo, hi], ties to even. */
static inline float wf_fit_nearest(float x, float lo, float hi)
{
    const float shift = 0x1.8p23f; /* leaves no room for a fraction; |x| stays far below it */
    x = x < lo ? lo : x > hi ? hi : x;
    return (x + shift) - shift;
}

/* The scale for q of [lo, hi], lo < 0 < hi; negative ones are tried as well. 0: all numbers are as good
 * as 0. */
float wf_fit_scale(const float *x, const float *w, int n, int lo, int hi);

/* The scale that suits best the integers that a given one rounds to; or else the given one. */
float wf_fit_improve(const float *x, const float *w, int n, float scale, int lo, int hi);

typedef struct {
    float scale, offset; /* scale >= 0 */
} wf_fit;
/* For q of [0, most]. `below`: the offset must not be positive. */
wf_fit wf_fit_affine(const float *x, const float *w, int n, int most, bool below);

/* A scale as it can be stored: f16, finite, and 0 only when it is nothing beside the least f16. */
uint16_t wf_fit_store(float scale);

/* The error of nearest integers: what the functions above make small. */
float wf_fit_error(const float *x, const float *w, int n, float scale, float offset, int lo,
                   int hi);

#endif
