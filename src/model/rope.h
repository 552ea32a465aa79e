/* SPDX-License-Identifier: MIT */
/* rope.h - rotary positions: inverse frequencies and magnitude from the parameters of a config. */
#ifndef WF_MODEL_ROPE_H
#define WF_MODEL_ROPE_H

#include "base/ctx.h"

typedef enum {
    WF_ROPE_PLAIN,
    WF_ROPE_LINEAR,  /* positions divided by factor */
    WF_ROPE_DYNAMIC, /* applies beyond the context, which Weft never exceeds: same as plain */
    WF_ROPE_LLAMA3,  /* divides low frequencies by factor, keeps high ones, blends between */
    WF_ROPE_YARN,    /* like llama3 with another rule, plus a magnitude */
    WF_ROPE_LONG     /* two lists of divisors, for short and for long contexts, plus a magnitude */
} wf_rope_scaling;

typedef struct {
    double base;      /* theta; 0: no rotary positions */
    int64_t dims;     /* R: rotated dimensions per head, even */
    bool interleaved; /* pairs are (2i, 2i + 1), as in Llama's GGUF files; else (i, i + R/2) */
    bool exact;       /* parameters are config.json's; false: f32 values from a GGUF file */
    wf_rope_scaling scaling;
    double factor;
    double original;             /* context before scaling */
    double low, high;            /* llama3: low_freq_factor, high_freq_factor */
    double beta_fast, beta_slow; /* yarn */
    double log_multiplier; /* yarn: mscale_all_dim, if the magnitude follows from it; 0: unknown */
    bool unrounded;        /* yarn: truncate = false, the blended range has fractional bounds */
    double magnitude;      /* attention factor; 0: yarn's or longrope's default */
    const float *divisors; /* f32[R/2], also divide the frequencies; NULL: all 1 */
    const float *short_divisors, *long_divisors; /* longrope: f32[R/2] */
} wf_rotary;

/* Tensors of GGUF files with longrope's divisors. */
#define WF_TENSOR_SHORT "rope_factors_short.weight"
#define WF_TENSOR_LONG "rope_factors_long.weight"

#define WF_ROPE_TEXT 65536 /* most bytes of weft.rope_parameters in GGUF files */

/* Computes inv_freq f32[R/2] in double and rounds once. longrope: `context` positions are possible;
 * a context beyond the original one takes the long divisors for every position. */
void wf_rope_frequencies(const wf_rotary *rope, int64_t context, float *inv_freq);
/* Returns the factor for the rotated part of q and k. */
double wf_rope_magnitude(const wf_rotary *rope);
/* Returns YaRN's magnitude: 0.1 mscale ln(scale) + 1, or 1 if scale <= 1. */
double wf_rope_yarn_magnitude(double scale, double mscale);

/* Finds llama3 parameters that reproduce these divisors (rope_freqs.weight of a GGUF file), and
 * prefers Llama 3's own. Returns false if no parameters do. */
bool wf_rope_find_llama3(wf_rotary *rope, const float *divisors);
/* Computes the divisors f32[R/2] of a llama3 scaling. */
void wf_rope_llama3_divisors(const wf_rotary *rope, float *divisors);

#endif
