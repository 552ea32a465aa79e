/* SPDX-License-Identifier: MIT */
/*
 * rope_json.c - reads the rotary positions of a config.json.
 *
 * Defaults and precedence follow transformers 5 (modeling_rope_utils.py).
 */
#include <math.h>
#include <string.h>

#include "model/config_json.h"

static const char *const names[] = {
    [WF_ROPE_PLAIN] = "default", [WF_ROPE_LINEAR] = "linear", [WF_ROPE_DYNAMIC] = "dynamic",
    [WF_ROPE_LLAMA3] = "llama3", [WF_ROPE_YARN] = "yarn",
};

const char *wf_rope_scaling_name(wf_rope_scaling scaling)
{
    return names[scaling];
}

/* "rope_type" takes precedence over the older "type". */
static wf_status read_type(const wf_json_reader *r, wf_rope_scaling *out)
{
    const wf_json_node *type = wf_json_get(r->json, "rope_type");
    char shown[WF_TEXT_SHOWN];
    if (wf_json_missing(type))
        type = wf_json_get(r->json, "type");
    *out = WF_ROPE_PLAIN;
    if (wf_json_missing(type))
        return WF_OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (wf_json_is(type, names[i])) {
            *out = (wf_rope_scaling)i;
            return WF_OK;
        }
    return wf_fail(
        r->arena->ctx, WF_ERR_UNSUPPORTED,
        "%s: %srope_type '%s' is not supported; default, linear, dynamic, llama3 and yarn "
        "are",
        r->what, r->prefix,
        type->kind == WF_JSON_STRING ? wf_text_show(shown, type->string, type->bytes) : "");
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

static wf_status read_yarn(const wf_json_reader *r, double context, wf_rotary *rope)
{
    const wf_json_node *truncate = wf_json_get(r->json, "truncate");
    bool rounds = !truncate; /* null is false */
    double fast = 0, slow = 0;
    if (!wf_json_get(r->json, "factor"))
        WF_TRY(require(r, "factor", &rope->factor));
    rope->factor = context / rope->original; /* if it is null */
    WF_TRY(wf_json_read_number(r, "factor", &rope->factor));
    WF_TRY(wf_json_read_number(r, "beta_fast", &fast));
    WF_TRY(wf_json_read_number(r, "beta_slow", &slow));
    rope->beta_fast = fast != 0 ? fast : 32;
    rope->beta_slow = slow != 0 ? slow : 1;
    WF_TRY(wf_json_read_bool(r, "truncate", &rounds));
    rope->unrounded = !rounds;
    return read_magnitude(r, rope);
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
    }
    return WF_OK;
}

wf_status wf_rope_from_json(const wf_json_reader *r, double context, double original,
                            wf_rotary *rope)
{
    if (r->json->kind != WF_JSON_OBJECT)
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "%s: %.*s must be an object", r->what,
                       (int)strlen(r->prefix) - 1, r->prefix);
    WF_TRY(read_type(r, &rope->scaling));
    WF_TRY(wf_config_check_keys(r, wf_rope_keys, 1u << rope->scaling));
    rope->exact = true;
    rope->factor = 1;
    rope->original = context;
    WF_TRY(wf_json_read_number(r, "original_max_position_embeddings", &rope->original));
    if (original != 0) /* next to the object: takes precedence */
        rope->original = original;
    WF_TRY(wf_json_read_number(r, "rope_theta", &rope->base));
    return read_scaling(r, context, rope);
}
