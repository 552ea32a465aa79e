/* SPDX-License-Identifier: MIT */
/* config_json.c - a config from a config.json, as transformers 4 and 5 write it. */
#include <math.h>
#include <string.h>

#include "model/family.h"

typedef struct {
    wf_arena *arena;
    const char *what;
    const wf_json_node *json;
    wf_config *c;
} reader;

static bool missing(const wf_json_node *node)
{
    return !node || node->kind == WF_JSON_NULL;
}

/* Members of an object, *out left alone where they are missing or null. */
static wf_status get_int(reader *r, const wf_json_node *object, const char *key, int64_t *out)
{
    const wf_json_node *node = wf_json_get(object, key);
    if (missing(node))
        return WF_OK;
    if (node->kind != WF_JSON_NUMBER || !node->whole)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s must be a whole number", r->what, key);
    *out = node->integer;
    return WF_OK;
}

static wf_status get_number(reader *r, const wf_json_node *object, const char *key, double *out)
{
    const wf_json_node *node = wf_json_get(object, key);
    if (missing(node))
        return WF_OK;
    if (node->kind != WF_JSON_NUMBER)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s must be a number", r->what, key);
    *out = node->number;
    return WF_OK;
}

static wf_status get_bool(reader *r, const char *key, bool *out)
{
    const wf_json_node *node = wf_json_get(r->json, key);
    if (missing(node))
        return WF_OK;
    if (node->kind != WF_JSON_BOOL)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s must be true or false", r->what, key);
    *out = node->boolean;
    return WF_OK;
}

/* What Weft computes in one way only. */
static wf_status expect(reader *r, const char *key, const char *const *accepted)
{
    const wf_json_node *node = wf_json_get(r->json, key);
    if (missing(node))
        return WF_OK;
    for (int i = 0; accepted[i]; i++)
        if (wf_json_is(node, accepted[i]))
            return WF_OK;
    return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED, "%s: %s '%.40s' is not supported; %s is",
                   r->what, key, node->kind == WF_JSON_STRING ? node->string : "", accepted[0]);
}

static wf_status expect_false(reader *r, const char *key)
{
    bool value = false;
    WF_TRY(get_bool(r, key, &value));
    if (value)
        return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED, "%s: %s is not supported", r->what, key);
    return WF_OK;
}

/* ---- GPT-2 ---- */

static wf_status read_gpt2(reader *r)
{
    static const char *const gelu[] = {"gelu_new", "gelu_pytorch_tanh", "gelu_fast", NULL};
    wf_config *c = r->c;
    c->context = 1024;
    WF_TRY(get_int(r, r->json, "n_layer", &c->layers));
    WF_TRY(get_int(r, r->json, "n_embd", &c->width));
    WF_TRY(get_int(r, r->json, "n_head", &c->heads));
    WF_TRY(get_int(r, r->json, "n_ctx", &c->context));
    WF_TRY(get_int(r, r->json, "n_positions", &c->context));
    WF_TRY(get_number(r, r->json, "layer_norm_epsilon", &c->eps));
    c->hidden = c->width > 0 && c->width < INT32_MAX ? 4 * c->width : 0;
    WF_TRY(get_int(r, r->json, "n_inner", &c->hidden));
    WF_TRY(expect(r, "activation_function", gelu));
    WF_TRY(expect_false(r, "scale_attn_by_inverse_layer_idx"));
    c->kv_heads = c->heads;
    c->head_dim = c->heads > 0 ? c->width / c->heads : 0;
    c->out_bias = c->mlp_bias = true;
    return WF_OK;
}

/* ---- Llama and its relatives ---- */

static wf_status read_sizes(reader *r)
{
    wf_config *c = r->c;
    c->context = 2048;
    WF_TRY(get_int(r, r->json, "num_hidden_layers", &c->layers));
    WF_TRY(get_int(r, r->json, "hidden_size", &c->width));
    WF_TRY(get_int(r, r->json, "intermediate_size", &c->hidden));
    WF_TRY(get_int(r, r->json, "num_attention_heads", &c->heads));
    c->kv_heads = c->heads;
    WF_TRY(get_int(r, r->json, "num_key_value_heads", &c->kv_heads));
    WF_TRY(get_int(r, r->json, "max_position_embeddings", &c->context));
    WF_TRY(get_number(r, r->json, "rms_norm_eps", &c->eps));
    c->head_dim = c->family->head_dim;
    if (c->head_dim == 0 && c->heads > 0)
        c->head_dim = c->width / c->heads;
    return get_int(r, r->json, "head_dim", &c->head_dim);
}

static wf_status read_scaling(reader *r, const wf_json_node *scaling)
{
    static const struct {
        const char *name;
        wf_rope_scaling scaling;
    } kinds[] = {
        {"default", WF_ROPE_PLAIN},
        {"linear", WF_ROPE_LINEAR},
        {"dynamic", WF_ROPE_PLAIN}, /* stretches only beyond the context, where Weft does not go */
        {"llama3", WF_ROPE_LLAMA3},
        {"yarn", WF_ROPE_YARN},
        {0},
    };
    wf_rotary *rope = &r->c->rope;
    const wf_json_node *type = wf_json_get(scaling, "rope_type");
    if (missing(type))
        type = wf_json_get(scaling, "type");
    rope->factor = 1;
    rope->original = (double)r->c->context;
    rope->low = 1;
    rope->high = 4;
    rope->beta_fast = 32;
    rope->beta_slow = 1;
    WF_TRY(get_number(r, scaling, "rope_theta", &rope->base));
    WF_TRY(get_number(r, scaling, "factor", &rope->factor));
    WF_TRY(get_number(r, scaling, "original_max_position_embeddings", &rope->original));
    WF_TRY(get_number(r, scaling, "low_freq_factor", &rope->low));
    WF_TRY(get_number(r, scaling, "high_freq_factor", &rope->high));
    WF_TRY(get_number(r, scaling, "beta_fast", &rope->beta_fast));
    WF_TRY(get_number(r, scaling, "beta_slow", &rope->beta_slow));
    WF_TRY(get_number(r, scaling, "attention_factor", &rope->magnitude));
    if (missing(type))
        return WF_OK;
    for (int i = 0; kinds[i].name; i++)
        if (wf_json_is(type, kinds[i].name)) {
            rope->scaling = kinds[i].scaling;
            return WF_OK;
        }
    return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                   "%s: rope scaling '%.40s' is not known; linear, yarn and llama3 are", r->what,
                   type->kind == WF_JSON_STRING ? type->string : "");
}

static wf_status read_rope(reader *r)
{
    wf_rotary *rope = &r->c->rope;
    rope->base = 10000;
    rope->dims = r->c->head_dim;
    WF_TRY(get_number(r, r->json, "rope_theta", &rope->base));
    const wf_json_node *scaling = wf_json_get(r->json, "rope_parameters"); /* transformers 5 */
    if (missing(scaling))
        scaling = wf_json_get(r->json, "rope_scaling");
    return missing(scaling) ? WF_OK : read_scaling(r, scaling);
}

/* layer_types where there are some; else the rule of the model's type. */
static wf_status read_layer_windows(reader *r, int64_t first)
{
    wf_config *c = r->c;
    const wf_json_node *types = wf_json_get(r->json, "layer_types");
    uint8_t *windowed = wf_arena_alloc(r->arena, (size_t)c->layers);
    if (!windowed)
        return WF_ERR_MEMORY;
    if (!missing(types) && (types->kind != WF_JSON_ARRAY || types->count != (size_t)c->layers))
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: layer_types must name %lld layers",
                       r->what, (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        windowed[i] = i >= first;
        if (missing(types))
            continue;
        windowed[i] = wf_json_is(&types->child[i], "sliding_attention");
        if (!windowed[i] && !wf_json_is(&types->child[i], "full_attention"))
            return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                           "%s: layer_types may be full_attention and sliding_attention", r->what);
    }
    c->windowed = windowed;
    return WF_OK;
}

static wf_status read_window(reader *r)
{
    wf_config *c = r->c;
    int64_t first = 28; /* transformers' default */
    bool used = false;
    if (wf_json_is(wf_json_get(r->json, "model_type"), "mistral")) {
        c->window = wf_json_get(r->json, "sliding_window") ? 0 : 4096; /* null is none */
        used = true;
        first = 0;
    }
    WF_TRY(get_bool(r, "use_sliding_window", &used));
    if (!used)
        return WF_OK;
    WF_TRY(get_int(r, r->json, "sliding_window", &c->window));
    WF_TRY(get_int(r, r->json, "max_window_layers", &first));
    return c->window == 0 ? WF_OK : read_layer_windows(r, first);
}

static wf_status read_llama(reader *r)
{
    static const char *const silu[] = {"silu", "swish", NULL};
    wf_config *c = r->c;
    bool bias = false;
    WF_TRY(read_sizes(r));
    WF_TRY(expect(r, "hidden_act", silu));
    WF_TRY(get_bool(r, "attention_bias", &bias));
    WF_TRY(get_bool(r, "mlp_bias", &c->mlp_bias));
    c->qkv_bias = c->family->qkv_bias || bias;
    c->out_bias = bias && !c->family->qkv_bias;
    WF_TRY(read_rope(r));
    WF_TRY(wf_config_check(r->arena->ctx, r->what, c));
    return read_window(r);
}

wf_status wf_config_from_json(wf_arena *arena, const char *what, const wf_json_node *json,
                              wf_config *out)
{
    reader r = {.arena = arena, .what = what, .json = json, .c = out};
    const char *type = wf_json_get_string(json, "model_type", NULL);
    *out = (wf_config){0};
    if (!type)
        return wf_fail(arena->ctx, WF_ERR_FORMAT, "%s does not say its model_type", what);
    WF_TRY(wf_family_find_type(arena->ctx, what, type, &out->family));
    out->eps = out->family->eps;
    out->tied = out->family->tied;
    out->qkv_bias = out->family->qkv_bias;
    WF_TRY(get_bool(&r, "tie_word_embeddings", &out->tied));
    WF_TRY(get_int(&r, json, "vocab_size", &out->vocab));
    WF_TRY(out->family->rotary ? read_llama(&r) : read_gpt2(&r));
    return wf_config_check(arena->ctx, what, out);
}
