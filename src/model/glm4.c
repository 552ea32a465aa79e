/* SPDX-License-Identifier: MIT */
/*
 * glm4.c - GLM-4 (0414): norms before and after attention and MLP, a fused MLP, and interleaved rope on
 * half of each head. Hugging Face's post_attention_layernorm is the norm before the MLP.
 */
#include "model/llama.h"

static wf_value *block(wf_builder *b, wf_value *x)
{
    wf_value *y = wf_part_attention(b, wf_part_norm(b, x, "attn_norm"));
    x = wf_part_add(b, x, wf_part_norm(b, y, "post_attention_norm"));
    y = wf_part_swiglu(b, wf_part_norm(b, x, "ffn_norm"));
    return wf_part_add(b, x, wf_part_norm(b, y, "post_ffw_norm"));
}

static const wf_weight_name weights[] = {
    {"token_embd", "embed_tokens", 0},
    {"blk.%d.attn_norm", "layers.%d.input_layernorm", 0},
    {"blk.%d.attn_q", "layers.%d.self_attn.q_proj", 0},
    {"blk.%d.attn_k", "layers.%d.self_attn.k_proj", 0},
    {"blk.%d.attn_v", "layers.%d.self_attn.v_proj", 0},
    {"blk.%d.attn_output", "layers.%d.self_attn.o_proj", 0},
    {"blk.%d.post_attention_norm", "layers.%d.post_self_attn_layernorm", 0},
    {"blk.%d.ffn_norm", "layers.%d.post_attention_layernorm", 0},
    {"blk.%d.ffn_up", "layers.%d.mlp.gate_up_proj", 0},
    {"blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {"blk.%d.post_ffw_norm", "layers.%d.post_mlp_layernorm", 0},
    {"output_norm", "norm", 0},
    {"output", "lm_head", 0},
    {0},
};

static const wf_key keys[] = {
    WF_DECODER_KEYS(131072, 2),
    WF_HEAD_KEYS(128),
    WF_JSON_VOCAB_KEYS(false),
    WF_RMS_KEY(1.5625e-7),
    WF_ROPE_DIMS_KEY,
    WF_ROPE_KEYS(10000),
    WF_USED("partial_rotary_factor"),
    WF_BOOL("attention_bias", qkv_bias, true),
    {0},
};

static const wf_model_type types[] = {
    {.name = "glm4", .class = "Glm4ForCausalLM", .keys = keys, .partial = 0.5},
    {0},
};

const wf_family wf_family_glm4 = {
    .name = "glm4",
    .title = "GLM-4 and GLM-Z1, 0414",
    .types = types,
    .prefix = "model.",
    .ignored = wf_llama_ignored,
    .weights = weights,
    .rotary = true,
    .pairs = true,
    .fused_mlp = true,
    .eps = 1.5625e-7,
    .block = block,
};
