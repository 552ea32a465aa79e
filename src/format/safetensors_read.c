/* SPDX-License-Identifier: MIT */
/*
 * safetensors_read.c - reads a safetensors file.
 *
 *   u64, little-endian   length of the header
 *   header               JSON: name -> {dtype, shape, data_offsets}, and __metadata__
 *   data                 the bytes of the tensors, which fill the rest without gaps
 *
 * Offsets count from the end of the header. White space around the JSON is accepted, as in the
 * reference implementation. The header's length is checked against the file and a fixed limit
 * before it is parsed; each range must match dtype and shape, and the ranges must tile the data.
 */
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "format/safetensors.h"
#include "format/safetensors_priv.h"

/* All dtypes of the format, with bits per element. WF_TYPE_NONE: the tensor is listed but cannot be
 * computed with. */
static const wf_safetensors_type types[] = {
    {"F32", 32, WF_F32},
    {"F16", 16, WF_F16},
    {"BF16", 16, WF_BF16},
    {"F8_E4M3", 8, WF_E4M3},
    {"F8_E5M2", 8, WF_E5M2},
    {"I32", 32, WF_I32},
    {"I8", 8, WF_I8},
    {"U8", 8, WF_U8},
    {"BOOL", 8, WF_TYPE_NONE},
    {"I16", 16, WF_TYPE_NONE},
    {"U16", 16, WF_TYPE_NONE},
    {"U32", 32, WF_TYPE_NONE},
    {"I64", 64, WF_TYPE_NONE},
    {"U64", 64, WF_TYPE_NONE},
    {"F64", 64, WF_TYPE_NONE},
    {"C64", 64, WF_TYPE_NONE},
    {"F4", 4, WF_TYPE_NONE},
    {"F6_E2M3", 6, WF_TYPE_NONE},
    {"F6_E3M2", 6, WF_TYPE_NONE},
    {"F8_E8M0", 8, WF_TYPE_NONE},
    {"F8_E4M3FNUZ", 8, WF_TYPE_NONE},
    {"F8_E5M2FNUZ", 8, WF_TYPE_NONE},
};
#define TYPES (sizeof types / sizeof *types)

const wf_safetensors_type *wf_safetensors_find_type(const char *name)
{
    for (size_t i = 0; i < TYPES; i++)
        if (strcmp(types[i].name, name) == 0)
            return &types[i];
    return NULL;
}

const char *wf_safetensors_type_name(wf_type type)
{
    for (size_t i = 0; i < TYPES; i++)
        if (types[i].type == type && type != WF_TYPE_NONE)
            return types[i].name;
    return NULL;
}

/* State of reading one file. */
typedef struct {
    wf_store *store;
    int file;
    const char *path;
    /* The mapped file, `size` bytes. */
    const uint8_t *data;
    size_t size;
    size_t base;       /* offset of the tensors' bytes */
    wf_stored *tensor; /* [count]; offsets are relative to base until all are checked */
    size_t count;
} reader;

static wf_status fail_tensor(const reader *r, const wf_json_node *entry, const char *why)
{
    char name[WF_TEXT_SHOWN];
    return wf_fail(r->store->ctx, WF_ERR_FORMAT, "cannot read '%s': tensor '%s' %s", r->path,
                   wf_text_show(name, entry->key, entry->key_bytes), why);
}

/* ---- One entry of the header ---- */

/* Multiplies *count by the dimensions. */
static wf_status read_shape(const reader *r, const wf_json_node *entry, wf_stored *t,
                            int64_t *count)
{
    const wf_json_node *shape = wf_json_get(entry, "shape");
    if (!shape || shape->kind != WF_JSON_ARRAY)
        return fail_tensor(r, entry, "has no shape");
    if (shape->count > WF_MAX_RANK)
        return fail_tensor(r, entry, "has more than 6 dimensions");
    t->shape.n = (int64_t)shape->count;
    for (size_t i = 0; i < shape->count; i++) {
        const wf_json_node *dim = &shape->child[i];
        if (dim->kind != WF_JSON_NUMBER || !dim->whole || dim->integer < 0)
            return fail_tensor(r, entry, "has a dimension that is not an integer from 0 up");
        t->shape.d[i] = dim->integer;
        if (!wf_mul_i64(*count, dim->integer, count))
            return fail_tensor(r, entry, "has too many elements for 64 bits");
    }
    return WF_OK;
}

/* Compared with the bytes after the header, which find_header made non-negative. */
static wf_status read_range(const reader *r, const wf_json_node *entry, wf_stored *t)
{
    const wf_json_node *range = wf_json_get(entry, "data_offsets");
    if (!range || range->kind != WF_JSON_ARRAY || range->count != 2)
        return fail_tensor(r, entry, "has no data_offsets with two numbers");
    const wf_json_node *begin = &range->child[0], *end = &range->child[1];
    if (!begin->whole || !end->whole || begin->integer < 0 || end->integer < begin->integer)
        return fail_tensor(r, entry, "has data_offsets that are not a range");
    if ((uint64_t)end->integer > r->size - r->base)
        return fail_tensor(r, entry, "ends past the end of the file: the file is truncated");
    t->offset = (uint64_t)begin->integer;
    t->bytes = (size_t)(end->integer - begin->integer);
    return WF_OK;
}

static wf_status read_entry(const reader *r, const wf_json_node *entry, wf_stored *t)
{
    if (entry->kind != WF_JSON_OBJECT)
        return fail_tensor(r, entry, "is not a JSON object");
    if (memchr(entry->key, '\0', entry->key_bytes))
        return fail_tensor(r, entry, "has a NUL in its name");
    const wf_json_node *dtype = wf_json_get(entry, "dtype");
    if (!dtype || dtype->kind != WF_JSON_STRING)
        return fail_tensor(r, entry, "has no dtype");
    const wf_safetensors_type *type = wf_safetensors_find_type(dtype->string);
    /* wf_json_is compares the length, too: strcmp stops at a NUL inside the JSON string. */
    if (!type || !wf_json_is(dtype, type->name))
        return fail_tensor(r, entry, "has a dtype that safetensors does not define");

    int64_t count = 1, bits;
    WF_TRY(read_shape(r, entry, t, &count));
    WF_TRY(read_range(r, entry, t));
    if (!wf_mul_i64(count, type->bits, &bits))
        return fail_tensor(r, entry, "has too many elements for 64 bits");
    if (bits % 8 != 0)
        return fail_tensor(r, entry, "does not fill whole bytes");
    if ((uint64_t)bits / 8 != t->bytes)
        return fail_tensor(r, entry, "has data_offsets that do not match its dtype and shape");
    t->name = entry->key;
    t->type = type->type;
    t->type_name = type->name;
    t->file = r->file;
    return WF_OK;
}

/* Checked for form only; its contents are not used. */
static wf_status check_metadata(const reader *r, const wf_json_node *metadata)
{
    bool good = metadata->kind == WF_JSON_OBJECT;
    for (size_t i = 0; good && i < metadata->count; i++)
        good = metadata->child[i].kind == WF_JSON_STRING;
    return good
               ? WF_OK
               : wf_fail(r->store->ctx, WF_ERR_FORMAT,
                         "cannot read '%s': its __metadata__ is not an object of strings", r->path);
}

/* ---- The header ---- */

/* By offset; an empty tensor comes before the one that starts at the same offset. */
static int compare_ranges(const void *a, const void *b)
{
    const wf_stored *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Checks that the tensors fill the file: each starts where the previous one ends. */
static wf_status check_tiling(reader *r)
{
    char name[WF_TEXT_SHOWN];
    uint64_t end = 0;
    if (r->count > 0)
        qsort(r->tensor, r->count, sizeof *r->tensor, compare_ranges);
    for (size_t i = 0; i < r->count; i++) {
        const wf_stored *t = &r->tensor[i];
        if (t->offset != end)
            return wf_fail(r->store->ctx, WF_ERR_FORMAT, "cannot read '%s': tensor '%s' %s",
                           r->path, wf_text_show(name, t->name, strlen(t->name)),
                           t->offset > end ? "does not begin where the previous one ends"
                                           : "overlaps the previous one");
        /* Cannot overflow: each tensor ends within the file, and each begins where the last one
         * ended. */
        end += t->bytes;
    }
    if (end != r->size - r->base)
        return wf_fail(r->store->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': %zu byte%s at its end belong%s to no tensor", r->path,
                       (size_t)(r->size - r->base - end), WF_PLURAL(r->size - r->base - end),
                       r->size - r->base - end == 1 ? "s" : "");
    return WF_OK;
}

static wf_status read_header(reader *r, const wf_json_node *header)
{
    if (header->kind != WF_JSON_OBJECT)
        return wf_fail(r->store->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': its header is not a JSON object", r->path);
    r->tensor = wf_mem_array(r->store->ctx, header->count, sizeof *r->tensor);
    if (!r->tensor)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < header->count; i++) {
        const wf_json_node *entry = &header->child[i];
        if (strcmp(entry->key, "__metadata__") == 0)
            WF_TRY(check_metadata(r, entry));
        else
            WF_TRY(read_entry(r, entry, &r->tensor[r->count++]));
    }
    WF_TRY(check_tiling(r));
    for (size_t i = 0; i < r->count; i++) {
        r->tensor[i].offset += r->base;
        WF_TRY(wf_store_add(r->store, &r->tensor[i]));
    }
    return WF_OK;
}

/* Finds the header's length, and checks that the file contains the whole header. */
static wf_status find_header(reader *r, size_t *bytes)
{
    static const char lfs[] = "version https://git-lfs";
    wf_ctx *ctx = r->store->ctx;
    if (r->size >= sizeof lfs - 1 && memcmp(r->data, lfs, sizeof lfs - 1) == 0)
        return wf_fail(
            ctx, WF_ERR_FORMAT,
            "cannot read '%s': it is a Git LFS pointer, not the file itself; get the file "
            "with git lfs pull",
            r->path);
    if (r->size < 8)
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "cannot read '%s': a file of %zu byte%s is too short for safetensors",
                       r->path, r->size, WF_PLURAL(r->size));
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--)
        length = length << 8 | r->data[i];
    if (length > WF_SAFETENSORS_HEADER)
        return wf_fail(
            ctx, WF_ERR_FORMAT,
            "cannot read '%s': its header of %llu bytes exceeds the limit of safetensors", r->path,
            (unsigned long long)length);
    if (length > r->size - 8)
        return wf_fail(ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it ends inside its header: the file is truncated",
                       r->path);
    *bytes = (size_t)length;
    r->base = 8 + *bytes;
    return WF_OK;
}

wf_status wf_safetensors_read_file(wf_store *s, int file)
{
    const wf_map *map = s->file[file].map;
    reader r = {
        .store = s, .file = file, .path = s->file[file].path, .data = map->data, .size = map->size};
    wf_arena arena;
    wf_arena_init(&arena, s->ctx);
    size_t bytes = 0;
    wf_json_node *header;
    wf_status status = find_header(&r, &bytes);
    if (status == WF_OK)
        status = wf_json_parse(&arena, r.path, (const char *)r.data + 8, bytes, &header);
    if (status == WF_OK)
        status = read_header(&r, header);
    wf_mem_free(s->ctx, r.tensor);
    wf_arena_free(&arena);
    return status;
}

wf_status wf_safetensors_read(wf_store *s, const char *path)
{
    int file;
    WF_TRY(wf_store_map(s, path, &file));
    return wf_safetensors_read_file(s, file);
}
