/* SPDX-License-Identifier: MIT */
/*
 * likely.c - see likely.h.
 *
 * A vocabulary has 100 000 tokens or more, and sampling runs once per generated token: sorting
 * would cost more than the rest. top-k and top-p make a few linear passes instead. A histogram over
 * the distance from the largest logit counts or weighs the tokens. Buckets before the one that
 * reaches the limit are kept whole and later ones are dropped. Only that one bucket is ordered, by
 * a heap.
 */
#include "infer/likely.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define BLOCK 512    /* tokens weighed at a time; the block stays in L1 */
#define BUCKETS 2048 /* of the histogram: a range of 64 logits */
#define PER_LOGIT 32 /* buckets per unit of logit; the last bucket holds everything beyond */

/* ---- Loops over all tokens, written so that compilers vectorize them ---- */

#define LANES 16 /* independent maxima, so that the loop has no serial dependence */

float wf_likely_top(const float *logits, size_t n)
{
    float lane[LANES];
    for (int k = 0; k < LANES; k++)
        lane[k] = -INFINITY;
    size_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] = logits[i + (size_t)k] > lane[k] ? logits[i + (size_t)k] : lane[k];
    for (; i < n; i++)
        lane[0] = logits[i] > lane[0] ? logits[i] : lane[0];
    for (int k = 1; k < LANES; k++)
        lane[0] = lane[k] > lane[0] ? lane[k] : lane[0];
    return lane[0];
}

#define LOWEST -87.0f /* exp of less is below the smallest normal float */

/* exp(x) for LOWEST <= x <= 0, with a relative error of about 1e-7; 0 near LOWEST. Unlike expf it
 * vectorizes. x = n ln 2 + r, with ln 2 split in two parts so that n times the first part is exact;
 * exp(r) is a polynomial. */
static inline float exp_negative(float x)
{
    float n =
        (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* adding 1.5 * 2^23 rounds to nearest */
    float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1;
    int32_t power = (int32_t)n;
    uint32_t bits = (uint32_t)(power + 127) << 23 & -(uint32_t)(power > -125);
    float scale; /* 2^n, or 0 */
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* Returns 1 / temperature, clamped to finite and positive: 0 * inf would be NaN. */
static float coldness(const wf_likely *t)
{
    return (float)fmin(FLT_MAX, fmax(FLT_MIN, 1 / t->temperature));
}

/* Writes the weights of tokens [from, from + n). */
static void weigh_block(const wf_likely *t, size_t from, size_t n, float *weights)
{
    const float *value = t->value + from, top = t->top, factor = coldness(t);
    /* Two loops: in a single one, compilers turn exp(LOWEST) into a branch and do not vectorize. */
    for (size_t i = 0; i < n; i++) {
        float x = (value[i] - top) * factor;
        weights[i] = x > LOWEST ? x : LOWEST;
    }
    for (size_t i = 0; i < n; i++)
        weights[i] = exp_negative(weights[i]);
}

static size_t block_at(const wf_likely *t, size_t from)
{
    return t->n - from < BLOCK ? t->n - from : BLOCK;
}

/* Bucket 0 holds the most likely tokens. */
static inline int bucket_of(const wf_likely *t, float logit)
{
    float far = (t->top - logit) * PER_LOGIT;
    return far < BUCKETS - 1 ? (int)far : BUCKETS - 1;
}

double wf_likely_weigh(wf_likely *t)
{
    float weights[BLOCK];
    double sum = 0;
    size_t kept = 0;
    for (size_t from = 0, n; (n = block_at(t, from)) > 0; from += n) {
        weigh_block(t, from, n, weights);
        for (size_t i = 0; i < n; i++) {
            bool keep = weights[i] > 0;
            t->value[kept] = weights[i];
            t->id[kept] = t->id[from + i];
            kept += keep;
            sum += keep ? weights[i] : 0;
        }
    }
    t->n = kept;
    return sum;
}

/* ---- A heap of the first `left` tokens, the most likely on top ---- */

/* The order of tokens: by logit, ties by the lower id. */
static bool above(const wf_likely *t, size_t a, size_t b)
{
    return t->value[a] > t->value[b] || (t->value[a] == t->value[b] && t->id[a] < t->id[b]);
}

static void swap(wf_likely *t, size_t a, size_t b)
{
    float value = t->value[a];
    int32_t id = t->id[a];
    t->value[a] = t->value[b];
    t->id[a] = t->id[b];
    t->value[b] = value;
    t->id[b] = id;
}

/* Restores the heap below `at`. */
static void sift(wf_likely *t, size_t left, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < left; at = child) {
        if (child + 1 < left && above(t, child + 1, child))
            child++;
        if (!above(t, child, at))
            return;
        swap(t, at, child);
    }
}

/* ---- Keeping ---- */

/* Orders the first n tokens and drops all but the most likely, whose count or weight reaches
 * `limit`. Tokens from n on stay. */
static void keep_of_bucket(wf_likely *t, size_t n, double limit, bool by_weight)
{
    for (size_t i = n / 2; i-- > 0;)
        sift(t, n, i);
    size_t left = n;
    for (double amount = 0; left > 0 && amount < limit;) {
        swap(t, 0, --left);
        sift(t, left, 0);
        float weight = 1;
        if (by_weight)
            weigh_block(t, left, 1, &weight);
        amount += weight;
    }
    t->n -= left;
    memmove(t->value, t->value + left, t->n * sizeof *t->value);
    memmove(t->id, t->id + left, t->n * sizeof *t->id);
}

/* Drops the tokens of buckets after `last` and moves those of `last` to the front. Returns how many
 * these are. */
static size_t drop_after(wf_likely *t, int last)
{
    size_t n = 0, front = 0;
    for (size_t i = 0; i < t->n; i++) {
        float value = t->value[i];
        t->value[n] = value;
        t->id[n] = t->id[i];
        n += bucket_of(t, value) <= last;
    }
    t->n = n;
    for (size_t i = 0; i < n; i++)
        if (bucket_of(t, t->value[i]) == last)
            swap(t, front++, i);
    return front;
}

/* Keeps the most likely tokens. limit: their count or, by_weight, their fraction of the total
 * weight. */
static void keep(wf_likely *t, double limit, bool by_weight)
{
    double amount[BUCKETS] = {0}, total = 0, sure = 0;
    float weights[BLOCK];
    for (int i = 0; i < BLOCK; i++)
        weights[i] = 1;
    for (size_t from = 0, n; (n = block_at(t, from)) > 0; from += n) {
        if (by_weight)
            weigh_block(t, from, n, weights);
        for (size_t i = 0; i < n; i++)
            amount[bucket_of(t, t->value[from + i])] += weights[i];
    }
    for (int i = 0; i < BUCKETS; i++)
        total += amount[i];
    if (by_weight)
        limit *= total;
    int last = 0;
    while (last < BUCKETS - 1 && sure + amount[last] < limit)
        sure += amount[last++];
    keep_of_bucket(t, drop_after(t, last), limit - sure, by_weight);
}

void wf_likely_keep_count(wf_likely *t, size_t k)
{
    if (k < t->n)
        keep(t, (double)k, false);
}

void wf_likely_keep_mass(wf_likely *t, double p)
{
    if (p < 1)
        keep(t, p, true);
}

void wf_likely_keep_near(wf_likely *t, double p)
{
    float bound = (float)fmax(-FLT_MAX, (double)t->top + log(p) * t->temperature);
    size_t kept = 0;
    for (size_t i = 0; i < t->n; i++) {
        float value = t->value[i];
        t->value[kept] = value;
        t->id[kept] = t->id[i];
        kept += value >= bound;
    }
    t->n = kept;
}

void wf_likely_keep_first(wf_likely *t)
{
    size_t first = 0;
    for (size_t i = 1; i < t->n; i++)
        if (above(t, i, first))
            first = i;
    swap(t, 0, first);
    t->n = 1;
}
