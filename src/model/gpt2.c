/* SPDX-License-Identifier: MIT */
/* gpt2.c - GPT-2: layer norms, biases everywhere, one matrix for q, k and v, learned positions. */
#include "model/family.h"

static wf_value *attention(wf_builder *b, wf_value *x)
{
    const wf_layer *l = wf_builder_layer(b);
    const int64_t C = l->heads * l->key_dim;
    wf_value *qkv = wf_part_linear(b, x, "attn_qkv", 3 * C, true), *part[3];
    for (int i = 0; i < 3; i++)
        part[i] = wf_part_heads(b, wf_slice(b->g, qkv, 1, i * C, (i + 1) * C), l->heads);
    wf_value *y = wf_part_attend(b, part[0], part[1], part[2]);
    return wf_part_linear(b, y, "attn_output", b->config->width, true);
}

static wf_value *mlp(wf_builder *b, wf_value *x)
{
    wf_value *h =
        wf_unary(b->g, "gelu", wf_part_linear(b, x, "ffn_up", wf_builder_layer(b)->hidden, true));
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

/* transformers reads the sizes under common names too; GPT-2's own take precedence. */
static const wf_key keys[] = {
    WF_INT("num_hidden_layers", NULL, layers, 0),
    WF_INT("n_layer", "block_count", layers, WF_KEY_KEEP),
    WF_INT("max_position_embeddings", NULL, context, 1024),
    WF_INT("n_positions", "context_length", context, WF_KEY_KEEP),
    WF_INT("hidden_size", NULL, width, 0),
    WF_INT("n_embd", "embedding_length", width, WF_KEY_KEEP),
    WF_EACH("n_inner", "feed_forward_length", hidden, 0),
    WF_EACH("num_attention_heads", NULL, heads, 0),
    WF_EACH("n_head", "attention.head_count", heads, WF_KEY_KEEP),
    WF_EACH(NULL, "attention.head_count_kv", kv_heads, WF_KEY_KEEP),
    WF_VOCAB_KEYS(true),
    WF_REAL("layer_norm_epsilon", "attention.layer_norm_epsilon", eps, 1e-5),
    WF_BOOL("scale_attn_by_inverse_layer_idx", scale_by_layer, false),
    WF_USED("scale_attn_weights"),
    WF_RULE_OF("activation_function", GELU, NULL),
    WF_RULE_OF("add_cross_attention", FALSE, "Weft has no encoder to attend to"),
    WF_HARMLESS("n_ctx"),
    WF_HARMLESS("reorder_and_upcast_attn"), /* Weft's attention is f32 anyway */
    WF_HARMLESS("attn_pdrop"),
    WF_HARMLESS("embd_pdrop"),
    WF_HARMLESS("resid_pdrop"),
    WF_HARMLESS("summary_type"),
    WF_HARMLESS("summary_use_proj"),
    WF_HARMLESS("summary_activation"),
    WF_HARMLESS("summary_proj_to_labels"),
    WF_HARMLESS("summary_first_dropout"),
    WF_HARMLESS("summary_last_dropout"),
    {0},
};

static const wf_model_type types[] = {
    {.name = "gpt2", .class = "GPT2LMHeadModel", .keys = keys},
    {0},
};

const wf_family wf_family_gpt2 = {
    .name = "gpt2",
    .title = "GPT-2",
    .types = types,
    .prefix = "transformer.",
    .ignored = ignored,
    .weights = weights,
    .layer_norm = true,
    .norm_bias = true,
    .fused_qkv = true,
    .qkv_bias = true,
    .biases = true,
    .hidden_factor = 4,
    .eps = 1e-5,
    .block = block,
};
