/* SPDX-License-Identifier: MIT */
/*
 * mistral3.c - Ministral 3, and the decoder of Mistral 3: Llama whose queries grow with the logarithm
 * of the position. Multimodal checkpoints have the decoder's config in text_config.
 */
#include "model/llama.h"

static const wf_key ministral3_keys[] = {
    WF_DECODER_KEYS(262144, 8),
    WF_HEAD_KEYS(128),
    WF_VOCAB_KEYS(false),
    WF_RMS_KEY(1e-5),
    WF_REAL(NULL, "attention.temperature_scale", q_scale, WF_KEY_KEEP),
    WF_ROPE_DIMS_KEY,
    WF_ROPE_KEYS(10000),
    WF_USED("sliding_window"),
    {0},
};
static const wf_key mistral_keys[] = {WF_MISTRAL_KEYS, {0}};

static const wf_model_type types[] = {
    {.name = "ministral3",
     .class = "Ministral3ForCausalLM",
     .keys = ministral3_keys,
     .windows = WF_WINDOWS_ALL,
     .q_scale = true},
    {.name = "mistral", /* in text_config; alone it is a Llama */
     .class = "MistralForCausalLM",
     .keys = mistral_keys,
     .windows = WF_WINDOWS_ALL,
     .window = 4096},
    {0},
};

const wf_family wf_family_mistral3 = {
    .name = "mistral3",
    .title = "Ministral 3, Mistral Small 3.1 and 3.2",
    .types = types,
    .wrapper = "mistral3",
    .prefix = "model.",
    .ignored = wf_llama_ignored,
    .weights = wf_llama_weights,
    .rotary = true,
    .interleaved = true,
    .eps = 1e-5,
    .block = wf_block_pre_norm,
};
