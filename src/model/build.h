/* SPDX-License-Identifier: MIT */
/*
 * build.h - builds a graph from a config: the frame that all families share, and the parts of
 * blocks.
 *
 * Inputs, for S sequences with N tokens in total:
 *
 *     tokens, positions  i32[N]         all sequences, one after the other
 *     seq_start          i32[S+1]       sequence s is rows seq_start[s] .. seq_start[s+1]
 *     rows               i32[R]         rows to compute logits for (if options.rows > 0)
 *     table, table.1 ... i32[S, pages]  the pages of each sequence, for every cache (cache.h)
 *     lengths            i32[S]         tokens per sequence, including these (WF_FORM_STEP)
 *     key                i32[3]         random key, as in wf_uniform (if options.random)
 *
 * The result is logits f32[R, V]. States are the weights; rope.inv_freq f32[rotated/2] (and
 * rope.1.inv_freq for a second kind of rotary positions) if options ask for it; and except in
 * WF_FORM_TRAIN kv.LAYER.k and kv.LAYER.v [pool, page, Hk, D], with the sizes of the layer's cache.
 * A layer that shares the keys of another has no such states.
 */
#ifndef WF_MODEL_BUILD_H
#define WF_MODEL_BUILD_H

#include "graph/graph.h"
#include "model/cache.h"

typedef enum {
    WF_FORM_TRAIN,   /* whole sequences, no cache */
    WF_FORM_PREFILL, /* whole sequences, which also fill the cache */
    WF_FORM_STEP     /* continues sequences; attention reads the cache */
} wf_build_form;

typedef struct wf_builder wf_builder;

typedef struct {
    wf_build_form form;
    int64_t tokens, sequences; /* N, S */
    /* Tokens of every whole sequence, at positions 0, 1, ...; 0: given by the inputs. */
    int64_t length;
    int64_t rows; /* rows with logits; 0: all tokens, and no input `rows` */
    /* Sizes of the model's caches, in the order of wf_config_caches; unused in WF_FORM_TRAIN. */
    wf_cache_size cache[WF_MOST_CACHES];
    wf_type kv; /* type of cached keys and values */
    /* rope.inv_freq is a state. Otherwise the graph computes it, for unscaled rope only. */
    bool given_frequencies;
    /* Returns the type of a matrix by its full name; NULL: f32. Vectors are always f32. */
    wf_type (*type)(void *user, const char *name);
    void *user;
    const char *prefix; /* of the names of all weight states; NULL: "" */
    double dropout;     /* on embeddings and on each branch's output; needs `random` */
    bool random;        /* the graph has the input `key` */
    /* Returns y = linear(x) plus an adapter's contribution, or y itself after looking at x; NULL:
     * no hook. `name` is the weight's full name without ".weight". Not called for a tied head. */
    wf_value *(*adapt)(void *user, wf_builder *b, const char *name, wf_value *x, wf_value *y);
    void *adapt_user;
} wf_build_options;

/* Keys and values that a layer's attention reads: [N, Hk, D], in WF_FORM_STEP the pools. */
typedef struct {
    wf_value *k, *v;
} wf_layer_keys;

struct wf_builder {
    wf_graph *g;
    const wf_config *config;
    const wf_build_options *options;
    int64_t layer;   /* of the block being built, from 0 */
    char prefix[32]; /* "blk.3." inside a block */
    wf_value *positions, *seq_start;
    wf_value *inv_freq[WF_MOST_ROPES]; /* config.ropes of them */
    wf_caches caches;
    wf_value *table[WF_MOST_CACHES]; /* of each cache; NULL in WF_FORM_TRAIN */
    wf_value *lengths;               /* WF_FORM_STEP only */
    wf_layer_keys *keys;             /* [layers], of the layers built so far */
    wf_value *q_factor;              /* f32[N, 1, 1], multiplies queries; NULL: 1 */
    wf_value *key;                   /* dropout key, i32[3]; NULL: no dropout */
    wf_value *extra_loss;            /* as in wf_model_values; blocks add to it */
};

/* Values of a model besides its logits. */
typedef struct {
    wf_value *hidden; /* f32[R, C]: input of the head, after the final norm */
    /* f32 scalar to add to the mean training loss per target, such as an expert balance loss; NULL
     * in families with dense MLPs only. */
    wf_value *extra_loss;
} wf_model_values;

/* Builds the graph of a model and returns its logits [R, V], or NULL if the graph has failed. The
 * caller declares the outputs. `values` may be NULL. */
wf_value *wf_model_graph(wf_graph *g, const wf_config *config, const wf_build_options *options,
                         wf_model_values *values);

/* Returns the layer of the block being built. */
const wf_layer *wf_builder_layer(const wf_builder *b);
/* Returns the name of the input with the page table of a cache. */
const char *wf_table_input(int cache);
/* Writes the name of a layer's page pool, number 0 or 1: kv.LAYER.k, kv.LAYER.v. */
#define WF_POOL_NAME 32 /* bytes */
void wf_pool_name(char to[WF_POOL_NAME], int64_t layer, int which);
/* Returns whether a state has this name because it is a page pool. */
bool wf_is_pool(const char *state);
/* Returns the name of the state with the frequencies of config.rope[which]. */
const char *wf_rope_state(int which);

/* ---- Parts of blocks. Names are the block's own: "attn_q" is blk.LAYER.attn_q.weight ---- */

/* x [N, K] -> [N, to] */
wf_value *wf_part_linear(wf_builder *b, wf_value *x, const char *name, int64_t to, bool bias);
/* Normalizes the last axis with the family's norm. */
wf_value *wf_part_norm(wf_builder *b, wf_value *x, const char *name);
/* [N, heads * D] -> [N, heads, D] for any D */
wf_value *wf_part_heads(wf_builder *b, wf_value *x, int64_t heads);
/* Rotates by the layer's rotary positions; a layer without them returns x. */
wf_value *wf_part_rope(wf_builder *b, wf_value *x);
/* q [N, H, D], k, v [N, Hk, D] -> [N, H * D]. Uses the cache if there is one. A layer that shares
 * the keys of another ignores k and v. */
wf_value *wf_part_attend(wf_builder *b, wf_value *q, wf_value *k, wf_value *v);
/* x [N, C] -> [N, C]: projections of q, k and v (attn_q, attn_k, attn_v, or fused as attn_qkv),
 * norms and rotary positions as the family has them, attention, attn_output. */
wf_value *wf_part_attention(wf_builder *b, wf_value *x);
/* x [N, C] -> [N, C]: SwiGLU of ffn_gate and ffn_up (or both as ffn_up, gate first), ffn_down. */
wf_value *wf_part_swiglu(wf_builder *b, wf_value *x);
/* Residual connection: x plus a branch's output y, after dropout and the config's
 * residual_scale. */
wf_value *wf_part_add(wf_builder *b, wf_value *x, wf_value *y);

/* A block with norms attn_norm and ffn_norm before attention and MLP. */
wf_value *wf_block_pre_norm(wf_builder *b, wf_value *x);

#endif
