/* SPDX-License-Identifier: MIT */
/*
 * build.h - from a config to a graph: the trunk that all families share, and the parts blocks are made of.
 *
 * Inputs, for S sequences with N tokens in all:
 *
 *     tokens, positions  i32[N]         all sequences, one after the other
 *     seq_start          i32[S+1]       sequence s is rows seq_start[s] .. seq_start[s+1]
 *     rows               i32[R]         rows whose logits are wanted (where asked for)
 *     table              i32[S, pages]  the pages of each sequence (with a cache)
 *     lengths            i32[S]         tokens of each sequence so far, these included (WF_FORM_STEP)
 *     key                i32[3]         of random numbers (where asked for)
 *
 * The result is logits f32[R, V]. States are the weights, rope.inv_freq where positions are rotary and the
 * options ask for it, and with a cache kv.LAYER.k and .v [pool, page, Hk, D].
 */
#ifndef WF_MODEL_BUILD_H
#define WF_MODEL_BUILD_H

#include "graph/graph.h"
#include "model/config.h"

typedef enum {
    WF_FORM_TRAIN,   /* whole sequences, no cache */
    WF_FORM_PREFILL, /* whole sequences, which also fill the cache */
    WF_FORM_STEP     /* tokens that continue sequences: attention reads the cache */
} wf_build_form;

typedef struct wf_builder wf_builder;

typedef struct {
    wf_build_form form;
    int64_t tokens, sequences;
    int64_t length; /* whole sequences: tokens of each, at positions 0, 1, ...; 0: as inputs say */
    int64_t rows;   /* whose logits are wanted; 0: of all tokens, and no input `rows` */
    int64_t page;   /* tokens a page */
    int64_t pages;  /* most of a sequence */
    int64_t pool;   /* pages there are */
    wf_type kv;     /* of keys and values in the cache */
    bool given_frequencies; /* rope.inv_freq is a state; else they are computed, without scaling */
    /* The type of a matrix, by its full name; NULL: f32. Vectors are always f32. */
    wf_type (*type)(void *user, const char *name);
    void *user;
    const char *prefix; /* of the names of all weights' states; NULL: none */
    double dropout;     /* of embeddings and of what every branch adds; needs the input `key` */
    bool random;        /* there is an input key i32[3], as wf_uniform takes it */
    /* Adds to y = linear(x) of a weight, by its full name without ".weight"; NULL: nothing does. A head that
     * is the embedding is left out. */
    wf_value *(*adapt)(void *user, wf_builder *b, const char *name, wf_value *x, wf_value *y);
    void *adapt_user;
} wf_build_options;

struct wf_builder {
    wf_graph *g;
    const wf_config *config;
    const wf_build_options *options;
    int64_t layer;
    char prefix[32]; /* "blk.3." inside a block */
    wf_value *positions, *seq_start;
    wf_value *inv_freq;        /* rotary families, else NULL */
    wf_value *table, *lengths; /* NULL where there are none */
    wf_value *key;             /* of dropout, i32[3]; NULL: nothing is dropped */
};

/* The graph of a model without its outputs: logits [R, V]. NULL when the graph failed. */
wf_value *wf_model_graph(wf_graph *g, const wf_config *config, const wf_build_options *options);

/* ---- Parts of blocks. Names are the block's own: "attn_q" is blk.LAYER.attn_q.weight ---- */

/* x [N, K] -> [N, to] */
wf_value *wf_part_linear(wf_builder *b, wf_value *x, const char *name, int64_t to, bool bias);
/* Of the last axis, of the family's kind. */
wf_value *wf_part_norm(wf_builder *b, wf_value *x, const char *name);
/* [N, heads * D] -> [N, heads, D] */
wf_value *wf_part_heads(wf_builder *b, wf_value *x, int64_t heads);
wf_value *wf_part_rope(wf_builder *b, wf_value *x);
/* q [N, H, D], k, v [N, Hk, D] -> [N, H * D]: through the cache where there is one. */
wf_value *wf_part_attend(wf_builder *b, wf_value *q, wf_value *k, wf_value *v);
/* x [N, C] -> [N, C]: SwiGLU of ffn_gate, ffn_up, ffn_down. */
wf_value *wf_part_swiglu(wf_builder *b, wf_value *x);
/* x and what a branch adds to it. */
wf_value *wf_part_add(wf_builder *b, wf_value *x, wf_value *y);

#endif
