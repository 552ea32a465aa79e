/* SPDX-License-Identifier: MIT */
/*
 * family.h - model families: one table row, one function that builds a block, one table of names.
 *
 * Inside Weft a weight has the name that GGUF files give it, without the suffix (".weight", ".bias"):
 * "blk.3.attn_q". The names of checkpoints of other kinds stand beside it. docs/models.md shows how a
 * family is added.
 */
#ifndef WF_MODEL_FAMILY_H
#define WF_MODEL_FAMILY_H

#include "model/build.h"

#define WF_NAME_TRANSPOSED 1u /* Hugging Face stores it [K, N] */
#define WF_NAME_TURNED 2u /* rows belong to pairs that rope turns: their order differs (rope.h) */

typedef struct {
    const char *name;         /* "blk.%d.attn_q": %d is the layer */
    const char *hugging_face; /* "layers.%d.self_attn.q_proj", behind the family's prefix */
    uint32_t flags;
} wf_weight_name;

struct wf_family {
    const char *name;     /* general.architecture of GGUF files */
    const char *title;    /* for people */
    const char *types[6]; /* model_type of a config.json; NULL after the last */
    const char *class;    /* architectures[0] of a config.json that is written */
    const char *prefix; /* "model.": of all Hugging Face names but the head's; also found without */
    const char *const
        *ignored; /* parts of names of tensors that are no weights; NULL after the last */
    const wf_weight_name *weights; /* the last has no name */

    bool layer_norm;  /* with biases; else RMS norm, without */
    bool rotary;      /* else learned positions */
    bool turned;      /* GGUF files of the family have q and k ordered for interleaved pairs */
    bool joint;       /* queries, keys and values come from one matrix */
    bool head_norm;   /* queries and keys are normed, each head alone */
    bool qkv_bias;    /* always; else as the config says */
    bool tied;        /* unless the config says otherwise */
    int64_t head_dim; /* unless the config says so: width / heads when 0 */
    double eps;       /* unless the config says so */

    wf_value *(*block)(wf_builder *b, wf_value *x); /* x [N, C] -> [N, C] */
};

/* All that can be loaded; NULL after the last. */
extern const wf_family *const wf_families[];
extern const wf_family wf_family_gpt2, wf_family_llama, wf_family_qwen2, wf_family_qwen3;

/* WF_ERR_UNSUPPORTED, with the list of those there are, when there is none of this name. */
wf_status wf_family_find(wf_ctx *ctx, const char *what, const char *architecture,
                         const wf_family **out);
wf_status wf_family_find_type(wf_ctx *ctx, const char *what, const char *model_type,
                              const wf_family **out);

#define WF_NAME_BYTES 160
/* The Hugging Face name of a weight ("blk.3.attn_q.weight"), with the prefix or without; the row of the
 * table, or NULL when the family has no such weight. */
const wf_weight_name *wf_family_hugging_face(const wf_family *family, const char *name, bool prefix,
                                             char out[WF_NAME_BYTES]);

#endif
