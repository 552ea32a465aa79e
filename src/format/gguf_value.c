/* SPDX-License-Identifier: MIT */
/*
 * gguf_value.c - values of GGUF keys, converted to the caller's types.
 *
 * A missing key is not an error: the getters of one value leave *out unchanged, so that the caller
 * sets a default first. The values were bounds-checked by gguf_read.c; here only kinds and ranges
 * are checked. Arrays of numbers are copied, because those in the file are not aligned; strings
 * point into the mapping.
 */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "format/gguf.h"
#include "format/gguf_priv.h"

static bool is_int(wf_gguf_kind kind)
{
    return wf_gguf_kinds[kind].sort == WF_GGUF_SIGNED ||
           wf_gguf_kinds[kind].sort == WF_GGUF_UNSIGNED;
}

static bool is_number(wf_gguf_kind kind)
{
    return is_int(kind) || wf_gguf_kinds[kind].sort == WF_GGUF_FLOAT;
}

/* Returns the name of the file that the keys came from, for messages. */
static const char *file_of(const wf_gguf *f)
{
    return wf_store_base_name(f->store.file[f->pairs_file].path);
}

/* Names the kind that the file has and the one that was expected. */
static wf_status fail_kind(const wf_gguf *f, const wf_gguf_pair *p, const char *wanted)
{
    char shown[WF_TEXT_SHOWN];
    bool array = p->kind == WF_GGUF_ARRAY;
    return wf_fail(f->store.ctx, WF_ERR_FORMAT, "cannot read '%s': key '%s' is %s%s%s; expected %s",
                   file_of(f), wf_text_show(shown, p->key, strlen(p->key)),
                   array ? "an array of kind " : "", array ? "" : "of kind ",
                   wf_gguf_kinds[p->element].name, wanted);
}

wf_status wf_gguf_get_int(const wf_gguf *f, const char *key, int64_t low, int64_t high,
                          int64_t *out)
{
    const wf_gguf_pair *p = wf_gguf_find(f, key);
    if (!p)
        return WF_OK;
    if (!is_int(p->kind))
        return fail_kind(f, p, "an integer");
    int64_t value;
    /* A u64 above INT64_MAX, hence above `high`. */
    if (!wf_gguf_load_int(p->kind, p->data, &value))
        return wf_fail(f->store.ctx, WF_ERR_FORMAT,
                       "cannot read '%s': key '%s' is larger than %" PRId64, file_of(f), key, high);
    if (value < low || value > high)
        return wf_fail(f->store.ctx, WF_ERR_FORMAT,
                       "cannot read '%s': key '%s' is %" PRId64 "; expected %" PRId64
                       " to %" PRId64,
                       file_of(f), key, value, low, high);
    *out = value;
    return WF_OK;
}

/* An integer that exceeds int64 is a u64. */
static double load_number(wf_gguf_kind kind, const uint8_t *at)
{
    int64_t whole;
    uint64_t bits;
    if (!is_int(kind))
        return wf_gguf_load_float(kind, at);
    if (wf_gguf_load_int(kind, at, &whole))
        return (double)whole;
    memcpy(&bits, at, sizeof bits);
    return (double)bits;
}

wf_status wf_gguf_get_float(const wf_gguf *f, const char *key, double *out)
{
    const wf_gguf_pair *p = wf_gguf_find(f, key);
    if (p && !is_number(p->kind))
        return fail_kind(f, p, "a number");
    if (p)
        *out = load_number(p->kind, p->data);
    return WF_OK;
}

wf_status wf_gguf_get_bool(const wf_gguf *f, const char *key, bool *out)
{
    const wf_gguf_pair *p = wf_gguf_find(f, key);
    if (p && p->kind != WF_GGUF_BOOL)
        return fail_kind(f, p, "a bool");
    if (p)
        *out = p->data[0] != 0;
    return WF_OK;
}

wf_status wf_gguf_get_text(const wf_gguf *f, const char *key, wf_gguf_text *out)
{
    const wf_gguf_pair *p = wf_gguf_find(f, key);
    *out = (wf_gguf_text){0};
    if (p && p->kind != WF_GGUF_STRING)
        return fail_kind(f, p, "a string");
    if (p)
        *out = p->text[0];
    return WF_OK;
}

wf_status wf_gguf_get_texts(const wf_gguf *f, const char *key, const wf_gguf_text **out,
                            size_t *count)
{
    const wf_gguf_pair *p = wf_gguf_find(f, key);
    *out = NULL;
    *count = 0;
    if (p && (p->kind != WF_GGUF_ARRAY || p->element != WF_GGUF_STRING))
        return fail_kind(f, p, "an array of strings");
    if (p) {
        *out = p->text;
        *count = (size_t)p->count;
    }
    return WF_OK;
}

/* Allocates `size` bytes per element of p in the file's arena. */
static void *make_copy(wf_gguf *f, const wf_gguf_pair *p, size_t size)
{
    size_t bytes;
    if (!wf_mul_size((size_t)p->count, size, &bytes))
        bytes = SIZE_MAX; /* the arena refuses it with a message */
    return wf_arena_alloc(&f->store.arena, bytes);
}

wf_status wf_gguf_get_ints(wf_gguf *f, const char *key, const int64_t **out, size_t *count)
{
    const wf_gguf_pair *p = wf_gguf_find(f, key);
    *out = NULL;
    *count = 0;
    if (!p)
        return WF_OK;
    if (p->kind != WF_GGUF_ARRAY || !is_int(p->element))
        return fail_kind(f, p, "an array of integers");
    size_t width = wf_gguf_kinds[p->element].bytes;
    int64_t *copy = make_copy(f, p, sizeof *copy);
    if (!copy)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < (size_t)p->count; i++)
        if (!wf_gguf_load_int(p->element, p->data + i * width, &copy[i]))
            return wf_fail(f->store.ctx, WF_ERR_FORMAT,
                           "cannot read '%s': element %zu of key '%s' is larger than %" PRId64,
                           file_of(f), i, key, INT64_MAX);
    *out = copy;
    *count = (size_t)p->count;
    return WF_OK;
}

wf_status wf_gguf_get_floats(wf_gguf *f, const char *key, const float **out, size_t *count)
{
    const wf_gguf_pair *p = wf_gguf_find(f, key);
    *out = NULL;
    *count = 0;
    if (!p)
        return WF_OK;
    if (p->kind != WF_GGUF_ARRAY || !is_number(p->element))
        return fail_kind(f, p, "an array of numbers");
    size_t width = wf_gguf_kinds[p->element].bytes;
    float *copy = make_copy(f, p, sizeof *copy);
    if (!copy)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < (size_t)p->count; i++)
        copy[i] = (float)load_number(p->element, p->data + i * width);
    *out = copy;
    *count = (size_t)p->count;
    return WF_OK;
}
