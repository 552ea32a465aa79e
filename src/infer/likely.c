/* SPDX-License-Identifier: MIT */
/*
 * likely.c - see likely.h.
 *
 * A vocabulary has a hundred thousand tokens, and each generated one chooses among them all. So both ways
 * of keeping the most likely go over them a few times and sort none: tokens are counted, or weighed, in
 * buckets by their distance from the largest logit. Buckets before that in which the limit is reached are
 * kept as a whole, those after it dropped, and of that one the most likely are popped from a heap.
 */
#include "infer/likely.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#define BLOCK 512
#define BUCKETS 2048
#define PER_LOGIT 32 /* buckets; the last one holds all that is further away */

/* ---- Loops over all tokens, written so that compilers make vectors of them ---- */

#define LANES 16

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

#define LOWEST -87.0f

/* exp(x) of LOWEST <= x <= 0 to about 1e-7 of it, and 0 near LOWEST. The C library's takes a call each.
 * x = n ln 2 + r; ln 2 in two parts, the first of which times n is exact; a polynomial for exp(r). */
static inline float exp_negative(float x)
{
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* to nearest: 1.5 * 2^23 */
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

/* What a difference of logits is multiplied by: neither 0 nor infinity, for those times infinity or 0 are
 * not numbers. */
static float coldness(const wf_likely *t)
{
    return (float)fmin(FLT_MAX, fmax(FLT_MIN, 1 / t->temperature));
}

static void weigh_block(const wf_likely *t, size_t from, size_t n, float *weights)
{
    const float *value = t->value + from, top = t->top, factor = coldness(t);
    /* two loops: in one, compilers fold exp(LOWEST) into a branch, and make no vectors */
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

/* ---- The heap: the first `left` tokens, the most likely on top ---- */

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

/* Of the first n tokens keeps the most likely, until they amount to `limit`. */
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

/* Drops the buckets after the last, and puts the last before the others. Returns how many it has. */
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

/* Keeps the most likely tokens until they amount to `limit` or, by weight, to this part of all. */
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
