/* SPDX-License-Identifier: MIT */
/*
 * build.c - builds a model's graph from embedding to head, and the parts that blocks consist of.
 *
 * A failed graph makes every builder function return NULL, and NULL operands pass through, so the
 * code checks nothing in between; wf_graph_status reports the first failure.
 */
#include "model/build.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"

/* ---- Weights ---- */

/* Declares the state PREFIX + blk.LAYER. + name + kind. Only matrices have the file's type. */
static wf_value *weight(wf_builder *b, const char *name, const char *kind, int rank, int64_t rows,
                        int64_t columns)
{
    const wf_build_options *o = b->options;
    char full[WF_NAME_BYTES];
    size_t before = o->prefix ? strlen(o->prefix) : 0;
    snprintf(full, sizeof full, "%s%s%s.%s", o->prefix ? o->prefix : "", b->prefix, name, kind);
    wf_type type = rank > 1 && o->type ? o->type(o->user, full + before) : WF_F32;
    return wf_state(b->g, full, type, rank, (int64_t[]){rows, columns});
}

/* ---- Parts of blocks ---- */

wf_value *wf_part_linear(wf_builder *b, wf_value *x, const char *name, int64_t to, bool bias)
{
    wf_value *w = weight(b, name, "weight", 2, to, x ? wf_dims_last(&x->shape) : 0);
    wf_value *y = wf_linear(b->g, x, w, bias ? weight(b, name, "bias", 1, to, 0) : NULL);
    char full[WF_NAME_BYTES];
    if (!b->options->adapt)
        return y;
    snprintf(full, sizeof full, "%s%s", b->prefix, name);
    return b->options->adapt(b->options->adapt_user, b, full, x, y);
}

wf_value *wf_part_norm(wf_builder *b, wf_value *x, const char *name)
{
    int64_t length = x ? wf_dims_last(&x->shape) : 0;
    wf_value *gamma = weight(b, name, "weight", 1, length, 0);
    if (!b->config->family->layer_norm)
        return wf_rms_norm(b->g, x, gamma, b->config->eps);
    return wf_layer_norm(b->g, x, gamma, weight(b, name, "bias", 1, length, 0), b->config->eps);
}

wf_value *wf_part_heads(wf_builder *b, wf_value *x, int64_t heads)
{
    return wf_reshape(b->g, x, 3, (int64_t[]){b->options->tokens, heads, b->config->head_dim});
}

wf_value *wf_part_rope(wf_builder *b, wf_value *x)
{
    const wf_rotary *rope = &b->config->rope;
    return wf_rope(b->g, x, b->positions, b->inv_freq, rope->interleaved, wf_rope_magnitude(rope));
}

/* Appends k or v [N, Hk, D] to the layer's page pool and returns the pool's new version. */
static wf_value *keep(wf_builder *b, wf_value *x, const char *which)
{
    const wf_config *c = b->config;
    const wf_build_options *o = b->options;
    char name[32];
    snprintf(name, sizeof name, "kv.%d.%s", (int)b->layer, which);
    wf_value *pool =
        wf_state(b->g, name, o->kv, 4, (int64_t[]){o->pool, o->page, c->kv_heads, c->head_dim});
    return wf_kv_append(b->g, pool, x, b->seq_start, b->positions, b->table);
}

wf_value *wf_part_attend(wf_builder *b, wf_value *q, wf_value *k, wf_value *v)
{
    const wf_config *c = b->config;
    wf_attention_options options = {.window = wf_config_window(c, b->layer),
                                    .scale = wf_config_scale(c, b->layer)};
    wf_value *k_pool = NULL, *v_pool = NULL, *y;
    if (b->options->form != WF_FORM_TRAIN) {
        k_pool = keep(b, k, "k");
        v_pool = keep(b, v, "v");
    }
    if (b->options->form == WF_FORM_STEP)
        y = wf_attention_paged(b->g, q, k_pool, v_pool, b->seq_start, b->positions, b->table,
                               b->lengths, &options);
    else { /* whole sequences: attend to k and v directly */
        options.length = b->options->length;
        y = wf_attention(b->g, q, k, v, b->seq_start, b->positions, &options);
    }
    return wf_reshape(b->g, y, 2, (int64_t[]){b->options->tokens, c->heads * c->head_dim});
}

wf_value *wf_part_swiglu(wf_builder *b, wf_value *x)
{
    const wf_config *c = b->config;
    wf_value *gate = wf_part_linear(b, x, "ffn_gate", c->hidden, c->mlp_bias);
    wf_value *up = wf_part_linear(b, x, "ffn_up", c->hidden, c->mlp_bias);
    wf_value *h = wf_glu(b->g, gate, up, WF_GLU_SILU);
    return wf_part_linear(b, h, "ffn_down", c->width, c->mlp_bias);
}

/* Dropout of the training options; without it the graph has no such node. */
static wf_value *drop(wf_builder *b, wf_value *x)
{
    return b->options->dropout > 0 ? wf_dropout(b->g, x, b->key, b->options->dropout) : x;
}

wf_value *wf_part_add(wf_builder *b, wf_value *x, wf_value *y)
{
    return wf_binary(b->g, "add", x, drop(b, y));
}

/* ---- The whole model ---- */

/* base^(-2i / dims) as nodes: exact enough for planning and for unscaled rope. */
static wf_value *frequencies(wf_builder *b)
{
    const wf_rotary *rope = &b->config->rope;
    int64_t half = rope->dims / 2;
    if (b->options->given_frequencies)
        return wf_state(b->g, "rope.inv_freq", WF_F32, 1, &half);
    wf_value *i = wf_cast(b->g, wf_iota(b->g, 1, &half, 0), WF_F32);
    return wf_unary(b->g, "exp", wf_scale(b->g, i, -log(rope->base) / (double)half));
}

/* Looks up rows of a table of any type; the result is f32. */
static wf_value *embed(wf_builder *b, wf_value *table, wf_value *ids)
{
    wf_value *x = wf_embed(b->g, table, ids);
    return x && x->type != WF_F32 ? wf_cast(b->g, x, WF_F32) : x;
}

/* Embedding, positions and blocks; b->prefix names the weights of the current block. */
static wf_value *trunk(wf_builder *b, wf_value *table, wf_value *tokens)
{
    const wf_config *c = b->config;
    wf_value *x = embed(b, table, tokens);
    if (c->family->rotary)
        b->inv_freq = frequencies(b);
    else
        x = wf_binary(
            b->g, "add", x,
            embed(b, weight(b, "position_embd", "weight", 2, c->context, c->width), b->positions));
    x = drop(b, x);
    for (b->layer = 0; b->layer < c->layers; b->layer++) {
        snprintf(b->prefix, sizeof b->prefix, "blk.%d.", (int)b->layer);
        x = wf_block(b->g, c->family->block(b, x));
    }
    b->prefix[0] = 0;
    return x;
}

wf_value *wf_model_graph(wf_graph *g, const wf_config *c, const wf_build_options *o)
{
    wf_builder b = {.g = g, .config = c, .options = o};
    int64_t N = o->tokens, S = o->sequences;
    wf_value *tokens = wf_input(g, "tokens", WF_I32, 1, &N), *rows = NULL;
    b.positions = wf_input(g, "positions", WF_I32, 1, &N);
    b.seq_start = wf_input(g, "seq_start", WF_I32, 1, &(int64_t){S + 1});
    if (o->form != WF_FORM_TRAIN)
        b.table = wf_input(g, "table", WF_I32, 2, (int64_t[]){S, o->pages});
    if (o->form == WF_FORM_STEP)
        b.lengths = wf_input(g, "lengths", WF_I32, 1, &S);
    if (o->random)
        b.key = wf_input(g, "key", WF_I32, 1, &(int64_t){3});
    if (o->rows)
        rows = wf_input(g, "rows", WF_I32, 1, &o->rows);

    wf_value *table = weight(&b, "token_embd", "weight", 2, c->vocab, c->width);
    wf_value *x = trunk(&b, table, tokens);
    /* Only the rows with logits go through the final norm and the head, the largest matmul. */
    if (rows)
        x = wf_gather_rows(g, x, rows);
    x = wf_part_norm(&b, x, "output_norm");
    return c->tied ? wf_linear(g, x, table, NULL)
                   : wf_part_linear(&b, x, "output", c->vocab, false);
}
