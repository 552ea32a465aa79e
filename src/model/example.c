/* SPDX-License-Identifier: MIT */
/* example.c - two tables, of families and of shapes, and one builder that reads them. */
#include "model/example.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/text.h"

/* ---- Families ---- */

/* What distinguishes them; parameters are named as in the checkpoints. */
typedef struct wf_example_family {
    bool layer_norm; /* with biases there and in all linear layers; else RMS norm and none */
    bool rotary;     /* else learned positions */
    bool joint;      /* queries, keys and values from one matrix, whose name is q */
    bool gated;      /* SwiGLU; else GELU */
    const char *embed, *positions, *layer; /* layer: a prefix, with the number of the layer */
    const char *norm_a, *q, *k, *v, *o;
    const char *norm_b, *gate, *up, *down;
    const char *norm_f, *head;
} family;

static const family gpt2 = {
    .layer_norm = true,
    .joint = true,
    .embed = "wte",
    .positions = "wpe",
    .layer = "h.%d.",
    .norm_a = "ln_1",
    .q = "attn.c_attn",
    .o = "attn.c_proj",
    .norm_b = "ln_2",
    .up = "mlp.c_fc",
    .down = "mlp.c_proj",
    .norm_f = "ln_f",
};

static const family llama = {
    .rotary = true,
    .gated = true,
    .embed = "model.embed_tokens",
    .layer = "model.layers.%d.",
    .norm_a = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .o = "self_attn.o_proj",
    .norm_b = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .norm_f = "model.norm",
    .head = "lm_head",
};

/* examples/tiny_trainer.c */
static const family tiny = {
    .rotary = true,
    .joint = true,
    .embed = "embed",
    .layer = "layer.%d.",
    .norm_a = "norm_a",
    .q = "qkv",
    .o = "out",
    .norm_b = "norm_b",
    .up = "up",
    .down = "down",
    .norm_f = "norm_f",
    .head = "head",
};

/* clang-format off */
const wf_example wf_examples[] = {
    /*                                           layers vocab  context width heads kv  D   hidden tied  batch */
    {"gpt2-124M",  "GPT-2, the smallest", &gpt2,  12,   50257, 1024,   768,  12,   12, 64, 3072, true,  4},
    {"gpt2-350M",  "GPT-2 medium",        &gpt2,  24,   50257, 1024,   1024, 16,   16, 64, 4096, true,  4},
    {"gpt2-1558M", "GPT-2 XL",            &gpt2,  48,   50257, 1024,   1600, 25,   25, 64, 6400, true,  1},
    {"llama-120M", "Llama, tied head",    &llama, 12,   32000, 2048,   768,  12,   4,  64, 2816, true,  4},
    {"llama-1B",   "TinyLlama 1.1B",      &llama, 22,   32000, 2048,   2048, 32,   4,  64, 5632, false, 1},
    {"tiny",       "tiny_trainer's model", &tiny,  3,    128,   64,     96,   4,    4,  24, 384,  false, 16},
    {0},
};
/* clang-format on */
#define EXAMPLES ((int)(sizeof wf_examples / sizeof *wf_examples) - 1)

wf_status wf_example_find(wf_ctx *ctx, const char *name, const wf_example **out)
{
    const char *names[EXAMPLES];
    char known[256];
    size_t len = 0;
    for (int i = 0; i < EXAMPLES; i++) {
        *out = &wf_examples[i];
        names[i] = wf_examples[i].name;
        if (strcmp(name, names[i]) == 0)
            return WF_OK;
        wf_text_append(known, sizeof known, &len, "%s%s", i ? ", " : "", names[i]);
    }
    *out = NULL;
    const char *near = wf_text_nearest(name, names, EXAMPLES);
    if (near)
        return wf_fail(ctx, WF_ERR_USAGE, "there is no example '%s'; did you mean '%s'?", name,
                       near);
    return wf_fail(ctx, WF_ERR_USAGE, "there is no example '%s'; there are: %s", name, known);
}

/* ---- Layers ---- */

typedef struct {
    wf_graph *g;
    const wf_example *example;
    const family *family;
    wf_example_form form;
    int64_t batch, length, page;
    int64_t tokens; /* N: of one run */
    char prefix[32];
    int layer;
    wf_value *positions, *seq_start;
    wf_value *inv_freq;        /* rotary families, else NULL */
    wf_value *table, *lengths; /* NULL where there are none */
} builder;

static wf_value *param(builder *b, const char *name, const char *kind, int rank, int64_t rows,
                       int64_t columns)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s.%s", b->prefix, name, kind);
    return wf_state(b->g, full, WF_F32, rank, (int64_t[]){rows, columns});
}

/* [N, from] -> [N, to] */
static wf_value *linear(builder *b, wf_value *x, const char *name, int64_t from, int64_t to)
{
    wf_value *weight = param(b, name, "weight", 2, to, from);
    wf_value *bias = b->family->layer_norm ? param(b, name, "bias", 1, to, 0) : NULL;
    return wf_linear(b->g, x, weight, bias);
}

static wf_value *norm(builder *b, wf_value *x, const char *name)
{
    int64_t C = b->example->width;
    wf_value *gamma = param(b, name, "weight", 1, C, 0);
    if (!b->family->layer_norm)
        return wf_rms_norm(b->g, x, gamma, 1e-5);
    return wf_layer_norm(b->g, x, gamma, param(b, name, "bias", 1, C, 0), 1e-5);
}

/* [N, heads * D] -> [N, heads, D] */
static wf_value *split(builder *b, wf_value *x, int64_t heads)
{
    return wf_reshape(b->g, x, 3, (int64_t[]){b->tokens, heads, b->example->head_dim});
}

/* Appends k or v [N, Hk, D] to this layer's pool and returns the pool's new version. */
static wf_value *keep(builder *b, wf_value *x, const char *which)
{
    const wf_example *e = b->example;
    char name[32];
    int64_t pages = wf_value_dim(b->table, 1);
    snprintf(name, sizeof name, "kv.%d.%s", b->layer, which);
    wf_value *pool = wf_state(b->g, name, WF_F32, 4,
                              (int64_t[]){b->batch * pages, b->page, e->kv_heads, e->head_dim});
    return wf_kv_append(b->g, pool, x, b->seq_start, b->positions, b->table);
}

/* q [N, H, D], k and v [N, Hk, D] -> [N, C] */
static wf_value *attend(builder *b, wf_value *q, wf_value *k, wf_value *v)
{
    wf_value *k_pool = NULL, *v_pool = NULL, *y;
    if (b->form != WF_EXAMPLE_TRAIN) {
        k_pool = keep(b, k, "k");
        v_pool = keep(b, v, "v");
    }
    if (b->form == WF_EXAMPLE_DECODE)
        y = wf_attention_paged(b->g, q, k_pool, v_pool, b->seq_start, b->positions, b->table,
                               b->lengths, NULL);
    else /* a prefill starts at position 0, so all keys are at hand */
        y = wf_attention(b->g, q, k, v, b->seq_start, b->positions, NULL);
    return wf_reshape(b->g, y, 2, (int64_t[]){b->tokens, b->example->width});
}

static wf_value *attention(builder *b, wf_value *x)
{
    const wf_example *e = b->example;
    const family *f = b->family;
    const int64_t C = e->width, H = e->heads, Hk = e->kv_heads, D = e->head_dim;
    wf_value *q, *k, *v;
    if (f->joint) {
        wf_value *all = linear(b, x, f->q, C, (H + 2 * Hk) * D);
        q = wf_slice(b->g, all, 1, 0, H * D);
        k = wf_slice(b->g, all, 1, H * D, (H + Hk) * D);
        v = wf_slice(b->g, all, 1, (H + Hk) * D, (H + 2 * Hk) * D);
    } else {
        q = linear(b, x, f->q, C, H * D);
        k = linear(b, x, f->k, C, Hk * D);
        v = linear(b, x, f->v, C, Hk * D);
    }
    q = split(b, q, H);
    k = split(b, k, Hk);
    v = split(b, v, Hk);
    if (f->rotary) {
        q = wf_rope(b->g, q, b->positions, b->inv_freq, false, 1);
        k = wf_rope(b->g, k, b->positions, b->inv_freq, false, 1);
    }
    return linear(b, attend(b, q, k, v), f->o, C, C);
}

static wf_value *mlp(builder *b, wf_value *x)
{
    const int64_t C = b->example->width, hidden = b->example->hidden;
    const family *f = b->family;
    wf_value *h;
    if (f->gated) {
        wf_value *gate = linear(b, x, f->gate, C, hidden);
        h = wf_glu(b->g, gate, linear(b, x, f->up, C, hidden), WF_GLU_SILU);
    } else {
        h = wf_unary(b->g, "gelu", linear(b, x, f->up, C, hidden));
    }
    return linear(b, h, f->down, hidden, C);
}

/* ---- The model: tokens i32[N] -> logits [N, V], or [B, V] of the rows `last` ---- */

/* 10000^(-2i / D) */
static wf_value *frequencies(builder *b)
{
    int64_t half = b->example->head_dim / 2;
    wf_value *i = wf_cast(b->g, wf_iota(b->g, 1, &half, 0), WF_F32);
    return wf_unary(b->g, "exp", wf_scale(b->g, i, -log(10000) / (double)half));
}

static wf_value *block(builder *b, wf_value *x)
{
    const family *f = b->family;
    x = wf_binary(b->g, "add", x, attention(b, norm(b, x, f->norm_a)));
    x = wf_binary(b->g, "add", x, mlp(b, norm(b, x, f->norm_b)));
    return wf_block(b->g, x);
}

static wf_value *model(builder *b, wf_value *tokens, wf_value *last)
{
    const wf_example *e = b->example;
    const family *f = b->family;
    wf_graph *g = b->g;
    wf_value *table = param(b, f->embed, "weight", 2, e->vocab, e->width);
    wf_value *x = wf_embed(g, table, tokens);
    if (f->rotary) {
        b->inv_freq = frequencies(b);
    } else {
        wf_value *places = param(b, f->positions, "weight", 2, e->context, e->width);
        x = wf_binary(g, "add", x, wf_embed(g, places, b->positions));
    }
    for (b->layer = 0; b->layer < e->layers; b->layer++) {
        size_t len = 0;
        const char *number = strstr(f->layer, "%d");
        wf_text_append(b->prefix, sizeof b->prefix, &len, "%.*s%d%s", (int)(number - f->layer),
                       f->layer, b->layer, number + 2);
        x = block(b, x);
    }
    b->prefix[0] = 0;
    if (last)
        x = wf_gather_rows(g, x, last);
    x = norm(b, x, f->norm_f);
    return wf_linear(g, x, e->tied ? table : param(b, f->head, "weight", 2, e->vocab, e->width),
                     NULL);
}

/* ---- Training ---- */

/* An AdamW step of every parameter p, with moments m.p and v.p. */
static void update(wf_graph *g, wf_value *const *params, wf_value *const *grads, int n)
{
    const wf_adamw_options options = {.beta2 = 0.95, .weight_decay = 0.1};
    wf_value *lr = wf_input(g, "lr", WF_F32, 0, NULL), *step = wf_input(g, "step", WF_I32, 0, NULL);
    wf_value *one = wf_fill(g, WF_F32, 0, NULL, 1), *length = wf_global_norm(g, grads, n);
    wf_value *scale = wf_binary(g, "div", one, wf_binary(g, "maximum", length, one));
    for (int i = 0; i < n; i++) {
        wf_value *moment[2];
        for (int k = 0; k < 2; k++) {
            char name[128];
            const char *of = params[i]->node->name;
            snprintf(name, sizeof name, "%s.%s", k == 0 ? "m" : "v", of);
            moment[k] = wf_state_like(g, name, params[i]);
        }
        wf_adamw(g, params[i], moment[0], moment[1], grads[i], lr, step, scale, NULL, &options);
    }
}

/* From the loss to updated parameters. */
static wf_status train(wf_graph *g, wf_value *loss)
{
    wf_status status = WF_ERR_MEMORY;
    size_t most = (size_t)g->node_count;
    wf_value **params = wf_mem_array(g->ctx, most, sizeof *params);
    wf_value **grads = wf_mem_array(g->ctx, most, sizeof *grads);
    int n = 0;
    if (!params || !grads)
        goto done;
    for (int i = 0; i < g->node_count; i++) {
        wf_value *v = &g->nodes[i]->out[0];
        if (g->nodes[i]->op == WF_OP_state && v->shape.n > 0 &&
            wf_type_bit(v->type) & WF_TYPES_FLOAT)
            params[n++] = v;
    }
    status = wf_grad(g, loss, params, n, grads);
    if (status == WF_OK)
        update(g, params, grads, n);
done:
    wf_mem_free(g->ctx, params);
    wf_mem_free(g->ctx, grads);
    return status;
}

static wf_status finish_training(wf_graph **g, wf_value *logits, wf_value *targets,
                                 const wf_example_options *o)
{
    wf_value *losses = wf_cross_entropy(*g, logits, targets, NULL);
    wf_value *loss = wf_reduce(*g, "mean", losses, WF_AXIS(0), false);
    WF_TRY(wf_output(*g, "loss", loss));
    if (o->before_grad)
        WF_TRY(o->before_grad(o->user, g, &loss));
    return train(*g, loss);
}

/* ---- The whole ---- */

static wf_status choose_sizes(wf_ctx *ctx, builder *b, const wf_example_options *o)
{
    const wf_example *e = b->example;
    b->form = o->form;
    b->batch = o->batch ? o->batch : e->batch;
    b->length = o->length ? o->length : e->context;
    b->page = o->page ? o->page : 16;
    if (b->batch < 1 || b->length < 1 || b->page < 1)
        return wf_fail(ctx, WF_ERR_USAGE, "batch, length and page must be positive");
    if (b->length > e->context)
        return wf_fail(ctx, WF_ERR_USAGE, "length %lld is more than the context of %s, %lld",
                       (long long)b->length, e->name, (long long)e->context);
    if (b->batch > INT32_MAX / b->length)
        return wf_fail(ctx, WF_ERR_USAGE, "a batch of %lld is too large", (long long)b->batch);
    b->tokens = b->form == WF_EXAMPLE_DECODE ? b->batch : b->batch * b->length;
    return WF_OK;
}

static wf_status build(builder *b, const wf_example_options *o)
{
    wf_graph *g = b->g;
    int64_t N = b->tokens, B = b->batch, pages = (b->length - 1) / b->page + 1;
    wf_value *tokens = wf_input(g, "tokens", WF_I32, 1, &N), *last = NULL;
    b->positions = wf_input(g, "positions", WF_I32, 1, &N);
    b->seq_start = wf_input(g, "seq_start", WF_I32, 1, &(int64_t){B + 1});
    if (b->form != WF_EXAMPLE_TRAIN)
        b->table = wf_input(g, "table", WF_I32, 2, (int64_t[]){B, pages});
    if (b->form == WF_EXAMPLE_PREFILL)
        last = wf_input(g, "last", WF_I32, 1, &B);
    if (b->form == WF_EXAMPLE_DECODE)
        b->lengths = wf_input(g, "lengths", WF_I32, 1, &B);
    wf_value *logits = model(b, tokens, last);
    if (b->form != WF_EXAMPLE_TRAIN)
        WF_TRY(wf_output(g, "logits", logits));
    else
        WF_TRY(finish_training(&b->g, logits, wf_input(g, "targets", WF_I32, 1, &N), o));
    return wf_graph_status(b->g);
}

wf_status wf_example_build(wf_ctx *ctx, const char *name, const wf_example_options *options,
                           wf_graph **out)
{
    const wf_example_options defaults = {0}, *o = options ? options : &defaults;
    builder b = {0};
    *out = NULL;
    WF_TRY(wf_example_find(ctx, name, &b.example));
    b.family = b.example->family;
    WF_TRY(choose_sizes(ctx, &b, o));
    WF_TRY(wf_graph_new(ctx, &b.g));
    wf_status status = build(&b, o);
    if (status == WF_OK)
        *out = b.g;
    else
        wf_graph_free(b.g);
    return status;
}
