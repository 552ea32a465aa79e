/* SPDX-License-Identifier: MIT */
/*
 * adapter.h - low-rank adapters (LoRA): small trained matrices beside the frozen linears of a
 * model.
 *
 * An adapted linear y = x W^T becomes y + scale * (x A^T) B^T. The states are NAME.lora_a [r, in]
 * and NAME.lora_b [out, r], f32, where NAME is the weight's ("blk.3.attn_q"). scale is alpha / r. W
 * may have any type, including quantized ones, and gets no gradient.
 *
 * On disk an adapter is a PEFT folder: adapter_config.json and adapter_model.safetensors, with the
 * names and the row order of Hugging Face checkpoints. In memory the rows have the order of the
 * loaded model, which differs for GGUF files of families with interleaved rope pairs (rows.h).
 */
#ifndef WF_MODEL_ADAPTER_H
#define WF_MODEL_ADAPTER_H

#include "model/build.h"

typedef struct wf_adapter wf_adapter;

typedef struct {
    int64_t rank;   /* default 16 */
    double alpha;   /* default: twice the rank */
    double dropout; /* of A's input, while training; default 0 */
    /* Linears, comma-separated: names of weights (attn_q, ffn_down, blk.3.attn_q, output) or of
     * Hugging Face modules (q_proj, self_attn.q_proj), or the words "attention", "mlp" and "all"
     * (default), which select linears of all blocks. */
    const char *targets;
    bool rslora; /* scale is alpha / sqrt(r) */
} wf_adapter_options;

/* Creates an adapter. Arrays in the config must outlive it. An unknown target fails with
 * WF_ERR_USAGE and the list of linears. */
wf_status wf_adapter_new(wf_ctx *ctx, const wf_config *config, const wf_adapter_options *options,
                         wf_adapter **out);
void wf_adapter_free(wf_adapter *a); /* accepts NULL */

/* Adds an adapter's contribution to y. Set it as wf_build_options.adapt, with the adapter as
 * user. */
wf_value *wf_adapter_apply(void *adapter, wf_builder *b, const char *name, wf_value *x,
                           wf_value *y);

/* Enumerates the states: A and B of the first linear, then of the second, and so on. Returns false
 * past the last index. */
bool wf_adapter_tensor(const wf_adapter *a, int index, wf_info *out);
/* Returns the index of A for a weight's name ("blk.3.attn_q.weight"); B follows. Returns -1 if the
 * weight is not adapted. */
int wf_adapter_find(const wf_adapter *a, const char *weight);
/* Returns the factor of B A. */
double wf_adapter_scale(const wf_adapter *a);
/* Fills in a state's initial values: A is uniform in +-1/sqrt(in), as in PEFT; B is 0, so the
 * adapter starts without effect. A seed produces the same values on every machine. */
void wf_adapter_init(const wf_adapter *a, uint64_t seed, int index, float *to);
/* Writes a PEFT folder, which is created if necessary, for the base model `base_name` (a path or a
 * hub name). `fetch` returns a state's elements, like wf_session_read. Each file appears when it is
 * complete. */
typedef wf_status wf_adapter_fetch(void *user, const char *state, void *to, size_t bytes);
wf_status wf_adapter_save(const wf_adapter *a, wf_ctx *ctx, const char *folder,
                          const char *base_name, wf_adapter_fetch *fetch, void *user);

/* Opens a PEFT folder with f32, f16 or bf16 tensors. Fails if a tensor does not fit the config or
 * is missing, and for PEFT features that Weft does not compute (DoRA, biases, modules_to_save,
 * ...). Arrays in the config must outlive the adapter. */
wf_status wf_adapter_open(wf_ctx *ctx, const char *folder, const wf_config *config,
                          wf_adapter **out);
/* Reads one state of an opened adapter as f32, in the row order of the model. */
wf_status wf_adapter_read(const wf_adapter *a, int index, float *to);

/* Several adapters applied to one model. Names of states end in ".N", except those of the first
 * adapter. */
typedef struct {
    wf_ctx *ctx;
    wf_adapter **adapter;
    int count;
} wf_adapters;
/* The caller frees *out with wf_adapters_close, also after a failure. */
wf_status wf_adapters_open(wf_ctx *ctx, const wf_lora *lora, int count, const wf_config *config,
                           wf_adapters *out);
void wf_adapters_close(wf_adapters *s); /* accepts a zeroed struct */
/* Applies all adapters in order. Set it as wf_build_options.adapt, with the wf_adapters as user. */
wf_value *wf_adapters_apply(void *adapters, wf_builder *b, const char *name, wf_value *x,
                            wf_value *y);

/* Returns rank, alpha, dropout and rslora; targets is NULL. */
void wf_adapter_get_options(const wf_adapter *a, wf_adapter_options *out);

#endif
