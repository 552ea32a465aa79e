/* SPDX-License-Identifier: MIT */
/* rope.h - rotary positions: from the parameters of a config to inverse frequencies and a magnitude. */
#ifndef WF_MODEL_ROPE_H
#define WF_MODEL_ROPE_H

#include "base/ctx.h"

typedef enum {
    WF_ROPE_PLAIN,
    WF_ROPE_LINEAR,  /* positions divided by factor */
    WF_ROPE_DYNAMIC, /* scales only beyond the context, which Weft never exceeds: same as plain */
    WF_ROPE_LLAMA3,  /* low frequencies divided by factor, high ones kept, those between blended */
    WF_ROPE_YARN     /* the same by another rule, and a magnitude */
} wf_rope_scaling;

typedef struct {
    double base;      /* theta; 0: the model has no rotary positions */
    int64_t dims;     /* rotated dimensions of a head: R, even */
    bool interleaved; /* pairs are (2i, 2i + 1), as in llama's GGUF files; else (i, i + R/2) */
    bool exact; /* parameters are as config.json has them; false: they are f32 of a GGUF file */
    wf_rope_scaling scaling;
    double factor;
    double original;             /* context before scaling */
    double low, high;            /* llama3: low_freq_factor, high_freq_factor */
    double beta_fast, beta_slow; /* yarn */
    bool unrounded;        /* yarn: truncate is false, so the blended range has fractional ends */
    double magnitude;      /* yarn's attention factor; 0: 0.1 ln(factor) + 1 */
    const float *divisors; /* f32[R/2] that also divide the frequencies; NULL: all 1 */
} wf_rotary;

/* inv_freq: f32[R/2]. Computed in double precision and rounded once. */
void wf_rope_frequencies(const wf_rotary *rope, float *inv_freq);
/* Multiplies the rotated part of q and k. */
double wf_rope_magnitude(const wf_rotary *rope);
/* YaRN's magnitude for a scale: 0.1 mscale ln(scale) + 1, or 1 for scales up to 1. */
double wf_rope_yarn_magnitude(double scale, double mscale);

/* Finds parameters of a llama3 scaling with these divisors (rope_freqs.weight of a GGUF file). Several sets
 * of parameters give the same divisors; the usual one is preferred. Returns false when no set does. */
bool wf_rope_find_llama3(wf_rotary *rope, const float *divisors);
/* The divisors of a llama3 scaling: f32[R/2]. */
void wf_rope_llama3_divisors(const wf_rotary *rope, float *divisors);

#endif
