/* SPDX-License-Identifier: MIT */
/*
 * config.h - what distinguishes one model from another of its family: sizes, rotation, windows.
 *
 * A config comes from a GGUF file's keys, from a config.json, or from a table; whatever it comes from, it
 * has passed wf_config_check before anything is built from it.
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
    int64_t layers, vocab, context;
    int64_t width; /* C: of the residual stream */
    int64_t heads, kv_heads, head_dim;
    int64_t hidden; /* between the two halves of an MLP */
    double eps;     /* of the norms */
    bool tied;      /* the embedding is also the head */
    bool qkv_bias, out_bias, mlp_bias;
    double scale;            /* of q.k; 0: 1 / sqrt(head_dim) */
    bool scale_by_layer;     /* and divided by the layer's number, from 1 on */
    wf_rotary rope;          /* of rotary families */
    int64_t window;          /* tokens that attention looks back; 0: all */
    const uint8_t *windowed; /* [layers]: 1 where the window holds; NULL: everywhere */
} wf_config;

/* Sizes in range, heads that divide, numbers that are numbers. `what` names the file. */
wf_status wf_config_check(wf_ctx *ctx, const char *what, const wf_config *c);

/* The window of a layer, 0 for none. */
int64_t wf_config_window(const wf_config *c, int64_t layer);
/* The scale of q.k in a layer, 0 for 1 / sqrt(head_dim). */
double wf_config_scale(const wf_config *c, int64_t layer);

/* Arrays go into the arena. Both end with wf_config_check, but for vocab, which is 0 where the source does
 * not say it. */
wf_status wf_config_from_gguf(wf_arena *arena, const char *what, wf_gguf *f, wf_config *out);
wf_status wf_config_from_json(wf_arena *arena, const char *what, const wf_json_node *config,
                              wf_config *out);

#endif
