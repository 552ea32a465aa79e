/* SPDX-License-Identifier: MIT */
/*
 * override.c - see override.h. Expressions are POSIX extended ones, so that they work in every
 * build.
 */
#include "model/override.h"

#include <ctype.h>
#include <inttypes.h>
#include <regex.h>
#include <string.h>
#include <strings.h>

#include "base/ctx.h"
#include "base/mem.h"
#include "base/text.h"

#define PATTERN_BYTES 1000 /* limit of an expression; nested repetitions take exponential memory */

struct wf_override {
    const char *pattern; /* borrowed from the options */
    wf_type type;
    bool compiled; /* `regex` must be freed */
    bool matched;  /* some matrix */
    regex_t regex;
};

/* Accepts names of plain floats and of quantized types, in any case. */
static wf_status find_type(wf_ctx *ctx, const char *name, wf_type *out)
{
    char known[300], shown[WF_TEXT_SHOWN];
    size_t len = 0;
    for (int t = WF_TYPE_NONE + 1; t < WF_TYPE_COUNT; t++) {
        wf_kind kind = wf_type_get((wf_type)t)->kind;
        if (kind != WF_KIND_FLOAT && kind != WF_KIND_BLOCK)
            continue;
        *out = (wf_type)t;
        if (strcasecmp(wf_type_name(*out), name) == 0)
            return WF_OK;
        wf_text_append(known, sizeof known, &len, "%s%s", len ? ", " : "", wf_type_name(*out));
    }
    return wf_fail(ctx, WF_ERR_USAGE, "unknown type '%s' for single tensors; use one of: %s",
                   wf_text_show(shown, name, strlen(name)), known);
}

/* Refuses escapes that POSIX leaves undefined: "\d" would match the letter d. */
static wf_status check_escapes(wf_ctx *ctx, const char *pattern)
{
    char shown[WF_TEXT_SHOWN];
    for (const char *p = pattern; *p; p++)
        if (*p == '\\' && *++p && isalnum((unsigned char)*p))
            return wf_fail(ctx, WF_ERR_USAGE,
                           "the pattern '%s' contains \\%c, which POSIX regular expressions do not "
                           "have; for digits write [0-9]",
                           wf_text_show(shown, pattern, strlen(pattern)), *p);
    return WF_OK;
}

static wf_status compile(wf_ctx *ctx, const wf_tensor_type *from, wf_override *to)
{
    char reason[120], shown[WF_TEXT_SHOWN];
    to->pattern = from->pattern;
    WF_TRY(find_type(ctx, from->type, &to->type));
    size_t bytes = strlen(from->pattern);
    if (bytes == 0 || bytes > PATTERN_BYTES)
        return wf_fail(ctx, WF_ERR_USAGE,
                       "a pattern for tensor names has %zu bytes; it must have 1 to %d", bytes,
                       PATTERN_BYTES);
    WF_TRY(check_escapes(ctx, from->pattern));
    int code = regcomp(&to->regex, from->pattern, REG_EXTENDED | REG_NOSUB);
    to->compiled = code == 0;
    if (code == REG_ESPACE)
        return wf_fail(ctx, WF_ERR_MEMORY, "out of memory for the pattern '%s'",
                       wf_text_show(shown, from->pattern, bytes));
    if (code != 0) {
        regerror(code, &to->regex, reason, sizeof reason);
        return wf_fail(ctx, WF_ERR_USAGE, "the pattern '%s' is not a regular expression: %s",
                       wf_text_show(shown, from->pattern, bytes), reason);
    }
    return WF_OK;
}

wf_status wf_overrides_make(wf_ctx *ctx, const wf_tensor_type *rules, int count, wf_overrides *out)
{
    *out = (wf_overrides){.ctx = ctx};
    if (count == 0)
        return WF_OK;
    out->rule = wf_mem_array(ctx, (size_t)count, sizeof *out->rule);
    if (!out->rule)
        return WF_ERR_MEMORY;
    for (; out->count < count; out->count++)
        WF_TRY(compile(ctx, &rules[out->count], &out->rule[out->count]));
    return WF_OK;
}

void wf_overrides_free(wf_overrides *o)
{
    for (int i = 0; i < o->count; i++)
        if (o->rule[i].compiled)
            regfree(&o->rule[i].regex);
    wf_mem_free(o->ctx, o->rule);
}

/* All rules are tried, not only up to the first match, so that wf_overrides_check names only those
 * that match nothing. */
static const wf_override *find(wf_overrides *o, const char *name)
{
    const wf_override *first = NULL;
    for (int i = 0; i < o->count; i++)
        if (regexec(&o->rule[i].regex, name, 0, NULL, 0) == 0) {
            o->rule[i].matched = true;
            first = first ? first : &o->rule[i];
        }
    return first;
}

wf_status wf_overrides_apply(wf_overrides *o, const char *name, int64_t columns, wf_type *type)
{
    const wf_override *r = find(o, name);
    if (!r)
        return WF_OK;
    const int block = wf_type_get(r->type)->block;
    if (columns % block != 0)
        return wf_fail(o->ctx, WF_ERR_USAGE,
                       "%s cannot be %s: its rows have %" PRId64
                       " elements, not a multiple of the block of %d; choose another type for it",
                       name, wf_type_name(r->type), columns, block);
    *type = r->type;
    return WF_OK;
}

wf_status wf_overrides_check(const wf_overrides *o)
{
    char shown[WF_TEXT_SHOWN];
    for (int i = 0; i < o->count; i++)
        if (!o->rule[i].matched)
            return wf_fail(o->ctx, WF_ERR_USAGE,
                           "no matrix has a name that matches '%s'; names are like "
                           "blk.0.attn_v.weight (`weft info --tensors` lists the names of a file)",
                           wf_text_show(shown, o->rule[i].pattern, strlen(o->rule[i].pattern)));
    return WF_OK;
}
