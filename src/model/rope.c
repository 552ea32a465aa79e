/* SPDX-License-Identifier: MIT */
/* rope.c - inverse frequencies of rotary positions under the usual ways to stretch a context. */
#include "model/rope.h"

#include <math.h>

#define PI 3.14159265358979323846

static double frequency(const wf_rotary *r, int64_t i)
{
    return pow(r->base, -2.0 * (double)i / (double)r->dims);
}

/* Waves longer than original / low are divided by the factor, shorter than original / high are not. */
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

/* The dimension, as a real number, whose wave turns this often within the original context. */
static double yarn_dimension(const wf_rotary *r, double turns)
{
    return (double)r->dims * log(r->original / (turns * 2 * PI)) / (2 * log(r->base));
}

static double yarn_divisor(const wf_rotary *r, int64_t i)
{
    double low = fmax(floor(yarn_dimension(r, r->beta_fast)), 0);
    double high = fmin(ceil(yarn_dimension(r, r->beta_slow)), (double)r->dims - 1);
    double width = fmax(high - low, 0.001);
    double stretched = fmin(fmax(((double)i - low) / width, 0), 1);
    return 1 / (stretched / r->factor + (1 - stretched));
}

static double divisor(const wf_rotary *r, int64_t i)
{
    switch (r->scaling) {
    case WF_ROPE_PLAIN: break;
    case WF_ROPE_LINEAR: return r->factor;
    case WF_ROPE_LLAMA3: return llama3_divisor(r, frequency(r, i));
    case WF_ROPE_YARN: return yarn_divisor(r, i);
    }
    return 1;
}

void wf_rope_frequencies(const wf_rotary *r, float *inv_freq)
{
    for (int64_t i = 0; i < r->dims / 2; i++) {
        double f = frequency(r, i) / divisor(r, i);
        inv_freq[i] = (float)(r->divisors ? f / r->divisors[i] : f);
    }
}

double wf_rope_magnitude(const wf_rotary *r)
{
    if (r->scaling != WF_ROPE_YARN)
        return 1;
    if (r->magnitude != 0)
        return r->magnitude;
    return r->factor > 1 ? 0.1 * log(r->factor) + 1 : 1;
}

void wf_rope_llama3_divisors(const wf_rotary *r, float *divisors)
{
    for (int64_t i = 0; i < r->dims / 2; i++)
        divisors[i] = (float)llama3_divisor(r, frequency(r, i));
}

/* The longest wave has the whole factor. The rest of the parameters have been the same in every such
 * model, so they are guessed, and the guess is checked. */
bool wf_rope_find_llama3(wf_rotary *rope, const float *divisors)
{
    wf_rotary r = *rope;
    r.scaling = WF_ROPE_LLAMA3;
    r.factor = divisors[r.dims / 2 - 1];
    r.original = 8192;
    r.low = 1;
    r.high = 4;
    r.divisors = NULL;
    for (int64_t i = 0; i < r.dims / 2; i++)
        if (!(fabs(llama3_divisor(&r, frequency(&r, i)) - divisors[i]) <= 1e-4 * divisors[i]))
            return false;
    *rope = r;
    return true;
}
