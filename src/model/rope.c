/* SPDX-License-Identifier: MIT */
/*
 * rope.c - inverse frequencies of rotary positions, with the common scalings for long contexts.
 *
 * Everything is computed in double and rounded once to f32. "Turns" are rotations within the
 * original context: original * frequency / 2 pi. GGUF stores llama3's scaling as divisors only, so
 * the second half recovers its parameters from them.
 */
#include "model/rope.h"

#include <math.h>

#define PI 3.14159265358979323846

/* base^(-2i / dims), the i-th frequency before scaling. */
static double frequency(const wf_rotary *r, int64_t i)
{
    return pow(r->base, -2.0 * (double)i / (double)r->dims);
}

/* Divides wavelengths above original/low by the factor, keeps those below original/high, and blends
 * between. */
static double llama3_divisor(const wf_rotary *r, double frequency)
{
    double turns = r->original * frequency / (2 * PI);
    if (turns < r->low)
        return r->factor;
    if (turns > r->high)
        return 1;
    double keep = (turns - r->low) / (r->high - r->low);
    return 1 / ((1 - keep) / r->factor + keep);
}

/* Returns the dimension, as a real number, that makes this many turns within the original
 * context. */
static double yarn_dimension(const wf_rotary *r, double turns)
{
    return (double)r->dims * log(r->original / (turns * 2 * PI)) / (2 * log(r->base));
}

static double yarn_divisor(const wf_rotary *r, int64_t i)
{
    double low = yarn_dimension(r, r->beta_fast), high = yarn_dimension(r, r->beta_slow);
    if (!r->unrounded) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)r->dims - 1);
    double width = high == low ? 0.001 : high - low; /* may be negative, as in transformers */
    double stretched = fmin(fmax(((double)i - low) / width, 0), 1);
    return 1 / (stretched / r->factor + (1 - stretched));
}

static double divisor(const wf_rotary *r, int64_t context, int64_t i)
{
    switch (r->scaling) {
    case WF_ROPE_PLAIN:
    case WF_ROPE_DYNAMIC: break;
    case WF_ROPE_LINEAR: return r->factor;
    case WF_ROPE_LLAMA3: return llama3_divisor(r, frequency(r, i));
    case WF_ROPE_YARN: return yarn_divisor(r, i);
    case WF_ROPE_LONG:
        return ((double)context > r->original ? r->long_divisors : r->short_divisors)[i];
    }
    return 1;
}

void wf_rope_frequencies(const wf_rotary *r, int64_t context, float *inv_freq)
{
    for (int64_t i = 0; i < r->dims / 2; i++) {
        double f = frequency(r, i) / divisor(r, context, i);
        inv_freq[i] = (float)(r->divisors ? f / r->divisors[i] : f);
    }
}

double wf_rope_yarn_magnitude(double scale, double mscale)
{
    return scale > 1 ? 0.1 * mscale * log(scale) + 1 : 1;
}

double wf_rope_magnitude(const wf_rotary *r)
{
    if (r->scaling != WF_ROPE_YARN && r->scaling != WF_ROPE_LONG)
        return 1;
    if (r->scaling == WF_ROPE_LONG && r->magnitude == 0)
        return r->factor > 1 ? sqrt(1 + log(r->factor) / log(r->original)) : 1;
    return r->magnitude != 0 ? r->magnitude : wf_rope_yarn_magnitude(r->factor, 1);
}

void wf_rope_llama3_divisors(const wf_rotary *r, float *divisors)
{
    for (int64_t i = 0; i < r->dims / 2; i++)
        divisors[i] = (float)llama3_divisor(r, frequency(r, i));
}

/* ---- llama3 parameters from divisors ---- */

/* Returns whether the parameters give these divisors, within the precision of f32. */
static bool reproduces(const wf_rotary *r, const float *divisors)
{
    if (!(isfinite(r->low) && isfinite(r->high) && r->low > 0 && r->high > r->low))
        return false;
    for (int64_t i = 0; i < r->dims / 2; i++)
        if (!(fabs(llama3_divisor(r, frequency(r, i)) - divisors[i]) <= 1e-5 * divisors[i]))
            return false;
    return true;
}

/* How a scaling treats the frequencies, in turns within the original context. Up to `full` they are
 * divided by the whole factor; from `kept` on they are unchanged. Between, the kept share grows
 * linearly from (a, a_share) to (b, b_share). */
typedef struct {
    double full, kept;
    double a, a_share, b, b_share;
    int blended;
} spread;

/* Classifies the frequencies by how much of them the scaling keeps. */
static spread sort_frequencies(const wf_rotary *r, const float *divisors)
{
    spread s = {.kept = INFINITY};
    for (int64_t i = r->dims / 2 - 1; i >= 0; i--) { /* from low to high frequencies */
        double turns = r->original * frequency(r, i) / (2 * PI);
        double share = (1 / (double)divisors[i] - 1 / r->factor) / (1 - 1 / r->factor);
        if (share < 1e-6)
            s.full = turns;
        else if (share > 1 - 1e-6)
            s.kept = fmin(s.kept, turns);
        else if (s.blended++ == 0)
            s.a = s.b = turns, s.a_share = s.b_share = share;
        else
            s.b = turns, s.b_share = share;
    }
    return s;
}

/* Two blended frequencies determine the line. With fewer, any line that separates the others
 * works. */
static void fit_line(wf_rotary *r, const spread *s)
{
    if (s->blended >= 2) {
        double slope = (s->b_share - s->a_share) / (s->b - s->a);
        r->low = s->a - s->a_share / slope;
        r->high = r->low + 1 / slope;
    } else if (s->blended == 1) {
        double least = isfinite(s->kept) ? (s->a - s->a_share * s->kept) / (1 - s->a_share) : 0;
        r->low = fmax(fmax(s->full, least), 1e-3 * s->a);
        r->high = r->low + (s->a - r->low) / s->a_share;
    } else {
        double kept = isfinite(s->kept) ? s->kept : 4 * s->full;
        r->low = s->full + (kept - s->full) / 3;
        r->high = s->full + (kept - s->full) * 2 / 3;
    }
}

/* Published parameters have few digits; prefer them to values with roundoff. */
static double rounded(double x)
{
    return round(x * 1e3) / 1e3;
}

/* The longest wavelength has the whole factor. The original context only scales low and high, so it
 * can be fixed. */
bool wf_rope_find_llama3(wf_rotary *rope, const float *divisors)
{
    wf_rotary r = *rope;
    r.scaling = WF_ROPE_LLAMA3;
    r.factor = divisors[r.dims / 2 - 1];
    r.original = 8192;
    r.low = 1;
    r.high = 4;
    r.divisors = NULL;
    if (!reproduces(&r, divisors)) {
        spread s = sort_frequencies(&r, divisors);
        fit_line(&r, &s);
        wf_rotary nice = r;
        nice.low = rounded(r.low);
        nice.high = rounded(r.high);
        if (reproduces(&nice, divisors))
            r = nice;
    }
    if (!reproduces(&r, divisors))
        return false;
    *rope = r;
    return true;
}
