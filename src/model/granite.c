/* SPDX-License-Identifier: MIT */
/*
 * granite.c - Granite 3 and 4 (dense): Llama with factors of embeddings, of attention scores and of
 * each branch, and logits that are divided by one.
 */
#include "model/llama.h"

static const wf_key keys[] = {
    WF_DECODER_KEYS(2048, 0),
    WF_ODD_HEAD_KEYS(0),
    WF_VOCAB_KEYS(false),
    WF_RMS_KEY(1e-6),
    WF_REAL("attention_multiplier", "attention.scale", scale, 1),
    WF_REAL("embedding_multiplier", "embedding_scale", embedding_scale, 1),
    WF_REAL("residual_multiplier", "residual_scale", residual_scale, 1),
    WF_REAL("logits_scaling", "logit_scale", logit_scale, 1),
    WF_ROPE_DIMS_KEY,
    WF_ROPE_KEYS(10000),
    WF_ATTENTION_BIAS_KEYS,
    WF_BOOL("mlp_bias", mlp_bias, false),
    {0},
};

static const wf_model_type types[] = {
    {.name = "granite", .class = "GraniteForCausalLM", .keys = keys},
    {0},
};

const wf_family wf_family_granite = {
    .name = "granite",
    .title = "Granite 3 and 4, dense",
    .types = types,
    .prefix = "model.",
    .ignored = wf_llama_ignored,
    .weights = wf_llama_weights,
    .rotary = true,
    .interleaved = true,
    .scales = true,
    .divides_logits = true,
    .finetuned_rope = true,
    .eps = 1e-6,
    .block = wf_block_pre_norm,
};
