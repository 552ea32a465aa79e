/* SPDX-License-Identifier: MIT */
/*
 * sampler_order.c - parses a list of sampler names, "top_k;top_p;temperature".
 *
 * The names and their spellings are llama.cpp's. Samplers that Weft lacks are skipped if
 * llama.cpp's defaults turn them off, so that lists of GGUF files can be used unchanged.
 */
#include "model/sampler_order.h"

#include <string.h>

#define OFF (-1) /* a sampler that Weft lacks and that llama.cpp disables by default */

static const struct {
    const char *names; /* without dashes and underscores, each followed by a space */
    int kind;
} samplers[] = {
    {"penalties ", WF_SAMPLER_PENALTIES},
    {"topk ", WF_SAMPLER_TOP_K},
    {"topp nucleus ", WF_SAMPLER_TOP_P},
    {"minp ", WF_SAMPLER_MIN_P},
    {"temperature temp ", WF_SAMPLER_TEMPERATURE},
    {"dry ", OFF},
    {"topnsigma ", OFF},
    {"typp typ ", OFF},
    {"xtc ", OFF},
};
#define SAMPLERS ((int)(sizeof samplers / sizeof *samplers))
#define LONGEST 24    /* bytes of a name */
#define MOST_NAMES 64 /* most names in a list, including skipped ones */

static bool is_named(const char *names, const char *word, size_t bytes)
{
    for (const char *end; (end = strchr(names, ' ')) != NULL; names = end + 1)
        if ((size_t)(end - names) == bytes && memcmp(names, word, bytes) == 0)
            return true;
    return false;
}

/* Returns the index in `samplers`, or SAMPLERS if unknown. */
static int find(const char *name, size_t bytes)
{
    /* Compared in lower case, without dashes and underscores: "Top-K" is "topk". */
    char word[LONGEST];
    size_t n = 0;
    /* A longer name leaves word empty, which matches nothing. */
    for (size_t i = 0; i < bytes && bytes <= LONGEST; i++) {
        if (name[i] == '_' || name[i] == '-')
            continue;
        word[n++] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] - 'A' + 'a') : name[i];
    }
    int i = 0;
    while (i < SAMPLERS && !is_named(samplers[i].names, word, n))
        i++;
    return i;
}

static wf_status add(wf_ctx *ctx, const char *name, size_t bytes, wf_sampler_order *out)
{
    char shown[WF_TEXT_SHOWN];
    int found = find(name, bytes);
    if (found == SAMPLERS)
        return wf_fail(ctx, WF_ERR_USAGE, "sampling: unknown sampler '%s'; use " WF_SAMPLER_ORDER,
                       wf_text_show(shown, name, bytes));
    if (samplers[found].kind == OFF)
        return WF_OK;
    if (out->count == WF_MAX_SAMPLERS)
        return wf_fail(ctx, WF_ERR_USAGE, "sampling: the list has more than %d samplers",
                       WF_MAX_SAMPLERS);
    out->step[out->count++] = (wf_sampler_kind)samplers[found].kind;
    return WF_OK;
}

wf_status wf_sampler_order_parse(wf_ctx *ctx, const char *text, size_t bytes, wf_sampler_order *out)
{
    int names = 0;
    out->count = 0;
    for (size_t from = 0, end; from < bytes; from = end + 1) {
        const char *semicolon = memchr(text + from, ';', bytes - from);
        end = semicolon ? (size_t)(semicolon - text) : bytes;
        if (++names > MOST_NAMES)
            return wf_fail(ctx, WF_ERR_USAGE, "sampling: the list has more than %d names",
                           MOST_NAMES);
        WF_TRY(add(ctx, text + from, end - from, out));
    }
    return WF_OK;
}

bool wf_sampler_order_has(const wf_sampler_order *order, wf_sampler_kind kind)
{
    for (int i = 0; i < order->count; i++)
        if (order->step[i] == kind)
            return true;
    return false;
}
