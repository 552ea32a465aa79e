/* SPDX-License-Identifier: MIT */
/*
 * rope_json.c - reads the rotary positions of a config.json.
 *
 * Defaults and precedence follow transformers 5 (modeling_rope_utils.py).
 */
#include <math.h>
#include <string.h>

#include "model/config_json.h"
#include "model/family.h"

static const char *const names[] = {
    [WF_ROPE_PLAIN] = "default", [WF_ROPE_LINEAR] = "linear", [WF_ROPE_DYNAMIC] = "dynamic",
    [WF_ROPE_LLAMA3] = "llama3", [WF_ROPE_YARN] = "yarn",     [WF_ROPE_LONG] = "longrope",
};

const char *wf_rope_scaling_name(wf_rope_scaling scaling)
{
    return names[scaling];
}

/* Returns whether a type accepts a scaling. Types with long_rope have no other. */
static bool accepts(const wf_model_type *of, wf_rope_scaling scaling)
{
    if (!of || scaling == WF_ROPE_PLAIN)
        return true;
    return of->long_rope == (scaling == WF_ROPE_LONG);
}

/* "rope_type" takes precedence over the older "type". Types with long_rope call it "su" and "yarn"
 * too. */
static wf_status read_type(const wf_json_reader *r, const wf_model_type *of, wf_rope_scaling *out)
{
    const bool long_rope = of && of->long_rope;
    const wf_json_node *type = wf_json_get(r->json, "rope_type");
    char shown[WF_TEXT_SHOWN];
    if (wf_json_missing(type))
        type = wf_json_get(r->json, "type");
    *out = WF_ROPE_PLAIN;
    if (wf_json_missing(type))
        return WF_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (wf_json_is(type, names[i]) && accepts(of, (wf_rope_scaling)i)) {
            *out = (wf_rope_scaling)i;
            return WF_OK;
        }
    if (long_rope && (wf_json_is(type, "su") || wf_json_is(type, "yarn"))) {
        *out = WF_ROPE_LONG;
        return WF_OK;
    }
    return wf_fail(
        r->arena->ctx, WF_ERR_UNSUPPORTED, "%s: %srope_type '%s' is not supported; %s are", r->what,
        r->prefix,
        type->kind == WF_JSON_STRING ? wf_text_show(shown, type->string, type->bytes) : "",
        long_rope ? "default and longrope" : "default, linear, dynamic, llama3 and yarn");
}

/* Reads a number that this scaling requires. */
static wf_status require(const wf_json_reader *r, const char *key, double *out)
{
    if (wf_json_missing(wf_json_get(r->json, key)))
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s%s is missing", r->what, r->prefix,
                       key);
    return wf_json_read_number(r, key, out);
}

static wf_status read_magnitude(const wf_json_reader *r, wf_rotary *rope)
{
    double mscale = 0, all = 0;
    WF_TRY(wf_json_read_number(r, "mscale", &mscale));
    WF_TRY(wf_json_read_number(r, "mscale_all_dim", &all));
    if (mscale == 1 && all != 0 && wf_json_missing(wf_json_get(r->json, "attention_factor")))
        rope->log_multiplier = all;
    if (mscale != 0 && all != 0)
        rope->magnitude = wf_rope_yarn_magnitude(rope->factor, mscale) /
                          wf_rope_yarn_magnitude(rope->factor, all);
    if (wf_json_missing(wf_json_get(r->json, "attention_factor")))
        return WF_OK;
    WF_TRY(wf_json_read_number(r, "attention_factor", &rope->magnitude));
    if (!(rope->magnitude > 0))
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %sattention_factor %g must exceed 0",
                       r->what, r->prefix, rope->magnitude);
    return WF_OK;
}

/* Reads yarn's truncate; null is false. */
static wf_status read_truncate(const wf_json_reader *r, wf_rotary *rope)
{
    bool rounds = !wf_json_get(r->json, "truncate");
    WF_TRY(wf_json_read_bool(r, "truncate", &rounds));
    rope->unrounded = !rounds;
    return WF_OK;
}

static wf_status read_yarn(const wf_json_reader *r, double context, wf_rotary *rope)
{
    double fast = 0, slow = 0;
    if (!wf_json_get(r->json, "factor"))
        WF_TRY(require(r, "factor", &rope->factor));
    rope->factor = context / rope->original; /* if it is null */
    WF_TRY(wf_json_read_number(r, "factor", &rope->factor));
    WF_TRY(wf_json_read_number(r, "beta_fast", &fast));
    WF_TRY(wf_json_read_number(r, "beta_slow", &slow));
    rope->beta_fast = fast != 0 ? fast : 32;
    rope->beta_slow = slow != 0 ? slow : 1;
    WF_TRY(read_truncate(r, rope));
    return read_magnitude(r, rope);
}

/* Reads a list of rotated / 2 positive factors. */
static wf_status read_factors(const wf_json_reader *r, const char *key, int64_t count,
                              const float **out)
{
    const wf_json_node *list = wf_json_get(r->json, key);
    if (!list || list->kind != WF_JSON_ARRAY || list->count != (size_t)count)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %s%s must list %lld factor%s", r->what,
                       r->prefix, key, (long long)count, WF_PLURAL(count));
    float *factors = wf_arena_alloc(r->arena, (size_t)count * sizeof *factors);
    if (!factors)
        return WF_ERR_MEMORY;
    for (int64_t i = 0; i < count; i++) {
        factors[i] = (float)list->child[i].number;
        if (list->child[i].kind != WF_JSON_NUMBER || !isfinite(factors[i]) || !(factors[i] > 0))
            return wf_fail(r->arena->ctx, WF_ERR_FORMAT,
                           "%s: %s%s must contain positive numbers only", r->what, r->prefix, key);
    }
    *out = factors;
    return WF_OK;
}

static wf_status read_long(const wf_json_reader *r, double context, wf_rotary *rope)
{
    WF_TRY(read_factors(r, "short_factor", rope->dims / 2, &rope->short_divisors));
    WF_TRY(read_factors(r, "long_factor", rope->dims / 2, &rope->long_divisors));
    rope->factor = context / rope->original;
    WF_TRY(wf_json_read_number(r, "factor", &rope->factor));
    WF_TRY(wf_json_read_number(r, "attention_factor", &rope->magnitude));
    return WF_OK;
}

static wf_status read_scaling(const wf_json_reader *r, double context, wf_rotary *rope)
{
    switch (rope->scaling) {
    case WF_ROPE_PLAIN: return WF_OK;
    case WF_ROPE_LINEAR:
    case WF_ROPE_DYNAMIC: return require(r, "factor", &rope->factor);
    case WF_ROPE_LLAMA3:
        WF_TRY(require(r, "factor", &rope->factor));
        WF_TRY(require(r, "low_freq_factor", &rope->low));
        return require(r, "high_freq_factor", &rope->high);
    case WF_ROPE_YARN: return read_yarn(r, context, rope);
    case WF_ROPE_LONG: return read_long(r, context, rope);
    }
    return WF_OK;
}

wf_status wf_rope_from_json(const wf_json_reader *r, const wf_model_type *type, double context,
                            double original, wf_rotary *rope)
{
    if (r->json->kind != WF_JSON_OBJECT)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %.*s must be an object", r->what,
                       (int)strlen(r->prefix) - 1, r->prefix);
    WF_TRY(read_type(r, type, &rope->scaling));
    WF_TRY(wf_json_check_rope_keys(r, rope->scaling));
    double partial = 1;
    WF_TRY(wf_json_read_number(r, "partial_rotary_factor", &partial));
    if (type && type->partial == 0 && partial != 1)
        return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                       "%s: %spartial_rotary_factor %g is not supported: whole heads must be "
                       "rotated",
                       r->what, r->prefix, partial);
    rope->exact = true;
    rope->factor = 1;
    rope->original = context;
    WF_TRY(wf_json_read_number(r, "original_max_position_embeddings", &rope->original));
    if (original != 0) /* next to the object: takes precedence */
        rope->original = original;
    WF_TRY(wf_json_read_number(r, "rope_theta", &rope->base));
    return read_scaling(r, context, rope);
}

/* ---- All rotary positions of a model ---- */

/* Sets the rotated dimensions. The object's partial_rotary_factor takes precedence over the one
 * next to it. */
static wf_status read_partial(const wf_json_reader *r, const wf_json_node *object, wf_config *c)
{
    const wf_json_reader in = {r->arena, r->what, "rope_parameters.", object};
    double partial = c->type->partial != 0 ? c->type->partial : 1;
    if (c->type->partial != 0)
        WF_TRY(wf_json_read_number(r, "partial_rotary_factor", &partial));
    if (c->type->partial != 0 && object && object->kind == WF_JSON_OBJECT)
        WF_TRY(wf_json_read_number(&in, "partial_rotary_factor", &partial));
    if (!(partial > 0 && partial <= 1))
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT,
                       "%s: partial_rotary_factor is %g; it must be above 0 and at most 1", r->what,
                       partial);
    c->rope[0].dims = (int64_t)((double)c->all.key_dim * partial);
    return WF_OK;
}

/* Mistral 3: queries grow with the logarithm of the position. */
static wf_status read_q_scale(const wf_json_reader *r, wf_config *c)
{
    c->q_length = c->rope[0].original;
    return require(r, "llama_4_scaling_beta", &c->q_scale);
}

/* transformers' rope of a Mistral 3 without rope_parameters. */
static void set_q_scale_defaults(wf_config *c)
{
    wf_rotary *r = &c->rope[0];
    r->base = 1e6;
    r->scaling = WF_ROPE_YARN;
    r->factor = 16;
    r->original = 16384;
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->magnitude = 1;
    c->q_scale = 0.1;
    c->q_length = r->original;
}

/* Reads one object of OLMo 3. transformers reads truncate next to the objects, not inside. */
static wf_status read_part(const wf_json_reader *r, const wf_json_node *both, const wf_config *c,
                           wf_rotary *rope)
{
    const wf_json_reader outer = {r->arena, r->what, "rope_parameters.", both};
    WF_TRY(wf_rope_from_json(r, c->type, (double)c->context, 0, rope));
    rope->unrounded = false;
    return rope->scaling == WF_ROPE_YARN && both ? read_truncate(&outer, rope) : WF_OK;
}

/* OLMo 3: rope_parameters has an object for each type of layer. Layers with a window keep unscaled
 * rope; rope_scaling and the top-level rope_theta apply to the others. */
static wf_status read_parts(const wf_json_reader *r, wf_config *c)
{
    const wf_json_node *both = wf_json_get(r->json, "rope_parameters");
    const wf_json_node *scaling = wf_json_get(r->json, "rope_scaling");
    const wf_json_node *part[2] = {wf_json_missing(scaling) ? NULL : scaling, NULL};
    static const char *const prefixes[2] = {"rope_parameters.full_attention.",
                                            "rope_parameters.sliding_attention."};
    static const char *const keys[2] = {"full_attention", "sliding_attention"};
    c->ropes = 2;
    c->rope[1] = c->rope[0];
    if (wf_json_missing(wf_json_get(r->json, "rope_theta")) == false)
        c->rope[1].base = c->family->window_theta;
    for (int i = 0; i < 2 && !wf_json_missing(both); i++) {
        const wf_json_node *own = wf_json_get(both, keys[i]);
        if (!wf_json_missing(own) && part[i])
            return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                           "%s: rope_scaling and rope_parameters.%s are both given; remove one",
                           r->what, keys[i]);
        if (!wf_json_missing(own))
            part[i] = own;
    }
    if (!wf_json_missing(both) && !part[0] && !part[1])
        return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                       "%s: rope_parameters must have the members full_attention and "
                       "sliding_attention",
                       r->what);
    for (int i = 0; i < 2; i++) {
        wf_json_reader in = {r->arena, r->what, prefixes[i], part[i]};
        if (part[i] == scaling)
            in.prefix = "rope_scaling.";
        if (part[i])
            WF_TRY(read_part(&in, both, c, &c->rope[i]));
    }
    return WF_OK;
}

/* Of two objects, transformers uses rope_scaling unless it is null or empty. */
wf_status wf_ropes_from_json(const wf_json_reader *r, wf_config *c)
{
    wf_rotary *rope = &c->rope[0];
    wf_json_reader in = *r;
    double original = c->type->long_rope ? 4096 : 0;
    c->ropes = 1;
    rope->exact = true;
    rope->interleaved = c->family->pairs;
    WF_TRY(wf_json_read_number(r, "original_max_position_embeddings", &original));
    rope->original = original; /* GGUF files of longrope types have it in any case */
    in.json = wf_json_get(r->json, "rope_scaling");
    in.prefix = "rope_scaling.";
    if (wf_json_missing(in.json) || (in.json->kind == WF_JSON_OBJECT && in.json->count == 0)) {
        in.json = wf_json_get(r->json, "rope_parameters");
        in.prefix = "rope_parameters.";
    }
    WF_TRY(read_partial(r, in.json, c));
    if (c->type->rope_parts)
        return read_parts(r, c);
    if (wf_json_missing(in.json)) {
        if (c->type->q_scale)
            set_q_scale_defaults(c);
        return WF_OK;
    }
    WF_TRY(wf_rope_from_json(&in, c->type, (double)c->context, original, rope));
    return c->type->q_scale ? read_q_scale(&in, c) : WF_OK;
}
