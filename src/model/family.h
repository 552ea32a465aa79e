/* SPDX-License-Identifier: MIT */
/*
 * family.h - a model family: one table row, one function that builds a block, one table of names.
 *
 * Inside Weft a weight has its GGUF name without the suffix (".weight", ".bias"): "blk.3.attn_q".
 * The table lists the Hugging Face name next to it. docs/models.md explains how to add a family.
 */
#ifndef WF_MODEL_FAMILY_H
#define WF_MODEL_FAMILY_H

#include "model/build.h"

#define WF_NAME_TRANSPOSED 1u /* Hugging Face stores [in, out] */
#define WF_NAME_ROTATED \
    2u /* rope rotates pairs of these rows; GGUF orders them differently (rows.h) */

typedef struct {
    const char *name;         /* "blk.%d.attn_q": %d is the layer */
    const char *hugging_face; /* "layers.%d.self_attn.q_proj", after the family's prefix */
    uint32_t flags;
} wf_weight_name;

struct wf_family {
    const char *name;     /* general.architecture of GGUF files */
    const char *title;    /* for display */
    const char *types[6]; /* model_type values in config.json, NULL-terminated */
    const char *class;    /* architectures[0] of a config.json that Weft writes */
    const char *prefix;   /* "model.": of all Hugging Face names but the head; optional in files */
    /* Substrings of names of tensors that are not weights, NULL-terminated. */
    const char *const *ignored;
    const wf_weight_name *weights; /* the last has no name */

    bool layer_norm;  /* layer norm with biases; else RMS norm without */
    bool rotary;      /* else learned positions */
    bool interleaved; /* GGUF files of the family order q and k for interleaved rope pairs */
    bool fused_qkv;   /* one matrix for queries, keys and values */
    bool head_norm;   /* queries and keys are normalized per head */
    bool qkv_bias;    /* always; else the config decides */
    bool tied;        /* default, if the config is silent */
    int64_t head_dim; /* default; 0: width / heads */
    double eps;       /* default */

    wf_value *(*block)(wf_builder *b, wf_value *x); /* x [N, C] -> [N, C] */
};

/* The supported families, NULL-terminated. */
extern const wf_family *const wf_families[];
extern const wf_family wf_family_gpt2, wf_family_llama, wf_family_qwen2, wf_family_qwen3;

/* Find a family by its GGUF architecture or by its model_type. An unknown name fails with
 * WF_ERR_UNSUPPORTED and lists the families; `what` names the file. */
wf_status wf_family_find(wf_ctx *ctx, const char *what, const char *architecture,
                         const wf_family **out);
wf_status wf_family_find_type(wf_ctx *ctx, const char *what, const char *model_type,
                              const wf_family **out);

#define WF_NAME_BYTES 160
/* Writes the Hugging Face name of a weight ("blk.3.attn_q.weight") to out, with or without the
 * prefix. Returns its row in the table, or NULL if the family has no such weight. */
const wf_weight_name *wf_family_hugging_face(const wf_family *family, const char *name, bool prefix,
                                             char out[WF_NAME_BYTES]);

#endif
