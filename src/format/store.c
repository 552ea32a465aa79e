/* SPDX-License-Identifier: MIT */
/*
 * store.c - tensors in mapped files; see store.h.
 *
 * This is the last check before kernels read tensors in place: offset and size must lie within the
 * mapped file, and bytes must equal those of type and shape. Readers of formats check their own
 * rules first.
 */
#include "format/store.h"

#include <inttypes.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "format/names.h"

void wf_store_init(wf_store *s, wf_ctx *ctx)
{
    *s = (wf_store){.ctx = ctx};
    wf_arena_init(&s->arena, ctx);
}

void wf_store_free(wf_store *s)
{
    for (int i = 0; i < s->files; i++)
        wf_map_close(s->file[i].map);
    wf_mem_free(s->ctx, s->file);
    wf_mem_free(s->ctx, s->tensor);
    wf_mem_free(s->ctx, s->sorted);
    wf_arena_free(&s->arena);
    /* The store is then empty and may be used again. */
    wf_store_init(s, s->ctx);
}

const char *wf_store_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Makes room for a file and copies its path. The caller opens the map. */
static wf_status begin_file(wf_store *s, const char *path)
{
    void *grown = wf_mem_room(s->ctx, s->file, s->files, &s->file_room, sizeof *s->file);
    if (!grown)
        return WF_ERR_MEMORY;
    s->file = grown;
    s->file[s->files].map = NULL;
    s->file[s->files].path = wf_arena_strdup(&s->arena, path);
    return s->file[s->files].path ? WF_OK : WF_ERR_MEMORY;
}

wf_status wf_store_map(wf_store *s, const char *path, int *file)
{
    WF_TRY(begin_file(s, path));
    WF_TRY(wf_map_open(s->ctx, path, &s->file[s->files].map));
    *file = s->files++;
    return WF_OK;
}

wf_status wf_store_memory(wf_store *s, const char *what, const uint8_t *data, size_t bytes,
                          int *file)
{
    WF_TRY(begin_file(s, what));
    WF_TRY(wf_map_memory(s->ctx, data, bytes, &s->file[s->files].map));
    *file = s->files++;
    return WF_OK;
}

/* The product is checked for overflow before sizes are computed from it. */
static wf_status check_shape(wf_store *s, const wf_stored *t, const char *file, const char *name)
{
    int64_t count = 1;
    for (int i = 0; i < t->shape.n; i++)
        if (t->shape.d[i] < 0 || !wf_mul_i64(count, t->shape.d[i], &count))
            return wf_fail(s->ctx, WF_ERR_FORMAT,
                           "cannot read '%s': the dimensions of tensor '%s' are out of range", file,
                           name);
    if (t->type == WF_TYPE_NONE)
        return WF_OK;

    const wf_type_info *info = wf_type_get(t->type);
    int64_t row = wf_dims_last(&t->shape);
    if (row % info->block != 0)
        return wf_fail(s->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': tensor '%s' has rows of %" PRId64
                       ", which is not a multiple of %d; %s requires it",
                       file, name, row, info->block, t->type_name);
    size_t bytes = wf_type_bytes(t->type, count);
    /* wf_type_bytes returns 0 on overflow, too. */
    if ((bytes == 0 && count != 0) || bytes != t->bytes)
        return wf_fail(s->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': tensor '%s' has %zu bytes, which does not match its "
                       "shape in %s",
                       file, name, t->bytes, t->type_name);
    return WF_OK;
}

wf_status wf_store_add(wf_store *s, const wf_stored *t)
{
    wf_assert(t->file >= 0 && t->file < s->files && !s->sorted);
    const char *file = wf_store_base_name(s->file[t->file].path);
    const wf_map *map = s->file[t->file].map;
    char shown[WF_TEXT_SHOWN];
    wf_text_show(shown, t->name, strlen(t->name));
    WF_TRY(check_shape(s, t, file, shown));
    /* Written without a sum, which could overflow. */
    if (t->offset > map->size || t->bytes > map->size - t->offset)
        return wf_fail(s->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': tensor '%s' has %zu bytes at offset %" PRIu64
                       ", but the file has only %zu bytes: it is truncated",
                       file, shown, t->bytes, t->offset, map->size);

    void *grown = wf_mem_room(s->ctx, s->tensor, s->count, &s->room, sizeof *s->tensor);
    if (!grown)
        return WF_ERR_MEMORY;
    s->tensor = grown;
    wf_stored *copy = &s->tensor[s->count];
    *copy = *t;
    /* In bounds: checked above. */
    copy->data = map->data + t->offset;
    copy->name = wf_arena_strdup(&s->arena, t->name);
    if (!copy->name)
        return WF_ERR_MEMORY;
    s->count++;
    return WF_OK;
}

wf_status wf_store_seal(wf_store *s)
{
    wf_assert(!s->sorted);
    WF_TRY(wf_names_sort(s->ctx, s->tensor, (size_t)s->count, sizeof *s->tensor, &s->sorted));
    const char *twice = wf_names_twice(s->sorted, (size_t)s->count);
    if (!twice)
        return WF_OK;
    const char *file[2] = {NULL, NULL};
    for (int i = 0; i < s->count; i++)
        if (strcmp(s->tensor[i].name, twice) == 0)
            file[file[0] != NULL] = wf_store_base_name(s->file[s->tensor[i].file].path);
    char shown[WF_TEXT_SHOWN];
    wf_text_show(shown, twice, strlen(twice));
    if (strcmp(file[0], file[1]) == 0)
        return wf_fail(s->ctx, WF_ERR_FORMAT, "cannot read '%s': tensor '%s' occurs twice", file[0],
                       shown);
    return wf_fail(s->ctx, WF_ERR_FORMAT, "cannot read '%s': tensor '%s' is also in '%.180s'",
                   file[0], shown, file[1]);
}

const wf_stored *wf_store_find(const wf_store *s, const char *name)
{
    wf_assert(s->sorted);
    return wf_names_find(s->sorted, (size_t)s->count, name);
}

wf_status wf_store_check(const wf_store *s)
{
    for (int i = 0; i < s->files; i++)
        if (wf_map_broken(s->file[i].map))
            return wf_fail(
                s->ctx, WF_ERR_IO,
                "the file '%s' was truncated while in use; open it again when it is complete",
                s->file[i].path);
    return WF_OK;
}
