/* SPDX-License-Identifier: MIT */
/*
 * olmo2.c - OLMo 2 and 3: norms after attention and after the MLP, before the residual; q and k are
 * normalized over all heads. In OLMo 3 three of four layers have a window and unscaled rope.
 */
#include "model/llama.h"

static wf_value *block(wf_builder *b, wf_value *x)
{
    x = wf_part_add(b, x, wf_part_norm(b, wf_part_attention(b, x), "post_attention_norm"));
    return wf_part_add(b, x, wf_part_norm(b, wf_part_swiglu(b, x), "post_ffw_norm"));
}

static const wf_weight_name weights[] = {
    {"token_embd", "embed_tokens", 0},
    {"blk.%d.attn_q", "layers.%d.self_attn.q_proj", 0},
    {"blk.%d.attn_k", "layers.%d.self_attn.k_proj", 0},
    {"blk.%d.attn_v", "layers.%d.self_attn.v_proj", 0},
    {"blk.%d.attn_q_norm", "layers.%d.self_attn.q_norm", 0},
    {"blk.%d.attn_k_norm", "layers.%d.self_attn.k_norm", 0},
    {"blk.%d.attn_output", "layers.%d.self_attn.o_proj", 0},
    {"blk.%d.post_attention_norm", "layers.%d.post_attention_layernorm", 0},
    {"blk.%d.ffn_gate", "layers.%d.mlp.gate_proj", 0},
    {"blk.%d.ffn_up", "layers.%d.mlp.up_proj", 0},
    {"blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {"blk.%d.post_ffw_norm", "layers.%d.post_feedforward_layernorm", 0},
    {"output_norm", "norm", 0},
    {"output", "lm_head", 0},
    {0},
};

#define KEYS(theta)                                                                             \
    WF_DECODER_KEYS(2048, 0), WF_ODD_HEAD_KEYS(0), WF_JSON_VOCAB_KEYS(false), WF_RMS_KEY(1e-5), \
        WF_ROPE_KEYS(theta), WF_ATTENTION_BIAS_KEYS

static const wf_key olmo2_keys[] = {KEYS(10000), {0}};
static const wf_key olmo3_keys[] = {KEYS(500000), WF_USED("sliding_window"), {0}};

static const wf_model_type types[] = {
    {.name = "olmo2", .class = "Olmo2ForCausalLM", .keys = olmo2_keys},
    {.name = "olmo3",
     .class = "Olmo3ForCausalLM",
     .keys = olmo3_keys,
     .windows = WF_WINDOWS_LISTED,
     .window = 4096,
     .rope_parts = true},
    {0},
};

const wf_family wf_family_olmo2 = {
    .name = "olmo2",
    .title = "OLMo 2 and 3",
    .types = types,
    .prefix = "model.",
    .ignored = wf_llama_ignored,
    .weights = weights,
    .rotary = true,
    .row_norm = true,
    .eps = 1e-5,
    .window_period = 4,
    .window_theta = 500000,
    .block = block,
};
