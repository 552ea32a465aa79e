/* SPDX-License-Identifier: MIT */
/*
 * config_gguf.c - reads a config from the keys of a GGUF file.
 *
 * Keys are foreign: integers are limited to [0, INT32_MAX] when read, and wf_config_check accepts
 * the whole before anything is built. Keys that would change the logits and that Weft does not
 * compute are refused unless they have their neutral value.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config_json.h"
#include "model/family.h"

#define ROPE_BYTES 4096 /* limit of weft.rope_parameters */

typedef struct {
    wf_arena *arena;
    const char *what;
    wf_gguf *f; /* not const: its arena receives converted arrays */
    wf_config *c;
    char key[128]; /* the last key, for messages */
} reader;

/* Returns "ARCHITECTURE.name". Valid until the next call. */
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

/* Reads a number that may also be an array with one value per layer. All values must be equal. */
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
                           "%s: %s differs between layers, which Weft does not support", r->what,
                           r->key);
    if (count > 0)
        *out = values[0];
    return WF_OK;
}

/* ---- Rotary positions ---- */

/* llama.cpp's rule: attn_factor multiplies the default magnitude, or the one with a log
 * multiplier. */
static wf_status read_magnitude(reader *r, wf_rotary *rope)
{
    double more = 0, multiplier = 0;
    WF_TRY(get_float(r, "rope.scaling.attn_factor", &more));
    WF_TRY(get_float(r, "rope.scaling.yarn_log_multiplier", &multiplier));
    if (multiplier != 0)
        rope->magnitude =
            wf_rope_magnitude(rope) / wf_rope_yarn_magnitude(rope->factor, multiplier);
    if (more != 0 && more != 1)
        rope->magnitude = more * wf_rope_magnitude(rope);
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
    char shown[WF_TEXT_SHOWN];
    WF_TRY(wf_gguf_get_text(r->f, key(r, "rope.scaling.type"), &text));
    rope->factor = 1;
    rope->original = (double)r->c->context;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    WF_TRY(get_float(r, "rope.scaling.factor", &rope->factor));
    WF_TRY(get_float(r, "rope.scaling.original_context_length", &rope->original));
    WF_TRY(get_float(r, "rope.scaling.yarn_beta_fast", &rope->beta_fast));
    WF_TRY(get_float(r, "rope.scaling.yarn_beta_slow", &rope->beta_slow));
    if (!text.bytes) { /* old files store linear scaling as a factor alone */
        WF_TRY(get_float(r, "rope.scale_linear", &rope->factor));
        rope->scaling = rope->factor != 1 && rope->factor != 0 ? WF_ROPE_LINEAR : WF_ROPE_PLAIN;
        return WF_OK;
    }
    for (int i = 0; kinds[i].name; i++)
        if (strlen(kinds[i].name) == text.len && memcmp(kinds[i].name, text.bytes, text.len) == 0) {
            rope->scaling = kinds[i].scaling;
            return rope->scaling == WF_ROPE_YARN ? read_magnitude(r, rope) : WF_OK;
        }
    return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                   "%s: rope scaling '%s' is not supported; none, linear and yarn are", r->what,
                   wf_text_show(shown, text.bytes, text.len));
}

/* Reads rope_freqs.weight, which divides the frequencies. */
static wf_status read_divisors(reader *r)
{
    wf_rotary *rope = &r->c->rope;
    const wf_stored *t = wf_store_find(&r->f->store, "rope_freqs.weight");
    if (!t)
        return WF_OK;
    if (t->type != WF_F32 || wf_dims_count(&t->shape) != rope->dims / 2)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT,
                       "%s: rope_freqs.weight must have %lld elements of type f32", r->what,
                       (long long)rope->dims / 2);
    float *divisors = wf_arena_copy(r->arena, t->data, t->bytes);
    if (!divisors)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < rope->dims / 2; i++)
        if (!(isfinite(divisors[i]) && divisors[i] > 0))
            return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: rope_freqs.weight contains %g",
                           r->what, divisors[i]);
    rope->divisors = divisors;
    return WF_OK;
}

/* Do the standard keys and rope_freqs.weight produce the frequencies of weft.rope_parameters? They
 * do unless another program changed the file after Weft wrote it. */
static wf_status compare_exact(reader *r, const wf_rotary *exact, bool *same)
{
    const wf_rotary *rope = &r->c->rope;
    size_t half = (size_t)rope->dims / 2;
    wf_rotary rounded = *exact;
    float *want = wf_arena_alloc(r->arena, half * sizeof *want);
    float *have = wf_arena_alloc(r->arena, half * sizeof *have);
    if (!want || !have)
        return WF_ERR_MEMORY;
    rounded.unrounded = false; /* GGUF has no key for it */
    wf_rope_frequencies(&rounded, want);
    wf_rope_frequencies(rope, have);
    *same =
        fabs(wf_rope_magnitude(rope) - wf_rope_magnitude(exact)) <= 1e-5 * wf_rope_magnitude(exact);
    for (size_t i = 0; i < half; i++)
        *same &= fabsf(want[i] - have[i]) <= 1e-5f * fabsf(have[i]);
    return WF_OK;
}

/* Reads weft.rope_parameters: the rope settings of config.json, for scalings and precisions that
 * GGUF has no keys for. */
static wf_status read_exact(reader *r)
{
    wf_config *c = r->c;
    wf_rotary exact = {
        .dims = c->rope.dims, .base = c->rope.base, .interleaved = c->rope.interleaved};
    wf_gguf_text text;
    wf_json_node *json;
    bool same;
    WF_TRY(wf_gguf_get_text(r->f, "weft.rope_parameters", &text));
    if (!text.bytes)
        return WF_OK;
    if (text.len > ROPE_BYTES)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT,
                       "%s: weft.rope_parameters has %zu bytes; the limit is %d", r->what, text.len,
                       ROPE_BYTES);
    WF_TRY(wf_json_parse(r->arena, "weft.rope_parameters", text.bytes, text.len, &json));
    const wf_json_reader in = {r->arena, r->what, "weft.rope_parameters.", json};
    WF_TRY(wf_rope_from_json(&in, (double)c->context, 0, &exact));
    wf_config checked = *c;
    /* Check before frequencies are computed from it. */
    checked.rope = exact;
    WF_TRY(wf_config_check(r->arena->ctx, r->what, &checked));
    WF_TRY(compare_exact(r, &exact, &same));
    if (!same)
        return wf_fail(
            r->arena->ctx, WF_ERR_FORMAT,
            "%s: weft.rope_parameters contradicts the rope keys or rope_freqs.weight; remove it "
            "if those are right",
            r->what);
    c->rope = exact;
    return WF_OK;
}

static wf_status read_rope(reader *r)
{
    wf_rotary *rope = &r->c->rope;
    rope->base = 10000;
    rope->dims = r->c->head_dim;
    rope->interleaved = r->c->family->interleaved;
    WF_TRY(get_float(r, "rope.freq_base", &rope->base));
    WF_TRY(get_int(r, "rope.dimension_count", &rope->dims));
    WF_TRY(read_scaling(r));
    WF_TRY(wf_config_check(r->arena->ctx, r->what, r->c));
    WF_TRY(read_divisors(r));
    return read_exact(r);
}

/* Either all layers have the window, or a bool array selects them. */
static wf_status read_window(reader *r)
{
    wf_config *c = r->c;
    WF_TRY(get_int(r, "attention.sliding_window", &c->window));
    const wf_gguf_pair *pair = wf_gguf_find(r->f, key(r, "attention.sliding_window_pattern"));
    if (!pair || c->window == 0)
        return WF_OK;
    if (pair->kind != WF_GGUF_ARRAY || pair->element != WF_GGUF_BOOL ||
        pair->count != (uint64_t)c->layers)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s must have %lld boolean values",
                       r->what, r->key, (long long)c->layers);
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

/* No key states whether there are biases and an untied head, so look for the tensors. */
static void look_at_tensors(wf_config *c, const wf_store *s)
{
    c->tied = !wf_store_find(s, "output.weight");
    c->qkv_bias = c->family->qkv_bias || wf_store_find(s, "blk.0.attn_q.bias");
    c->out_bias = wf_store_find(s, "blk.0.attn_output.bias");
    c->mlp_bias = wf_store_find(s, "blk.0.ffn_up.bias");
}

/* ---- Keys ---- */

/* Keys under the architecture's name that change the logits of some models. The listed values,
 * which llama.cpp writes for models without the feature, are accepted. */
static const struct {
    const char *name;
    double neutral[2];
} neutral_keys[] = {
    {"expert_count", {0, 0}},
    {"attention.clamp_kqv", {0, 0}},
    {"attention.max_alibi_bias", {0, 0}},
    {"attention.output_scale", {0, 1}},
    {"attention.temperature_scale", {0, 0}},
    {"attention.temperature_length", {0, 0}},
    {"attn_logit_softcapping", {0, 0}},
    {"final_logit_softcapping", {0, 0}},
    {"router_logit_softcapping", {0, 0}},
    {"logit_scale", {0, 1}},
    {"residual_scale", {0, 1}},
    {"embedding_scale", {0, 1}},
    {"rope.scaling.alpha", {0, 0}},
    {"rope.scaling.yarn_ext_factor", {-1, 1}},
    {"rope.scaling.yarn_attn_factor",
     {0, 1}}, /* llama.cpp ignores the values that its converter writes */
    {"leading_dense_block_count", {0, 0}},
    {"nextn_predict_layers", {0, 0}},
};

/* Keys that must equal another key, or be 0. */
static const struct {
    const char *name, *like;
} repeated_keys[] = {
    {"rope.freq_base_swa", "rope.freq_base"},
    {"rope.dimension_count_swa", "rope.dimension_count"},
    {"attention.key_length_swa", "attention.key_length"},
    {"attention.value_length_swa", "attention.value_length"},
};

static wf_status refuse_key(reader *r, const char *name, double value)
{
    return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                   "%s: %s is %g, which Weft does not support for this architecture", r->what,
                   key(r, name), value);
}

static wf_status check_keys(reader *r)
{
    bool causal = true, parallel = false;
    for (size_t i = 0; i < sizeof neutral_keys / sizeof *neutral_keys; i++) {
        const double *neutral = neutral_keys[i].neutral;
        double value = neutral[0];
        if (strstr(neutral_keys[i].name, ".yarn_") && r->c->rope.scaling != WF_ROPE_YARN)
            continue;
        WF_TRY(get_float(r, neutral_keys[i].name, &value));
        if (value != neutral[0] && value != neutral[1])
            return refuse_key(r, neutral_keys[i].name, value);
    }
    for (size_t i = 0; i < sizeof repeated_keys / sizeof *repeated_keys; i++) {
        double value = 0, like = 0;
        WF_TRY(get_float(r, repeated_keys[i].name, &value));
        WF_TRY(get_float(r, repeated_keys[i].like, &like));
        if (value != 0 && value != like)
            return refuse_key(r, repeated_keys[i].name, value);
    }
    WF_TRY(wf_gguf_get_bool(r->f, key(r, "attention.causal"), &causal));
    if (!causal)
        return refuse_key(r, "attention.causal", 0);
    WF_TRY(wf_gguf_get_bool(r->f, key(r, "use_parallel_residual"), &parallel));
    return parallel ? refuse_key(r, "use_parallel_residual", 1) : WF_OK;
}

wf_status wf_config_from_gguf(wf_arena *arena, const char *what, wf_gguf *f, wf_config *out)
{
    reader r = {.arena = arena, .what = what, .f = f, .c = out};
    wf_gguf_text text;
    char architecture[64];
    *out = (wf_config){0};
    WF_TRY(wf_gguf_get_text(f, "general.architecture", &text));
    if (!text.bytes)
        return wf_fail(arena->ctx, WF_ERR_FORMAT, "%s has no key general.architecture", what);
    snprintf(architecture, sizeof architecture, "%.*s", (int)(text.len < 63 ? text.len : 63),
             text.bytes);
    WF_TRY(wf_family_find(arena->ctx, what, architecture, &out->family));
    WF_TRY(read_sizes(&r));
    look_at_tensors(out, &f->store);
    WF_TRY(get_float(&r, "attention.scale", &out->scale));
    if (fabs(out->scale * sqrt((double)out->head_dim) - 1) < 1e-6)
        out->scale = 0; /* the default, 1/sqrt(head_dim) */
    WF_TRY(wf_gguf_get_bool(f, "weft.attention.scale_by_inverse_layer", &out->scale_by_layer));
    if (out->family->rotary)
        WF_TRY(read_rope(&r));
    WF_TRY(wf_config_check(arena->ctx, what, out));
    WF_TRY(read_window(&r));
    return check_keys(&r);
}
