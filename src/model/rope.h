/* SPDX-License-Identifier: MIT */
/* rope.h - rotary positions: from what a config says to inverse frequencies and a magnitude. */
#ifndef WF_MODEL_ROPE_H
#define WF_MODEL_ROPE_H

#include "base/ctx.h"

typedef enum {
    WF_ROPE_PLAIN,
    WF_ROPE_LINEAR, /* positions divided by factor */
    WF_ROPE_LLAMA3, /* long waves divided by factor, short ones left, those between blended */
    WF_ROPE_YARN    /* the same by another rule, and a magnitude */
} wf_rope_scaling;

typedef struct {
    double base;      /* theta; 0: the model has no rotary positions */
    int64_t dims;     /* of a head that turn: R, even */
    bool interleaved; /* pairs are (2i, 2i + 1), as in llama's GGUF files; else (i, i + R/2) */
    wf_rope_scaling scaling;
    double factor;
    double original;             /* context before scaling */
    double low, high;            /* llama3: low_freq_factor, high_freq_factor */
    double beta_fast, beta_slow; /* yarn */
    double magnitude;            /* yarn's attention factor; 0: 0.1 ln(factor) + 1 */
    const float *divisors;       /* f32[R/2] by which frequencies are divided besides; NULL: none */
} wf_rotary;

/* inv_freq: f32[R/2]. Computed in double precision and rounded once. */
void wf_rope_frequencies(const wf_rotary *rope, float *inv_freq);
/* What the turned part of q and k is multiplied by. */
double wf_rope_magnitude(const wf_rotary *rope);

/* The llama3 scaling whose divisors these are (a GGUF file says it that way); false when there is none. */
bool wf_rope_find_llama3(wf_rotary *rope, const float *divisors);
/* The divisors of a llama3 scaling: f32[R/2]. */
void wf_rope_llama3_divisors(const wf_rotary *rope, float *divisors);

#endif
