/* SPDX-License-Identifier: MIT */
/*
 * likely.h - top-k, top-p and min-p over a list of tokens, without sorting it.
 *
 * Tokens are ordered by logit, ties by ascending id, so the kept set does not depend on the
 * algorithm.
 */
#ifndef WF_INFER_LIKELY_H
#define WF_INFER_LIKELY_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    float *value; /* [n] logits, not NaN or +infinity; after wf_likely_weigh: weights */
    int32_t *id;  /* [n] */
    size_t n;
    float top; /* the largest logit, finite */
    /* A weight is exp((logit - top) / temperature): 1 for the most likely token. */
    double temperature;
} wf_likely;

/* Returns the largest logit; -infinity when n is 0. */
float wf_likely_top(const float *logits, size_t n);

/* Keep, in this order of functions:
 *   count: the k most likely tokens (top-k);
 *   mass:  the fewest most likely tokens whose weights sum to p of the total, at least one (top-p);
 *   near:  the tokens whose weight is at least p, 0 < p <= 1 (min-p);
 *   first: the most likely token. */
void wf_likely_keep_count(wf_likely *t, size_t k);
void wf_likely_keep_mass(wf_likely *t, double p);
void wf_likely_keep_near(wf_likely *t, double p);
void wf_likely_keep_first(wf_likely *t);

/* Replaces logits by weights, drops those that are 0, and returns the sum, added in list order. */
double wf_likely_weigh(wf_likely *t);

#endif
