/* SPDX-License-Identifier: MIT */
/*
 * index.c - reads and writes data.json.
 *
 * The file is foreign input: counts must be non-negative integers, names plain (no folder, no
 * leading dot), and lists bounded, before anything is allocated or opened by them. The shards
 * themselves are checked against it in data.c.
 */
#include "train/index.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "base/path.h"

#define FORMAT "weft-data"             /* marks the file */
#define VERSION 1                      /* other versions are refused */
#define INDEX_BYTES ((size_t)64 << 20) /* limit of the file */

const char *const wf_split_names[2] = {"train", "valid"};

/* ---- Reading ---- */

typedef struct {
    wf_arena *arena;
    const char *path;
} reader;

/* All damage has one remedy: prepare again. */
static wf_status refuse(reader *r, const char *why)
{
    return wf_fail(r->arena->ctx, WF_ERR_FORMAT, "the file '%s' %s; run `weft prepare` again",
                   r->path, why);
}

/* Checksums are written as 16 hexadecimal digits: JSON numbers may not hold 64 bits. */
static bool read_sum(const wf_json_node *object, const char *key, uint64_t *out)
{
    const wf_json_node *n = wf_json_get(object, key);
    *out = 0;
    if (!n || n->kind != WF_JSON_STRING || n->bytes != 16)
        return false;
    for (size_t i = 0; i < 16; i++) {
        char c = n->string[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return false;
        *out = *out << 4 | (uint64_t)digit;
    }
    return true;
}

static bool read_count(const wf_json_node *object, const char *key, int64_t *out)
{
    const wf_json_node *n = wf_json_get(object, key);
    *out = n && n->kind == WF_JSON_NUMBER && n->whole ? n->integer : -1;
    return *out >= 0;
}

/* No folder and no leading dot, so the path stays inside the data's folder. */
static bool is_plain_name(const char *name)
{
    return name && name[0] && name[0] != '.' && !strchr(name, '/');
}

static bool read_shard(const wf_index *x, const wf_json_node *n, wf_index_shard *s)
{
    s->file = wf_json_get_string(n, "file", NULL);
    s->info = (wf_shard_info){.id_bytes = x->id_bytes, .vocab = x->vocab, .masked = x->masked};
    return is_plain_name(s->file) && read_count(n, "tokens", &s->info.tokens) &&
           read_count(n, "documents", &s->info.documents) &&
           read_count(n, "bytes", &s->info.bytes) && read_count(n, "counted", &s->info.counted) &&
           read_sum(n, "checksum", &s->info.sum);
}

static wf_status read_split(reader *r, const wf_json_node *root, wf_index *x, int which)
{
    const wf_json_node *list = wf_json_get(wf_json_get(root, wf_split_names[which]), "shards");
    wf_index_split *s = &x->split[which];
    if (!list || list->kind != WF_JSON_ARRAY || list->count > WF_INDEX_SHARDS)
        return refuse(r, which == WF_SPLIT_TRAIN ? "has no list of training shards"
                                                 : "has no list of validation shards");
    s->count = list->count;
    /* Cannot overflow: the count is limited. + 1: never an empty allocation. */
    s->shard = wf_arena_alloc(r->arena, list->count * sizeof *s->shard + 1);
    if (!s->shard)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < list->count; i++)
        if (!read_shard(x, &list->child[i], &s->shard[i]))
            return refuse(r, "has a shard with an invalid name, count or checksum");
    return WF_OK;
}

static wf_status read_root(reader *r, const wf_json_node *root, wf_index *x)
{
    int64_t version, id_bytes, end;
    if (!wf_json_is(wf_json_get(root, "format"), FORMAT))
        return wf_fail(r->arena->ctx, WF_ERR_FORMAT,
                       "the file '%s' does not describe training data", r->path);
    if (!read_count(root, "version", &version) || version != VERSION)
        return wf_fail(r->arena->ctx, WF_ERR_UNSUPPORTED,
                       "the file '%s' has a version other than %d, which this program reads",
                       r->path, VERSION);
    if (!read_count(root, "vocab", &x->vocab) || x->vocab < 1 || x->vocab > INT32_MAX ||
        !read_count(root, "id_bytes", &id_bytes) || (id_bytes != 2 && id_bytes != 4) ||
        !read_count(root, "end", &end) || end >= x->vocab)
        return refuse(r, "has an invalid vocabulary size, id width or end token");
    x->id_bytes = (int)id_bytes;
    x->end = (int32_t)end;
    x->masked = wf_json_get_bool(root, "masked", false);
    x->tokenizer = wf_json_get_string(root, "tokenizer", "");
    x->chat_template = wf_json_get_string(root, "chat_template", NULL);
    if (!read_sum(root, "tokenizer_checksum", &x->tokenizer_sum))
        return refuse(r, "has no checksum of the tokenizer");
    WF_TRY(read_split(r, root, x, WF_SPLIT_TRAIN));
    return read_split(r, root, x, WF_SPLIT_VALID);
}

wf_status wf_index_read(wf_arena *arena, const char *folder, wf_index *out)
{
    wf_ctx *ctx = arena->ctx;
    reader r = {.arena = arena, .path = wf_path_join(arena, folder, WF_INDEX_FILE)};
    *out = (wf_index){0};
    if (!r.path)
        return WF_ERR_MEMORY;
    if (wf_path_look(folder) == WF_PATH_NONE)
        return wf_fail(ctx, WF_ERR_IO,
                       "the file or folder '%s' does not exist; give a folder that `weft "
                       "prepare` wrote, or a file with text or JSON lines",
                       folder);
    if (wf_path_look(r.path) != WF_PATH_FILE)
        return wf_fail(
            ctx, WF_ERR_IO,
            "the folder '%s' has no training data: %s is missing; create it with `weft prepare`",
            folder, WF_INDEX_FILE);
    char *text;
    size_t bytes;
    wf_json_node *root;
    WF_TRY(wf_file_read(ctx, r.path, INDEX_BYTES, &text, &bytes));
    wf_status status = wf_json_parse(arena, r.path, text, bytes, &root);
    wf_mem_free(ctx, text);
    return status == WF_OK ? read_root(&r, root, out) : status;
}

/* ---- Writing ---- */

static void put_sum(wf_json *j, const char *key, uint64_t sum)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%016" PRIx64, sum);
    wf_json_key(j, key);
    wf_json_string(j, digits);
}

static void put_counts(wf_json *j, const wf_shard_info *i)
{
    wf_json_put_int(j, "tokens", i->tokens);
    wf_json_put_int(j, "documents", i->documents);
    wf_json_put_int(j, "bytes", i->bytes);
    wf_json_put_int(j, "counted", i->counted);
}

/* The sums are for people; wf_data_open adds up the shards. */
static void put_split(wf_json *j, const wf_index_split *s)
{
    wf_shard_info all = {0};
    for (size_t i = 0; i < s->count; i++) {
        all.tokens += s->shard[i].info.tokens;
        all.documents += s->shard[i].info.documents;
        all.bytes += s->shard[i].info.bytes;
        all.counted += s->shard[i].info.counted;
    }
    wf_json_object_begin(j);
    put_counts(j, &all);
    wf_json_key(j, "shards");
    wf_json_array_begin(j);
    for (size_t i = 0; i < s->count; i++) {
        wf_json_object_begin(j);
        wf_json_put_text(j, "file", s->shard[i].file);
        put_counts(j, &s->shard[i].info);
        put_sum(j, "checksum", s->shard[i].info.sum);
        wf_json_object_end(j);
    }
    wf_json_array_end(j);
    wf_json_object_end(j);
}

static bool put_root(FILE *to, const wf_index *x)
{
    wf_json j;
    wf_json_begin(&j, to);
    wf_json_object_begin(&j);
    wf_json_put_text(&j, "format", FORMAT);
    wf_json_put_int(&j, "version", VERSION);
    wf_json_put_int(&j, "vocab", x->vocab);
    wf_json_put_int(&j, "id_bytes", x->id_bytes);
    wf_json_put_int(&j, "end", x->end);
    wf_json_key(&j, "masked");
    wf_json_bool(&j, x->masked);
    wf_json_put_text(&j, "tokenizer", x->tokenizer);
    put_sum(&j, "tokenizer_checksum", x->tokenizer_sum);
    wf_json_put_text(&j, "chat_template", x->chat_template);
    for (int i = 0; i < 2; i++) {
        wf_json_key(&j, wf_split_names[i]);
        put_split(&j, &x->split[i]);
    }
    wf_json_object_end(&j);
    return wf_json_end(&j);
}

/* Written to memory first, so that the file appears whole. */
wf_status wf_index_write(wf_ctx *ctx, const char *folder, const wf_index *x)
{
    char *text = NULL;
    size_t bytes = 0;
    wf_arena arena;
    wf_arena_init(&arena, ctx);
    const char *path = wf_path_join(&arena, folder, WF_INDEX_FILE);
    FILE *to = path ? open_memstream(&text, &bytes) : NULL;
    bool whole = to && put_root(to, x);
    if (to && fclose(to) != 0)
        whole = false;
    wf_status status =
        whole ? wf_file_write(ctx, path, text, bytes)
              : wf_fail(ctx, WF_ERR_MEMORY, "out of memory while writing %s", WF_INDEX_FILE);
    free(text);
    wf_arena_free(&arena);
    return status;
}
