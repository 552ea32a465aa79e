/* SPDX-License-Identifier: MIT */
/*
 * safetensors_write.c - writes one safetensors file, or several with an index.
 *
 * All files are complete and on disk before the first is renamed to its final name. The index,
 * which makes the shards a model, is renamed last.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/sink.h"
#include "base/writer.h"
#include "format/names.h"
#include "format/safetensors.h"
#include "format/safetensors_priv.h"

typedef struct {
    const char *name; /* must be first: names.h */
    const char *type_name;
    wf_dims shape;
    uint64_t bytes;
} declared;

/* Tensors [first, first + count) in the order of declaration. */
typedef struct {
    int first, count;
    uint64_t bytes;
    char *name;
    wf_sink *sink; /* NULL: not begun */
} shard;

struct wf_safetensors_writer {
    wf_ctx *ctx;
    wf_arena arena; /* owns names and paths */
    const char *folder;
    const char *stem; /* start of the file names */
    const char *single_name, *index_name;
    uint64_t shard_bytes, total; /* most bytes per shard, 0: no limit; bytes of all tensors */
    declared *tensor;
    int count, room;
    shard *shards; /* [shard_count], NULL before wf_safetensors_write_begin */
    int shard_count;
    int current;    /* shard being written; shard_count when all data is written */
    uint64_t left;  /* bytes missing in it */
    wf_sink *index; /* NULL: a single file */
};

/* Returns STEM + end in the arena, or NULL. */
static char *file_name(wf_safetensors_writer *w, const char *end)
{
    wf_writer out = {.ctx = w->ctx};
    char *text, *name = NULL;
    wf_writer_print(&out, "%s%s", w->stem, end);
    if (wf_writer_take(&out, &text, NULL) == WF_OK)
        name = wf_arena_strdup(&w->arena, text);
    wf_mem_free(w->ctx, text);
    return name;
}

wf_status wf_safetensors_write_new(wf_ctx *ctx, const char *folder, const char *stem,
                                   uint64_t shard_bytes, wf_safetensors_writer **out)
{
    *out = NULL;
    wf_safetensors_writer *w = wf_mem_new(ctx, sizeof *w);
    if (!w)
        return WF_ERR_MEMORY;
    w->ctx = ctx;
    w->shard_bytes = shard_bytes;
    wf_arena_init(&w->arena, ctx);
    w->folder = wf_arena_strdup(&w->arena, folder);
    w->stem = w->folder ? wf_arena_strdup(&w->arena, stem) : NULL;
    w->single_name = w->stem ? file_name(w, ".safetensors") : NULL;
    w->index_name = w->single_name ? file_name(w, ".safetensors.index.json") : NULL;
    if (!w->index_name) {
        wf_safetensors_write_free(w);
        return WF_ERR_MEMORY;
    }
    *out = w;
    return WF_OK;
}

void wf_safetensors_write_free(wf_safetensors_writer *w)
{
    if (!w)
        return;
    for (int i = 0; i < w->shard_count; i++)
        wf_sink_free(w->shards[i].sink);
    wf_sink_free(w->index);
    wf_mem_free(w->ctx, w->shards);
    wf_mem_free(w->ctx, w->tensor);
    wf_arena_free(&w->arena);
    wf_mem_free(w->ctx, w);
}

/* ---- Declaring ---- */

static bool is_utf8(const char *s)
{
    size_t left = strlen(s), n;
    for (; left > 0; s += n, left -= n) {
        n = wf_text_utf8(s, left);
        if (n == 0)
            return false;
    }
    return true;
}

static wf_status fail_tensor(const wf_safetensors_writer *w, const char *name, const char *why)
{
    char shown[WF_TEXT_SHOWN];
    return wf_fail(w->ctx, WF_ERR_USAGE, "cannot write tensor '%s' to '%s': %s",
                   wf_text_show(shown, name, strlen(name)), w->folder, why);
}

/* The sum of all tensors must fit int64, so offsets cannot overflow. */
static wf_status check_shape(const wf_safetensors_writer *w, const char *name, wf_type type,
                             const wf_dims *shape, uint64_t *bytes)
{
    int64_t count = 1, size;
    bool good = shape->n >= 0 && shape->n <= WF_MAX_RANK;
    for (int64_t i = 0; good && i < shape->n; i++)
        good = shape->d[i] >= 0 && wf_mul_i64(count, shape->d[i], &count);
    good = good && wf_mul_i64(count, wf_type_get(type)->block_bytes, &size) && size >= 0 &&
           wf_add_i64(size, (int64_t)w->total, &(int64_t){0});
    if (!good)
        return fail_tensor(w, name, "its shape is out of range");
    *bytes = (uint64_t)size;
    return WF_OK;
}

static wf_status make_room(wf_safetensors_writer *w)
{
    if (w->count < w->room)
        return WF_OK;
    int room = w->room ? w->room * 2 : 64;
    declared *grown = wf_mem_grow(w->ctx, w->tensor, (size_t)room * sizeof *grown);
    if (!grown)
        return WF_ERR_MEMORY;
    w->tensor = grown;
    w->room = room;
    return WF_OK;
}

wf_status wf_safetensors_write_tensor(wf_safetensors_writer *w, const char *name, wf_type type,
                                      const wf_dims *shape)
{
    declared t = {.type_name = wf_safetensors_type_name(type), .shape = *shape};
    wf_assert(!w->shards);
    if (!t.type_name)
        return fail_tensor(w, name,
                           "safetensors does not have its type; convert it to f32 or bf16");
    if (!is_utf8(name) || strcmp(name, "__metadata__") == 0)
        return fail_tensor(w, name, "safetensors does not allow this name");
    WF_TRY(check_shape(w, name, type, shape, &t.bytes));
    /* make_room may double the capacity once more without overflow. */
    if (w->count == INT32_MAX / 2)
        return fail_tensor(w, name, "there are too many tensors");
    WF_TRY(make_room(w));
    t.name = wf_arena_strdup(&w->arena, name);
    if (!t.name)
        return WF_ERR_MEMORY;
    w->total += t.bytes;
    w->tensor[w->count++] = t;
    return WF_OK;
}

/* ---- JSON ---- */

static void put_tensor(wf_writer *out, const declared *t, uint64_t offset)
{
    wf_writer_char(out, ',');
    wf_writer_quoted(out, t->name, strlen(t->name));
    wf_writer_print(out, ":{\"dtype\":\"%s\",\"shape\":[", t->type_name);
    for (int64_t i = 0; i < t->shape.n; i++)
        wf_writer_print(out, "%s%" PRId64, i ? "," : "", t->shape.d[i]);
    wf_writer_print(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", offset,
                    offset + t->bytes);
}

/* Writes the length and the header, padded with spaces to align the data to 8 bytes. transformers
 * requires the format in __metadata__. */
static wf_status write_header(wf_safetensors_writer *w, const shard *s)
{
    wf_writer out = {.ctx = w->ctx};
    uint64_t offset = 0;
    wf_writer_print(&out, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (int i = s->first; i < s->first + s->count; i++) {
        put_tensor(&out, &w->tensor[i], offset);
        offset += w->tensor[i].bytes;
    }
    wf_writer_char(&out, '}');
    while (out.len % 8 != 0 && out.status == WF_OK)
        wf_writer_char(&out, ' ');
    char *text;
    size_t bytes;
    WF_TRY(wf_writer_take(&out, &text, &bytes));
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)((uint64_t)bytes >> 8 * i);
    wf_status status = WF_OK;
    if (bytes > WF_SAFETENSORS_HEADER)
        status =
            wf_fail(w->ctx, WF_ERR_USAGE,
                    "cannot write '%s': its header of %zu bytes exceeds the limit of safetensors",
                    s->name, bytes);
    if (status == WF_OK)
        status = wf_sink_write(s->sink, length, sizeof length);
    if (status == WF_OK)
        status = wf_sink_write(s->sink, text, bytes);
    wf_mem_free(w->ctx, text);
    return status;
}

static wf_status write_index(wf_safetensors_writer *w)
{
    wf_writer out = {.ctx = w->ctx};
    wf_writer_print(&out, "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64 "\n  },\n",
                    w->total);
    wf_writer_print(&out, "  \"weight_map\": {");
    for (int i = 0; i < w->shard_count; i++) {
        const shard *s = &w->shards[i];
        for (int k = s->first; k < s->first + s->count; k++) {
            wf_writer_print(&out, "%s\n    ", k ? "," : "");
            wf_writer_quoted(&out, w->tensor[k].name, strlen(w->tensor[k].name));
            wf_writer_print(&out, ": \"%s\"", s->name);
        }
    }
    wf_writer_print(&out, "\n  }\n}\n");
    char *text;
    size_t bytes;
    WF_TRY(wf_writer_take(&out, &text, &bytes));
    wf_status status = wf_sink_write(w->index, text, bytes);
    wf_mem_free(w->ctx, text);
    return status;
}

/* ---- Files ---- */

static wf_status open_file(wf_safetensors_writer *w, const char *name, wf_sink **out)
{
    const char *path = wf_path_join(&w->arena, w->folder, name);
    return path ? wf_sink_open(w->ctx, path, out) : WF_ERR_MEMORY;
}

/* Seals complete shards and opens the next one that needs data. Empty shards (no tensors, or
 * tensors without elements) are complete as soon as they have a header. On return, left > 0 or
 * everything is written. */
static wf_status advance(wf_safetensors_writer *w)
{
    for (; w->left == 0 && w->current < w->shard_count; w->current++) {
        shard *s = &w->shards[w->current];
        if (!s->sink) {
            WF_TRY(open_file(w, s->name, &s->sink));
            WF_TRY(write_header(w, s));
            w->left = s->bytes;
            if (w->left > 0)
                return WF_OK;
        }
        WF_TRY(wf_sink_seal(s->sink));
    }
    return WF_OK;
}

/* Ends a shard before the tensor that would make it too large. There is at least one shard, even
 * without tensors. */
static wf_status make_shards(wf_safetensors_writer *w)
{
    w->shards = wf_mem_array(w->ctx, w->count > 0 ? (size_t)w->count : 1, sizeof *w->shards);
    if (!w->shards)
        return WF_ERR_MEMORY;
    w->shard_count = 1;
    shard *s = w->shards;
    for (int i = 0; i < w->count; i++) {
        uint64_t bytes = w->tensor[i].bytes;
        if (w->shard_bytes > 0 && s->count > 0 &&
            (s->bytes > w->shard_bytes || bytes > w->shard_bytes - s->bytes)) {
            s = &w->shards[w->shard_count++];
            s->first = i;
        }
        s->count++;
        s->bytes += bytes;
    }
    for (int i = 0; i < w->shard_count; i++) {
        char end[64];
        snprintf(end, sizeof end, "-%05d-of-%05d.safetensors", i + 1, w->shard_count);
        w->shards[i].name = file_name(w, w->shard_count > 1 ? end : ".safetensors");
        if (!w->shards[i].name)
            return WF_ERR_MEMORY;
    }
    return WF_OK;
}

/* Names are unique within the model, not only within a shard. */
static wf_status check_twice(const wf_safetensors_writer *w)
{
    const void **sorted;
    size_t count = (size_t)w->count;
    WF_TRY(wf_names_sort(w->ctx, w->tensor, count, sizeof *w->tensor, &sorted));
    const char *twice = wf_names_twice(sorted, count);
    wf_mem_free(w->ctx, sorted);
    return twice ? fail_tensor(w, twice, "the name is declared twice") : WF_OK;
}

wf_status wf_safetensors_write_begin(wf_safetensors_writer *w)
{
    wf_assert(!w->shards);
    WF_TRY(check_twice(w));
    WF_TRY(wf_path_make_folder(w->ctx, w->folder));
    WF_TRY(make_shards(w));
    return advance(w);
}

wf_status wf_safetensors_write_data(wf_safetensors_writer *w, const void *data, size_t bytes)
{
    const char *at = data;
    wf_assert(w->shards);
    while (bytes > 0) {
        if (w->current == w->shard_count)
            return wf_fail(w->ctx, WF_ERR_USAGE,
                           "cannot write to '%s': %zu byte%s too many: all tensors are complete",
                           w->folder, bytes, WF_PLURAL(bytes));
        size_t part = bytes < w->left ? bytes : (size_t)w->left;
        WF_TRY(wf_sink_write(w->shards[w->current].sink, at, part));
        at += part;
        bytes -= part;
        w->left -= part;
        WF_TRY(advance(w));
    }
    return WF_OK;
}

int wf_safetensors_write_files(const wf_safetensors_writer *w)
{
    return w->shard_count;
}

/* Commits the shards first and the index last: an index that exists names only complete shards. */
wf_status wf_safetensors_write_end(wf_safetensors_writer *w)
{
    wf_assert(w->shards);
    if (w->current < w->shard_count)
        return wf_fail(w->ctx, WF_ERR_USAGE, "cannot write to '%s': some tensors have no data yet",
                       w->folder);
    bool single = w->shard_count == 1;
    if (!single) {
        WF_TRY(open_file(w, w->index_name, &w->index));
        WF_TRY(write_index(w));
        WF_TRY(wf_sink_seal(w->index));
    }
    for (int i = 0; i < w->shard_count; i++)
        WF_TRY(wf_sink_commit(w->shards[i].sink));
    if (!single)
        WF_TRY(wf_sink_commit(w->index));
    /* Remove old weights of the other form: a reader might prefer them. */
    const char *other = wf_path_join(&w->arena, w->folder, single ? w->index_name : w->single_name);
    return other ? wf_path_remove(w->ctx, other) : WF_ERR_MEMORY;
}
