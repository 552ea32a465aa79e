/* SPDX-License-Identifier: MIT */
/*
 * fit.c - searches for scales and offsets.
 *
 * For given integers the best scale and offset are a least-squares solution; for a given scale and
 * offset the best integers are the nearest ones. The search tries several scales around the one
 * that just covers the elements: it rounds, solves, and then alternates both steps on the best
 * guess until the error no longer falls.
 *
 * Sums run in LANES lanes, element i in lane i % LANES, so that compilers vectorize them. The order
 * of additions is fixed, so results do not depend on the instruction set. n is a multiple of LANES.
 */
#include "graph/quant/fit.h"

#include <math.h>

#include "base/half.h"

enum {
    LANES = 4,
    TURNS = 8 /* most groups converge in fewer */
};
/* Elements below this have no scale that f16 could hold. */
#define NOTHING 0x1p-40f

static double total(const float *lane)
{
    double sum = 0;
    for (int i = 0; i < LANES; i++)
        sum += lane[i];
    return sum;
}

uint16_t wf_fit_store(float scale)
{
    float size = fabsf(scale);
    if (size < 0x1p-28f)
        return 0;
    size = size > WF_FIT_MOST ? WF_FIT_MOST : size < 0x1p-24f ? 0x1p-24f : size;
    return wf_f32_to_f16(copysignf(size, scale));
}

float wf_fit_error(const float *x, const float *w, int n, float scale, float offset, int lo, int hi)
{
    const float inverse = scale != 0 ? 1 / scale : 0, low = (float)lo, high = (float)hi;
    float sum[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float q = wf_fit_nearest((x[i + l] - offset) * inverse, low, high);
            float e = scale * q + offset - x[i + l];
            sum[l] += w[i + l] * e * e;
        }
    return (float)total(sum);
}

float wf_fit_offset(const float *x, const float *w, int n, float scale, float offset, int most)
{
    const float inverse = scale != 0 ? 1 / scale : 0, high = (float)most;
    float sum[LANES] = {0}, weights[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float q = wf_fit_nearest((x[i + l] - offset) * inverse, 0, high);
            sum[l] += w[i + l] * (x[i + l] - scale * q);
            weights[l] += w[i + l];
        }
    double all = total(weights);
    return all > 0 ? (float)(total(sum) / all) : offset;
}

/* ---- Scale alone ---- */

typedef struct {
    double gain; /* how far the error is below that of all zeros */
    float scale;
} scale_guess;

/* Rounds x * inverse and solves for the scale. */
static scale_guess solve_scale(const float *x, const float *w, int n, float inverse, float lo,
                               float hi)
{
    float xq[LANES] = {0}, qq[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float q = wf_fit_nearest(x[i + l] * inverse, lo, hi), wq = w[i + l] * q;
            xq[l] += wq * x[i + l];
            qq[l] += wq * q;
        }
    double a = total(xq), b = total(qq);
    /* Sum w (x - s q)^2 is least at s = a / b, and falls by a^2 / b there. */
    return b > 0 ? (scale_guess){a * a / b, (float)(a / b)} : (scale_guess){0, 0};
}

float wf_fit_improve(const float *x, const float *w, int n, float scale, int lo, int hi)
{
    if (fabsf(scale) < NOTHING)
        return scale;
    scale_guess s = solve_scale(x, w, n, 1 / scale, (float)lo, (float)hi);
    return s.gain > 0 ? s.scale : scale;
}

float wf_fit_scale(const float *x, const float *w, int n, int lo, int hi)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    if (fabsf(most) < NOTHING)
        return 0;
    const float low = (float)lo, high = (float)hi;
    /* lo is negative and the largest in size: the extreme element gets it. */
    scale_guess best = {0, most / low};
    /* `reach` is the integer that the extreme element is mapped to: around the low or the high end,
     * within and beyond the range. Beyond it, that element is clipped and all others get finer
     * steps. */
    const int stride = hi < 7 ? 3 : 1; /* with few integers, small steps find nothing new */
    for (int end = 0; end < 2; end++)
        for (int step = hi < 7 ? -9 : -12; step <= 9; step += stride) {
            float reach = end ? high + 0.1f * (float)step : low - 0.1f * (float)step;
            scale_guess s = solve_scale(x, w, n, reach / most, low, high);
            if (s.gain > best.gain)
                best = s;
        }
    for (int turn = 0; turn < TURNS && best.scale != 0; turn++) {
        scale_guess s = solve_scale(x, w, n, 1 / best.scale, low, high);
        if (!(s.gain > best.gain))
            break;
        best = s;
    }
    return best.scale;
}

/* ---- Scale and offset ---- */

/* Elements of a group relative to `base`, so that a large common offset costs no precision. */
typedef struct {
    float x[32];    /* relative to base */
    const float *w; /* borrowed, [n] */
    int n;
    float base, high;     /* smallest element, or 0; largest integer */
    bool below;           /* the offset must not be positive */
    double sw, swx, swxx; /* sums of w, w x and w x^2 */
} group;

typedef struct {
    double error;
    float scale, offset; /* relative to base */
} affine_guess;

/* Rounds with this guess, then solves for scale and offset. An error of infinity rejects the
 * guess. */
static affine_guess solve_affine(const group *g, float inverse, float offset)
{
    float q1[LANES] = {0}, q2[LANES] = {0}, xq[LANES] = {0};
    for (int i = 0; i < g->n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float q = wf_fit_nearest((g->x[i + l] - offset) * inverse, 0, g->high);
            float wq = g->w[i + l] * q;
            q1[l] += wq;
            q2[l] += wq * q;
            xq[l] += wq * g->x[i + l];
        }
    double sq = total(q1), sqq = total(q2), sxq = total(xq), det = g->sw * sqq - sq * sq;
    double scale = 0, m = g->sw > 0 ? g->swx / g->sw : 0;
    /* Otherwise all integers are equal: only the offset matters, and the mean is the best one. */
    if (det > 1e-9 * g->sw * sqq) {
        scale = (g->sw * sxq - g->swx * sq) / det;
        m = (sqq * g->swx - sq * sxq) / det;
    }
    /* The type stores -offset unsigned: pin the offset to 0 and solve for the scale alone. */
    if (g->below && m > -g->base) {
        m = -g->base;
        scale = sqq > 0 ? (sxq - m * sq) / sqq : 0;
    }
    double error = g->swxx - 2 * (scale * sxq + m * g->swx) + scale * scale * sqq +
                   2 * scale * m * sq + m * m * g->sw;
    if (scale < 0) /* scales are stored unsigned */
        error = INFINITY;
    return (affine_guess){error, (float)scale, (float)m};
}

wf_fit wf_fit_affine(const float *x, const float *w, int n, int most, bool below)
{
    group g = {.w = w, .n = n, .base = x[0], .high = (float)most, .below = below};
    float top = x[0];
    for (int i = 1; i < n; i++) {
        g.base = x[i] < g.base ? x[i] : g.base;
        top = x[i] > top ? x[i] : top;
    }
    if (below && g.base > 0)
        g.base = 0;
    for (int i = 0; i < n; i++) {
        g.x[i] = x[i] - g.base;
        g.sw += w[i];
        g.swx += (double)w[i] * g.x[i];
        g.swxx += (double)w[i] * g.x[i] * g.x[i];
    }
    float range = top - g.base;
    if (range < NOTHING)
        return (wf_fit){0, g.base};
    affine_guess best = {INFINITY, range / g.high, 0};
    const int stride = most < 15 ? 2 : 1; /* as in wf_fit_scale */
    for (int step = -12; step <= 10; step += stride) {
        /* Offset 0 relative to base: the smallest element maps to integer 0. */
        affine_guess a = solve_affine(&g, (g.high + 0.1f * (float)step) / range, 0);
        if (a.error < best.error)
            best = a;
    }
    for (int turn = 0; turn < TURNS && best.scale > NOTHING; turn++) {
        affine_guess a = solve_affine(&g, 1 / best.scale, best.offset);
        if (!(a.error < best.error))
            break;
        best = a;
    }
    return (wf_fit){best.scale, best.offset + g.base};
}

/* ---- Levels ---- */

/* Pairs of neighbouring levels. */
#define STEPS(X)  \
    X(-127, -104) \
    X(-104, -83)  \
    X(-83, -65)   \
    X(-65, -49)   \
    X(-49, -35)   \
    X(-35, -22)   \
    X(-22, -10) X(-10, 1) X(1, 13) X(13, 25) X(25, 38) X(38, 53) X(53, 69) X(69, 89) X(89, 113)
enum { LOW_LEVEL = -127, HIGH_LEVEL = 113 };
/* x is above the point halfway between both. */
#define ABOVE(x, a, b) ((x) > 0.5f * ((a) + (b)))

int wf_fit_level_index(float x)
{
    int index = 0;
#define COUNT(a, b) index += ABOVE(x, a, b);
    STEPS(COUNT)
#undef COUNT
    return index;
}

/* Adds up steps instead of looking a level up: compilers vectorize that. */
float wf_fit_level(float x)
{
    float level = LOW_LEVEL;
#define ADD(a, b) level += ABOVE(x, a, b) ? (float)((b) - (a)) : 0.f;
    STEPS(ADD)
#undef ADD
    return level;
}

float wf_fit_level_error(const float *x, const float *w, int n, float scale)
{
    const float inverse = scale != 0 ? 1 / scale : 0;
    float sum[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float e = scale * wf_fit_level(x[i + l] * inverse) - x[i + l];
            sum[l] += w[i + l] * e * e;
        }
    return (float)total(sum);
}

/* As solve_scale. */
static scale_guess solve_level_scale(const float *x, const float *w, int n, float inverse)
{
    float xq[LANES] = {0}, qq[LANES] = {0};
    for (int i = 0; i < n; i += LANES)
        for (int l = 0; l < LANES; l++) {
            float q = wf_fit_level(x[i + l] * inverse), wq = w[i + l] * q;
            xq[l] += wq * x[i + l];
            qq[l] += wq * q;
        }
    double a = total(xq), b = total(qq);
    return b > 0 ? (scale_guess){a * a / b, (float)(a / b)} : (scale_guess){0, 0};
}

float wf_fit_level_scale(const float *x, const float *w, int n)
{
    float most = 0;
    for (int i = 0; i < n; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    if (fabsf(most) < NOTHING)
        return 0;
    scale_guess best = {0, most / LOW_LEVEL};
    /* As in wf_fit_scale: maps the extreme element to values around both ends. */
    for (int end = 0; end < 2; end++)
        for (int step = -9; step <= 6; step++) {
            float reach = end ? HIGH_LEVEL + 2.5f * (float)step : LOW_LEVEL - 2.5f * (float)step;
            scale_guess s = solve_level_scale(x, w, n, reach / most);
            if (s.gain > best.gain)
                best = s;
        }
    for (int turn = 0; turn < TURNS && best.scale != 0; turn++) {
        scale_guess s = solve_level_scale(x, w, n, 1 / best.scale);
        if (!(s.gain > best.gain))
            break;
        best = s;
    }
    return best.scale;
}
