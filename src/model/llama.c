/* SPDX-License-Identifier: MIT */
/*
 * llama.c - Llama, Mistral and Qwen: RMS norms before rotary attention and before a gated MLP.
 *
 * The families share one block and one table of names. They differ in biases, norms of heads, and
 * the order of rotated dimensions, which are fields of wf_family and wf_config.
 */
#include "model/family.h"

static wf_value *attention(wf_builder *b, wf_value *x)
{
    const wf_config *c = b->config;
    const int64_t H = c->heads, Hk = c->kv_heads, D = c->head_dim;
    wf_value *q = wf_part_heads(b, wf_part_linear(b, x, "attn_q", H * D, c->qkv_bias), H);
    wf_value *k = wf_part_heads(b, wf_part_linear(b, x, "attn_k", Hk * D, c->qkv_bias), Hk);
    wf_value *v = wf_part_heads(b, wf_part_linear(b, x, "attn_v", Hk * D, c->qkv_bias), Hk);
    /* Qwen 3 normalizes each head before the rotation. */
    if (c->family->head_norm) {
        q = wf_part_norm(b, q, "attn_q_norm");
        k = wf_part_norm(b, k, "attn_k_norm");
    }
    wf_value *y = wf_part_attend(b, wf_part_rope(b, q), wf_part_rope(b, k), v);
    return wf_part_linear(b, y, "attn_output", c->width, c->out_bias);
}

static wf_value *block(wf_builder *b, wf_value *x)
{
    x = wf_part_add(b, x, attention(b, wf_part_norm(b, x, "attn_norm")));
    return wf_part_add(b, x, wf_part_swiglu(b, wf_part_norm(b, x, "ffn_norm")));
}

/* GGUF name, Hugging Face name without prefix, flags. WF_NAME_ROTATED: GGUF files of Llama have
 * these rows in another order. */
static const wf_weight_name weights[] = {
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
static const char *const ignored[] = {"rotary_emb.inv_freq", NULL};

const wf_family wf_family_llama = {
    .name = "llama",
    .title = "Llama 2 and 3, Mistral, SmolLM2, TinyLlama",
    .types = {"llama", "mistral"},
    .class = "LlamaForCausalLM",
    .prefix = "model.",
    .ignored = ignored,
    .weights = weights,
    .rotary = true,
    .interleaved = true,
    .eps = 1e-6,
    .block = block,
};

const wf_family wf_family_qwen2 = {
    .name = "qwen2",
    .title = "Qwen 2 and 2.5",
    .types = {"qwen2"},
    .class = "Qwen2ForCausalLM",
    .prefix = "model.",
    .ignored = ignored,
    .weights = weights,
    .rotary = true,
    .qkv_bias = true,
    .eps = 1e-6,
    .block = block,
};

const wf_family wf_family_qwen3 = {
    .name = "qwen3",
    .title = "Qwen 3",
    .types = {"qwen3"},
    .class = "Qwen3ForCausalLM",
    .prefix = "model.",
    .ignored = ignored,
    .weights = weights,
    .rotary = true,
    .head_norm = true,
    .head_dim = 128,
    .eps = 1e-6,
    .block = block,
};
