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
#include "model/key.h"

#define WF_NAME_TRANSPOSED 1u /* Hugging Face stores [in, out] */
#define WF_NAME_ROTATED \
    2u /* rope rotates pairs of these rows; GGUF orders them differently (rows.h) */
#define WF_NAME_ALTERNATE 4u /* rows alternate with those of the others in the same tensor */
#define WF_NAME_PLUS_ONE 8u  /* Hugging Face stores the weight minus 1 */

/*
 * Rows with the same Hugging Face name share one tensor: its rows are theirs, in the order of the
 * table. "%e" in a Hugging Face name is an expert: one tensor each, stacked in GGUF files. Such a
 * name is not shared, and its only possible flag is WF_NAME_TRANSPOSED.
 */
typedef struct {
    const char *name;         /* "blk.%d.attn_q": %d is the layer */
    const char *hugging_face; /* "layers.%d.self_attn.q_proj", after the family's prefix */
    uint32_t flags;
} wf_weight_name;

struct wf_family {
    const char *name;           /* general.architecture of GGUF files */
    const char *title;          /* for display */
    const wf_model_type *types; /* the last has no name */
    const char *wrapper;        /* model_type of multimodal models with this decoder; NULL: none */
    const char *prefix; /* "model.": of all Hugging Face names but the head; optional in files */
    /* Substrings of names of tensors that are not weights, NULL-terminated. */
    const char *const *ignored;
    const wf_weight_name *weights; /* the last has no name */

    bool layer_norm;      /* layer norm; else RMS norm */
    bool norm_bias;       /* norms have biases */
    bool rotary;          /* else learned positions */
    bool pairs;           /* Hugging Face orders q and k for interleaved rope pairs, as GGUF does */
    bool interleaved;     /* GGUF files of the family order q and k for interleaved rope pairs */
    bool fused_qkv;       /* one matrix for queries, keys and values of equal width (GPT-2) */
    bool fused_attention; /* attn_qkv has the rows of q, then k, then v */
    bool fused_mlp;       /* ffn_up has the rows of the gate, then of up */
    bool head_norm;       /* queries and keys are normalized per head */
    bool row_norm;        /* queries and keys are normalized over all heads */
    bool qkv_bias;        /* always; else the config decides */
    int64_t hidden_factor; /* default of the MLP's width, times the model's; 0: none */
    double eps;            /* default in GGUF files */
    int64_t nope_interval; /* every so many layers one has no rotary positions; 0: all have them */
    bool nope_unlimited;   /* layers without a window have no rotary positions */
    int64_t window_period; /* default: every so many layers one has no window; 0: all have it */
    double window_theta;   /* rope base of layers with a window; 0: that of the others */
    bool biases;           /* every linear has a bias */
    bool scales;           /* a key states the scale of attention */
    bool divides_logits;   /* by logit_scale; else they are multiplied by it */
    /* rope.scaling.finetuned = false in a GGUF file means that no layer has rotary positions; in
     * files of other families it has no effect. */
    bool finetuned_rope;

    wf_value *(*block)(wf_builder *b, wf_value *x); /* x [N, C] -> [N, C] */
};

/* The supported families (families.def), NULL-terminated. */
extern const wf_family *const wf_families[];
#define WF_FAMILY(name) extern const wf_family wf_family_##name;
#include "model/families.def"
#undef WF_FAMILY

/* Find a family by its GGUF architecture or by its model_type. An unknown name fails with
 * WF_ERR_UNSUPPORTED and lists the families; `what` names the file. */
wf_status wf_family_find(wf_ctx *ctx, const char *what, const char *architecture,
                         const wf_family **out);
wf_status wf_family_find_type(wf_ctx *ctx, const char *what, const char *model_type,
                              const wf_family **out, const wf_model_type **type);
/* Returns the family of multimodal models of this model_type, whose decoder is in text_config, or
 * NULL. */
const wf_family *wf_family_of_wrapper(const char *model_type);
/* Finds a model_type of one family. */
wf_status wf_family_find_inner(wf_ctx *ctx, const char *what, const wf_family *family,
                               const char *model_type, const wf_model_type **type);

#define WF_NAME_BYTES 160
/* Writes the Hugging Face name of a weight ("blk.3.attn_q.weight") to out, with or without the
 * prefix. Returns its row in the table, or NULL if the family has no such weight. */
const wf_weight_name *wf_family_hugging_face(const wf_family *family, const char *name, bool prefix,
                                             char out[WF_NAME_BYTES]);
/* The same for tensor `part` of a weight: that of an expert. NULL also if there is no such part. */
const wf_weight_name *wf_family_part_name(const wf_family *family, const char *name, bool prefix,
                                          int part, char out[WF_NAME_BYTES]);
/* Writes the name of the weight that row `other` has for the layer and suffix of the weight `name`,
 * whose row is `row`. */
void wf_family_sibling(const wf_weight_name *row, const wf_weight_name *other, const char *name,
                       char out[WF_NAME_BYTES]);
/* GGUF files may have attn_q, attn_k and attn_v in place of attn_qkv. Writes the name of tensor `part`
 * of those, and the rows that it must have. Returns false if there is no such part. */
bool wf_family_split(const wf_config *config, const char *name, int part, char out[WF_NAME_BYTES],
                     int64_t *rows);

#endif
