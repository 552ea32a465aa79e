/* SPDX-License-Identifier: MIT */
/*
 * adapter.h - low-rank adapters (LoRA): small matrices beside the linears of a model, which stays as it is.
 *
 * A linear y = x W^T that an adapter has becomes y + scale * (x A^T) B^T, with states NAME.lora_a [r, in] and
 * NAME.lora_b [out, r] in f32, where NAME is that of the weight ("blk.3.attn_q") and scale is alpha / r. W may
 * be of any type, quantized ones included, and has no gradient.
 *
 * On the disk an adapter is a folder as PEFT writes it: adapter_config.json and adapter_model.safetensors, with
 * the names and the order of rows of Hugging Face's checkpoints. In memory rows have the order of the model that
 * runs, which differs where that is a GGUF file of a family with turned pairs (rows.h).
 */
#ifndef WF_MODEL_ADAPTER_H
#define WF_MODEL_ADAPTER_H

#include "model/build.h"

typedef struct wf_adapter wf_adapter;

typedef struct {
    int64_t rank;   /* default 16 */
    double alpha;   /* default: twice the rank */
    double dropout; /* of what A reads, while training; default: none */
    /* Linears, comma-separated: by the name of the weight (attn_q, ffn_down, blk.3.attn_q, output) or of the
     * Hugging Face module (q_proj, self_attn.q_proj), or "attention", "mlp", "all": those of all blocks, which
     * is the default. */
    const char *targets;
    bool rslora; /* scale is alpha / sqrt(r) */
} wf_adapter_options;

/* A new one. What the config points to must outlive it. Targets that are none are WF_ERR_USAGE, with the list
 * of those there are. */
wf_status wf_adapter_new(wf_ctx *ctx, const wf_config *config, const wf_adapter_options *options,
                         wf_adapter **out);
void wf_adapter_free(wf_adapter *a); /* NULL is fine */

/* For wf_build_options.adapt, with the adapter as user. */
wf_value *wf_adapter_apply(void *adapter, wf_builder *b, const char *name, wf_value *x,
                           wf_value *y);

/* Its states, A and B of one linear after the other; false past the last. */
bool wf_adapter_tensor(const wf_adapter *a, int index, wf_info *out);
/* The index of A of a weight, by its name ("blk.3.attn_q.weight"), B being the next; -1: it is not adapted. */
int wf_adapter_find(const wf_adapter *a, const char *weight);
/* What B A is multiplied by. */
double wf_adapter_scale(const wf_adapter *a);
/* What a state begins with: A uniform within 1 / sqrt(in), as in PEFT, B zeros, so that the model is at first
 * what it was. One seed gives the same numbers everywhere. */
void wf_adapter_init(const wf_adapter *a, uint64_t seed, int index, float *to);
/* The folder `folder`, which is made if need be: what PEFT loads onto the model `base_name` (a path, or a name on
 * a hub). `fetch` gives the numbers of a state, as wf_session_read does. Files appear when they are whole. */
typedef wf_status wf_adapter_fetch(void *user, const char *state, void *to, size_t bytes);
wf_status wf_adapter_save(const wf_adapter *a, wf_ctx *ctx, const char *folder,
                          const char *base_name, wf_adapter_fetch *fetch, void *user);

/* Reads such a folder, PEFT's own included, in f32, f16 or bf16. What does not belong to a model of this config,
 * is missing, or was made in ways that Weft does not compute (DoRA, biases, modules that were trained whole, ...) is
 * refused by its name. What the config points to must outlive the adapter. */
wf_status wf_adapter_open(wf_ctx *ctx, const char *folder, const wf_config *config,
                          wf_adapter **out);
/* The numbers of a state of an adapter that was opened. */
wf_status wf_adapter_read(const wf_adapter *a, int index, float *to);

/* Several adapters beside each other, as options name them; states of all but the first end in their number. */
typedef struct {
    wf_ctx *ctx;
    wf_adapter **adapter;
    int count;
} wf_adapters;
/* Freed by wf_adapters_close, after a failure as well. */
wf_status wf_adapters_open(wf_ctx *ctx, const wf_lora *lora, int count, const wf_config *config,
                           wf_adapters *out);
void wf_adapters_close(wf_adapters *s); /* a zeroed one is fine */
/* For wf_build_options.adapt, with the wf_adapters as user. */
wf_value *wf_adapters_apply(void *adapters, wf_builder *b, const char *name, wf_value *x,
                            wf_value *y);

/* Rank, alpha, dropout and scaling as they are; targets is NULL. */
void wf_adapter_get_options(const wf_adapter *a, wf_adapter_options *out);

#endif
