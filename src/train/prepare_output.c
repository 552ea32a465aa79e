/* SPDX-License-Identifier: MIT */
/*
 * prepare_output.c - the output folder, which appears only when complete, and its shards.
 *
 * Files are written to .NAME.part; commit renames an existing NAME to .NAME.old, the new folder to
 * NAME, and removes the old one. A lock in the temporary folder keeps other processes out. Only
 * folders that consist of Weft's own files are ever emptied or removed.
 */
#include <stdio.h>
#include <string.h>

#include "base/disk.h"
#include "base/mem.h"
#include "base/path.h"
#include "train/prepare_priv.h"

#define LOCK "lock"               /* in the temporary folder */
#define ENTRIES ((size_t)1 << 20) /* limit of names in a folder */
#define DOCUMENTS \
    ((int64_t)1 << 22) /* most documents per shard; their starts stay in memory until it ends */

/* ---- The folder ---- */

/* Returns FOLDER/.NAME.END for FOLDER/NAME. */
static const char *beside(wf_arena *a, const char *path, const char *end)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    size_t room = strlen(path) + strlen(end) + 2;
    char *out = wf_arena_alloc(a, room);
    if (out)
        snprintf(out, room, "%.*s.%s%s", (int)(name - path), path, name, end);
    return out;
}

static bool is_part_of_data(const char *name)
{
    return strcmp(name, WF_INDEX_FILE) == 0 || strcmp(name, "tokenizer.json") == 0 ||
           strcmp(name, "tokenizer_config.json") == 0 || wf_path_ends(name, ".weft") ||
           strcmp(name, LOCK) == 0; /* left by a process that was killed */
}

/* Existing data may be replaced only if every name in it is one of Weft's. */
static wf_status check_folder(wf_data_output *o)
{
    const char *const *names;
    size_t count;
    bool index = false;
    WF_TRY(wf_path_list(&o->arena, o->folder, ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++) {
        index = index || strcmp(names[i], WF_INDEX_FILE) == 0;
        if (!is_part_of_data(names[i]))
            return wf_fail(o->ctx, WF_ERR_USAGE,
                           "the folder '%s' exists and contains '%.100s', which is not prepared "
                           "data; choose a new folder",
                           o->folder, names[i]);
    }
    if (count > 0 && !index)
        return wf_fail(o->ctx, WF_ERR_USAGE,
                       "the folder '%s' exists and is not prepared data; choose a new folder",
                       o->folder);
    if (count > 0 && !o->overwrite)
        return wf_fail(
            o->ctx, WF_ERR_USAGE,
            "the folder '%s' already exists; choose another, or replace it with --overwrite",
            o->folder);
    return WF_OK;
}

/* Returns true for a file of prepared data, or a temporary one, which has a longer name. */
static bool is_left_over(const char *name)
{
    static const char *const begins[] = {WF_INDEX_FILE, "tokenizer.json", "tokenizer_config.json",
                                         "train-", "valid-"};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(name, begins[i], strlen(begins[i])) == 0)
            return true;
    return strcmp(name, LOCK) == 0;
}

/* Checks a folder next to the data that will be emptied or removed. Fails unless an earlier weft
 * prepare left it. */
static wf_status check_beside(wf_data_output *o, const char *path)
{
    const char *const *names;
    size_t count = 0;
    const char *foreign = NULL;
    if (wf_path_missing(path))
        return WF_OK;
    if (wf_path_is_link(path) || wf_path_look(path) != WF_PATH_FOLDER)
        return wf_fail(o->ctx, WF_ERR_USAGE,
                       "'%s' is not a folder, and weft prepare needs this name; rename it", path);
    WF_TRY(wf_path_list(&o->arena, path, ENTRIES, &names, &count));
    for (size_t i = 0; i < count && !foreign; i++)
        if (!is_left_over(names[i]))
            foreign = names[i];
    return foreign ? wf_fail(o->ctx, WF_ERR_USAGE,
                             "the folder '%s' contains '%.100s', which weft prepare did not write "
                             "and would remove; rename the folder",
                             path, foreign)
                   : WF_OK;
}

static wf_status check_place(wf_data_output *o)
{
    WF_TRY(check_beside(o, o->part));
    WF_TRY(check_beside(o, o->old));
    switch (wf_path_look(o->folder)) {
    case WF_PATH_NONE: return WF_OK;
    case WF_PATH_FOLDER: return check_folder(o);
    default:
        return wf_fail(o->ctx, WF_ERR_USAGE,
                       "the path '%s' is a file, not a folder; choose another name", o->folder);
    }
}

wf_status wf_data_output_check(wf_ctx *ctx, wf_data_output *o, const char *folder, bool overwrite)
{
    *o = (wf_data_output){.ctx = ctx, .overwrite = overwrite};
    wf_arena_init(&o->arena, ctx);
    char *path = wf_arena_strdup(&o->arena, folder);
    if (!path)
        return WF_ERR_MEMORY;
    for (size_t n = strlen(path); n > 1 && path[n - 1] == '/'; n--)
        path[n - 1] = '\0';
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path,
               *parent = wf_path_parent(&o->arena, path);
    if (!*name || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return wf_fail(ctx, WF_ERR_USAGE, "the name '%s' is not valid for a new folder", folder);
    o->folder = path;
    o->part = beside(&o->arena, path, ".part");
    o->old = beside(&o->arena, path, ".old");
    if (!parent || !o->part || !o->old)
        return WF_ERR_MEMORY;
    if (wf_path_look(parent) != WF_PATH_FOLDER)
        return wf_fail(ctx, WF_ERR_IO, "cannot write '%s': the folder '%s' does not exist", path,
                       parent);
    return check_place(o);
}

static wf_status take_lock(wf_data_output *o)
{
    int64_t holder = 0;
    const char *path = wf_path_join(&o->arena, o->part, LOCK);
    if (!path)
        return WF_ERR_MEMORY;
    wf_status status = wf_lock_take(o->ctx, path, &o->lock, &holder);
    return status == WF_ERR_USAGE
               ? wf_fail(o->ctx, status,
                         "the folder '%s' is already being prepared by process %lld", o->folder,
                         (long long)holder)
               : status;
}

wf_status wf_data_output_begin(wf_data_output *o)
{
    const char *const *names;
    size_t count;
    WF_TRY(check_beside(o, o->part));
    WF_TRY(check_beside(o, o->old));
    WF_TRY(wf_path_make_folder(o->ctx, o->part));
    wf_status status = take_lock(o);
    o->begun = status != WF_ERR_USAGE; /* otherwise another process owns it */
    WF_TRY(status);
    /* If --overwrite was killed between its two renames, the earlier data still has its second
     * name. */
    if (wf_path_missing(o->folder) && wf_path_look(o->old) == WF_PATH_FOLDER)
        WF_TRY(wf_disk_rename(o->ctx, o->old, o->folder));
    WF_TRY(check_place(o)); /* another process may have finished since the check */
    WF_TRY(wf_path_list(&o->arena, o->part, ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++) {
        const char *path = wf_path_join(&o->arena, o->part, names[i]);
        if (!path)
            return WF_ERR_MEMORY;
        if (strcmp(names[i], LOCK) != 0)
            WF_TRY(wf_disk_remove(o->ctx, path));
    }
    return WF_OK;
}

/* Removes the lock last: without it, another process could empty the folder before it gets its
 * name. */
wf_status wf_data_output_commit(wf_data_output *o)
{
    const char *lock = wf_path_join(&o->arena, o->folder, LOCK),
               *parent = wf_path_parent(&o->arena, o->folder);
    bool there = wf_path_look(o->folder) != WF_PATH_NONE;
    if (!lock || !parent)
        return WF_ERR_MEMORY;
    WF_TRY(wf_disk_sync(o->ctx, o->part));
    WF_TRY(wf_disk_remove(o->ctx, o->old));
    if (there)
        WF_TRY(wf_disk_rename(o->ctx, o->folder, o->old));
    wf_status status = wf_disk_rename(o->ctx, o->part, o->folder);
    if (status != WF_OK && there)
        (void)wf_disk_rename(o->ctx, o->old, o->folder);
    o->done = status == WF_OK;
    if (status == WF_OK)
        status = wf_disk_sync(o->ctx, parent);
    WF_TRY(status);
    if (wf_path_remove(o->ctx, lock) != WF_OK || wf_disk_remove(o->ctx, o->old) != WF_OK) {
        wf_ctx_log(o->ctx, WF_LOG_WARN, "the data is complete, but %s", wf_ctx_message(o->ctx));
        wf_ctx_clear(o->ctx);
    }
    return WF_OK;
}

void wf_data_output_free(wf_data_output *o)
{
    if (!o->ctx)
        return;
    if (o->begun && !o->done) {
        char why[WF_MESSAGE_BYTES]; /* report the original failure */
        wf_status status = wf_ctx_status(o->ctx);
        snprintf(why, sizeof why, "%s", wf_ctx_message(o->ctx));
        (void)wf_disk_remove(o->ctx, o->part);
        wf_ctx_clear(o->ctx);
        if (status != WF_OK)
            (void)wf_fail(o->ctx, status, "%s", why);
    }
    wf_lock_release(o->lock);
    wf_arena_free(&o->arena);
}

/* ---- Shards ---- */

/* Adds a row to the index and opens its file. */
static wf_status begin_shard(wf_shard_set *s)
{
    char name[32];
    wf_index_split *x = s->index;
    if (x->count == WF_INDEX_SHARDS)
        return wf_fail(s->ctx, WF_ERR_USAGE,
                       "the data would have more than %d shards; use more tokens per shard",
                       WF_INDEX_SHARDS);
    wf_index_shard *grown =
        wf_mem_room(s->ctx, x->shard, (int)x->count, &s->room, sizeof *x->shard);
    if (!grown)
        return WF_ERR_MEMORY;
    x->shard = grown;
    snprintf(name, sizeof name, "%s-%05d.weft", wf_split_names[s->split], (int)x->count);
    const char *file = wf_arena_strdup(s->arena, name),
               *path = wf_path_join(s->arena, s->folder, name);
    if (!file || !path)
        return WF_ERR_MEMORY;
    x->shard[x->count] = (wf_index_shard){.file = file};
    return wf_shard_write_new(s->ctx, path, s->vocab, s->masked, &s->writer);
}

wf_status wf_shard_set_ids(wf_shard_set *s, const int32_t *ids, const uint8_t *mask, size_t count,
                           size_t bytes)
{
    if (!s->writer)
        WF_TRY(begin_shard(s));
    WF_TRY(wf_shard_write_ids(s->writer, ids, mask, (int64_t)count));
    s->bytes += (int64_t)bytes;
    /* A long text continues in the next shard as a document of its own. Conversations are never
     * split. */
    return !s->masked && wf_shard_write_info(s->writer)->tokens >= s->most ? wf_shard_set_end(s)
                                                                           : WF_OK;
}

wf_status wf_shard_set_document(wf_shard_set *s)
{
    if (!s->writer)
        return WF_OK;
    WF_TRY(wf_shard_write_document(s->writer, s->bytes));
    s->bytes = 0;
    const wf_shard_info *i = wf_shard_write_info(s->writer);
    return i->tokens >= s->most || i->documents >= DOCUMENTS ? wf_shard_set_end(s) : WF_OK;
}

wf_status wf_shard_set_end(wf_shard_set *s)
{
    if (!s->writer)
        return WF_OK;
    WF_TRY(wf_shard_write_document(s->writer, s->bytes));
    s->bytes = 0;
    WF_TRY(wf_shard_write_end(s->writer, &s->index->shard[s->index->count].info));
    s->index->count++;
    wf_shard_write_free(s->writer);
    s->writer = NULL;
    return WF_OK;
}

void wf_shard_set_free(wf_shard_set *s)
{
    wf_shard_write_free(s->writer);
    if (s->index) {
        wf_mem_free(s->ctx, s->index->shard);
        s->index->shard = NULL;
    }
}
