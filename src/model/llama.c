/* SPDX-License-Identifier: MIT */
/*
 * llama.c - Llama, Mistral and Qwen: RMS norms before rotary attention and before a gated MLP.
 *
 * The families share one block and one table of names. They differ in biases, norms of heads, and
 * the order of rotated dimensions, which are fields of wf_family and wf_config.
 */
#include "model/llama.h"

/* GGUF name, Hugging Face name without prefix, flags. WF_NAME_ROTATED: GGUF files of Llama have
 * these rows in another order. */
const wf_weight_name wf_llama_weights[] = {
    {"token_embd", "embed_tokens", 0},
    {"blk.%d.attn_norm", "layers.%d.input_layernorm", 0},
    {"blk.%d.attn_q", "layers.%d.self_attn.q_proj", WF_NAME_ROTATED},
    {"blk.%d.attn_k", "layers.%d.self_attn.k_proj", WF_NAME_ROTATED},
    {"blk.%d.attn_v", "layers.%d.self_attn.v_proj", 0},
    {"blk.%d.attn_q_norm", "layers.%d.self_attn.q_norm", 0},
    {"blk.%d.attn_k_norm", "layers.%d.self_attn.k_norm", 0},
    {"blk.%d.attn_output", "layers.%d.self_attn.o_proj", 0},
    {"blk.%d.ffn_norm", "layers.%d.post_attention_layernorm", 0},
    {"blk.%d.ffn_gate", "layers.%d.mlp.gate_proj", 0},
    {"blk.%d.ffn_up", "layers.%d.mlp.up_proj", 0},
    {"blk.%d.ffn_down", "layers.%d.mlp.down_proj", 0},
    {"output_norm", "norm", 0},
    {"output", "lm_head", 0},
    {0},
};

/* Frequency tables in old checkpoints. */
const char *const wf_llama_ignored[] = {"rotary_emb.inv_freq", NULL};

/* ---- Llama and Mistral ---- */

static const wf_key llama_keys[] = {
    WF_DECODER_KEYS(2048, 0),
    WF_HEAD_KEYS(0),
    WF_VOCAB_KEYS(false),
    WF_RMS_KEY(1e-6),
    WF_ROPE_DIMS_KEY,
    WF_ROPE_KEYS(10000),
    WF_ATTENTION_BIAS_KEYS,
    WF_BOOL("mlp_bias", mlp_bias, false),
    {0},
};

static const wf_key mistral_keys[] = {WF_MISTRAL_KEYS, {0}};

static const wf_model_type llama_types[] = {
    {.name = "llama", .class = "LlamaForCausalLM", .keys = llama_keys},
    {.name = "mistral",
     .class = "MistralForCausalLM",
     .keys = mistral_keys,
     .windows = WF_WINDOWS_ALL,
     .window = 4096},
    {0},
};

const wf_family wf_family_llama = {
    .name = "llama",
    .title = "Llama 2 and 3, Mistral, SmolLM2, TinyLlama",
    .types = llama_types,
    .prefix = "model.",
    .ignored = wf_llama_ignored,
    .weights = wf_llama_weights,
    .rotary = true,
    .interleaved = true,
    .eps = 1e-6,
    .block = wf_block_pre_norm,
};

/* ---- Qwen ---- */

/* `head`: default of head_dim. */
#define QWEN_KEYS(head)                                                                       \
    WF_DECODER_KEYS(32768, 32), WF_HEAD_KEYS(head), WF_VOCAB_KEYS(false), WF_RMS_KEY(1e-6),   \
        WF_INT(NULL, "rope.dimension_count", rope[0].dims, WF_KEY_KEEP), WF_ROPE_KEYS(10000), \
        WF_USED("sliding_window"), WF_USED("use_sliding_window"), WF_USED("max_window_layers")

static const wf_key qwen2_keys[] = {QWEN_KEYS(0), {0}};
static const wf_key qwen3_keys[] = {QWEN_KEYS(128), WF_ATTENTION_BIAS_KEYS, {0}};

static const wf_model_type qwen2_types[] = {
    {.name = "qwen2",
     .class = "Qwen2ForCausalLM",
     .keys = qwen2_keys,
     .windows = WF_WINDOWS_LATE,
     .window = 4096},
    {0},
};

const wf_family wf_family_qwen2 = {
    .name = "qwen2",
    .title = "Qwen 2 and 2.5",
    .types = qwen2_types,
    .prefix = "model.",
    .ignored = wf_llama_ignored,
    .weights = wf_llama_weights,
    .rotary = true,
    .qkv_bias = true,
    .eps = 1e-6,
    .block = wf_block_pre_norm,
};

static const wf_model_type qwen3_types[] = {
    {.name = "qwen3",
     .class = "Qwen3ForCausalLM",
     .keys = qwen3_keys,
     .windows = WF_WINDOWS_LATE,
     .window = 4096},
    {0},
};

const wf_family wf_family_qwen3 = {
    .name = "qwen3",
    .title = "Qwen 3",
    .types = qwen3_types,
    .prefix = "model.",
    .ignored = wf_llama_ignored,
    .weights = wf_llama_weights,
    .rotary = true,
    .head_norm = true,
    .eps = 1e-6,
    .block = wf_block_pre_norm,
};
