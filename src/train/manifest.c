/* SPDX-License-Identifier: MIT */
/*
 * manifest.c - writes, verifies and removes the files that a manifest lists.
 *
 * Writing: sync all files and the folders between, read them back for their checksums, then write
 * and sync the manifest itself. Reading treats the manifest as foreign: its own checksum is
 * verified before it is parsed, names cannot leave the folder, and sizes are limited.
 */
#include "train/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/checksum.h"
#include "base/disk.h"
#include "base/file.h"
#include "base/json_tree.h"
#include "base/mem.h"
#include "base/path.h"
#include "base/sink.h"
#include "base/thread.h"
#include "base/writer.h"

/* Version of the manifest; others are refused. */
#define FORMAT 1
#define FILES 10000                  /* limit for a folder */
#define TEXT_BYTES ((size_t)4 << 20) /* limit for a manifest */

typedef struct {
    const char *name, *path;         /* relative to the folder; absolute */
    uint64_t bytes, sum;             /* from the manifest */
    uint64_t bytes_there, sum_there; /* of the file on disk */
    int error;                       /* errno while reading the file; 0: no error */
} entry;

typedef struct {
    wf_ctx *ctx;
    wf_arena arena;
    const char *folder, *path; /* path of the manifest */
    entry *file;               /* [count], in the arena */
    size_t count;
    uint64_t run; /* 0: the manifest has no id */
} manifest;

static wf_status open_manifest(manifest *m, wf_ctx *ctx, const char *folder)
{
    *m = (manifest){.ctx = ctx, .folder = folder};
    wf_arena_init(&m->arena, ctx);
    m->path = wf_path_join(&m->arena, folder, WF_MANIFEST_NAME);
    return m->path ? WF_OK : WF_ERR_MEMORY;
}

/* Components of letters, digits, '.', '_' and '-' that do not start with a dot. Such a name needs
 * no escapes and cannot leave the folder. */
static bool is_name(const char *name)
{
    bool begins = true;
    for (const char *c = name; *c; c++) {
        bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                      (*c >= '0' && *c <= '9') || *c == '_' || *c == '-';
        if (!letter && (begins || (*c != '.' && *c != '/')))
            return false;
        begins = *c == '/';
    }
    return !begins && strlen(name) <= 255;
}

static wf_status add_path(manifest *m, entry *e)
{
    e->path = wf_path_join(&m->arena, m->folder, e->name);
    return e->path ? WF_OK : WF_ERR_MEMORY;
}

static void sum_range(void *arg, int64_t begin, int64_t end, int thread)
{
    manifest *m = arg;
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        entry *e = &m->file[i];
        e->error = wf_disk_checksum(e->path, &e->bytes_there, &e->sum_there);
    }
}

/* Reads all files in parallel; errors are stored per file. */
static void sum_up(manifest *m)
{
    wf_parallel_share(wf_threads_available(), (int64_t)m->count, 1, sum_range, m);
}

/* ---- Writing ---- */

static wf_status list_files(manifest *m)
{
    const char *const *names;
    size_t count;
    WF_TRY(wf_disk_files(&m->arena, m->folder, FILES, &names, &count));
    m->file = wf_arena_alloc(&m->arena, count * sizeof *m->file);
    if (!m->file)
        return WF_ERR_MEMORY;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(names[i], WF_MANIFEST_NAME) == 0)
            continue;
        if (!is_name(names[i]))
            return wf_fail(m->ctx, WF_ERR_USAGE,
                           "cannot write '%s': a manifest cannot hold the file name '%s'", m->path,
                           names[i]);
        m->file[m->count].name = names[i];
        WF_TRY(add_path(m, &m->file[m->count++]));
    }
    return WF_OK;
}

/* Syncs the folders between a file and the manifest's folder, which is synced when the manifest is
 * written. */
static wf_status sync_folders(manifest *m, const char *path)
{
    const char *folder = wf_path_parent(&m->arena, path);
    for (size_t top = strlen(m->folder); folder && strlen(folder) > top;) {
        WF_TRY(wf_disk_sync(m->ctx, folder));
        folder = wf_path_parent(&m->arena, folder);
    }
    return folder ? WF_OK : WF_ERR_MEMORY;
}

static wf_status sync_files(manifest *m)
{
    for (size_t i = 0; i < m->count; i++) {
        WF_TRY(wf_disk_sync(m->ctx, m->file[i].path));
        if (strchr(m->file[i].name, '/'))
            WF_TRY(sync_folders(m, m->file[i].path));
    }
    return WF_OK;
}

/* Ends with the checksum of all text before that line. */
static wf_status compose(manifest *m, int64_t step, char **text, size_t *bytes)
{
    wf_writer out = {.ctx = m->ctx};
    wf_writer_print(&out,
                    "{\n  \"format\": %d,\n  \"weft\": \"%s\",\n  \"run\": \"%016" PRIx64
                    "\",\n  \"step\": %" PRId64 ",\n  \"files\": [",
                    FORMAT, wf_version_string(), m->run, step);
    for (size_t i = 0; i < m->count; i++) {
        const entry *e = &m->file[i];
        wf_writer_print(&out,
                        "%s\n    {\"name\": \"%s\", \"bytes\": %" PRIu64
                        ", \"checksum\": \"%016" PRIx64 "\"}",
                        i ? "," : "", e->name, e->bytes_there, e->sum_there);
    }
    wf_writer_print(&out, "\n  ],\n");
    uint64_t sum = out.status == WF_OK ? wf_checksum(out.text, out.len) : 0;
    wf_writer_print(&out, "  \"checksum\": \"%016" PRIx64 "\"\n}\n", sum);
    return wf_writer_take(&out, text, bytes);
}

/* The sink syncs the file and its folder before it reports success. */
static wf_status write_text(manifest *m, const char *text, size_t bytes)
{
    wf_sink *sink;
    WF_TRY(wf_sink_open(m->ctx, m->path, &sink));
    wf_status status = wf_sink_write(sink, text, bytes);
    if (status == WF_OK)
        status = wf_sink_commit(sink);
    wf_sink_free(sink);
    return status;
}

static wf_status write_manifest(manifest *m, int64_t step)
{
    WF_TRY(list_files(m));
    WF_TRY(sync_files(m));
    sum_up(m);
    for (size_t i = 0; i < m->count; i++) {
        char why[128];
        if (m->file[i].error != 0)
            return wf_fail(m->ctx, WF_ERR_IO, "cannot read '%s' back: %s", m->file[i].path,
                           wf_disk_reason(m->file[i].error, why, sizeof why));
    }
    char *text;
    size_t bytes;
    WF_TRY(compose(m, step, &text, &bytes));
    wf_status status = write_text(m, text, bytes);
    wf_mem_free(m->ctx, text);
    return status;
}

wf_status wf_manifest_write(wf_ctx *ctx, const char *folder, int64_t step, uint64_t run)
{
    manifest m;
    wf_status status = open_manifest(&m, ctx, folder);
    m.run = run;
    if (status == WF_OK)
        status = write_manifest(&m, step);
    wf_arena_free(&m.arena);
    return status;
}

/* ---- Checking ---- */

static wf_status fail_whole(const manifest *m, const char *what)
{
    return wf_fail(m->ctx, WF_ERR_FORMAT, "'%s' is incomplete: its %s %s", m->folder,
                   WF_MANIFEST_NAME, what);
}

/* Parses exactly 16 hexadecimal digits. */
static bool read_sum(const char *text, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < 16; i++) {
        char c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')))
            return false;
        *out = *out << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return true;
}

/* The last line but one contains the checksum of all text before it, so any change is detected. */
static bool is_sealed(const char *text, size_t bytes)
{
    static const char begin[] = "  \"checksum\": \"", end[] = "\"\n}\n";
    const size_t tail = sizeof begin - 1 + 16 + sizeof end - 1;
    if (bytes < tail)
        return false;
    const char *at = text + bytes - tail;
    uint64_t sum;
    return memcmp(at, begin, sizeof begin - 1) == 0 && read_sum(at + sizeof begin - 1, &sum) &&
           memcmp(at + sizeof begin - 1 + 16, end, sizeof end - 1) == 0 &&
           sum == wf_checksum(text, bytes - tail);
}

/* strlen equals the JSON length: no NUL hides a part of the name. sum: 16 digits, checked before
 * read_sum reads them. */
static wf_status read_entry(manifest *m, const wf_json_node *node, entry *e)
{
    const wf_json_node *name = wf_json_get(node, "name"), *sum = wf_json_get(node, "checksum");
    int64_t bytes = wf_json_get_int(node, "bytes", -1);
    bool good = name && name->kind == WF_JSON_STRING && strlen(name->string) == name->bytes &&
                is_name(name->string) && bytes >= 0 && sum && sum->kind == WF_JSON_STRING &&
                sum->bytes == 16 && read_sum(sum->string, &e->sum);
    if (!good)
        return fail_whole(m, "describes a file with an invalid name, size or checksum");
    e->name = name->string;
    e->bytes = (uint64_t)bytes;
    return add_path(m, e);
}

static wf_status read_root(manifest *m, const wf_json_node *root, int64_t step)
{
    const wf_json_node *files = wf_json_get(root, "files");
    int64_t format = wf_json_get_int(root, "format", -1), of = wf_json_get_int(root, "step", -1);
    if (format != FORMAT)
        return wf_fail(m->ctx, WF_ERR_FORMAT,
                       "'%s' cannot be used: its %s has format %" PRId64
                       ", but this version of Weft reads %d",
                       m->folder, WF_MANIFEST_NAME, format, FORMAT);
    if (of != step)
        return wf_fail(m->ctx, WF_ERR_FORMAT, "'%s' cannot be used: its %s is of step %" PRId64,
                       m->folder, WF_MANIFEST_NAME, of);
    if (!files || files->kind != WF_JSON_ARRAY || files->count > FILES)
        return fail_whole(m, "has no list of files");
    const wf_json_node *run = wf_json_get(root, "run");
    if (run && (run->kind != WF_JSON_STRING || run->bytes != 16 || !read_sum(run->string, &m->run)))
        return fail_whole(m, "has a run id that is not 16 hexadecimal digits");
    m->file = wf_arena_alloc(&m->arena, files->count * sizeof *m->file);
    if (!m->file)
        return WF_ERR_MEMORY;
    for (; m->count < files->count; m->count++)
        WF_TRY(read_entry(m, &files->child[m->count], &m->file[m->count]));
    return WF_OK;
}

static wf_status read_manifest(manifest *m, int64_t step)
{
    char *text;
    size_t bytes;
    wf_json_node *root = NULL;
    if (wf_path_look(m->folder) == WF_PATH_FOLDER && wf_path_missing(m->path))
        return wf_fail(m->ctx, WF_ERR_FORMAT, "'%s' is incomplete: it has no %s", m->folder,
                       WF_MANIFEST_NAME);
    WF_TRY(wf_file_read(m->ctx, m->path, TEXT_BYTES, &text, &bytes));
    wf_status status = is_sealed(text, bytes)
                           ? wf_json_parse(&m->arena, m->path, text, bytes, &root)
                           : fail_whole(m, "is damaged");
    wf_mem_free(m->ctx, text);
    return status == WF_OK ? read_root(m, root, step) : status;
}

static wf_status check_size(const manifest *m, const entry *e, uint64_t there)
{
    if (there == e->bytes)
        return WF_OK;
    return wf_fail(m->ctx, WF_ERR_FORMAT,
                   "'%s' is incomplete: its file '%s' has %" PRIu64 " bytes instead of %" PRIu64,
                   m->folder, e->name, there, e->bytes);
}

/* Compares the size without reading the file. */
static wf_status check_look(const manifest *m, const entry *e)
{
    wf_file_stamp stamp;
    if (wf_file_look(e->path, &stamp))
        return check_size(m, e, stamp.bytes);
    if (wf_path_missing(e->path))
        return wf_fail(m->ctx, WF_ERR_FORMAT, "'%s' is incomplete: its file '%s' is missing",
                       m->folder, e->name);
    return wf_fail(m->ctx, WF_ERR_IO,
                   "'%s' cannot be used: its file '%s' is not a regular file or not readable",
                   m->folder, e->name);
}

static wf_status check_sum(const manifest *m, const entry *e)
{
    char why[128];
    if (e->error == ENOMEM)
        return wf_fail(m->ctx, WF_ERR_MEMORY, "out of memory while reading '%s'", e->path);
    if (e->error != 0)
        return wf_fail(m->ctx, WF_ERR_IO, "'%s' cannot be used: its file '%s' cannot be read: %s",
                       m->folder, e->name, wf_disk_reason(e->error, why, sizeof why));
    WF_TRY(check_size(m, e, e->bytes_there));
    if (e->sum_there == e->sum)
        return WF_OK;
    return wf_fail(m->ctx, WF_ERR_FORMAT, "'%s' is damaged: the checksum of its file '%s' differs",
                   m->folder, e->name);
}

/* Sizes first, which needs no reading; with `thorough`, all checksums. */
static wf_status check_files(manifest *m, bool thorough)
{
    for (size_t i = 0; i < m->count; i++)
        WF_TRY(check_look(m, &m->file[i]));
    if (!thorough)
        return WF_OK;
    sum_up(m);
    for (size_t i = 0; i < m->count; i++)
        WF_TRY(check_sum(m, &m->file[i]));
    return WF_OK;
}

wf_status wf_manifest_check(wf_ctx *ctx, const char *folder, int64_t step, bool thorough)
{
    manifest m;
    wf_status status = open_manifest(&m, ctx, folder);
    if (status == WF_OK)
        status = read_manifest(&m, step);
    if (status == WF_OK)
        status = check_files(&m, thorough);
    wf_arena_free(&m.arena);
    return status;
}

wf_status wf_manifest_run(wf_ctx *ctx, const char *folder, int64_t step, uint64_t *run)
{
    manifest m;
    wf_status status = open_manifest(&m, ctx, folder);
    if (status == WF_OK)
        status = read_manifest(&m, step);
    *run = status == WF_OK ? m.run : 0;
    wf_arena_free(&m.arena);
    return status;
}

/* ---- Removing ---- */

/* Sets *out if a folder between the manifest's folder and the file is a link: the file is then
 * outside. */
static wf_status is_elsewhere(manifest *m, const char *path, bool *out)
{
    const char *folder = wf_path_parent(&m->arena, path);
    *out = false;
    for (size_t top = strlen(m->folder); folder && !*out && strlen(folder) > top;) {
        *out = wf_path_is_link(folder);
        folder = wf_path_parent(&m->arena, folder);
    }
    return folder ? WF_OK : WF_ERR_MEMORY;
}

/* Upwards from the file's folder to below the manifest's; rmdir refuses those that are not
 * empty. */
static wf_status remove_empty_folders(manifest *m, const char *path)
{
    const char *folder = wf_path_parent(&m->arena, path);
    for (size_t top = strlen(m->folder); folder && strlen(folder) > top;) {
        wf_path_remove_empty(folder);
        folder = wf_path_parent(&m->arena, folder);
    }
    return folder ? WF_OK : WF_ERR_MEMORY;
}

/* Removes the manifest last: after a crash it still lists the files to remove. */
static wf_status remove_files(manifest *m)
{
    for (size_t i = 0; i < m->count; i++) {
        bool elsewhere;
        WF_TRY(is_elsewhere(m, m->file[i].path, &elsewhere));
        if (elsewhere)
            continue;
        WF_TRY(wf_path_remove(m->ctx, m->file[i].path));
        WF_TRY(remove_empty_folders(m, m->file[i].path));
    }
    return wf_path_remove(m->ctx, m->path);
}

wf_status wf_manifest_remove(wf_ctx *ctx, const char *folder, int64_t step)
{
    manifest m;
    wf_status status = open_manifest(&m, ctx, folder);
    if (status == WF_OK)
        status = read_manifest(&m, step);
    if (status == WF_OK)
        status = remove_files(&m);
    wf_arena_free(&m.arena);
    return status;
}
