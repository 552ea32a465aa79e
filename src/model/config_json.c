/* SPDX-License-Identifier: MIT */
/*
 * config_json.c - reads a config from a config.json, as transformers 4 and 5 write it.
 *
 * Defaults are those of transformers' config classes for the model type; a member that is null
 * counts as missing. Every key is checked against the type's table first, so no setting that changes
 * the logits can be overlooked.
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
    wf_config *c;
} reader;

static const wf_json_node *get(const reader *r, const char *key)
{
    return wf_json_get(r->in.json, key);
}

static wf_status fail(const reader *r, wf_status status, const char *key, const char *why)
{
    return wf_fail(r->in.arena->ctx, status, "%s: %s %s", r->in.what, key, why);
}

/* The names of one activation function; the first is written. */
static const char *const silu[] = {"silu", "swish", NULL};
static const char *const gelu[] = {"gelu_new",         "gelu_pytorch_tanh", "gelu_fast",
                                   "gelu_python_tanh", "gelu_accurate",     NULL};

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

/* Sets a member to the default of its row. */
static void set_fallback(const wf_key *k, void *member)
{
    if (k->fallback == WF_KEY_KEEP)
        return;
    if (k->rule == WF_KEY_INT)
        *(int64_t *)member = (int64_t)k->fallback;
    else if (k->rule == WF_KEY_REAL)
        *(double *)member = k->fallback;
    else
        *(bool *)member = k->fallback != 0;
}

/* In wf_config, 0 means that the factor is missing. In config.json it would erase what it multiplies. */
static bool is_zero_factor(const wf_key *k, const void *member)
{
    static const size_t factors[] = {
        offsetof(wf_config, scale), offsetof(wf_config, embedding_scale),
        offsetof(wf_config, residual_scale), offsetof(wf_config, logit_scale)};
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++)
        if (k->rule == WF_KEY_REAL && k->member == factors[i] && *(const double *)member == 0)
            return true;
    return false;
}

static wf_status read_key(const reader *r, const wf_key *k)
{
    void *member = wf_key_member(k, r->c, &r->c->all);
    if (k->rule == WF_KEY_SILU || k->rule == WF_KEY_GELU)
        return expect(r, k->json, k->rule == WF_KEY_SILU ? silu : gelu);
    if (k->rule > WF_KEY_BOOL)
        return WF_OK;
    if (wf_json_missing(get(r, k->json))) {
        if (isnan(k->fallback))
            return fail(r, WF_ERR_FORMAT, k->json, "is missing");
        set_fallback(k, member);
        return WF_OK;
    }
    WF_TRY(k->rule == WF_KEY_INT    ? wf_json_read_int(&r->in, k->json, member)
           : k->rule == WF_KEY_REAL ? wf_json_read_number(&r->in, k->json, member)
                                    : wf_json_read_bool(&r->in, k->json, member));
    return is_zero_factor(k, member) ? fail(r, WF_ERR_UNSUPPORTED, k->json, "must not be 0")
                                     : WF_OK;
}

/* Fills sizes that follow from others. The bound keeps the product from overflowing before the
 * check. */
static void derive_sizes(const reader *r)
{
    wf_config *c = r->c;
    wf_layer *l = &c->all;
    const wf_json_node *kv = get(r, "num_key_value_heads");
    if (l->kv_heads == 0 && wf_json_missing(kv))
        l->kv_heads = l->heads;
    if (kv && kv->kind == WF_JSON_NULL) /* present but null: not the type's default */
        l->kv_heads = l->heads;
    if (l->key_dim == 0 && wf_json_missing(get(r, "head_dim")) && l->heads > 0)
        l->key_dim = c->width / l->heads;
    l->value_dim = l->key_dim;
    c->qkv_bias |= c->family->qkv_bias;
    c->out_bias |= c->family->biases;
    c->mlp_bias |= c->family->biases;
    if (l->hidden == 0 && c->family->hidden_factor && c->width > 0 && c->width < INT32_MAX)
        l->hidden = c->family->hidden_factor * c->width;
}

static wf_status read_keys(const reader *r)
{
    for (const wf_key *k = r->c->type->keys; k->json || k->gguf; k++)
        if (k->json)
            WF_TRY(read_key(r, k));
    derive_sizes(r);
    return WF_OK;
}

/* GPT-2 only: scale_attn_weights = false leaves scores as they are. */
static wf_status read_scale(const reader *r)
{
    bool scaled = true;
    if (r->c->family->rotary)
        return WF_OK;
    WF_TRY(wf_json_read_bool(&r->in, "scale_attn_weights", &scaled));
    r->c->scale = scaled ? 0 : 1;
    return WF_OK;
}

/* ---- Layers ---- */

/* Reads sliding_window into c->all.window, 0 for null. */
static wf_status read_window(const reader *r)
{
    int64_t *window = &r->c->all.window;
    *window = get(r, "sliding_window") ? 0 : r->c->type->window;
    WF_TRY(wf_json_read_int(&r->in, "sliding_window", window));
    if (!wf_json_missing(get(r, "sliding_window")) && *window < 1)
        return fail(r, WF_ERR_FORMAT, "sliding_window", "must be at least 1");
    return WF_OK;
}

/* Reads a list with one item per layer; *out is NULL if the key is missing. */
static wf_status get_list(const reader *r, const char *key, const wf_json_node **out)
{
    const wf_json_node *list = get(r, key);
    *out = NULL;
    if (wf_json_missing(list))
        return WF_OK;
    if (list->kind != WF_JSON_ARRAY)
        return fail(r, WF_ERR_FORMAT, key, "must be a list");
    if (list->count != (size_t)r->c->layers)
        return wf_fail(r->in.arena->ctx, WF_ERR_FORMAT,
                       "%s: %s lists %zu layer%s, but num_hidden_layers is %lld", r->in.what, key,
                       list->count, WF_PLURAL(list->count), (long long)r->c->layers);
    *out = list;
    return WF_OK;
}

/* Applies layer_types to layers whose windows have their defaults. Types of models whose layers are
 * all alike must agree with them. */
static wf_status read_layer_types(const reader *r, wf_layer *layer)
{
    const wf_config *c = r->c;
    const wf_windows kind = c->type->windows;
    const wf_json_node *types;
    WF_TRY(get_list(r, "layer_types", &types));
    for (int64_t i = 0; types && i < c->layers; i++) {
        bool window = wf_json_is(&types->child[i], "sliding_attention");
        if (!window && !wf_json_is(&types->child[i], "full_attention"))
            return fail(r, WF_ERR_UNSUPPORTED, "layer_types",
                        "may contain only full_attention and sliding_attention");
        if (window && c->all.window == 0)
            return fail(r, WF_ERR_FORMAT, "layer_types",
                        "contains sliding_attention, but sliding_window is not set or not used");
        if (window != (layer[i].window > 0) && kind <= WF_WINDOWS_ALL)
            return fail(r, WF_ERR_UNSUPPORTED, "layer_types",
                        "differs between layers, which Weft does not support for this model_type");
        layer[i].window = window ? c->all.window : 0;
    }
    return WF_OK;
}

/* Qwen: layers from max_window_layers on have a window, if use_sliding_window is true. */
static wf_status read_late_windows(const reader *r, wf_layer *layer)
{
    int64_t first = 28;
    bool used = false;
    WF_TRY(wf_json_read_bool(&r->in, "use_sliding_window", &used));
    WF_TRY(wf_json_read_int(&r->in, "max_window_layers", &first));
    if (used)
        WF_TRY(read_window(r));
    for (int64_t i = 0; i < r->c->layers; i++)
        layer[i].window = i >= first ? r->c->all.window : 0;
    return WF_OK;
}

/* Layers without rotary positions, by no_rope_layers (1: the layer has them) or by an interval. */
static wf_status read_no_rope(const reader *r, wf_layer *layer)
{
    const wf_json_node *list;
    int64_t interval = r->c->family->nope_interval;
    WF_TRY(get_list(r, "no_rope_layers", &list));
    WF_TRY(wf_json_read_int(&r->in, "no_rope_layer_interval", &interval));
    if (interval < 1)
        return fail(r, WF_ERR_FORMAT, "no_rope_layer_interval", "must be at least 1");
    for (int64_t i = 0; i < r->c->layers; i++) {
        bool rotates = (i + 1) % interval != 0;
        if (list && list->child[i].kind != WF_JSON_NUMBER)
            return fail(r, WF_ERR_FORMAT, "no_rope_layers", "must contain only 0 and 1");
        if (list)
            rotates = list->child[i].number != 0;
        layer[i].rope = rotates ? 0 : WF_NO_ROPE;
    }
    return WF_OK;
}

/* SmolLM3: a window applies to the layers without rotary positions. layer_types alone decides where
 * it is present. */
static wf_status read_nope_windows(const reader *r, wf_layer *layer)
{
    bool used = false;
    WF_TRY(read_no_rope(r, layer));
    WF_TRY(wf_json_read_bool(&r->in, "use_sliding_window", &used));
    if (used || !wf_json_missing(get(r, "layer_types")))
        WF_TRY(read_window(r));
    for (int64_t i = 0; i < r->c->layers; i++)
        layer[i].window = used && layer[i].rope == WF_NO_ROPE ? r->c->all.window : 0;
    return WF_OK;
}

/* OLMo 3, Cohere 2: every period-th layer sees the whole context. */
static wf_status read_listed_windows(const reader *r, wf_layer *layer)
{
    int64_t period = r->c->family->window_period;
    WF_TRY(read_window(r));
    if (r->c->all.window == 0)
        return fail(r, WF_ERR_FORMAT, "sliding_window", "must be at least 1");
    WF_TRY(wf_json_read_int(&r->in, "sliding_window_pattern", &period));
    if (period < 1)
        return fail(r, WF_ERR_FORMAT, "sliding_window_pattern", "must be at least 1");
    for (int64_t i = 0; i < r->c->layers; i++)
        layer[i].window = (i + 1) % period != 0 ? r->c->all.window : 0;
    return WF_OK;
}

static wf_status read_windows(const reader *r, wf_layer *layer)
{
    switch (r->c->type->windows) {
    case WF_WINDOWS_NONE: break;
    case WF_WINDOWS_ALL:
        WF_TRY(read_window(r));
        for (int64_t i = 0; i < r->c->layers; i++)
            layer[i].window = r->c->all.window;
        break;
    case WF_WINDOWS_LATE: WF_TRY(read_late_windows(r, layer)); break;
    case WF_WINDOWS_LISTED: WF_TRY(read_listed_windows(r, layer)); break;
    case WF_WINDOWS_NOPE: WF_TRY(read_nope_windows(r, layer)); break;
    }
    return read_layer_types(r, layer);
}

/* The array of layers is always built and checked, even if all layers are alike. */
static wf_status read_layers(const reader *r)
{
    wf_layer *layer = wf_config_split_layers(r->in.arena, r->c);
    if (!layer)
        return WF_ERR_MEMORY;
    WF_TRY(read_windows(r, layer));
    wf_config_set_ropes(r->c, layer);
    wf_config_join_layers(r->c);
    return WF_OK;
}

/* A multimodal config has the decoder's own in text_config. */
static wf_status find_text(reader *r, const char **type)
{
    const wf_json_node *text = get(r, "text_config");
    if (wf_json_missing(text))
        return fail(r, WF_ERR_FORMAT, "text_config", "is missing");
    if (text->kind != WF_JSON_OBJECT)
        return fail(r, WF_ERR_FORMAT, "text_config", "must be an object");
    WF_TRY(wf_json_check_keys(&r->in, &wf_wrapper_type));
    r->in.json = text;
    r->in.prefix = "text_config.";
    *type = wf_json_get_string(text, "model_type", "mistral");
    return WF_OK;
}

wf_status wf_config_from_json(wf_arena *arena, const char *what, const wf_json_node *json,
                              wf_config *out)
{
    reader r = {.in = {.arena = arena, .what = what, .prefix = "", .json = json}, .c = out};
    const char *type = wf_json_get_string(json, "model_type", NULL);
    *out = (wf_config){0};
    if (!type)
        return wf_fail(arena->ctx, WF_ERR_FORMAT, "%s: model_type is missing", what);
    out->family = wf_family_of_wrapper(type);
    out->wrapped = out->family;
    if (out->wrapped) {
        WF_TRY(find_text(&r, &type));
        WF_TRY(wf_family_find_inner(arena->ctx, what, out->family, type, &out->type));
    } else
        WF_TRY(wf_family_find_type(arena->ctx, what, type, &out->family, &out->type));
    WF_TRY(wf_json_check_keys(&r.in, out->type));
    WF_TRY(read_keys(&r));
    if (out->wrapped) { /* its own tie_word_embeddings decides */
        out->tied = true;
        const wf_json_reader outer = {arena, what, "", json};
        WF_TRY(wf_json_read_bool(&outer, "tie_word_embeddings", &out->tied));
    }
    WF_TRY(read_scale(&r));
    if (out->family->rotary)
        WF_TRY(wf_ropes_from_json(&r.in, out));
    WF_TRY(wf_config_check(arena->ctx, what, out));
    WF_TRY(read_layers(&r));
    return wf_config_check(arena->ctx, what, out);
}
