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

#define POOL "kv." /* prefix of the names of page pools */

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

const wf_layer *wf_builder_layer(const wf_builder *b)
{
    return wf_config_layer(b->config, b->layer);
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
    wf_value *beta = b->config->family->norm_bias ? weight(b, name, "bias", 1, length, 0) : NULL;
    return wf_layer_norm(b->g, x, gamma, beta, b->config->eps);
}

wf_value *wf_part_heads(wf_builder *b, wf_value *x, int64_t heads)
{
    int64_t dim = x ? wf_dims_last(&x->shape) / heads : 0;
    return wf_reshape(b->g, x, 3, (int64_t[]){b->options->tokens, heads, dim});
}

wf_value *wf_part_rope(wf_builder *b, wf_value *x)
{
    int which = wf_builder_layer(b)->rope;
    if (which == WF_NO_ROPE)
        return x;
    const wf_rotary *rope = &b->config->rope[which];
    return wf_rope(b->g, x, b->positions, b->inv_freq[which], rope->interleaved,
                   wf_rope_magnitude(rope));
}

/* Appends k or v [N, Hk, D] to the layer's page pool and returns the pool's new version. `which` is
 * the pool's index in wf_layer_pools. */
static wf_value *keep(wf_builder *b, wf_value *x, int which)
{
    const wf_layer *l = wf_builder_layer(b);
    int cache = wf_caches_find(&b->caches, l);
    const wf_cache_size *size = &b->options->cache[cache];
    wf_pool_row row[WF_MOST_POOLS];
    char name[WF_POOL_NAME];
    wf_layer_pools(l, row);
    wf_pool_name(name, b->layer, which);
    wf_value *pool =
        wf_state(b->g, name, b->options->kv, 4,
                 (int64_t[]){size->pool, size->page, row[which].heads, row[which].dim});
    return wf_kv_append(b->g, pool, x, b->seq_start, b->positions, b->table[cache]);
}

/* Returns what this layer attends to. The layer's own pools receive k and v first; a layer that
 * shares the keys of another adds nothing to them. */
static wf_layer_keys find_keys(wf_builder *b, wf_value *k, wf_value *v)
{
    const wf_layer *l = wf_builder_layer(b);
    if (l->shares != 0)
        return b->keys[b->layer - l->shares];
    wf_layer_keys keys = {k, v};
    if (b->options->form != WF_FORM_TRAIN) {
        wf_value *k_pool = keep(b, k, 0), *v_pool = keep(b, v, 1);
        if (b->options->form == WF_FORM_STEP)
            keys = (wf_layer_keys){k_pool, v_pool};
    }
    return b->keys[b->layer] = keys;
}

wf_value *wf_part_attend(wf_builder *b, wf_value *q, wf_value *k, wf_value *v)
{
    const wf_layer *l = wf_builder_layer(b);
    wf_attention_options options = {.window = l->window,
                                    .scale = wf_config_scale(b->config, b->layer)};
    wf_layer_keys keys = find_keys(b, k, v);
    wf_value *y;
    if (b->options->form == WF_FORM_STEP)
        y = wf_attention_paged(b->g, q, keys.k, keys.v, b->seq_start, b->positions,
                               b->table[wf_caches_find(&b->caches, l)], b->lengths, &options);
    else { /* whole sequences: attend to k and v directly */
        options.length = b->options->length;
        y = wf_attention(b->g, q, keys.k, keys.v, b->seq_start, b->positions, &options);
    }
    return wf_reshape(b->g, y, 2, (int64_t[]){b->options->tokens, l->heads * l->value_dim});
}

/* Names of the norms of q and k; v has none. */
static const char *const norm_names[] = {"attn_q_norm", "attn_k_norm"};
enum { NORMS = 2 }; /* also the parts that are rotated */

/* Projects x to q, k and v [N, heads * D], or only to q in a layer that shares the keys of another.
 * Norms over whole rows come before the heads are split. Returns the number of parts. */
static int project(wf_builder *b, wf_value *x, wf_value *part[3])
{
    static const char *const names[] = {"attn_q", "attn_k", "attn_v"};
    const wf_config *c = b->config;
    const wf_layer *l = wf_builder_layer(b);
    const int64_t width[] = {l->heads * l->key_dim, l->kv_heads * l->key_dim,
                             l->kv_heads * l->value_dim};
    const int parts = l->shares != 0 ? 1 : 3;
    if (c->family->fused_attention) {
        int64_t begin = 0, all = 0;
        for (int i = 0; i < parts; i++)
            all += width[i];
        x = wf_part_linear(b, x, "attn_qkv", all, c->qkv_bias);
        for (int i = 0; i < parts; begin += width[i++])
            part[i] = wf_slice(b->g, x, 1, begin, begin + width[i]);
    } else {
        for (int i = 0; i < parts; i++)
            part[i] = wf_part_linear(b, x, names[i], width[i], c->qkv_bias);
    }
    for (int i = 0; c->family->row_norm && i < parts && i < NORMS; i++)
        part[i] = wf_part_norm(b, part[i], norm_names[i]);
    return parts;
}

wf_value *wf_part_attention(wf_builder *b, wf_value *x)
{
    const wf_config *c = b->config;
    const wf_layer *l = wf_builder_layer(b);
    wf_value *part[3] = {0}; /* q, k, v */
    int parts = project(b, x, part);
    for (int i = 0; i < parts; i++)
        part[i] = wf_part_heads(b, part[i], i == 0 ? l->heads : l->kv_heads);
    for (int i = 0; c->family->head_norm && i < parts && i < NORMS; i++)
        part[i] = wf_part_norm(b, part[i], norm_names[i]); /* each head, before the rotation */
    for (int i = 0; i < parts && i < NORMS; i++)
        part[i] = wf_part_rope(b, part[i]);
    if (b->q_factor)
        part[0] = wf_binary(b->g, "mul", part[0], b->q_factor);
    wf_value *y = wf_part_attend(b, part[0], part[1], part[2]);
    return wf_part_linear(b, y, "attn_output", c->width, c->out_bias);
}

wf_value *wf_part_swiglu(wf_builder *b, wf_value *x)
{
    const wf_config *c = b->config;
    int64_t hidden = wf_builder_layer(b)->hidden;
    wf_value *gate, *up;
    if (c->family->fused_mlp) {
        wf_value *both = wf_part_linear(b, x, "ffn_up", 2 * hidden, c->mlp_bias);
        gate = wf_slice(b->g, both, 1, 0, hidden);
        up = wf_slice(b->g, both, 1, hidden, 2 * hidden);
    } else {
        gate = wf_part_linear(b, x, "ffn_gate", hidden, c->mlp_bias);
        up = wf_part_linear(b, x, "ffn_up", hidden, c->mlp_bias);
    }
    wf_value *h = wf_glu(b->g, gate, up, WF_GLU_SILU);
    return wf_part_linear(b, h, "ffn_down", c->width, c->mlp_bias);
}

/* Dropout of the training options; without it the graph has no such node. */
static wf_value *drop(wf_builder *b, wf_value *x)
{
    return b->options->dropout > 0 ? wf_dropout(b->g, x, b->key, b->options->dropout) : x;
}

/* A factor of 0 is missing in the config. */
static wf_value *times(wf_builder *b, wf_value *x, double factor)
{
    return factor != 0 && factor != 1 ? wf_scale(b->g, x, factor) : x;
}

wf_value *wf_part_add(wf_builder *b, wf_value *x, wf_value *y)
{
    return wf_binary(b->g, "add", x, drop(b, times(b, y, b->config->residual_scale)));
}

wf_value *wf_block_pre_norm(wf_builder *b, wf_value *x)
{
    x = wf_part_add(b, x, wf_part_attention(b, wf_part_norm(b, x, "attn_norm")));
    return wf_part_add(b, x, wf_part_swiglu(b, wf_part_norm(b, x, "ffn_norm")));
}

/* ---- The whole model ---- */

const char *wf_rope_state(int which)
{
    static const char *const names[WF_MOST_ROPES] = {"rope.inv_freq", "rope.1.inv_freq"};
    return names[which];
}

void wf_pool_name(char to[WF_POOL_NAME], int64_t layer, int which)
{
    snprintf(to, WF_POOL_NAME, POOL "%d.%c", (int)layer, "kv"[which]);
}

bool wf_is_pool(const char *state)
{
    return strncmp(state, POOL, strlen(POOL)) == 0;
}

const char *wf_table_input(int cache)
{
    static const char *const names[WF_MOST_CACHES] = {"table", "table.1", "table.2", "table.3"};
    return names[cache];
}

/* base^(-2i / dims) as nodes: exact enough for planning and for unscaled rope. */
static wf_value *frequencies(wf_builder *b, int which)
{
    const wf_rotary *rope = &b->config->rope[which];
    int64_t half = rope->dims / 2;
    if (b->options->given_frequencies)
        return wf_state(b->g, wf_rope_state(which), WF_F32, 1, &half);
    wf_value *i = wf_cast(b->g, wf_iota(b->g, 1, &half, 0), WF_F32);
    return wf_unary(b->g, "exp", wf_scale(b->g, i, -log(rope->base) / (double)half));
}

/* Looks up rows of a table of any type; the result is f32. */
static wf_value *embed(wf_builder *b, wf_value *table, wf_value *ids)
{
    wf_value *x = wf_embed(b->g, table, ids);
    return x && x->type != WF_F32 ? wf_cast(b->g, x, WF_F32) : x;
}

/* 1 + q_scale ln(1 + floor(position / q_length)), f32[N, 1, 1]. The quotient of two integers below
 * 2^24 never rounds up to the next integer, and the conversion to i32 truncates. */
static wf_value *query_factor(wf_builder *b)
{
    const wf_config *c = b->config;
    wf_graph *g = b->g;
    wf_value *p = wf_cast(g, b->positions, WF_F32);
    wf_value *one = wf_fill(g, WF_F32, 0, NULL, 1);
    wf_value *length = wf_fill(g, WF_F32, 0, NULL, c->q_length);
    wf_value *passed = wf_cast(g, wf_cast(g, wf_binary(g, "div", p, length), WF_I32), WF_F32);
    wf_value *log = wf_unary(g, "log", wf_binary(g, "add", one, passed));
    wf_value *factor = wf_binary(g, "add", one, wf_scale(g, log, c->q_scale));
    return wf_reshape(g, factor, 3, (int64_t[]){b->options->tokens, 1, 1});
}

/* Embedding, positions and blocks; b->prefix names the weights of the current block. */
static wf_value *trunk(wf_builder *b, wf_value *table, wf_value *tokens)
{
    const wf_config *c = b->config;
    wf_value *x = times(b, embed(b, table, tokens), c->embedding_scale);
    if (c->q_scale != 0)
        b->q_factor = query_factor(b);
    if (c->family->rotary)
        for (int i = 0; i < c->ropes; i++)
            b->inv_freq[i] = frequencies(b, i);
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

/* Prepares the record of the layers' caches. Returns false if the graph has failed. */
static bool begin(wf_builder *b)
{
    wf_config_caches(b->config, &b->caches);
    b->keys = wf_arena_alloc(&b->g->arena, (size_t)b->config->layers * sizeof *b->keys);
    if (!b->keys)
        wf_graph_fail(b->g, WF_ERR_MEMORY, "%s", b->g->ctx->message);
    return b->keys != NULL;
}

wf_value *wf_model_graph(wf_graph *g, const wf_config *c, const wf_build_options *o,
                         wf_model_values *values)
{
    wf_builder b = {.g = g, .config = c, .options = o};
    int64_t N = o->tokens, S = o->sequences;
    if (values)
        *values = (wf_model_values){0};
    if (!begin(&b))
        return NULL;
    wf_value *tokens = wf_input(g, "tokens", WF_I32, 1, &N), *rows = NULL;
    b.positions = wf_input(g, "positions", WF_I32, 1, &N);
    b.seq_start = wf_input(g, "seq_start", WF_I32, 1, &(int64_t){S + 1});
    for (int i = 0; o->form != WF_FORM_TRAIN && i < b.caches.count; i++)
        b.table[i] = wf_input(g, wf_table_input(i), WF_I32, 2, (int64_t[]){S, o->cache[i].pages});
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
    if (values)
        *values = (wf_model_values){.hidden = x, .extra_loss = b.extra_loss};
    x = c->tied ? wf_linear(g, x, table, NULL) : wf_part_linear(&b, x, "output", c->vocab, false);
    bool divides = c->family->divides_logits && c->logit_scale != 0;
    return times(&b, x, divides ? 1 / c->logit_scale : c->logit_scale);
}
