/* SPDX-License-Identifier: MIT */
/*
 * config.h - the parameters of a model within its family: sizes, rotary positions, windows.
 *
 * A config comes from the keys of a GGUF file, a config.json or a table. wf_config_check has
 * accepted it before anything is built from it.
 */
#ifndef WF_MODEL_CONFIG_H
#define WF_MODEL_CONFIG_H

#include "base/arena.h"
#include "base/json_tree.h"
#include "format/gguf.h"
#include "model/rope.h"

typedef struct wf_family wf_family;
typedef struct wf_model_type wf_model_type;

typedef enum { WF_MIXER_ATTENTION } wf_mixer;

typedef enum { WF_MLP_DENSE } wf_mlp;

#define WF_NO_ROPE (-1)
#define WF_MOST_ROPES 2 /* rotary positions with different frequencies in one model */

typedef struct {
    wf_mixer mixer;
    wf_mlp mlp;
    int64_t heads, kv_heads;    /* query heads; key and value heads */
    int64_t key_dim, value_dim; /* of a head: D of q and k, Dv of v */
    int64_t hidden;             /* inner width of the MLP */
    int64_t window;             /* attention window in tokens; 0: unlimited */
    int rope;                   /* index of config.rope, or WF_NO_ROPE */
    /* The layer attends to the keys and values of the layer this far before it; 0: its own. */
    int64_t shares;
} wf_layer;

typedef struct {
    const wf_family *family;
    const wf_model_type *type;         /* the family's first one, if the source does not state it */
    bool wrapped;                      /* the decoder of a multimodal config.json */
    int64_t layers, vocab, context;    /* vocab in tokens; context in positions */
    int64_t width;                     /* C, of the residual stream */
    wf_layer all;                      /* every layer, unless `layer` is set */
    const wf_layer *layer;             /* [layers]; NULL: all layers are `all` */
    double eps;                        /* of the norms */
    bool tied;                         /* the embedding is also the head */
    bool qkv_bias, out_bias, mlp_bias; /* which linears of a block have biases */
    double scale;                      /* of q.k; 0: 1/sqrt(key_dim) */
    bool scale_by_layer; /* scale is also divided by the layer's number, starting at 1 */
    /* Factors of embeddings, of each branch and of logits (some families divide); 0: 1. */
    double embedding_scale, residual_scale, logit_scale;
    /* Queries are multiplied by 1 + q_scale ln(1 + floor(position / q_length)); 0: they are not. */
    double q_scale, q_length;
    wf_rotary rope[WF_MOST_ROPES]; /* rotary families only */
    int ropes;
} wf_config;

/* Checks ranges, divisibility and finiteness. `what` names the file in errors. */
wf_status wf_config_check(wf_ctx *ctx, const char *what, const wf_config *c);

/* Returns layer i, from 0. */
const wf_layer *wf_config_layer(const wf_config *c, int64_t i);
/* Makes the layers differ: returns c->layer as an array of copies of c->all that the caller may
 * change, or NULL without memory. */
wf_layer *wf_config_split_layers(wf_arena *arena, wf_config *c);
/* Sets the rotary positions of each layer by the rules of the family, after the windows. */
void wf_config_set_ropes(const wf_config *c, wf_layer *layer);
/* Replaces an array of equal layers by c->all. */
void wf_config_join_layers(wf_config *c);
/* Returns whether heads and MLPs of both layers have equal sizes. */
bool wf_layer_same_sizes(const wf_layer *a, const wf_layer *b);
/* Returns the largest window, 0 if no layer has one. */
int64_t wf_config_window(const wf_config *c);
/* Returns the scale of q.k in a layer, 0 for 1/sqrt(key_dim). */
double wf_config_scale(const wf_config *c, int64_t layer);

/* Read a config; the arena owns its arrays. Both call wf_config_check, except for vocab, which is 0
 * if the source omits it. */
wf_status wf_config_from_gguf(wf_arena *arena, const char *what, wf_gguf *f, wf_config *out);
wf_status wf_config_from_json(wf_arena *arena, const char *what, const wf_json_node *config,
                              wf_config *out);

#endif
