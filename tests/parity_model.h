/* SPDX-License-Identifier: MIT */
/*
 * parity_model.h - GPT-2 and Llama, small, written with weft.h only.
 *
 * tests/fixtures/make_parity.py has the same models in PyTorch. Graphs built here have the inputs
 *
 *     tokens, targets, positions   i32[N]    all sequences, one after the other
 *     seq_start                    i32[S+1]  sequence s is rows seq_start[s] .. seq_start[s+1]
 *     inv_freq                     f32[D/2]  llama only: what RoPE multiplies positions with
 *
 * and one state per parameter, named as in the checkpoints of the model.
 */
#ifndef PARITY_MODEL_H
#define PARITY_MODEL_H

#include "weft.h"

typedef struct {
    const char *name; /* also that of its fixture */
    bool llama;       /* RMSNorm, RoPE, SwiGLU, no biases; else GPT-2 */
    bool tied;        /* the embedding is also the last layer */
    int64_t layers, vocab, context;
    int64_t width; /* C = heads * head_dim */
    int64_t heads, kv_heads, head_dim;
    int64_t hidden; /* between the two halves of an MLP */
    double norm_eps;
} pm_config;

#define PM_MODELS 3
extern const pm_config pm_configs[PM_MODELS];
extern const wf_adamw_options pm_adamw;

#define PM_MAX_PARAMS 640
#define PM_MAX_NAME 80

/* Values are borrowed from the graph; the rest outlives it. */
typedef struct {
    char name[PM_MAX_NAME];
    int rank;
    int64_t dims[2];
    wf_value *value;
    wf_value *grad; /* of the loss; NULL until pm_gradients */
} pm_param;

typedef struct {
    wf_value *logits;   /* f32[N, V] */
    wf_value *loss_sum; /* f32: over the targets that count */
    wf_value *count;    /* f32: how many count */
    wf_value *loss;     /* loss_sum / count */
    int param_count;
    pm_param param[PM_MAX_PARAMS];
} pm_model;

/* These functions only build: what goes wrong in them is reported by wf_compile. */

/* From the inputs to the loss, for N = tokens in S = sequences. */
void pm_forward(wf_graph *g, const pm_config *config, int64_t tokens, int64_t sequences,
                pm_model *out);
/* Appends the gradient of the loss with respect to every parameter. */
void pm_gradients(wf_graph *g, pm_model *model);
/* Appends an AdamW step of every parameter P, with moments in the states m.P and v.P, and the
 * inputs lr (f32) and step (i32, 1 at the first step). */
void pm_update(wf_graph *g, pm_model *model, const wf_adamw_options *options);

#endif
