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

typedef struct {
    wf_arena *arena;
    const char *what;
    wf_gguf *f; /* not const: its arena receives converted arrays */
    wf_config *c;
    wf_layer *layer; /* [layers]: c->layer, while it is being filled */
    char key[128];   /* the last key, for messages */
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

/* ---- Keys of the table ---- */

/* Returns the array of a row with one value per layer; *values is NULL if the key has one value for
 * all layers. */
static wf_status get_array(reader *r, const wf_key *k, const int64_t **values)
{
    const wf_gguf_pair *pair = wf_gguf_find(r->f, key(r, k->gguf));
    size_t count;
    *values = NULL;
    if (!k->per_layer || !pair || pair->kind != WF_GGUF_ARRAY)
        return WF_OK;
    WF_TRY(wf_gguf_get_ints(r->f, key(r, k->gguf), values, &count));
    if (count == 0 || count != (size_t)r->c->layers)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT,
                       "%s: %s has %zu value%s, but the model has %lld layer%s", r->what, r->key,
                       count, WF_PLURAL(count), (long long)r->c->layers, WF_PLURAL(r->c->layers));
    return WF_OK;
}

/* Reads a row into `layer` of the config; of an array, the first value. */
static wf_status read_key(reader *r, const wf_key *k)
{
    void *member = wf_key_member(k, r->c, &r->c->all);
    const int64_t *values;
    WF_TRY(get_array(r, k, &values));
    if (values) {
        *(int64_t *)member = values[0];
        return WF_OK;
    }
    return k->rule == WF_KEY_INT ? get_int(r, k->gguf, member) : get_float(r, k->gguf, member);
}

static wf_status read_table(reader *r)
{
    for (const wf_key *k = r->c->type->keys; k->json || k->gguf; k++)
        if (k->gguf)
            WF_TRY(read_key(r, k));
    return WF_OK;
}

/* Gives every layer its own value of each array. */
static wf_status read_arrays(reader *r)
{
    wf_config *c = r->c;
    wf_layer *layer = wf_config_split_layers(r->arena, c);
    bool shared_heads = !wf_gguf_find(r->f, key(r, "attention.head_count_kv"));
    if (!layer)
        return WF_ERR_MEMORY;
    for (const wf_key *k = c->type->keys; k->json || k->gguf; k++) {
        const int64_t *values = NULL;
        if (k->gguf)
            WF_TRY(get_array(r, k, &values));
        for (int64_t i = 0; values && i < c->layers; i++)
            *(int64_t *)wf_key_member(k, c, &layer[i]) = values[i];
    }
    for (int64_t i = 0; shared_heads && i < c->layers; i++)
        layer[i].kv_heads = layer[i].heads;
    r->layer = layer;
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
    } kinds[] = {{"none", WF_ROPE_PLAIN},
                 {"linear", WF_ROPE_LINEAR},
                 {"yarn", WF_ROPE_YARN},
                 {"longrope", WF_ROPE_PLAIN}, /* the tensors of read_long say the rest */
                 {0}};
    wf_rotary *rope = &r->c->rope[0];
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
                   "%s: rope scaling '%s' is not supported; none, linear, yarn and longrope are",
                   r->what, wf_text_show(shown, text.bytes, text.len));
}

/* Reads rope_freqs.weight, which divides the frequencies. */
static wf_status read_divisors(reader *r)
{
    wf_rotary *rope = &r->c->rope[0];
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

/* Copies one list of longrope's divisors; *out is NULL if the file has none. */
static wf_status read_factors(reader *r, const char *name, const float **out)
{
    const wf_rotary *rope = &r->c->rope[0];
    const wf_stored *t = wf_store_find(&r->f->store, name);
    *out = NULL;
    if (!t)
        return WF_OK;
    if (t->type != WF_F32 || wf_dims_count(&t->shape) != rope->dims / 2)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s must have %lld elements of type f32",
                       r->what, name, (long long)rope->dims / 2);
    float *copy = wf_arena_copy(r->arena, t->data, t->bytes);
    if (!copy)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < rope->dims / 2; i++)
        if (!(isfinite(copy[i]) && copy[i] > 0))
            return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s contains %g", r->what, name,
                           copy[i]);
    *out = copy;
    return WF_OK;
}

/* longrope is stated by two tensors, and by the attention factor. */
static wf_status read_long(reader *r)
{
    wf_rotary *rope = &r->c->rope[0];
    WF_TRY(read_factors(r, WF_TENSOR_SHORT, &rope->short_divisors));
    WF_TRY(read_factors(r, WF_TENSOR_LONG, &rope->long_divisors));
    if (!rope->short_divisors && !rope->long_divisors)
        return WF_OK;
    if (!rope->short_divisors || !rope->long_divisors)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s has only one of %s and %s", r->what,
                       WF_TENSOR_SHORT, WF_TENSOR_LONG);
    rope->scaling = WF_ROPE_LONG;
    rope->factor = (double)r->c->context / rope->original;
    rope->magnitude = 1;
    return get_float(r, "rope.scaling.attn_factor", &rope->magnitude);
}

/* Do the standard keys and rope_freqs.weight produce the frequencies of weft.rope_parameters? They
 * do unless another program changed the file after Weft wrote it. */
static wf_status compare_exact(reader *r, const wf_rotary *exact, bool *same)
{
    const wf_rotary *rope = &r->c->rope[0];
    size_t half = (size_t)rope->dims / 2;
    wf_rotary rounded = *exact;
    float *want = wf_arena_alloc(r->arena, half * sizeof *want);
    float *have = wf_arena_alloc(r->arena, half * sizeof *have);
    if (!want || !have)
        return WF_ERR_MEMORY;
    rounded.unrounded = false; /* GGUF has no key for it */
    wf_rope_frequencies(&rounded, r->c->context, want);
    wf_rope_frequencies(rope, r->c->context, have);
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
        .dims = c->rope[0].dims, .base = c->rope[0].base, .interleaved = c->rope[0].interleaved};
    wf_gguf_text text;
    wf_json_node *json;
    bool same;
    WF_TRY(wf_gguf_get_text(r->f, "weft.rope_parameters", &text));
    if (!text.bytes)
        return WF_OK;
    if (text.len > WF_ROPE_TEXT)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT,
                       "%s: weft.rope_parameters has %zu bytes; the limit is %d", r->what, text.len,
                       WF_ROPE_TEXT);
    WF_TRY(wf_json_parse(r->arena, "weft.rope_parameters", text.bytes, text.len, &json));
    const wf_json_reader in = {r->arena, r->what, "weft.rope_parameters.", json};
    WF_TRY(wf_rope_from_json(&in, NULL, (double)c->context, 0, &exact));
    wf_config checked = *c;
    /* Check before frequencies are computed from it. */
    checked.rope[0] = exact;
    WF_TRY(wf_config_check(r->arena->ctx, r->what, &checked));
    WF_TRY(compare_exact(r, &exact, &same));
    if (!same)
        return wf_fail(
            r->arena->ctx, WF_ERR_FORMAT,
            "%s: weft.rope_parameters contradicts the rope keys or rope_freqs.weight; remove it "
            "if the other keys are right",
            r->what);
    c->rope[0] = exact;
    return WF_OK;
}

static wf_status read_rope(reader *r)
{
    wf_config *c = r->c;
    wf_rotary *rope = &c->rope[0];
    c->ropes = 1;
    rope->dims = c->all.key_dim;
    rope->interleaved = c->family->interleaved || c->family->pairs;
    WF_TRY(get_int(r, "rope.dimension_count", &rope->dims));
    WF_TRY(read_scaling(r));
    c->q_length = rope->original;
    WF_TRY(wf_config_check(r->arena->ctx, r->what, c));
    WF_TRY(read_divisors(r));
    WF_TRY(read_long(r));
    WF_TRY(read_exact(r));
    if (rope->scaling == WF_ROPE_YARN) /* one key for both; weft.rope_parameters has it exactly */
        c->q_length = rope->original;
    if (c->family->window_theta == 0 || !wf_gguf_find(r->f, key(r, "attention.sliding_window")))
        return WF_OK;
    /* Layers with a window have unscaled positions. */
    c->ropes = 2;
    c->rope[1] = (wf_rotary){.base = rope->base, .dims = rope->dims};
    c->rope[1].interleaved = rope->interleaved;
    return get_float(r, "rope.freq_base_swa", &c->rope[1].base);
}

/* ---- Layers ---- */

/* Reads which layers have the window: an array of bools, a period (of n layers the last has none; 0
 * means all have it), or the family's period. */
static wf_status read_pattern(reader *r)
{
    const wf_config *c = r->c;
    int64_t period = c->family->window_period;
    const wf_gguf_pair *pair = wf_gguf_find(r->f, key(r, "attention.sliding_window_pattern"));
    if (pair && pair->kind == WF_GGUF_ARRAY) {
        if (pair->element != WF_GGUF_BOOL || pair->count != (uint64_t)c->layers)
            return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s must have %lld boolean values",
                           r->what, r->key, (long long)c->layers);
        for (int64_t i = 0; i < c->layers; i++)
            r->layer[i].window = pair->data[i] ? c->all.window : 0;
        return WF_OK;
    }
    WF_TRY(get_int(r, "attention.sliding_window_pattern", &period));
    for (int64_t i = 0; i < c->layers; i++)
        r->layer[i].window = period == 0 || i % period < period - 1 ? c->all.window : 0;
    return WF_OK;
}

/* Refuses a window of 0 where layers must have one: in families with a period, and with an array.
 * Elsewhere 0 means no window; llama.cpp writes it for Phi-3. */
static wf_status check_window(reader *r)
{
    const wf_gguf_pair *pair = wf_gguf_find(r->f, key(r, "attention.sliding_window_pattern"));
    bool needed = r->c->family->window_period != 0;
    if (pair && pair->kind == WF_GGUF_ARRAY && pair->element == WF_GGUF_BOOL)
        for (uint64_t i = 0; i < pair->count; i++)
            needed |= pair->data[i] != 0;
    if (!needed || !wf_gguf_find(r->f, key(r, "attention.sliding_window")))
        return WF_OK;
    return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s is 0 but must be at least 1", r->what,
                   r->key);
}

/* Layers without rotary positions: weft.rope_layers, or the family's interval. */
static wf_status read_no_rope(reader *r)
{
    const wf_config *c = r->c;
    const int64_t interval = c->family->nope_interval;
    const wf_gguf_pair *pair = wf_gguf_find(r->f, "weft.rope_layers");
    wf_config_set_ropes(c, r->layer);
    for (int64_t i = 0; interval && i < c->layers; i++)
        r->layer[i].rope = (i + 1) % interval == 0 ? WF_NO_ROPE : 0;
    if (!pair)
        return WF_OK;
    if (pair->kind != WF_GGUF_ARRAY || pair->element != WF_GGUF_BOOL ||
        pair->count != (uint64_t)c->layers)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT,
                       "%s: weft.rope_layers must have %lld boolean values", r->what,
                       (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++)
        r->layer[i].rope = pair->data[i] ? 0 : WF_NO_ROPE;
    return WF_OK;
}

/* The family's first type that can express the windows. */
static void choose_type(wf_config *c)
{
    const wf_model_type *t = c->family->types;
    while (wf_config_window(c) > 0 && t->windows == WF_WINDOWS_NONE && t[1].name)
        t++;
    c->type = t;
}

static wf_status read_layers(reader *r)
{
    wf_config *c = r->c;
    WF_TRY(read_arrays(r));
    WF_TRY(get_int(r, "attention.sliding_window", &c->all.window));
    WF_TRY(c->all.window == 0 ? check_window(r) : read_pattern(r));
    if (c->family->rotary)
        WF_TRY(read_no_rope(r));
    wf_config_join_layers(c);
    choose_type(c);
    return WF_OK;
}

/* Heads have one size in all layers: wf_rows_source reorders rows of queries and keys by it. */
static wf_status check_head_sizes(reader *r)
{
    static const char *const names[] = {"attention.key_length", "attention.value_length"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const wf_gguf_pair *pair = wf_gguf_find(r->f, key(r, names[i]));
        if (pair && pair->kind == WF_GGUF_ARRAY)
            return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                           "%s: %s has one value per layer; Weft supports only heads of one size",
                           r->what, r->key);
    }
    return WF_OK;
}

/* Sizes that the table's keys determine, and defaults of llama.cpp. */
static wf_status read_sizes(reader *r)
{
    wf_config *c = r->c;
    wf_layer *l = &c->all;
    c->eps = c->family->eps;
    WF_TRY(get_int(r, "block_count", &c->layers)); /* the length of arrays */
    WF_TRY(check_head_sizes(r));
    WF_TRY(read_table(r));
    WF_TRY(get_int(r, "vocab_size", &c->vocab));
    if (!wf_gguf_find(r->f, key(r, "attention.head_count_kv")))
        l->kv_heads = l->heads;
    WF_TRY(get_int(r, "attention.key_length", &l->key_dim));
    if (l->key_dim == 0 && !wf_gguf_find(r->f, key(r, "attention.key_length")))
        l->key_dim = l->heads > 0 ? c->width / l->heads : 0;
    int64_t values = l->key_dim;
    WF_TRY(get_int(r, "attention.value_length", &values));
    if (values != l->key_dim)
        return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                       "%s: keys of %lld and values of %lld dimensions are not supported", r->what,
                       (long long)l->key_dim, (long long)values);
    l->value_dim = values;
    return WF_OK;
}

/* No key states whether there are biases and an untied head, so look for the tensors. */
static void look_at_tensors(wf_config *c, const wf_store *s)
{
    c->tied = !wf_store_find(s, "output.weight");
    c->qkv_bias = c->family->qkv_bias || wf_store_find(s, "blk.0.attn_q.bias") ||
                  (c->family->fused_attention && wf_store_find(s, "blk.0.attn_qkv.bias"));
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

/* Returns whether the family's table reads the key. */
static bool in_table(const reader *r, const char *name)
{
    for (const wf_key *k = r->c->type->keys; k->json || k->gguf; k++)
        if (k->gguf && strcmp(k->gguf, name) == 0)
            return true;
    return false;
}

/* llama.cpp's converter writes the attention factor of YaRN, which its loader ignores; the default
 * is accepted. */
static bool is_default_factor(const reader *r, const char *name, double value)
{
    double usual = wf_rope_magnitude(&r->c->rope[0]);
    return strcmp(name, "rope.scaling.yarn_attn_factor") == 0 &&
           fabs(value - usual) <= 1e-5 * usual;
}

/* Keys of other kinds. */
static wf_status check_flags(reader *r)
{
    bool causal = true, parallel = false, rotates = true;
    WF_TRY(wf_gguf_get_bool(r->f, key(r, "attention.causal"), &causal));
    if (!causal)
        return refuse_key(r, "attention.causal", 0);
    WF_TRY(wf_gguf_get_bool(r->f, key(r, "use_parallel_residual"), &parallel));
    if (parallel)
        return refuse_key(r, "use_parallel_residual", 1);
    if (r->c->family->finetuned_rope)
        WF_TRY(wf_gguf_get_bool(r->f, key(r, "rope.scaling.finetuned"), &rotates));
    if (!rotates)
        return refuse_key(r, "rope.scaling.finetuned", 0);
    if (wf_gguf_find(r->f, key(r, "rope.dimension_sections")))
        return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                       "%s: %s is present, but Weft does not support rotary positions in sections",
                       r->what, r->key);
    return WF_OK;
}

static wf_status check_keys(reader *r)
{
    for (size_t i = 0; i < sizeof neutral_keys / sizeof *neutral_keys; i++) {
        const double *neutral = neutral_keys[i].neutral;
        double value = neutral[0];
        if (strstr(neutral_keys[i].name, ".yarn_") && r->c->rope[0].scaling != WF_ROPE_YARN)
            continue;
        WF_TRY(get_float(r, neutral_keys[i].name, &value));
        if (value != neutral[0] && value != neutral[1] && !in_table(r, neutral_keys[i].name) &&
            !is_default_factor(r, neutral_keys[i].name, value))
            return refuse_key(r, neutral_keys[i].name, value);
    }
    for (size_t i = 0; i < sizeof repeated_keys / sizeof *repeated_keys; i++) {
        double value = 0, like = 0;
        WF_TRY(get_float(r, repeated_keys[i].name, &value));
        WF_TRY(get_float(r, repeated_keys[i].like, &like));
        if (value != 0 && value != like && !(r->c->ropes == 2 && i == 0))
            return refuse_key(r, repeated_keys[i].name, value);
    }
    return check_flags(r);
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
    out->type = out->family->types;
    out->rope[0].base = out->family->rotary ? 10000 : 0;
    WF_TRY(read_sizes(&r));
    look_at_tensors(out, &f->store);
    WF_TRY(get_float(&r, "attention.scale", &out->scale));
    if (fabs(out->scale * sqrt((double)out->all.key_dim) - 1) < 1e-6)
        out->scale = 0; /* the default, 1/sqrt(head_dim) */
    WF_TRY(wf_gguf_get_bool(f, "weft.attention.scale_by_inverse_layer", &out->scale_by_layer));
    if (out->family->rotary)
        WF_TRY(read_rope(&r));
    WF_TRY(wf_config_check(arena->ctx, what, out));
    WF_TRY(check_keys(&r));
    WF_TRY(read_layers(&r));
    return wf_config_check(arena->ctx, what, out);
}
