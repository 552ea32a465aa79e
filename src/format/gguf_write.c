/* SPDX-License-Identifier: MIT */
/*
 * gguf_write.c - writes GGUF files, version 3. gguf_read.c describes the layout.
 *
 * The same calls write the same bytes. Pairs are encoded when declared; the rest of a header is
 * encoded when its part begins. Parts after the first have only the split.* pairs and the
 * alignment.
 */
#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/sink.h"
#include "base/writer.h"
#include "format/gguf_priv.h"
#include "format/names.h"

#define MAX_PARTS UINT16_MAX /* split.count is a u16 */
#define MAX_WRITTEN_NAME 63  /* bytes; ggml refuses longer names */

typedef struct {
    const char *name; /* must be first: names.h */
    const wf_gguf_type_info *type;
    wf_dims shape;
    size_t bytes;
    int part;
    size_t offset; /* from the start of its part's data */
} item;

typedef struct {
    const char *key; /* must be first: names.h */
} key_of_pair;

struct wf_gguf_writer {
    wf_ctx *ctx;
    wf_arena arena; /* owns names and paths */
    char *path;
    size_t alignment;
    uint64_t split_bytes; /* most bytes of tensors per part; 0: no limit */

    wf_writer pairs;  /* encoded pairs */
    key_of_pair *key; /* [keys], to find duplicates */
    int keys, key_room;
    item *tensor; /* [count], in the order of declaration */
    int count, room;

    wf_sink **sink; /* [parts], NULL for parts not begun; sink is NULL before wf_gguf_write_begin */
    int parts, part; /* number of parts; the one being written */
    int at;          /* tensor being written */
    size_t done;     /* bytes of it already written */
};

/* Fails with "cannot write 'FILE': ...". WF_ERR_USAGE: the caller broke the protocol of the
 * writer. */
static wf_status fail(const wf_gguf_writer *w, const char *fmt, ...) WF_PRINTF(2, 3);

static wf_status fail(const wf_gguf_writer *w, const char *fmt, ...)
{
    char text[WF_MESSAGE_BYTES];
    size_t len = 0;
    va_list args;
    va_start(args, fmt);
    wf_text_vappend(text, sizeof text, &len, fmt, args);
    va_end(args);
    return wf_fail(w->ctx, WF_ERR_USAGE, "cannot write '%s': %s", wf_store_base_name(w->path),
                   text);
}

/* ---- Making and freeing ---- */

wf_status wf_gguf_write_new(wf_ctx *ctx, const char *path, const wf_gguf_write_options *options,
                            wf_gguf_writer **out)
{
    uint32_t alignment = options && options->alignment ? options->alignment : WF_GGUF_ALIGNMENT;
    *out = NULL;
    if (alignment < WF_GGUF_MIN_ALIGNMENT || alignment > WF_GGUF_MAX_ALIGNMENT ||
        (alignment & (alignment - 1)) != 0)
        return wf_fail(
            ctx, WF_ERR_USAGE,
            "cannot write '%s': alignment %" PRIu32 " is not a power of two from %d to %d",
            wf_store_base_name(path), alignment, WF_GGUF_MIN_ALIGNMENT, WF_GGUF_MAX_ALIGNMENT);
    wf_gguf_writer *w = wf_mem_new(ctx, sizeof *w);
    if (!w)
        return WF_ERR_MEMORY;
    w->ctx = ctx;
    w->pairs.ctx = ctx;
    w->alignment = alignment;
    w->split_bytes = options ? options->split_bytes : 0;
    wf_arena_init(&w->arena, ctx);
    w->path = wf_arena_strdup(&w->arena, path);
    if (!w->path) {
        wf_gguf_write_free(w);
        return WF_ERR_MEMORY;
    }
    *out = w;
    return WF_OK;
}

void wf_gguf_write_free(wf_gguf_writer *w)
{
    if (!w)
        return;
    for (int i = 0; w->sink && i < w->parts; i++)
        wf_sink_free(w->sink[i]);
    wf_mem_free(w->ctx, w->sink);
    wf_mem_free(w->ctx, w->pairs.text);
    wf_mem_free(w->ctx, w->key);
    wf_mem_free(w->ctx, w->tensor);
    wf_arena_free(&w->arena);
    wf_mem_free(w->ctx, w);
}

/* ---- Encoding ---- */

static void put_u32(wf_writer *to, uint32_t value)
{
    wf_writer_bytes(to, &value, sizeof value);
}

static void put_u64(wf_writer *to, uint64_t value)
{
    wf_writer_bytes(to, &value, sizeof value);
}

static void put_text(wf_writer *to, const char *bytes, size_t len)
{
    put_u64(to, len);
    wf_writer_bytes(to, bytes, len);
}

/* An integer of any kind is the first bytes of its 64-bit value (little-endian). */
static void put_int(wf_writer *to, const char *key, wf_gguf_kind kind, int64_t value)
{
    put_text(to, key, strlen(key));
    put_u32(to, kind);
    wf_writer_bytes(to, &value, wf_gguf_kinds[kind].bytes);
}

/* ---- Pairs ---- */

/* Keys that the writer sets itself. */
static bool is_own(const char *key)
{
    return strcmp(key, "general.alignment") == 0 || strncmp(key, "split.", 6) == 0;
}

/* Checks the key and writes it; the caller appends the value. */
static wf_status begin_pair(wf_gguf_writer *w, const char *key, wf_gguf_kind kind)
{
    char shown[WF_TEXT_SHOWN];
    size_t len = strlen(key);
    wf_text_show(shown, key, len);
    if (w->sink)
        return fail(w, "key '%s' is declared after wf_gguf_write_begin", shown);
    if (is_own(key))
        return fail(w, "key '%s' is reserved for the writer", shown);
    if (len > WF_GGUF_MAX_KEY)
        return fail(w, "key '%s' has %zu bytes; the maximum is %d", shown, len, WF_GGUF_MAX_KEY);
    void *grown = wf_mem_room(w->ctx, w->key, w->keys, &w->key_room, sizeof *w->key);
    if (!grown)
        return WF_ERR_MEMORY;
    w->key = grown;
    w->key[w->keys].key = wf_arena_copy(&w->arena, key, len + 1);
    if (!w->key[w->keys].key)
        return WF_ERR_MEMORY;
    w->keys++;
    put_text(&w->pairs, key, len);
    put_u32(&w->pairs, kind);
    return w->pairs.status;
}

wf_status wf_gguf_write_int(wf_gguf_writer *w, const char *key, wf_gguf_kind kind, int64_t value)
{
    char shown[WF_TEXT_SHOWN];
    const wf_gguf_kind_info *info = kind < WF_GGUF_KINDS ? &wf_gguf_kinds[kind] : NULL;
    int64_t back = 0;
    bool is_int = info && (info->sort == WF_GGUF_SIGNED || info->sort == WF_GGUF_UNSIGNED);
    /* The value fits the kind if it reads back unchanged. */
    if (!is_int || !wf_gguf_load_int(kind, (const uint8_t *)&value, &back) || back != value)
        return fail(w, "key '%s': %" PRId64 " does not fit kind %s",
                    wf_text_show(shown, key, strlen(key)), value, info ? info->name : "unknown");
    WF_TRY(begin_pair(w, key, kind));
    wf_writer_bytes(&w->pairs, &value, info->bytes);
    return w->pairs.status;
}

wf_status wf_gguf_write_float(wf_gguf_writer *w, const char *key, double value)
{
    float single = (float)value;
    WF_TRY(begin_pair(w, key, WF_GGUF_F32));
    wf_writer_bytes(&w->pairs, &single, sizeof single);
    return w->pairs.status;
}

wf_status wf_gguf_write_bool(wf_gguf_writer *w, const char *key, bool value)
{
    WF_TRY(begin_pair(w, key, WF_GGUF_BOOL));
    wf_writer_char(&w->pairs, value);
    return w->pairs.status;
}

wf_status wf_gguf_write_text(wf_gguf_writer *w, const char *key, const char *bytes, size_t len)
{
    WF_TRY(begin_pair(w, key, WF_GGUF_STRING));
    put_text(&w->pairs, bytes, len);
    return w->pairs.status;
}

wf_status wf_gguf_write_texts(wf_gguf_writer *w, const char *key, const wf_gguf_text *texts,
                              size_t count)
{
    WF_TRY(begin_pair(w, key, WF_GGUF_ARRAY));
    put_u32(&w->pairs, WF_GGUF_STRING);
    put_u64(&w->pairs, count);
    for (size_t i = 0; i < count; i++)
        put_text(&w->pairs, texts[i].bytes, texts[i].len);
    return w->pairs.status;
}

wf_status wf_gguf_write_array(wf_gguf_writer *w, const char *key, wf_gguf_kind element,
                              const void *data, size_t count)
{
    char shown[WF_TEXT_SHOWN];
    size_t bytes;
    if (element >= WF_GGUF_KINDS || wf_gguf_kinds[element].bytes == 0 ||
        !wf_mul_size(count, wf_gguf_kinds[element].bytes, &bytes))
        return fail(w, "key '%s': an array of %zu values of kind %d is not supported",
                    wf_text_show(shown, key, strlen(key)), count, (int)element);
    WF_TRY(begin_pair(w, key, WF_GGUF_ARRAY));
    put_u32(&w->pairs, element);
    put_u64(&w->pairs, count);
    wf_writer_bytes(&w->pairs, data, bytes);
    return w->pairs.status;
}

/* Copies a pair of another file. Keys that the writer sets itself are skipped: they describe the
 * old file. */
wf_status wf_gguf_write_pair(wf_gguf_writer *w, const wf_gguf_pair *pair)
{
    if (is_own(pair->key))
        return WF_OK;
    if (pair->kind == WF_GGUF_STRING)
        return wf_gguf_write_text(w, pair->key, pair->text->bytes, pair->text->len);
    if (pair->text)
        return wf_gguf_write_texts(w, pair->key, pair->text, (size_t)pair->count);
    if (pair->kind == WF_GGUF_ARRAY)
        return wf_gguf_write_array(w, pair->key, pair->element, pair->data, (size_t)pair->count);
    WF_TRY(begin_pair(w, pair->key, pair->kind));
    wf_writer_bytes(&w->pairs, pair->data, wf_gguf_kinds[pair->kind].bytes);
    return w->pairs.status;
}

/* ---- Tensors ---- */

/* Applies the rules of gguf_read.c, so that every file written can be read. Computes the size. */
static wf_status check_tensor(const wf_gguf_writer *w, const char *name, wf_type type,
                              const wf_dims *shape, size_t *bytes)
{
    char shown[WF_TEXT_SHOWN];
    const wf_type_info *info = wf_type_get(type);
    int64_t count = 1;
    wf_text_show(shown, name, strlen(name));
    if (w->sink)
        return fail(w, "tensor '%s' is declared after wf_gguf_write_begin", shown);
    if (strlen(name) > MAX_WRITTEN_NAME)
        return fail(w, "tensor '%s' has a name of %zu bytes; the maximum is %d", shown,
                    strlen(name), MAX_WRITTEN_NAME);
    if (!wf_gguf_type_of(type))
        return fail(w, "tensor '%s' has type %s, which GGUF does not have", shown, info->name);
    if (shape->n < 0 || shape->n > WF_GGUF_MAX_RANK)
        return fail(w, "tensor '%s' has %" PRId64 " dimensions; the maximum is %d", shown, shape->n,
                    WF_GGUF_MAX_RANK);
    for (int i = 0; i < shape->n; i++)
        if (shape->d[i] < 1 || !wf_mul_i64(count, shape->d[i], &count))
            return fail(w, "tensor '%s' has dimensions that are out of range", shown);
    if (wf_dims_last(shape) % info->block != 0)
        return fail(
            w, "tensor '%s' has rows of %" PRId64 ", which is not a multiple of %d; %s requires it",
            shown, wf_dims_last(shape), info->block, info->name);
    *bytes = wf_type_bytes(type, count);
    if (*bytes == 0)
        return fail(w, "tensor '%s' has dimensions that are out of range", shown);
    return WF_OK;
}

wf_status wf_gguf_write_tensor(wf_gguf_writer *w, const char *name, wf_type type,
                               const wf_dims *shape)
{
    size_t bytes = 0;
    WF_TRY(check_tensor(w, name, type, shape, &bytes));
    void *grown = wf_mem_room(w->ctx, w->tensor, w->count, &w->room, sizeof *w->tensor);
    if (!grown)
        return WF_ERR_MEMORY;
    w->tensor = grown;
    const char *copy = wf_arena_strdup(&w->arena, name);
    if (!copy)
        return WF_ERR_MEMORY;
    w->tensor[w->count++] =
        (item){.name = copy, .type = wf_gguf_type_of(type), .shape = *shape, .bytes = bytes};
    return WF_OK;
}

/* ---- The header of a part ---- */

/* Fails if two items have the same name, the first member of each (names.h). */
static wf_status check_twice(wf_gguf_writer *w, const char *what, const void *items, int count,
                             size_t size)
{
    char shown[WF_TEXT_SHOWN];
    const void **sorted;
    WF_TRY(wf_names_sort(w->ctx, items, (size_t)count, size, &sorted));
    const char *twice = wf_names_twice(sorted, (size_t)count);
    wf_mem_free(w->ctx, sorted);
    return twice ? fail(w, "%s '%s' is declared twice", what,
                        wf_text_show(shown, twice, strlen(twice)))
                 : WF_OK;
}

/* Assigns each tensor a part and an offset, and counts the parts. */
static wf_status lay_out(wf_gguf_writer *w)
{
    size_t end = 0;
    w->parts = 1;
    for (int i = 0; i < w->count; i++) {
        item *t = &w->tensor[i];
        size_t next;
        /* `end` is aligned, so offsets within a part are aligned too. */
        bool fits = wf_add_size(end, t->bytes, &next) && next <= SIZE_MAX - w->alignment;
        if (end > 0 && (!fits || (w->split_bytes && next > w->split_bytes))) {
            if (w->parts == MAX_PARTS)
                return fail(w, "it needs more than %d parts", MAX_PARTS);
            w->parts++;
            end = 0;
            next = t->bytes;
        }
        t->part = w->parts - 1;
        t->offset = end;
        if (!wf_align_size(next, w->alignment, &end))
            return fail(w, "tensor '%s' is too large", t->name);
    }
    return WF_OK;
}

static void put_tensor(wf_writer *to, const item *t)
{
    put_text(to, t->name, strlen(t->name));
    put_u32(to, (uint32_t)t->shape.n);
    for (int64_t i = t->shape.n - 1; i >= 0; i--)
        put_u64(to, (uint64_t)t->shape.d[i]);
    put_u32(to, t->type->id);
    put_u64(to, t->offset);
}

/* Source of all padding, which is shorter than the alignment. */
static const char zeros[WF_GGUF_MAX_ALIGNMENT];

/* Bytes to the next multiple of the alignment, a power of two. */
static size_t padding(const wf_gguf_writer *w, size_t bytes)
{
    return -bytes & (w->alignment - 1);
}

/* Encodes everything before the data. The caller frees to->text, also after a failure. */
static wf_status put_header(const wf_gguf_writer *w, wf_writer *to)
{
    bool first = w->part == 0, split = w->parts > 1, aligned = w->alignment == WF_GGUF_ALIGNMENT;
    uint64_t tensors = 0;
    for (int i = 0; i < w->count; i++)
        tensors += w->tensor[i].part == w->part;
    put_u32(to, WF_GGUF_MAGIC);
    put_u32(to, WF_GGUF_VERSION);
    put_u64(to, tensors);
    /* The keys of the model, the alignment unless it is the default, and three split.* keys. */
    put_u64(to, (uint64_t)(first ? w->keys : 0) + (aligned ? 0 : 1) + (split ? 3 : 0));
    if (first)
        wf_writer_bytes(to, w->pairs.text, w->pairs.len);
    if (!aligned)
        put_int(to, "general.alignment", WF_GGUF_U32, (int64_t)w->alignment);
    if (split) {
        put_int(to, "split.no", WF_GGUF_U16, w->part);
        put_int(to, "split.count", WF_GGUF_U16, w->parts);
        put_int(to, "split.tensors.count", WF_GGUF_I32, w->count);
    }
    for (int i = 0; i < w->count; i++)
        if (w->tensor[i].part == w->part)
            put_tensor(to, &w->tensor[i]);
    if (w->count > 0) /* like other writers, do not pad a file without tensors */
        wf_writer_bytes(to, zeros, padding(w, to->len));
    return to->status;
}

/* Returns NAME.gguf, or NAME-00001-of-00003.gguf. NULL: out of memory. */
static const char *part_path(wf_gguf_writer *w)
{
    size_t len = strlen(w->path);
    if (w->parts == 1)
        return w->path;
    if (len > 5 && strcmp(w->path + len - 5, ".gguf") == 0)
        len -= 5;
    char *path = wf_arena_alloc(&w->arena, len + WF_GGUF_SUFFIX_BYTES + 1);
    if (path) {
        memcpy(path, w->path, len);
        wf_gguf_part_suffix(path + len, w->part, w->parts);
    }
    return path;
}

static wf_status begin_part(wf_gguf_writer *w)
{
    const char *path = part_path(w);
    if (!path)
        return WF_ERR_MEMORY;
    WF_TRY(wf_sink_open(w->ctx, path, &w->sink[w->part]));
    wf_writer header = {.ctx = w->ctx};
    wf_status status = put_header(w, &header);
    if (status == WF_OK)
        status = wf_sink_write(w->sink[w->part], header.text, header.len);
    wf_mem_free(w->ctx, header.text);
    return status;
}

/* ---- Data ---- */

/* From here on the layout is fixed: offsets are in the header, so data must follow in the order of
 * declaration. */
wf_status wf_gguf_write_begin(wf_gguf_writer *w)
{
    if (w->sink)
        return fail(w, "wf_gguf_write_begin was already called");
    WF_TRY(w->pairs.status);
    WF_TRY(check_twice(w, "key", w->key, w->keys, sizeof *w->key));
    WF_TRY(check_twice(w, "tensor", w->tensor, w->count, sizeof *w->tensor));
    WF_TRY(lay_out(w));
    w->sink = wf_mem_array(w->ctx, (size_t)w->parts, sizeof *w->sink);
    return w->sink ? begin_part(w) : WF_ERR_MEMORY;
}

/* Pads the finished tensor, and begins the next part if the next tensor is there. */
static wf_status end_tensor(wf_gguf_writer *w)
{
    WF_TRY(wf_sink_write(w->sink[w->part], zeros, padding(w, w->tensor[w->at].bytes)));
    w->at++;
    w->done = 0;
    if (w->at == w->count || w->tensor[w->at].part == w->part)
        return WF_OK;
    WF_TRY(wf_sink_seal(w->sink[w->part])); /* closes it: limits open files */
    w->part++;
    return begin_part(w);
}

/* Accepts any pieces: they need not end where tensors end. */
wf_status wf_gguf_write_data(wf_gguf_writer *w, const void *data, size_t bytes)
{
    const char *from = data;
    if (!w->sink)
        return fail(w, "data is written before wf_gguf_write_begin");
    while (bytes > 0) {
        if (w->at == w->count)
            return fail(w, "%zu byte%s too many: all tensors are complete", bytes,
                        WF_PLURAL(bytes));
        size_t left = w->tensor[w->at].bytes - w->done, n = bytes < left ? bytes : left;
        WF_TRY(wf_sink_write(w->sink[w->part], from, n));
        from += n;
        bytes -= n;
        w->done += n;
        if (n == left)
            WF_TRY(end_tensor(w));
    }
    return WF_OK;
}

wf_status wf_gguf_write_end(wf_gguf_writer *w)
{
    if (!w->sink)
        return fail(w, "wf_gguf_write_begin was not called");
    if (w->at < w->count)
        return fail(w, "tensor '%s' has %zu of its %zu bytes", w->tensor[w->at].name, w->done,
                    w->tensor[w->at].bytes);
    WF_TRY(wf_sink_seal(w->sink[w->part]));
    for (int i = w->parts - 1; i >= 0; i--) /* the first part last: if it exists, all do */
        WF_TRY(wf_sink_commit(w->sink[i]));
    return WF_OK;
}
