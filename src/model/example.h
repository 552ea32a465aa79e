/* SPDX-License-Identifier: MIT */
/*
 * example.h - graphs of models with known shapes, for planning and benchmarks. No weights are
 * loaded: the parameters are states, which start as zeros.
 *
 * Inputs are those of build.h for B sequences of T tokens, N = B * T (T is 1 in WF_EXAMPLE_DECODE).
 * Training adds targets i32[N], the next tokens, and lr and step as in wf_adamw.
 *
 * Outputs: the mean loss in training, else logits [B, V]. Prefill and decode share the states of
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
    int64_t hidden; /* inner width of the MLP */
    bool tied;      /* the embedding is also the head */
    int64_t batch;  /* default batch size */
} wf_example;

/* All of them; the last has no name. */
extern const wf_example wf_examples[];
/* Fails with WF_ERR_USAGE for an unknown name, and suggests the nearest. */
wf_status wf_example_find(wf_ctx *ctx, const char *name, const wf_example **out);

/* Returns the example's config, including its vocabulary size. */
wf_config wf_example_config(const wf_example *e);

typedef enum {
    WF_EXAMPLE_TRAIN,   /* forward, loss, gradients clipped to a global norm of 1, AdamW */
    WF_EXAMPLE_PREFILL, /* fills the pages; logits of the last token of each sequence */
    WF_EXAMPLE_DECODE   /* one token of each sequence; attention reads the pages */
} wf_example_form;

typedef struct {
    wf_example_form form;
    int64_t batch;  /* 0: the example's */
    int64_t length; /* tokens per sequence; in decode the most so far; 0: the whole context */
    int64_t page;   /* tokens per page; 0: 16 */
    /* Training: called between the loss and its gradient; may be NULL. It may replace the graph and
     * the loss, and must then free the old graph. Afterwards all float states with at least one
     * axis are the parameters. */
    wf_status (*before_grad)(void *user, wf_graph **g, wf_value **loss);
    void *user;
} wf_example_options;

/* `options` may be NULL. The caller frees the graph. */
wf_status wf_example_build(wf_ctx *ctx, const char *name, const wf_example_options *options,
                           wf_graph **out);

#endif
