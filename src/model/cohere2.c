/* SPDX-License-Identifier: MIT */
/*
 * cohere2.c - Command R7B and Command A: one layer norm without bias, whose result goes through
 * attention and MLP in parallel, and scaled logits. Three of four layers have a window and interleaved
 * rope; the others see the whole context and have no positions.
 */
#include "model/llama.h"

static wf_value *block(wf_builder *b, wf_value *x)
{
    wf_value *n = wf_part_norm(b, x, "attn_norm");
    x = wf_part_add(b, x, wf_part_attention(b, n));
    return wf_part_add(b, x, wf_part_swiglu(b, n));
}

static const wf_weight_name weights[] = {
    {"token_embd", "embed_tokens", 0},
    {"blk.%d.attn_norm", "layers.%d.input_layernorm", 0},
    {"blk.%d.attn_q", "layers.%d.self_attn.q_proj", 0},
    {"blk.%d.attn_k", "layers.%d.self_attn.k_proj", 0},
    {"blk.%d.attn_v", "layers.%d.self_attn.v_proj", 0},
    {"blk.%d.attn_output", "layers.%d.self_attn.o_proj", 0},
    {"blk.%d.ffn_gate", "layers.%d.mlp.gate_proj", 0},
    {"blk.%d.ffn_up", "layers.%d.mlp.up_proj", 0},
    {"blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {"output_norm", "norm", 0},
    {"output", "lm_head", 0},
    {0},
};

static const wf_key keys[] = {
    WF_DECODER_KEYS(8192, 0),
    WF_HEAD_KEYS(0),
    WF_VOCAB_KEYS(true),
    WF_REAL("layer_norm_eps", "attention.layer_norm_epsilon", eps, 1e-5),
    WF_REAL("logit_scale", "logit_scale", logit_scale, 0.0625),
    WF_ROPE_DIMS_KEY,
    WF_ROPE_KEYS(10000),
    WF_ATTENTION_BIAS_KEYS,
    WF_USED("sliding_window"),
    WF_USED("sliding_window_pattern"),
    /* Facts about the architecture that transformers does not read. */
    WF_RULE_OF("rotary_pct", ONE, "whole heads must be rotated"),
    WF_RULE_OF("use_qk_norm", FALSE, "Cohere 2 has no norms of q and k"),
    WF_RULE_OF("use_parallel_block", TRUE, "the block of Cohere 2 is parallel"),
    WF_RULE_OF("use_gated_activation", TRUE, "the MLP of Cohere 2 is gated"),
    WF_HARMLESS("use_embedding_sharing"),
    WF_HARMLESS("position_embedding_type"),
    WF_HARMLESS("order_of_interleaved_layers"),
    WF_HARMLESS("layer_switch"),
    WF_HARMLESS("cache_implementation"),
    {0},
};

static const wf_model_type types[] = {
    {.name = "cohere2",
     .class = "Cohere2ForCausalLM",
     .keys = keys,
     .windows = WF_WINDOWS_LISTED,
     .window = 4096},
    {0},
};

const wf_family wf_family_cohere2 = {
    .name = "cohere2",
    .title = "Command R7B, Command A",
    .types = types,
    .prefix = "model.",
    .ignored = wf_llama_ignored,
    .weights = weights,
    .layer_norm = true,
    .rotary = true,
    .pairs = true,
    .eps = 1e-5,
    .window_period = 4,
    .nope_unlimited = true,
    .block = block,
};
