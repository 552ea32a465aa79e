/* SPDX-License-Identifier: MIT */
/*
 * likely.h - the likely ones among many tokens, found without sorting.
 *
 * Tokens are ordered by logit, equal ones by id, so that what is kept does not depend on how it was found.
 */
#ifndef WF_INFER_LIKELY_H
#define WF_INFER_LIKELY_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    float *value; /* [n] logits, none NaN or +infinity; after wf_likely_weigh weights */
    int32_t *id;  /* [n] */
    size_t n;
    float top; /* the largest logit, which is finite */
    /* A weight is exp((logit - top) / temperature): 1 for the most likely token. */
    double temperature;
} wf_likely;

float wf_likely_top(const float *logits, size_t n);

/* Keep the k most likely; the fewest of the most likely whose weights sum to the part p of all weights, at least
 * one; those whose weight is p or more, 0 < p <= 1; the most likely one. */
void wf_likely_keep_count(wf_likely *t, size_t k);
void wf_likely_keep_mass(wf_likely *t, double p);
void wf_likely_keep_near(wf_likely *t, double p);
void wf_likely_keep_first(wf_likely *t);

/* Turns logits into weights and keeps the positive ones. Returns their sum, added up in order. */
double wf_likely_weigh(wf_likely *t);

#endif
