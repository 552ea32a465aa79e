/* SPDX-License-Identifier: MIT */
/*
 * example.h - graphs of models of well-known shapes, to plan and to measure with. Weights come from
 * nowhere: parameters are states, and begin as zeros.
 *
 * Inputs are those of build.h, for B sequences of T tokens, N = B * T (T is 1 in WF_EXAMPLE_DECODE); in
 * training also targets i32[N], what follows each token, and lr, step as wf_adamw takes them.
 *
 * Outputs: loss (the mean) in training, else logits [B, V]. Prefill and decode share the states of
 * the weights and the page pools.
 */
#ifndef WF_MODEL_EXAMPLE_H
#define WF_MODEL_EXAMPLE_H

#include "model/config.h"

typedef struct {
    const char *name, *doc;
    const wf_family *family;
    int64_t layers, vocab, context;
    int64_t width; /* C = heads * head_dim */
    int64_t heads, kv_heads, head_dim;
    int64_t hidden; /* between the two halves of an MLP */
    bool tied;      /* the embedding is also the head */
    int64_t batch;  /* unless the options say otherwise */
} wf_example;

/* All of them; the last has no name. */
extern const wf_example wf_examples[];
/* WF_ERR_USAGE, and the nearest name, when there is none of this name. */
wf_status wf_example_find(wf_ctx *ctx, const char *name, const wf_example **out);

/* Its config, of which the vocabulary is the example's, too. */
wf_config wf_example_config(const wf_example *e);

typedef enum {
    WF_EXAMPLE_TRAIN,   /* forward, loss, gradients clipped to a global norm of 1, AdamW */
    WF_EXAMPLE_PREFILL, /* fills the pages; logits of one token of each sequence */
    WF_EXAMPLE_DECODE   /* one token of each sequence, over the pages */
} wf_example_form;

typedef struct {
    wf_example_form form;
    int64_t batch;  /* 0: the example's own */
    int64_t length; /* tokens a sequence, in decode the most there can be; 0: the whole context */
    int64_t page;   /* tokens a page; 0: 16 */
    /* Training: called between the loss and its gradient. It may put another graph, and the loss
     * in it, in the place of these, and then frees the old one. All float states with at least one
     * axis are taken for parameters afterwards. NULL: nothing happens. */
    wf_status (*before_grad)(void *user, wf_graph **g, wf_value **loss);
    void *user;
} wf_example_options;

/* NULL options: all defaults. The graph is the caller's. */
wf_status wf_example_build(wf_ctx *ctx, const char *name, const wf_example_options *options,
                           wf_graph **out);

#endif
