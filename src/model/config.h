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

typedef struct {
    const wf_family *family;
    int64_t layers, vocab, context;    /* vocab in tokens; context in positions */
    int64_t width;                     /* C, of the residual stream */
    int64_t heads, kv_heads, head_dim; /* query heads; key and value heads; D */
    int64_t hidden;                    /* inner width of the MLP */
    double eps;                        /* of the norms */
    bool tied;                         /* the embedding is also the head */
    bool qkv_bias, out_bias, mlp_bias; /* which linears of a block have biases */
    double scale;                      /* of q.k; 0: 1/sqrt(head_dim) */
    bool scale_by_layer;     /* scale is also divided by the layer's number, starting at 1 */
    wf_rotary rope;          /* rotary families only */
    int64_t window;          /* attention window in tokens; 0: unlimited */
    const uint8_t *windowed; /* [layers]: 1 if the window applies; NULL: to all layers */
} wf_config;

/* Checks ranges, divisibility and finiteness. `what` names the file in errors. */
wf_status wf_config_check(wf_ctx *ctx, const char *what, const wf_config *c);

/* Returns the window of a layer, 0 if unlimited. */
int64_t wf_config_window(const wf_config *c, int64_t layer);
/* Returns the scale of q.k in a layer, 0 for 1/sqrt(head_dim). */
double wf_config_scale(const wf_config *c, int64_t layer);

/* Read a config; the arena owns its arrays. Both call wf_config_check, except for vocab, which is 0
 * if the source omits it. */
wf_status wf_config_from_gguf(wf_arena *arena, const char *what, wf_gguf *f, wf_config *out);
wf_status wf_config_from_json(wf_arena *arena, const char *what, const wf_json_node *config,
                              wf_config *out);

#endif
