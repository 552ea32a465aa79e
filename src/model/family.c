/* SPDX-License-Identifier: MIT */
/* family.c - the list of families, and the mapping of weight names between conventions. */
#include "model/family.h"

#include <stdlib.h>
#include <string.h>

const wf_family *const wf_families[] = {
#define WF_FAMILY(name) &wf_family_##name,
#include "model/families.def"
#undef WF_FAMILY
    NULL};

/* The message lists the families with their display names. */
static wf_status refuse(wf_ctx *ctx, const char *what, const char *name)
{
    char known[700];
    size_t len = 0;
    for (int i = 0; wf_families[i]; i++)
        wf_text_append(known, sizeof known, &len, "%s%s (%s)", i ? ", " : "", wf_families[i]->name,
                       wf_families[i]->title);
    return wf_fail(ctx, WF_ERR_UNSUPPORTED,
                   "%s has the architecture '%.60s', which Weft does not support; supported are %s",
                   what, name, known);
}

wf_status wf_family_find(wf_ctx *ctx, const char *what, const char *architecture,
                         const wf_family **out)
{
    for (int i = 0; wf_families[i]; i++)
        if (strcmp(wf_families[i]->name, architecture) == 0) {
            *out = wf_families[i];
            return WF_OK;
        }
    *out = NULL;
    return refuse(ctx, what, architecture);
}

wf_status wf_family_find_type(wf_ctx *ctx, const char *what, const char *model_type,
                              const wf_family **out, const wf_model_type **type)
{
    for (int i = 0; wf_families[i]; i++)
        for (const wf_model_type *t = wf_families[i]->types; t->name; t++)
            if (strcmp(t->name, model_type) == 0) {
                *out = wf_families[i];
                *type = t;
                return WF_OK;
            }
    *out = NULL;
    *type = NULL;
    return refuse(ctx, what, model_type);
}

const wf_family *wf_family_of_wrapper(const char *model_type)
{
    for (int i = 0; wf_families[i]; i++)
        if (wf_families[i]->wrapper && strcmp(wf_families[i]->wrapper, model_type) == 0)
            return wf_families[i];
    return NULL;
}

wf_status wf_family_find_inner(wf_ctx *ctx, const char *what, const wf_family *family,
                               const char *model_type, const wf_model_type **type)
{
    for (const wf_model_type *t = family->types; t->name; t++)
        if (strcmp(t->name, model_type) == 0) {
            *type = t;
            return WF_OK;
        }
    *type = NULL;
    return refuse(ctx, what, model_type);
}

/* Matches the start of a name against a pattern. *layer is the number in place of %d, or -1 without
 * %d; *rest is what follows the match. */
static bool matches(const char *pattern, const char *name, int *layer, const char **rest)
{
    const char *mark = strstr(pattern, "%d");
    *layer = -1;
    *rest = name;
    if (mark) {
        size_t before = (size_t)(mark - pattern);
        if (strncmp(pattern, name, before) != 0)
            return false;
        char *end;
        long number = strtol(name + before, &end, 10);
        if (end == name + before || number < 0 || number > INT32_MAX)
            return false;
        *layer = (int)number;
        pattern = mark + 2;
        name = end;
    }
    size_t length = strlen(pattern);
    *rest = name + length;
    return strncmp(pattern, name, length) == 0 && **rest == '.';
}

/* Returns the row of a weight; *layer and *rest as in matches. */
static const wf_weight_name *find_row(const wf_family *family, const char *name, int *layer,
                                      const char **rest)
{
    for (const wf_weight_name *w = family->weights; w->name; w++)
        if (matches(w->name, name, layer, rest))
            return w;
    return NULL;
}

/* Appends a pattern with the layer in place of %d, and the suffix. */
static void put_name(char out[WF_NAME_BYTES], size_t *len, const char *pattern, int layer,
                     const char *rest)
{
    const char *mark = strstr(pattern, "%d");
    if (mark)
        wf_text_append(out, WF_NAME_BYTES, len, "%.*s%d%s%s", (int)(mark - pattern), pattern, layer,
                       mark + 2, rest);
    else
        wf_text_append(out, WF_NAME_BYTES, len, "%s%s", pattern, rest);
}

const wf_weight_name *wf_family_hugging_face(const wf_family *family, const char *name, bool prefix,
                                             char out[WF_NAME_BYTES])
{
    int layer;
    const char *rest;
    size_t len = 0;
    const wf_weight_name *w = find_row(family, name, &layer, &rest);
    if (!w)
        return NULL;
    /* The head is outside the model in transformers, so its name has no prefix. */
    bool head = strcmp(w->name, "output") == 0;
    wf_text_append(out, WF_NAME_BYTES, &len, "%s", prefix && !head ? family->prefix : "");
    put_name(out, &len, w->hugging_face, layer, rest);
    return w;
}

const wf_weight_name *wf_family_part_name(const wf_family *family, const char *name, bool prefix,
                                          int part, char out[WF_NAME_BYTES])
{
    char pattern[WF_NAME_BYTES];
    size_t len = 0;
    const wf_weight_name *w = wf_family_hugging_face(family, name, prefix, pattern);
    const char *mark = w ? strstr(pattern, "%e") : NULL;
    if (!w || (!mark && part > 0))
        return NULL;
    if (mark)
        wf_text_append(out, WF_NAME_BYTES, &len, "%.*s%d%s", (int)(mark - pattern), pattern, part,
                       mark + 2);
    else
        memcpy(out, pattern, sizeof pattern);
    return w;
}

void wf_family_sibling(const wf_weight_name *row, const wf_weight_name *other, const char *name,
                       char out[WF_NAME_BYTES])
{
    int layer;
    const char *rest;
    size_t len = 0;
    out[0] = '\0';
    if (matches(row->name, name, &layer, &rest))
        put_name(out, &len, other->name, layer, rest);
}

bool wf_family_split(const wf_config *config, const char *name, int part, char out[WF_NAME_BYTES],
                     int64_t *rows)
{
    int number;
    const char *rest;
    size_t len = 0;
    if (part > 2 || !matches("blk.%d.attn_qkv", name, &number, &rest) || number >= config->layers)
        return false;
    const wf_layer *l = wf_config_layer(config, number);
    *rows = part == 0   ? l->heads * l->key_dim
            : part == 1 ? l->kv_heads * l->key_dim
                        : l->kv_heads * l->value_dim;
    wf_text_append(out, WF_NAME_BYTES, &len, "blk.%d.attn_%c%s", number, "qkv"[part], rest);
    return true;
}
