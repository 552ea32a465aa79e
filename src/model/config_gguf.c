/* SPDX-License-Identifier: MIT */
/* config_gguf.c - a config from the keys of a GGUF file. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/family.h"

typedef struct {
    wf_arena *arena;
    const char *what;
    wf_gguf *f;
    wf_config *c;
    char key[128];
} reader;

/* ARCHITECTURE.name, until the next call. */
static const char *key(reader *r, const char *name)
{
    snprintf(r->key, sizeof r->key, "%s.%s", r->c->family->name, name);
    return r->key;
}

static wf_status get_int(reader *r, const char *name, int64_t *out)
{
    return wf_gguf_get_int(r->f, key(r, name), 0, INT32_MAX, out);
}

static wf_status get_float(reader *r, const char *name, double *out)
{
    return wf_gguf_get_float(r->f, key(r, name), out);
}

/* A number that may also be an array of one for each layer; those of our families are all the same. */
static wf_status get_layers_int(reader *r, const char *name, int64_t *out)
{
    const wf_gguf_pair *pair = wf_gguf_find(r->f, key(r, name));
    if (!pair || pair->kind != WF_GGUF_ARRAY)
        return get_int(r, name, out);
    const int64_t *values;
    size_t count;
    WF_TRY(wf_gguf_get_ints(r->f, key(r, name), &values, &count));
    for (size_t i = 1; i < count; i++)
        if (values[i] != values[0])
            return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                           "%s: %s differs from layer to layer, which no family here has", r->what,
                           r->key);
    if (count > 0)
        *out = values[0];
    return WF_OK;
}

static wf_status read_scaling(reader *r)
{
    static const struct {
        const char *name;
        wf_rope_scaling scaling;
    } kinds[] = {{"none", WF_ROPE_PLAIN}, {"linear", WF_ROPE_LINEAR}, {"yarn", WF_ROPE_YARN}, {0}};
    wf_rotary *rope = &r->c->rope;
    wf_gguf_text text;
    WF_TRY(wf_gguf_get_text(r->f, key(r, "rope.scaling.type"), &text));
    rope->factor = 1;
    rope->original = (double)r->c->context;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    WF_TRY(get_float(r, "rope.scaling.factor", &rope->factor));
    WF_TRY(get_float(r, "rope.scaling.original_context_length", &rope->original));
    double more = 0; /* is a factor to the usual magnitude */
    WF_TRY(get_float(r, "rope.scaling.attn_factor", &more));
    WF_TRY(get_float(r, "rope.scaling.yarn_beta_fast", &rope->beta_fast));
    WF_TRY(get_float(r, "rope.scaling.yarn_beta_slow", &rope->beta_slow));
    if (!text.bytes) { /* the old way to say linear: a factor alone */
        WF_TRY(get_float(r, "rope.scale_linear", &rope->factor));
        rope->scaling = rope->factor != 1 && rope->factor != 0 ? WF_ROPE_LINEAR : WF_ROPE_PLAIN;
        return WF_OK;
    }
    for (int i = 0; kinds[i].name; i++)
        if (strlen(kinds[i].name) == text.len && memcmp(kinds[i].name, text.bytes, text.len) == 0) {
            rope->scaling = kinds[i].scaling;
            if (more != 0)
                rope->magnitude = more * wf_rope_magnitude(rope);
            return WF_OK;
        }
    return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                   "%s: rope scaling '%.*s' is not known; linear, yarn and llama3 are", r->what,
                   (int)(text.len < 40 ? text.len : 40), text.bytes);
}

/* rope_freqs.weight: what every frequency is divided by. */
static wf_status read_divisors(reader *r)
{
    wf_rotary *rope = &r->c->rope;
    const wf_stored *t = wf_store_find(&r->f->store, "rope_freqs.weight");
    if (!t)
        return WF_OK;
    if (t->type != WF_F32 || wf_dims_count(&t->shape) != rope->dims / 2)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT,
                       "%s: rope_freqs.weight must be %lld numbers of f32", r->what,
                       (long long)rope->dims / 2);
    float *divisors = wf_arena_copy(r->arena, t->data, t->bytes);
    if (!divisors)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < rope->dims / 2; i++)
        if (!(isfinite(divisors[i]) && divisors[i] > 0))
            return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: rope_freqs.weight holds %g", r->what,
                           divisors[i]);
    rope->divisors = divisors;
    return WF_OK;
}

static wf_status read_rope(reader *r)
{
    wf_rotary *rope = &r->c->rope;
    rope->base = 10000;
    rope->dims = r->c->head_dim;
    rope->interleaved = r->c->family->turned;
    WF_TRY(get_float(r, "rope.freq_base", &rope->base));
    WF_TRY(get_int(r, "rope.dimension_count", &rope->dims));
    WF_TRY(read_scaling(r));
    WF_TRY(wf_config_check(r->arena->ctx, r->what, r->c));
    return read_divisors(r);
}

static wf_status read_window(reader *r)
{
    wf_config *c = r->c;
    WF_TRY(get_int(r, "attention.sliding_window", &c->window));
    const wf_gguf_pair *pair = wf_gguf_find(r->f, key(r, "attention.sliding_window_pattern"));
    if (!pair || c->window == 0)
        return WF_OK;
    if (pair->kind != WF_GGUF_ARRAY || pair->element != WF_GGUF_BOOL ||
        pair->count != (uint64_t)c->layers)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s must be %lld truth values", r->what,
                       r->key, (long long)c->layers);
    c->windowed = wf_arena_copy(r->arena, pair->data, (size_t)c->layers);
    return c->windowed ? WF_OK : WF_ERR_MEMORY;
}

static wf_status read_sizes(reader *r)
{
    wf_config *c = r->c;
    WF_TRY(get_int(r, "block_count", &c->layers));
    WF_TRY(get_int(r, "context_length", &c->context));
    WF_TRY(get_int(r, "embedding_length", &c->width));
    WF_TRY(get_int(r, "vocab_size", &c->vocab));
    WF_TRY(get_layers_int(r, "feed_forward_length", &c->hidden));
    WF_TRY(get_layers_int(r, "attention.head_count", &c->heads));
    c->kv_heads = c->heads;
    WF_TRY(get_layers_int(r, "attention.head_count_kv", &c->kv_heads));
    c->head_dim = c->heads > 0 ? c->width / c->heads : 0;
    WF_TRY(get_int(r, "attention.key_length", &c->head_dim));
    int64_t values = c->head_dim;
    WF_TRY(get_int(r, "attention.value_length", &values));
    if (values != c->head_dim)
        return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                       "%s: keys of %lld and values of %lld dimensions are not supported", r->what,
                       (long long)c->head_dim, (long long)values);
    c->eps = c->family->eps;
    return get_float(r,
                     c->family->layer_norm ? "attention.layer_norm_epsilon"
                                           : "attention.layer_norm_rms_epsilon",
                     &c->eps);
}

/* Biases and a head of its own are there or not; keys do not tell. */
static void look_at_tensors(wf_config *c, const wf_store *s)
{
    c->tied = !wf_store_find(s, "output.weight");
    c->qkv_bias = c->family->qkv_bias || wf_store_find(s, "blk.0.attn_q.bias");
    c->out_bias = wf_store_find(s, "blk.0.attn_output.bias");
    c->mlp_bias = wf_store_find(s, "blk.0.ffn_up.bias");
}

wf_status wf_config_from_gguf(wf_arena *arena, const char *what, wf_gguf *f, wf_config *out)
{
    reader r = {.arena = arena, .what = what, .f = f, .c = out};
    wf_gguf_text text;
    char architecture[64];
    *out = (wf_config){0};
    WF_TRY(wf_gguf_get_text(f, "general.architecture", &text));
    if (!text.bytes)
        return wf_fail(arena->ctx, WF_ERR_FORMAT, "%s does not say its general.architecture", what);
    snprintf(architecture, sizeof architecture, "%.*s", (int)(text.len < 63 ? text.len : 63),
             text.bytes);
    WF_TRY(wf_family_find(arena->ctx, what, architecture, &out->family));
    WF_TRY(read_sizes(&r));
    look_at_tensors(out, &f->store);
    if (out->family->rotary)
        WF_TRY(read_rope(&r));
    WF_TRY(wf_config_check(arena->ctx, what, out));
    return read_window(&r);
}
