/* SPDX-License-Identifier: MIT */
/*
 * gguf_read.c - parses one GGUF file. All integers are little-endian.
 *
 *     magic, version u32    n_tensors, n_pairs u64
 *     n_pairs   times: key string, kind u32, value
 *     n_tensors times: name string, n_dims u32, dims u64 (innermost first), type u32, offset u64
 *     padding to the alignment; then the data: offsets count from here
 *
 * A string is its length (u64) and its bytes. An array is the kind of its elements (u32), their
 * count (u64) and the elements.
 */
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "format/gguf_priv.h"
#include "format/names.h"

#define PAIR_MIN_BYTES 13   /* an empty key and a value of one byte */
#define TENSOR_MIN_BYTES 24 /* an empty name and no dimensions */

typedef struct {
    wf_ctx *ctx;
    const char *file; /* base name, for messages */
    const uint8_t *data;
    size_t size, at;   /* bytes of the file; position, at <= size */
    const char *item;  /* what is being read, for messages: "key" or "tensor"; NULL: the header */
    wf_gguf_text name; /* of the item */
} cursor;

static wf_status fail(const cursor *c, wf_status status, const char *fmt, ...) WF_PRINTF(3, 4);

/* Fails with "cannot read 'FILE': tensor 'NAME' ...". */
static wf_status fail(const cursor *c, wf_status status, const char *fmt, ...)
{
    char text[WF_MESSAGE_BYTES], shown[WF_TEXT_SHOWN];
    size_t len = 0;
    va_list args;
    if (c->item)
        wf_text_append(text, sizeof text, &len, "%s '%s' ", c->item,
                       wf_text_show(shown, c->name.bytes, c->name.len));
    va_start(args, fmt);
    wf_text_vappend(text, sizeof text, &len, fmt, args);
    va_end(args);
    return wf_fail(c->ctx, status, "cannot read '%s': %s", c->file, text);
}

static wf_status fail_end(const cursor *c, const char *what)
{
    return fail(c, WF_ERR_FORMAT, "%s %s: the file is truncated",
                c->item ? "ends in" : "it ends in", what);
}

/* ---- Numbers and strings ---- */

/* Copies fixed-size bytes at the cursor. at <= size, so the subtraction cannot wrap. */
static wf_status take(cursor *c, void *to, size_t bytes, const char *what)
{
    if (c->size - c->at < bytes)
        return fail_end(c, what);
    memcpy(to, c->data + c->at, bytes);
    c->at += bytes;
    return WF_OK;
}

/* Reads a string without copying it: *out points into the mapped file and has no NUL. */
static wf_status take_text(cursor *c, wf_gguf_text *out, const char *what)
{
    uint64_t len = 0;
    WF_TRY(take(c, &len, sizeof len, what));
    if (len > c->size - c->at)
        return fail(c, WF_ERR_FORMAT,
                    "%s %s of %" PRIu64 " bytes, but only %zu bytes follow: the file is truncated",
                    c->item ? "has" : "it has", what, len, c->size - c->at);
    *out = (wf_gguf_text){(const char *)c->data + c->at, (size_t)len};
    c->at += (size_t)len;
    return WF_OK;
}

/* Reads a key or the name of a tensor. Later messages name it. */
static wf_status take_name(cursor *c, const char *item, const char *what, size_t most)
{
    c->item = NULL;
    WF_TRY(take_text(c, &c->name, what));
    c->item = item;
    if (c->name.len > most)
        return fail(c, WF_ERR_FORMAT, "has a name of %zu bytes; the maximum is %zu", c->name.len,
                    most);
    if (memchr(c->name.bytes, '\0', c->name.len))
        return fail(c, WF_ERR_FORMAT, "has a NUL in its name");
    return WF_OK;
}

/* ---- Pairs ---- */

static wf_status take_kind(cursor *c, wf_gguf_kind *out)
{
    uint32_t kind = 0;
    WF_TRY(take(c, &kind, sizeof kind, "its kind"));
    if (kind >= WF_GGUF_KINDS)
        return fail(c, WF_ERR_FORMAT, "has a value of kind %" PRIu32 ", which GGUF does not have",
                    kind);
    *out = (wf_gguf_kind)kind;
    return WF_OK;
}

/* Walks over the strings before allocating, so that memory is proportional to the file's bytes. */
static wf_status take_texts(cursor *c, wf_arena *arena, wf_gguf_pair *p)
{
    wf_gguf_text text;
    size_t begin = c->at, bytes;
    for (uint64_t i = 0; i < p->count; i++)
        WF_TRY(take_text(c, &text, "a string"));
    if (!wf_mul_size((size_t)p->count, sizeof text, &bytes))
        bytes = SIZE_MAX;
    p->text = wf_arena_alloc(arena, bytes);
    if (!p->text)
        return WF_ERR_MEMORY;
    c->at = begin;
    for (uint64_t i = 0; i < p->count; i++)
        WF_TRY(take_text(c, &p->text[i], "a string"));
    return WF_OK;
}

/* Dividing instead of multiplying keeps a hostile count from overflowing. */
static wf_status take_numbers(cursor *c, wf_gguf_pair *p, wf_gguf_kind kind)
{
    size_t width = wf_gguf_kinds[kind].bytes;
    /* width is not 0: strings and arrays, the kinds without a width, do not come here. */
    if (p->count > (c->size - c->at) / width)
        return p->kind == WF_GGUF_ARRAY
                   ? fail(c, WF_ERR_FORMAT,
                          "is an array of %" PRIu64 " values, but only %zu bytes follow: the "
                          "file is truncated",
                          p->count, c->size - c->at)
                   : fail_end(c, "its value");
    for (uint64_t i = 0; kind == WF_GGUF_BOOL && i < p->count; i++)
        if (p->data[i] > 1)
            return fail(c, WF_ERR_FORMAT, "has the bool %d, which is neither 0 nor 1", p->data[i]);
    c->at += (size_t)p->count * width;
    return WF_OK;
}

static wf_status take_pair(cursor *c, wf_arena *arena, wf_gguf_pair *p)
{
    WF_TRY(take_name(c, "key", "a key", WF_GGUF_MAX_KEY));
    WF_TRY(take_kind(c, &p->kind));
    wf_gguf_kind kind = p->kind;
    p->count = 1;
    p->element = kind;
    if (kind == WF_GGUF_ARRAY) {
        WF_TRY(take_kind(c, &p->element));
        WF_TRY(take(c, &p->count, sizeof p->count, "the length of its array"));
        kind = p->element;
        /* Nested arrays would need recursion with a limit of its own. */
        if (kind == WF_GGUF_ARRAY)
            return fail(c, WF_ERR_FORMAT, "is an array of arrays, which Weft does not read");
    }
    p->data = c->data + c->at;
    WF_TRY(kind == WF_GGUF_STRING ? take_texts(c, arena, p) : take_numbers(c, p, kind));
    char *key = wf_arena_alloc(arena, c->name.len + 1);
    if (!key)
        return WF_ERR_MEMORY;
    memcpy(key, c->name.bytes, c->name.len);
    p->key = key;
    return WF_OK;
}

/* The array grows as pairs are read: a header that lies about its count allocates nothing for
 * it. */
static wf_status take_pairs(cursor *c, wf_arena *arena, uint64_t count, wf_gguf_part *out)
{
    if (count > INT_MAX || count > (c->size - c->at) / PAIR_MIN_BYTES)
        return fail(c, WF_ERR_FORMAT, "its header declares %" PRIu64 " keys, too many for its size",
                    count);
    for (int room = 0; (uint64_t)out->pairs < count; out->pairs++) {
        void *grown = wf_mem_room(c->ctx, out->pair, out->pairs, &room, sizeof *out->pair);
        if (!grown)
            return WF_ERR_MEMORY;
        out->pair = grown;
        WF_TRY(take_pair(c, arena, &out->pair[out->pairs]));
    }
    WF_TRY(wf_names_sort(c->ctx, out->pair, (size_t)out->pairs, sizeof *out->pair, &out->sorted));
    const char *twice = wf_names_twice(out->sorted, (size_t)out->pairs);
    c->item = "key";
    if (twice) {
        c->name = (wf_gguf_text){twice, strlen(twice)};
        return fail(c, WF_ERR_FORMAT, "occurs twice");
    }
    return WF_OK;
}

/* The key must be read before the tensors: it decides where their data begins. */
static wf_status find_alignment(cursor *c, const wf_gguf_part *part, size_t *out)
{
    static const char key[] = "general.alignment";
    const wf_gguf_pair *p = wf_names_find(part->sorted, (size_t)part->pairs, key);
    *out = WF_GGUF_ALIGNMENT;
    if (!p)
        return WF_OK;
    c->item = "key";
    c->name = (wf_gguf_text){key, sizeof key - 1};
    if (p->kind != WF_GGUF_U32)
        return fail(c, WF_ERR_FORMAT, "has kind %s; it must be u32", wf_gguf_kinds[p->kind].name);
    uint32_t value;
    memcpy(&value, p->data, sizeof value);
    if (value < WF_GGUF_MIN_ALIGNMENT || value > WF_GGUF_MAX_ALIGNMENT ||
        (value & (value - 1)) != 0)
        return fail(c, WF_ERR_FORMAT, "is %" PRIu32 "; it must be a power of two from %d to %d",
                    value, WF_GGUF_MIN_ALIGNMENT, WF_GGUF_MAX_ALIGNMENT);
    *out = value;
    return WF_OK;
}

/* ---- Tensors ---- */

/* Dimensions are innermost first in the file, outermost first in *shape. */
static wf_status take_shape(cursor *c, wf_dims *shape)
{
    uint32_t rank = 0;
    WF_TRY(take(c, &rank, sizeof rank, "the number of its dimensions"));
    if (rank > WF_GGUF_MAX_RANK)
        return fail(c, WF_ERR_FORMAT, "has %" PRIu32 " dimensions; the maximum is %d", rank,
                    WF_GGUF_MAX_RANK);
    *shape = (wf_dims){.n = rank};
    for (uint32_t i = 0; i < rank; i++) {
        int64_t *dim = &shape->d[rank - 1 - i];
        WF_TRY(take(c, dim, sizeof *dim, "its dimensions"));
        /* Read as signed, so a value above 2^63 is refused here too. */
        if (*dim <= 0)
            return fail(c, WF_ERR_FORMAT, "has a dimension of %" PRId64 "; the minimum is 1", *dim);
    }
    return WF_OK;
}

static wf_status take_type(cursor *c, wf_stored *t)
{
    uint32_t id = 0;
    char list[WF_GGUF_TYPE_LIST];
    WF_TRY(take(c, &id, sizeof id, "its type"));
    const wf_gguf_type_info *info = wf_gguf_type_by_id(id);
    if (!info)
        return fail(c, WF_ERR_UNSUPPORTED, "has unknown type %" PRIu32 "; Weft supports %s", id,
                    wf_gguf_type_list(list));
    if (info->type == WF_TYPE_NONE)
        return fail(c, WF_ERR_UNSUPPORTED, "has type %s; Weft supports %s", info->name,
                    wf_gguf_type_list(list));
    t->type = info->type;
    t->type_name = info->name;
    return WF_OK;
}

/* Sets the tensor's bytes from type and shape. */
static wf_status count_bytes(cursor *c, wf_stored *t)
{
    int64_t count = 1;
    for (int i = 0; i < t->shape.n; i++)
        if (!wf_mul_i64(count, t->shape.d[i], &count))
            return fail(c, WF_ERR_FORMAT, "has too many elements for 64 bits");
    const wf_type_info *info = wf_type_get(t->type);
    int64_t row = wf_dims_last(&t->shape);
    if (row % info->block != 0)
        return fail(c, WF_ERR_FORMAT,
                    "has type %s and rows of %" PRId64 ", which is not a multiple of %d",
                    t->type_name, row, info->block);
    /* wf_type_bytes returns 0 on overflow. No dimension is 0, so a valid size is never 0. */
    t->bytes = wf_type_bytes(t->type, count);
    if (t->bytes == 0)
        return fail(c, WF_ERR_FORMAT, "has too many bytes for 64 bits");
    return WF_OK;
}

/* Reads all fields except the file. The offset counts from the start of the data. */
static wf_status take_tensor(cursor *c, size_t alignment, wf_stored *t)
{
    *t = (wf_stored){0};
    WF_TRY(take_name(c, "tensor", "the name of a tensor", WF_GGUF_MAX_NAME));
    WF_TRY(take_shape(c, &t->shape));
    WF_TRY(take_type(c, t));
    WF_TRY(take(c, &t->offset, sizeof t->offset, "its offset"));
    if (t->offset % alignment != 0)
        return fail(c, WF_ERR_FORMAT, "has offset %" PRIu64 ", which is not a multiple of %zu",
                    t->offset, alignment);
    return count_bytes(c, t);
}

/* Makes the offset absolute and adds the tensor. wf_store_add checks it against the end of the
 * file. The name fits: take_name limits its length. */
static wf_status add_tensor(cursor *c, wf_store *store, int file, size_t data, wf_stored *t)
{
    char name[WF_GGUF_MAX_NAME + 1];
    size_t offset;
    if (!wf_add_size(data, t->offset, &offset))
        return fail(c, WF_ERR_FORMAT, "has offset %" PRIu64 ", past the end of the file",
                    t->offset);
    memcpy(name, c->name.bytes, c->name.len);
    name[c->name.len] = '\0';
    t->name = name;
    t->file = file;
    t->offset = offset;
    return wf_store_add(store, t);
}

static int by_offset(const void *a, const void *b)
{
    const wf_stored *x = *(const wf_stored *const *)a, *y = *(const wf_stored *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

/* Checks the tensors from `first` on, all of one file: they may have gaps between them, but no byte
 * belongs to two. */
static wf_status check_overlap(cursor *c, const wf_store *store, int first)
{
    size_t count = (size_t)(store->count - first);
    const wf_stored **order = wf_mem_array(c->ctx, count, sizeof *order);
    if (!order)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < count; i++)
        order[i] = &store->tensor[(size_t)first + i];
    qsort(order, count, sizeof *order, by_offset);
    wf_status status = WF_OK;
    for (size_t i = 1; i < count && status == WF_OK; i++)
        /* Sorted, so the difference is not negative; a sum of offset and bytes could overflow. */
        if (order[i]->offset - order[i - 1]->offset < order[i - 1]->bytes) {
            char shown[WF_TEXT_SHOWN];
            c->name = (wf_gguf_text){order[i]->name, strlen(order[i]->name)};
            status = fail(c, WF_ERR_FORMAT, "overlaps tensor '%s'",
                          wf_text_show(shown, order[i - 1]->name, strlen(order[i - 1]->name)));
        }
    wf_mem_free(c->ctx, order);
    return status;
}

/* Reads the list twice: the start of the data is known only at the end of the list. */
static wf_status take_tensors(cursor *c, wf_store *store, int file, uint64_t count,
                              size_t alignment)
{
    wf_stored t;
    int first = store->count;
    size_t begin = c->at, data;
    c->item = NULL;
    if (count > INT_MAX || count > (c->size - c->at) / TENSOR_MIN_BYTES)
        return fail(c, WF_ERR_FORMAT,
                    "its header declares %" PRIu64 " tensors, too many for its size", count);
    for (uint64_t i = 0; i < count; i++)
        WF_TRY(take_tensor(c, alignment, &t));
    if (!wf_align_size(c->at, alignment, &data))
        return fail(c, WF_ERR_FORMAT, "its size exceeds the address space");
    c->at = begin;
    for (uint64_t i = 0; i < count; i++) {
        WF_TRY(take_tensor(c, alignment, &t));
        WF_TRY(add_tensor(c, store, file, data, &t));
    }
    return check_overlap(c, store, first);
}

/* ---- The file ---- */

/* A byte-swapped version number marks a big-endian file. */
static wf_status take_version(cursor *c, uint32_t *version)
{
    uint32_t magic = 0;
    WF_TRY(take(c, &magic, sizeof magic, "its first four bytes"));
    if (magic != WF_GGUF_MAGIC)
        return fail(c, WF_ERR_FORMAT, "it is not a GGUF file: it does not begin with GGUF");
    WF_TRY(take(c, version, sizeof *version, "its version"));
    if (*version == 2 || *version == 3)
        return WF_OK;
    if (*version != 0 && (*version & 0xffff) == 0)
        return fail(c, WF_ERR_FORMAT,
                    "it is a big-endian GGUF file; Weft reads only little-endian files");
    return fail(c, WF_ERR_FORMAT, "it has GGUF version %" PRIu32 "; Weft reads versions 2 and 3",
                *version);
}

wf_status wf_gguf_read_part(wf_store *store, int file, wf_gguf_part *out)
{
    const wf_map *map = store->file[file].map;
    cursor c = {.ctx = store->ctx,
                .file = wf_store_base_name(store->file[file].path),
                .data = map->data,
                .size = map->size};
    uint64_t tensors = 0, pairs = 0;
    size_t alignment;
    *out = (wf_gguf_part){0};
    WF_TRY(take_version(&c, &out->version));
    WF_TRY(take(&c, &tensors, sizeof tensors, "the number of its tensors"));
    WF_TRY(take(&c, &pairs, sizeof pairs, "the number of its keys"));
    WF_TRY(take_pairs(&c, &store->arena, pairs, out));
    WF_TRY(find_alignment(&c, out, &alignment));
    return take_tensors(&c, store, file, tensors, alignment);
}
