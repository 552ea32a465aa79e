/* SPDX-License-Identifier: MIT */
/*
 * config_json.c - reads a config from a config.json, as transformers 4 and 5 write it.
 *
 * Defaults are those of transformers' config classes for the model type; a member that is null
 * counts as missing. Every key is classified by config_keys.c first, so no setting that changes the
 * logits can be overlooked.
 */
#include "model/config_json.h"

#include "model/family.h"

/* ---- Members of an object ---- */

bool wf_json_missing(const wf_json_node *node)
{
    return !node || node->kind == WF_JSON_NULL;
}

static wf_status wrong(const wf_json_reader *r, const char *key, const char *kind)
{
    return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s%s must be %s", r->what, r->prefix, key,
                   kind);
}

wf_status wf_json_read_int(const wf_json_reader *r, const char *key, int64_t *out)
{
    const wf_json_node *node = wf_json_get(r->json, key);
    if (wf_json_missing(node))
        return WF_OK;
    if (node->kind != WF_JSON_NUMBER || !node->whole)
        return wrong(r, key, "a whole number");
    *out = node->integer;
    return WF_OK;
}

wf_status wf_json_read_number(const wf_json_reader *r, const char *key, double *out)
{
    const wf_json_node *node = wf_json_get(r->json, key);
    if (wf_json_missing(node))
        return WF_OK;
    if (node->kind != WF_JSON_NUMBER)
        return wrong(r, key, "a number");
    *out = node->number;
    return WF_OK;
}

wf_status wf_json_read_bool(const wf_json_reader *r, const char *key, bool *out)
{
    const wf_json_node *node = wf_json_get(r->json, key);
    if (wf_json_missing(node))
        return WF_OK;
    if (node->kind != WF_JSON_BOOL)
        return wrong(r, key, "true or false");
    *out = node->boolean;
    return WF_OK;
}

/* ---- A config ---- */

typedef struct {
    wf_json_reader in;
    uint32_t type; /* WF_TYPE_* */
    wf_config *c;
} reader;

static wf_status get_int(const reader *r, const char *key, int64_t *out)
{
    return wf_json_read_int(&r->in, key, out);
}

static wf_status get_bool(const reader *r, const char *key, bool *out)
{
    return wf_json_read_bool(&r->in, key, out);
}

static wf_status get_number(const reader *r, const char *key, double *out)
{
    return wf_json_read_number(&r->in, key, out);
}

static const wf_json_node *get(const reader *r, const char *key)
{
    return wf_json_get(r->in.json, key);
}

static wf_status fail(const reader *r, wf_status status, const char *key, const char *why)
{
    return wf_fail(r->in.arena->ctx, status, "%s: %s %s", r->in.what, key, why);
}

/* Reads a size that has no default. */
static wf_status require_int(const reader *r, const char *key, int64_t *out)
{
    if (wf_json_missing(get(r, key)))
        return fail(r, WF_ERR_FORMAT, key, "is missing");
    return get_int(r, key, out);
}

/* Checks an activation function: `accepted` lists the names of one function, NULL-terminated. */
static wf_status expect(const reader *r, const char *key, const char *const *accepted)
{
    const wf_json_node *node = get(r, key);
    char shown[WF_TEXT_SHOWN];
    if (wf_json_missing(node))
        return WF_OK;
    for (int i = 0; accepted[i]; i++)
        if (wf_json_is(node, accepted[i]))
            return WF_OK;
    return wf_fail(
        r->in.arena->ctx, WF_ERR_UNSUPPORTED, "%s: %s '%.40s' is not supported; %s is", r->in.what,
        key, node->kind == WF_JSON_STRING ? wf_text_show(shown, node->string, node->bytes) : "",
        accepted[0]);
}

/* ---- GPT-2 ---- */

/* Reads a key under transformers' common name or GPT-2's own. */
static wf_status get_either(const reader *r, const char *common, const char *own, int64_t *out)
{
    WF_TRY(get_int(r, common, out));
    return get_int(r, own, out);
}

/* c->hidden is 4 * width by default; the bound keeps the product from overflowing before the
 * check. */
static wf_status read_gpt2(reader *r)
{
    static const char *const gelu[] = {"gelu_new",         "gelu_pytorch_tanh", "gelu_fast",
                                       "gelu_python_tanh", "gelu_accurate",     NULL};
    wf_config *c = r->c;
    bool scaled = true;
    c->context = 1024;
    WF_TRY(get_either(r, "num_hidden_layers", "n_layer", &c->layers));
    WF_TRY(get_either(r, "hidden_size", "n_embd", &c->width));
    WF_TRY(get_either(r, "num_attention_heads", "n_head", &c->heads));
    WF_TRY(get_either(r, "max_position_embeddings", "n_positions", &c->context));
    WF_TRY(get_number(r, "layer_norm_epsilon", &c->eps));
    c->hidden = c->width > 0 && c->width < INT32_MAX ? 4 * c->width : 0;
    WF_TRY(get_int(r, "n_inner", &c->hidden));
    WF_TRY(expect(r, "activation_function", gelu));
    WF_TRY(get_bool(r, "scale_attn_weights", &scaled));
    WF_TRY(get_bool(r, "scale_attn_by_inverse_layer_idx", &c->scale_by_layer));
    c->scale = scaled ? 0 : 1;
    c->kv_heads = c->heads;
    c->head_dim = c->heads > 0 ? c->width / c->heads : 0;
    c->out_bias = c->mlp_bias = true;
    return WF_OK;
}

/* ---- Llama, Qwen ---- */

/* Default of transformers' config class. */
static int64_t default_kv_heads(const reader *r)
{
    if (get(r, "num_key_value_heads")) /* present but null */
        return r->c->heads;
    return r->type == WF_TYPE_MISTRAL ? 8 : r->type == WF_TYPE_LLAMA ? r->c->heads : 32;
}

static wf_status read_sizes(reader *r)
{
    wf_config *c = r->c;
    c->context = r->type == WF_TYPE_LLAMA ? 2048 : r->type == WF_TYPE_MISTRAL ? 131072 : 32768;
    WF_TRY(require_int(r, "num_hidden_layers", &c->layers));
    WF_TRY(require_int(r, "hidden_size", &c->width));
    WF_TRY(require_int(r, "intermediate_size", &c->hidden));
    WF_TRY(require_int(r, "num_attention_heads", &c->heads));
    c->kv_heads = default_kv_heads(r);
    WF_TRY(get_int(r, "num_key_value_heads", &c->kv_heads));
    WF_TRY(get_int(r, "max_position_embeddings", &c->context));
    WF_TRY(get_number(r, "rms_norm_eps", &c->eps));
    c->head_dim = c->family->head_dim;
    if (c->head_dim == 0 && c->heads > 0)
        c->head_dim = c->width / c->heads;
    return get_int(r, "head_dim", &c->head_dim);
}

/* Reads the rope settings. Of two objects, transformers uses rope_scaling unless it is null or
 * empty. */
static wf_status read_rope(reader *r)
{
    wf_rotary *rope = &r->c->rope;
    wf_json_reader in = r->in;
    double original = 0;
    rope->base = 10000;
    rope->dims = r->c->head_dim;
    rope->exact = true;
    WF_TRY(get_number(r, "rope_theta", &rope->base));
    WF_TRY(get_number(r, "original_max_position_embeddings", &original));
    in.json = get(r, "rope_scaling");
    in.prefix = "rope_scaling.";
    if (wf_json_missing(in.json) || (in.json->kind == WF_JSON_OBJECT && in.json->count == 0)) {
        in.json = get(r, "rope_parameters");
        in.prefix = "rope_parameters.";
    }
    return wf_json_missing(in.json) ? WF_OK
                                    : wf_rope_from_json(&in, (double)r->c->context, original, rope);
}

/* ---- Windows ---- */

/* Marks the layers with a window: those in layer_types if present, else all from `first` on. */
static wf_status read_layers(reader *r, int64_t first, uint8_t *windowed)
{
    const wf_config *c = r->c;
    const wf_json_node *types = get(r, "layer_types");
    for (int64_t i = 0; i < c->layers; i++)
        windowed[i] = c->window > 0 && i >= first;
    if (wf_json_missing(types))
        return WF_OK;
    if (types->kind != WF_JSON_ARRAY || types->count != (size_t)c->layers)
        return wf_fail(r->in.arena->ctx, WF_ERR_FORMAT, "%s: layer_types must list %lld layers",
                       r->in.what, (long long)c->layers);
    for (int64_t i = 0; i < c->layers; i++) {
        bool window = wf_json_is(&types->child[i], "sliding_attention");
        if (!window && !wf_json_is(&types->child[i], "full_attention"))
            return fail(r, WF_ERR_UNSUPPORTED, "layer_types",
                        "may contain only full_attention and sliding_attention");
        if (window && c->window == 0)
            return fail(r, WF_ERR_FORMAT, "layer_types",
                        "contains sliding_attention, but sliding_window is not set or not used");
        if (window != windowed[i] && r->type & (WF_TYPE_LLAMA | WF_TYPE_MISTRAL | WF_TYPE_GPT2))
            return fail(r, WF_ERR_UNSUPPORTED, "layer_types",
                        "differs between layers, which Weft does not support for this model_type");
        windowed[i] = window;
    }
    return WF_OK;
}

/* The array is always built and checked, even if no layer has a window. */
static wf_status read_window(reader *r)
{
    wf_config *c = r->c;
    int64_t first = 0;
    bool used = r->type == WF_TYPE_MISTRAL;
    if (r->type & (WF_TYPE_QWEN2 | WF_TYPE_QWEN3)) {
        first = 28;
        WF_TRY(get_bool(r, "use_sliding_window", &used));
        WF_TRY(get_int(r, "max_window_layers", &first));
    }
    if (used) {
        c->window = get(r, "sliding_window") ? 0 : 4096; /* null: unlimited */
        WF_TRY(get_int(r, "sliding_window", &c->window));
        if (!wf_json_missing(get(r, "sliding_window")) && c->window < 1)
            return fail(r, WF_ERR_FORMAT, "sliding_window", "must be at least 1");
    }
    uint8_t *windowed = wf_arena_alloc(r->in.arena, (size_t)c->layers);
    if (!windowed)
        return WF_ERR_MEMORY;
    WF_TRY(read_layers(r, first, windowed));
    c->windowed = c->window ? windowed : NULL;
    return WF_OK;
}

static wf_status read_llama(reader *r)
{
    static const char *const silu[] = {"silu", "swish", NULL};
    wf_config *c = r->c;
    bool bias = false;
    WF_TRY(read_sizes(r));
    WF_TRY(expect(r, "hidden_act", silu));
    if (r->type & (WF_TYPE_LLAMA | WF_TYPE_QWEN3))
        WF_TRY(get_bool(r, "attention_bias", &bias));
    if (r->type == WF_TYPE_LLAMA)
        WF_TRY(get_bool(r, "mlp_bias", &c->mlp_bias));
    c->qkv_bias = c->family->qkv_bias || bias;
    c->out_bias = bias;
    return read_rope(r);
}

wf_status wf_config_from_json(wf_arena *arena, const char *what, const wf_json_node *json,
                              wf_config *out)
{
    reader r = {.in = {.arena = arena, .what = what, .prefix = "", .json = json}, .c = out};
    const char *type = wf_json_get_string(json, "model_type", NULL);
    *out = (wf_config){0};
    if (!type)
        return wf_fail(arena->ctx, WF_ERR_FORMAT, "%s: model_type is missing", what);
    WF_TRY(wf_family_find_type(arena->ctx, what, type, &out->family));
    r.type = wf_config_type(type);
    WF_TRY(wf_config_check_keys(&r.in, wf_config_keys, r.type));
    out->eps = out->family->eps;
    out->tied = out->family->tied;
    out->qkv_bias = out->family->qkv_bias;
    WF_TRY(get_bool(&r, "tie_word_embeddings", &out->tied));
    WF_TRY(get_int(&r, "vocab_size",
                   &out->vocab)); /* absent when training from a config: the data determines it */
    WF_TRY(out->family->rotary ? read_llama(&r) : read_gpt2(&r));
    WF_TRY(wf_config_check(arena->ctx, what, out));
    WF_TRY(read_window(&r));
    return wf_config_check(arena->ctx, what, out);
}
