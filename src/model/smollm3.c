/* SPDX-License-Identifier: MIT */
/* smollm3.c - SmolLM3: Llama whose every fourth layer has no rotary positions. */
#include "model/llama.h"

static const wf_key keys[] = {
    WF_DECODER_KEYS(32768, 4),
    WF_ODD_HEAD_KEYS(0),
    WF_VOCAB_KEYS(true),
    WF_RMS_KEY(1e-6),
    WF_ROPE_DIMS_KEY,
    WF_ROPE_KEYS(2000000),
    WF_ATTENTION_BIAS_KEYS,
    WF_BOOL("mlp_bias", mlp_bias, false),
    WF_USED("no_rope_layers"),
    WF_USED("no_rope_layer_interval"),
    WF_USED("use_sliding_window"),
    WF_USED("sliding_window"),
    {0},
};

static const wf_model_type types[] = {
    {.name = "smollm3", .class = "SmolLM3ForCausalLM", .keys = keys, .windows = WF_WINDOWS_NOPE},
    {0},
};

const wf_family wf_family_smollm3 = {
    .name = "smollm3",
    .title = "SmolLM3",
    .types = types,
    .prefix = "model.",
    .ignored = wf_llama_ignored,
    .weights = wf_llama_weights,
    .rotary = true,
    .interleaved = true,
    .eps = 1e-6,
    .nope_interval = 4,
    .block = wf_block_pre_norm,
};
