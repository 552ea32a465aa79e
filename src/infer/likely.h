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
    /* Of a weight, which is exp((logit - top) / temperature): 1 for the most likely token. */
    double temperature;
} wf_likely;

float wf_likely_top(const float *logits, size_t n);

/* Keep the k most likely; the fewest of the most likely that make up the part p of the probability, at
 * least one. */
void wf_likely_keep_count(wf_likely *t, size_t k);
void wf_likely_keep_mass(wf_likely *t, double p);

/* Turns logits into weights and keeps those that are positive and not below least <= 1. Returns their sum,
 * added up in order. */
double wf_likely_weigh(wf_likely *t, float least);

#endif
