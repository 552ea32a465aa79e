/* SPDX-License-Identifier: MIT */
/*
 * parity_model.h - small GPT-2 and Llama models, built with the public API of weft.h only.
 *
 * tests/fixtures/make_parity.py has the same models in PyTorch. The graphs have these inputs:
 *
 *     tokens, targets, positions   i32[N]    all sequences, concatenated
 *     seq_start                    i32[S+1]  sequence s is rows seq_start[s] .. seq_start[s+1]
 *     inv_freq                     f32[D/2]  llama only: inverse frequencies of RoPE
 *
 * and one state per parameter, with the parameter's name in the model's checkpoints.
 */
#ifndef PARITY_MODEL_H
#define PARITY_MODEL_H

#include "weft.h"

typedef struct {
    const char *name; /* also the name of its fixture */
    bool llama;       /* true: RMSNorm, RoPE, SwiGLU, no biases; false: GPT-2 */
    bool tied;        /* the output layer shares the embedding's weights */
    int64_t layers, vocab, context;
    int64_t width; /* C = heads * head_dim */
    int64_t heads, kv_heads, head_dim;
    int64_t hidden; /* width of the MLP's hidden layer */
    double norm_eps;
} pm_config;

#define PM_MODELS 3
extern const pm_config pm_configs[PM_MODELS];
extern const wf_adamw_options pm_adamw;

#define PM_MAX_PARAMS 640
#define PM_MAX_NAME 80

/* The graph owns the values; the other fields stay valid after it is freed. */
typedef struct {
    char name[PM_MAX_NAME];
    int rank;
    int64_t dims[2];
    wf_value *value;
    wf_value *grad; /* gradient of the loss; NULL before pm_gradients */
} pm_param;

typedef struct {
    wf_value *logits;   /* f32[N, V] */
    wf_value *loss_sum; /* f32: sum over the targets that are not ignored */
    wf_value *count;    /* f32: number of these targets */
    wf_value *loss;     /* loss_sum / count */
    int param_count;
    pm_param param[PM_MAX_PARAMS];
} pm_model;

/* These functions only build the graph. wf_compile reports their errors. */

/* Builds the graph from the inputs to the loss, for N = tokens in S = sequences. */
void pm_forward(wf_graph *g, const pm_config *config, int64_t tokens, int64_t sequences,
                pm_model *out);
/* Appends the gradient of the loss with respect to every parameter. */
void pm_gradients(wf_graph *g, pm_model *model);
/* Appends an AdamW step for every parameter P. The moments are the states m.P and v.P. Adds the
 * inputs lr (f32) and step (i32, 1 at the first step). */
void pm_update(wf_graph *g, pm_model *model, const wf_adamw_options *options);

#endif
