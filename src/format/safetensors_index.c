/* SPDX-License-Identifier: MIT */
/*
 * safetensors_index.c - reads shards by their index, whose weight_map maps each tensor to a file.
 *
 * Index and shards must agree on every tensor. This detects shards of another model and incomplete
 * downloads.
 */
#include <stdlib.h>
#include <string.h>

#include "base/json_tree.h"
#include "base/mem.h"
#include "base/path.h"
#include "format/names.h"
#include "format/safetensors.h"
#include "format/safetensors_priv.h"

typedef struct {
    wf_store *store;
    wf_arena arena; /* owns the parsed index and paths */
    /* Of the index file, and the folder that it and the shards are in. */
    const char *path, *folder;
    const wf_json_node **entry; /* [count] of the weight_map, sorted by shard, then by tensor */
    size_t count;
} index_reader;

static int compare_entries(const void *a, const void *b)
{
    const wf_json_node *x = *(const wf_json_node *const *)a, *y = *(const wf_json_node *const *)b;
    int order = strcmp(x->string, y->string);
    return order != 0 ? order : strcmp(x->key, y->key);
}

static wf_status fail(const index_reader *r, const char *name, size_t bytes, const char *why)
{
    char shown[WF_TEXT_SHOWN];
    return wf_fail(r->store->ctx, WF_ERR_FORMAT, "cannot read '%s': '%s' %s", r->path,
                   wf_text_show(shown, name, bytes), why);
}

/* Returns whether a shard's name is a plain file name, which cannot leave the folder. */
static bool plain_name(const wf_json_node *shard)
{
    const char *s = shard->string;
    return shard->bytes > 0 && !memchr(s, '\0', shard->bytes) && !strpbrk(s, "/\\") &&
           strcmp(s, ".") != 0 && strcmp(s, "..") != 0;
}

/* Checks every name before any file is opened. */
static wf_status read_map(index_reader *r, const wf_json_node *root)
{
    const wf_json_node *map = wf_json_get(root, "weight_map");
    if (!map || map->kind != WF_JSON_OBJECT || map->count == 0)
        return wf_fail(r->store->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': it has no weight_map, or an empty one", r->path);
    r->entry = wf_mem_array(r->store->ctx, map->count, sizeof *r->entry);
    if (!r->entry)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < map->count; i++) {
        const wf_json_node *entry = &map->child[i];
        if (memchr(entry->key, '\0', entry->key_bytes))
            return fail(r, entry->key, entry->key_bytes, "has a NUL in its name");
        if (entry->kind != WF_JSON_STRING)
            return fail(r, entry->key, entry->key_bytes, "is not mapped to a file name");
        if (!plain_name(entry))
            return fail(r, entry->string, entry->bytes,
                        "is not a plain file name; shards must be in the index's folder");
        r->entry[r->count++] = entry;
    }
    qsort(r->entry, r->count, sizeof *r->entry, compare_entries);
    return WF_OK;
}

/* Compares the names entry[0 .. n) of the index with the shard's tensors. Both are sorted. */
static wf_status compare(const index_reader *r, const wf_json_node *const *entry, size_t n,
                         const void *const *tensor, size_t tensors)
{
    const char *shard = entry[0]->string;
    char shown[WF_TEXT_SHOWN], file[WF_TEXT_SHOWN];
    wf_text_show(file, shard, strlen(shard));
    /* Merge of two sorted lists: the first difference is reported, so both advance together. */
    for (size_t i = 0; i < n || i < tensors; i++) {
        const char *name = i < tensors ? ((const wf_stored *)tensor[i])->name : NULL;
        int order = i == n ? 1 : !name ? -1 : strcmp(entry[i]->key, name);
        if (order < 0)
            return wf_fail(r->store->ctx, WF_ERR_FORMAT,
                           "cannot read '%s': tensor '%s' is missing in '%s'", r->path,
                           wf_text_show(shown, entry[i]->key, entry[i]->key_bytes), file);
        if (order > 0)
            return wf_fail(r->store->ctx, WF_ERR_FORMAT,
                           "cannot read '%s': '%s' has a tensor '%s' that the index does not list",
                           r->path, file, wf_text_show(shown, name, strlen(name)));
    }
    return WF_OK;
}

/* Reads the shard that entry[0 .. n) name. The store's tensors from `before` on are then those of
 * this shard. */
static wf_status read_shard(index_reader *r, const wf_json_node *const *entry, size_t n)
{
    wf_store *s = r->store;
    int before = s->count;
    const char *path = wf_path_join(&r->arena, r->folder, entry[0]->string);
    if (!path)
        return WF_ERR_MEMORY;
    if (wf_path_look(path) == WF_PATH_NONE)
        return wf_fail(s->ctx, WF_ERR_IO, "cannot open '%s': it does not exist, but '%s' lists it",
                       path, r->path);
    WF_TRY(wf_safetensors_read(s, path));
    size_t tensors = (size_t)(s->count - before);
    const void **sorted;
    WF_TRY(wf_names_sort(s->ctx, s->tensor + before, tensors, sizeof *s->tensor, &sorted));
    wf_status status = compare(r, entry, n, sorted, tensors);
    wf_mem_free(s->ctx, sorted);
    return status;
}

/* Entries are sorted by shard, so each shard is opened once. */
static wf_status read_shards(index_reader *r)
{
    for (size_t first = 0, n; first < r->count; first += n) {
        const wf_json_node *const *entry = r->entry + first;
        for (n = 1; first + n < r->count; n++)
            if (strcmp(entry[n]->string, entry[0]->string) != 0)
                break;
        WF_TRY(read_shard(r, entry, n));
    }
    return WF_OK;
}

wf_status wf_safetensors_read_index(wf_store *s, const char *path)
{
    index_reader r = {.store = s, .path = path};
    char *text;
    size_t bytes;
    wf_json_node *root;
    WF_TRY(wf_file_read(s->ctx, path, WF_SAFETENSORS_INDEX, &text, &bytes));
    wf_arena_init(&r.arena, s->ctx);
    wf_status status = wf_json_parse(&r.arena, path, text, bytes, &root);
    wf_mem_free(s->ctx, text);
    if (status == WF_OK) {
        r.folder = wf_path_parent(&r.arena, path);
        status = r.folder ? read_map(&r, root) : WF_ERR_MEMORY;
    }
    if (status == WF_OK)
        status = read_shards(&r);
    wf_mem_free(s->ctx, r.entry);
    wf_arena_free(&r.arena);
    return status;
}
