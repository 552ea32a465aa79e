/* SPDX-License-Identifier: MIT */
/* phi3.c - Phi-3 and Phi-4: Llama with fused weights, longrope, and rope on a part of each head. */
#include "model/llama.h"

static const wf_weight_name weights[] = {
    {"token_embd", "embed_tokens", 0},
    {"blk.%d.attn_norm", "layers.%d.input_layernorm", 0},
    {"blk.%d.attn_qkv", "layers.%d.self_attn.qkv_proj", 0},
    {"blk.%d.attn_output", "layers.%d.self_attn.o_proj", 0},
    {"blk.%d.ffn_norm", "layers.%d.post_attention_layernorm", 0},
    {"blk.%d.ffn_up", "layers.%d.mlp.gate_up_proj", 0},
    {"blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {"output_norm", "norm", 0},
    {"output", "lm_head", 0},
    {0},
};

static const wf_key keys[] = {
    WF_DECODER_KEYS(4096, 0),
    WF_ODD_HEAD_KEYS(0),
    WF_JSON_VOCAB_KEYS(false),
    WF_RMS_KEY(1e-5),
    WF_ROPE_DIMS_KEY,
    WF_ROPE_KEYS(10000),
    WF_USED("partial_rotary_factor"),
    WF_USED("sliding_window"),
    WF_HARMLESS("resid_pdrop"),
    WF_HARMLESS("embd_pdrop"),
    {0},
};

static const wf_model_type types[] = {
    {.name = "phi3",
     .class = "Phi3ForCausalLM",
     .keys = keys,
     .windows = WF_WINDOWS_ALL,
     .partial = 1,
     .long_rope = true},
    {0},
};

const wf_family wf_family_phi3 = {
    .name = "phi3",
    .title = "Phi-3, Phi-3.5 mini, Phi-4",
    .types = types,
    .prefix = "model.",
    .ignored = wf_llama_ignored,
    .weights = weights,
    .rotary = true,
    .fused_attention = true,
    .fused_mlp = true,
    .eps = 1e-5,
    .block = wf_block_pre_norm,
};
