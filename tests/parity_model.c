/* SPDX-License-Identifier: MIT */
/* parity_model.c - implements parity_model.h. */
#include "parity_model.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
const pm_config pm_configs[PM_MODELS] = {
    /* name         llama  tied   layers vocab context width heads kv_heads head_dim hidden eps */
    {"gpt2",         false, true,  2,    61,   16,     32,   4,    4,       8,       128,   1e-5},
    {"llama_tied",   true,  true,  2,    61,   16,     32,   4,    2,       8,       80,    1e-5},
    {"llama_untied", true,  false, 2,    61,   16,     32,   4,    2,       8,       80,    1e-5},
};
/* clang-format on */
const wf_adamw_options pm_adamw = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1};

typedef struct {
    wf_graph *g;
    const pm_config *config;
    pm_model *model;
    char prefix[24]; /* prefix of parameter names: "h.0." in GPT-2's first layer */
    int64_t tokens;
    wf_value *positions, *seq_start;
    wf_value *inv_freq; /* NULL in GPT-2 */
} builder;

/* ---- Layers -------------------------------------------------------------------------------- */

/* Declares the parameter PREFIX NAME.KIND as a state. */
static wf_value *param(builder *b, const char *name, const char *kind, int rank,
                       const int64_t *dims)
{
    pm_model *m = b->model;
    assert(m->param_count < PM_MAX_PARAMS);
    pm_param *p = &m->param[m->param_count++];
    snprintf(p->name, sizeof p->name, "%s%s.%s", b->prefix, name, kind);
    p->rank = rank;
    memcpy(p->dims, dims, (size_t)rank * sizeof *dims);
    p->value = wf_state(b->g, p->name, WF_F32, rank, dims);
    return p->value;
}

static wf_value *matrix(builder *b, const char *name, int64_t rows, int64_t columns)
{
    return param(b, name, "weight", 2, (int64_t[]){rows, columns});
}

static wf_value *vector(builder *b, const char *name, const char *kind, int64_t length)
{
    return param(b, name, kind, 1, &length);
}

/* [N, from] -> [N, to] */
static wf_value *linear(builder *b, wf_value *x, const char *name, int64_t from, int64_t to)
{
    wf_value *weight = matrix(b, name, to, from);
    wf_value *bias = b->config->llama ? NULL : vector(b, name, "bias", to);
    return wf_linear(b->g, x, weight, bias);
}

static wf_value *norm(builder *b, wf_value *x, const char *name)
{
    const pm_config *c = b->config;
    wf_value *gamma = vector(b, name, "weight", c->width);
    if (c->llama)
        return wf_rms_norm(b->g, x, gamma, c->norm_eps);
    return wf_layer_norm(b->g, x, gamma, vector(b, name, "bias", c->width), c->norm_eps);
}

/* [N, heads * D] -> [N, heads, D] */
static wf_value *split_heads(builder *b, wf_value *x, int64_t heads)
{
    return wf_reshape(b->g, x, 3, (int64_t[]){b->tokens, heads, b->config->head_dim});
}

/* q [N, H, D], k and v [N, Hk, D] -> [N, H * D]. Tokens attend within their own sequence. */
static wf_value *attend(builder *b, wf_value *q, wf_value *k, wf_value *v)
{
    const wf_attention_options options = {0};
    wf_value *y = wf_attention(b->g, q, k, v, b->seq_start, b->positions, &options);
    return wf_reshape(b->g, y, 2, (int64_t[]){b->tokens, b->config->width});
}

/* ---- GPT-2: tokens i32[N] -> logits [N, V] ------------------------------------------------- */

static wf_value *gpt2_attention(builder *b, wf_value *x)
{
    const int64_t C = b->config->width, H = b->config->heads;
    wf_value *qkv = linear(b, x, "attn.c_attn", C, 3 * C);
    wf_value *q = split_heads(b, wf_slice(b->g, qkv, 1, 0, C), H);
    wf_value *k = split_heads(b, wf_slice(b->g, qkv, 1, C, 2 * C), H);
    wf_value *v = split_heads(b, wf_slice(b->g, qkv, 1, 2 * C, 3 * C), H);
    return linear(b, attend(b, q, k, v), "attn.c_proj", C, C);
}

static wf_value *gpt2_mlp(builder *b, wf_value *x)
{
    const int64_t C = b->config->width, hidden = b->config->hidden;
    wf_value *h = wf_unary(b->g, "gelu", linear(b, x, "mlp.c_fc", C, hidden));
    return linear(b, h, "mlp.c_proj", hidden, C);
}

static wf_value *gpt2(builder *b, wf_value *tokens)
{
    const pm_config *c = b->config;
    wf_graph *g = b->g;
    wf_value *wte = matrix(b, "wte", c->vocab, c->width);
    wf_value *wpe = matrix(b, "wpe", c->context, c->width);
    wf_value *x = wf_binary(g, "add", wf_embed(g, wte, tokens), wf_embed(g, wpe, b->positions));
    for (int64_t i = 0; i < c->layers; i++) {
        snprintf(b->prefix, sizeof b->prefix, "h.%d.", (int)i);
        x = wf_binary(g, "add", x, gpt2_attention(b, norm(b, x, "ln_1")));
        x = wf_block(g, wf_binary(g, "add", x, gpt2_mlp(b, norm(b, x, "ln_2"))));
    }
    b->prefix[0] = 0;
    return wf_linear(g, norm(b, x, "ln_f"), wte, NULL);
}

/* ---- Llama: tokens i32[N] -> logits [N, V] ------------------------------------------------- */

static wf_value *llama_attention(builder *b, wf_value *x)
{
    const pm_config *c = b->config;
    const int64_t C = c->width, H = c->heads, Hk = c->kv_heads, D = c->head_dim;
    wf_value *q = split_heads(b, linear(b, x, "self_attn.q_proj", C, H * D), H);
    wf_value *k = split_heads(b, linear(b, x, "self_attn.k_proj", C, Hk * D), Hk);
    wf_value *v = split_heads(b, linear(b, x, "self_attn.v_proj", C, Hk * D), Hk);
    q = wf_rope(b->g, q, b->positions, b->inv_freq, false, 1);
    k = wf_rope(b->g, k, b->positions, b->inv_freq, false, 1);
    return linear(b, attend(b, q, k, v), "self_attn.o_proj", C, C);
}

static wf_value *llama_mlp(builder *b, wf_value *x)
{
    const int64_t C = b->config->width, hidden = b->config->hidden;
    wf_value *gate = linear(b, x, "mlp.gate_proj", C, hidden);
    wf_value *up = linear(b, x, "mlp.up_proj", C, hidden);
    return linear(b, wf_glu(b->g, gate, up, WF_GLU_SILU), "mlp.down_proj", hidden, C);
}

static wf_value *llama(builder *b, wf_value *tokens)
{
    const pm_config *c = b->config;
    wf_graph *g = b->g;
    wf_value *embedding = matrix(b, "model.embed_tokens", c->vocab, c->width);
    wf_value *x = wf_embed(g, embedding, tokens);
    for (int64_t i = 0; i < c->layers; i++) {
        snprintf(b->prefix, sizeof b->prefix, "model.layers.%d.", (int)i);
        x = wf_binary(g, "add", x, llama_attention(b, norm(b, x, "input_layernorm")));
        x = wf_binary(g, "add", x, llama_mlp(b, norm(b, x, "post_attention_layernorm")));
        wf_block(g, x);
    }
    b->prefix[0] = 0;
    x = norm(b, x, "model.norm");
    return wf_linear(g, x, c->tied ? embedding : matrix(b, "lm_head", c->vocab, c->width), NULL);
}

/* ---- Loss, gradients, update --------------------------------------------------------------- */

/* Counts the targets that are not ignored, as f32. Ignored targets are negative. */
static wf_value *count_valid(wf_graph *g, wf_value *targets)
{
    wf_value *valid = wf_binary(g, "le", wf_fill(g, WF_I32, 0, NULL, 0), targets);
    return wf_reduce(g, "sum", wf_cast(g, valid, WF_F32), 1 << 0, false);
}

void pm_forward(wf_graph *g, const pm_config *config, int64_t tokens, int64_t sequences,
                pm_model *out)
{
    *out = (pm_model){0};
    builder b = {.g = g, .config = config, .model = out, .tokens = tokens};
    wf_value *ids = wf_input(g, "tokens", WF_I32, 1, &tokens);
    wf_value *targets = wf_input(g, "targets", WF_I32, 1, &tokens);
    b.positions = wf_input(g, "positions", WF_I32, 1, &tokens);
    b.seq_start = wf_input(g, "seq_start", WF_I32, 1, &(int64_t){sequences + 1});
    if (config->llama)
        b.inv_freq = wf_input(g, "inv_freq", WF_F32, 1, &(int64_t){config->head_dim / 2});

    const wf_cross_entropy_options options = {.ignore_index = -100};
    out->logits = config->llama ? llama(&b, ids) : gpt2(&b, ids);
    wf_value *losses = wf_cross_entropy(g, out->logits, targets, &options);
    out->loss_sum = wf_reduce(g, "sum", losses, 1 << 0, false);
    out->count = count_valid(g, targets);
    out->loss = wf_binary(g, "div", out->loss_sum, out->count);
}

void pm_gradients(wf_graph *g, pm_model *model)
{
    wf_value *params[PM_MAX_PARAMS], *grads[PM_MAX_PARAMS] = {0};
    for (int i = 0; i < model->param_count; i++)
        params[i] = model->param[i].value;
    wf_grad(g, model->loss, params, model->param_count, grads);
    for (int i = 0; i < model->param_count; i++)
        model->param[i].grad = grads[i];
}

void pm_update(wf_graph *g, pm_model *model, const wf_adamw_options *options)
{
    wf_value *lr = wf_input(g, "lr", WF_F32, 0, NULL);
    wf_value *step = wf_input(g, "step", WF_I32, 0, NULL);
    wf_value *scale = wf_fill(g, WF_F32, 0, NULL, 1);
    for (int i = 0; i < model->param_count; i++) {
        const pm_param *p = &model->param[i];
        wf_value *moment[2];
        for (int j = 0; j < 2; j++) {
            char name[PM_MAX_NAME + 2];
            snprintf(name, sizeof name, "%c.%s", "mv"[j], p -> name);
            moment[j] = wf_state(g, name, WF_F32, p->rank, p->dims);
        }
        wf_adamw(g, p->value, moment[0], moment[1], p->grad, lr, step, scale, NULL, options);
    }
}
