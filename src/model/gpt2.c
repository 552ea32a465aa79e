/* SPDX-License-Identifier: MIT */
/* gpt2.c - GPT-2: layer norms, biases everywhere, one matrix for q, k and v, learned positions. */
#include "model/family.h"

static wf_value *attention(wf_builder *b, wf_value *x)
{
    const wf_config *c = b->config;
    const int64_t C = c->heads * c->head_dim;
    wf_value *qkv = wf_part_linear(b, x, "attn_qkv", 3 * C, true), *part[3];
    for (int i = 0; i < 3; i++)
        part[i] = wf_part_heads(b, wf_slice(b->g, qkv, 1, i * C, (i + 1) * C), c->heads);
    wf_value *y = wf_part_attend(b, part[0], part[1], part[2]);
    return wf_part_linear(b, y, "attn_output", c->width, true);
}

static wf_value *mlp(wf_builder *b, wf_value *x)
{
    wf_value *h = wf_unary(b->g, "gelu", wf_part_linear(b, x, "ffn_up", b->config->hidden, true));
    return wf_part_linear(b, h, "ffn_down", b->config->width, true);
}

static wf_value *block(wf_builder *b, wf_value *x)
{
    x = wf_part_add(b, x, attention(b, wf_part_norm(b, x, "attn_norm")));
    return wf_part_add(b, x, mlp(b, wf_part_norm(b, x, "ffn_norm")));
}

static const wf_weight_name weights[] = {
    {"token_embd", "wte", 0},
    {"position_embd", "wpe", 0},
    {"blk.%d.attn_norm", "h.%d.ln_1", 0},
    {"blk.%d.attn_qkv", "h.%d.attn.c_attn", WF_NAME_TRANSPOSED},
    {"blk.%d.attn_output", "h.%d.attn.c_proj", WF_NAME_TRANSPOSED},
    {"blk.%d.ffn_norm", "h.%d.ln_2", 0},
    {"blk.%d.ffn_up", "h.%d.mlp.c_fc", WF_NAME_TRANSPOSED},
    {"blk.%d.ffn_down", "h.%d.mlp.c_proj", WF_NAME_TRANSPOSED},
    {"output_norm", "ln_f", 0},
    {"output", "lm_head", 0},
    {0},
};

/* Causal masks in old checkpoints. */
static const char *const ignored[] = {".attn.bias", ".attn.masked_bias", NULL};

const wf_family wf_family_gpt2 = {
    .name = "gpt2",
    .title = "GPT-2",
    .types = {"gpt2"},
    .class = "GPT2LMHeadModel",
    .prefix = "transformer.",
    .ignored = ignored,
    .weights = weights,
    .layer_norm = true,
    .fused_qkv = true,
    .tied = true,
    .qkv_bias = true,
    .eps = 1e-5,
    .block = block,
};
