/* SPDX-License-Identifier: MIT */
/* source.c - see source.h. */
#include "train/source.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/path.h"
#include "text/utf8.h"
#include "train/index.h"

#define DEPTH 64                  /* of folders in folders */
#define ENTRIES ((size_t)1 << 24) /* of one folder */
#define LOOK ((size_t)8192)       /* bytes by which a file is judged */

/* Text has no NUL, and what is in folders besides text often is no UTF-8 either. */
typedef enum { IS_TEXT, IS_EMPTY, IS_BINARY, IS_STRANGE } nature;

static nature judge(const wf_map *m)
{
    size_t n = m->size < LOOK ? m->size : LOOK, length;
    const char *s = (const char *)m->data;
    if (n == 0)
        return IS_EMPTY;
    if (memchr(s, '\0', n))
        return IS_BINARY;
    for (size_t i = 0; i < n; i += length) {
        wf_utf8_state state = wf_utf8_look(s + i, n - i, &length);
        if (state == WF_UTF8_BROKEN || (state == WF_UTF8_PART && n == m->size))
            return IS_STRANGE;
    }
    return IS_TEXT;
}

static wf_status judge_file(wf_ctx *ctx, const char *path, nature *out, uint64_t *bytes)
{
    wf_map *m;
    WF_TRY(wf_map_open(ctx, path, &m));
    *out = judge(m);
    *bytes = m->size;
    wf_map_close(m);
    return WF_OK;
}

static wf_source_kind kind_of(const char *path, const char *format)
{
    if (format)
        return strcmp(format, "jsonl") == 0 ? WF_SOURCE_LINES : WF_SOURCE_TEXT;
    return wf_path_ends(path, ".jsonl") || wf_path_ends(path, ".ndjson") ? WF_SOURCE_LINES
                                                                         : WF_SOURCE_TEXT;
}

static wf_status add_file(wf_sources *s, const char *path, uint64_t bytes, const char *format)
{
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        wf_source *grown = wf_mem_grow(s->ctx, s->source, room * sizeof *grown);
        if (!grown)
            return WF_ERR_MEMORY;
        s->source = grown;
        s->room = room;
    }
    if (bytes > INT64_MAX - s->bytes)
        return wf_fail(s->ctx, WF_ERR_USAGE, "the texts together are longer than can be counted");
    s->source[s->count++] = (wf_source){path, kind_of(path, format), bytes};
    s->bytes += bytes;
    return WF_OK;
}

static wf_status add_folder(wf_sources *s, const char *path, const char *format, int depth)
{
    const char *const *names;
    size_t count;
    if (depth == DEPTH)
        return wf_fail(s->ctx, WF_ERR_IO, "folders lie too deep in each other in '%s'", path);
    WF_TRY(wf_path_list(&s->arena, path, ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++)
        if (depth > 0 && strcmp(names[i], WF_INDEX_FILE) == 0)
            return WF_OK;
    for (size_t i = 0; i < count; i++) {
        if (names[i][0] == '.')
            continue;
        const char *entry = wf_path_join(&s->arena, path, names[i]);
        nature what;
        uint64_t bytes;
        if (!entry)
            return WF_ERR_MEMORY;
        wf_path_kind kind = wf_path_look(entry);
        if (kind == WF_PATH_FOLDER && !wf_path_is_link(entry))
            WF_TRY(add_folder(s, entry, format, depth + 1));
        if (kind != WF_PATH_FILE)
            continue;
        WF_TRY(judge_file(s->ctx, entry, &what, &bytes));
        if (what == IS_TEXT)
            WF_TRY(add_file(s, entry, bytes, format));
        else
            s->skipped++;
    }
    return WF_OK;
}

wf_status wf_sources_add(wf_sources *s, const char *path, const char *format)
{
    nature what;
    uint64_t bytes;
    switch (wf_path_look(path)) {
    case WF_PATH_FOLDER: return add_folder(s, path, format, 0);
    case WF_PATH_FILE: break;
    case WF_PATH_NONE: return wf_fail(s->ctx, WF_ERR_IO, "there is no file or folder '%s'", path);
    case WF_PATH_OTHER:
        return wf_fail(
            s->ctx, WF_ERR_USAGE,
            "cannot read '%s', which is neither a file nor a folder; texts are read more than once, so save "
            "them to a file first",
            path);
    }
    WF_TRY(judge_file(s->ctx, path, &what, &bytes));
    if (what == IS_BINARY)
        return wf_fail(
            s->ctx, WF_ERR_FORMAT,
            "the file '%s' is no text: it has bytes that are zero; give text files or lines of "
            "JSON",
            path);
    const char *copy = wf_arena_strdup(&s->arena, path);
    return copy ? add_file(s, copy, bytes, format) : WF_ERR_MEMORY;
}

void wf_sources_free(wf_sources *s)
{
    wf_mem_free(s->ctx, s->source);
    wf_arena_free(&s->arena);
}

/* ---- Their bytes ---- */

wf_status wf_source_open(wf_ctx *ctx, const wf_source *s, wf_opened *out)
{
    *out = (wf_opened){.source = s};
    return wf_map_open(ctx, s->path, &out->map);
}

wf_status wf_source_close(wf_ctx *ctx, wf_opened *o)
{
    bool broken = o->map && wf_map_broken(o->map);
    wf_map_close(o->map);
    o->map = NULL;
    return broken ? wf_fail(ctx, WF_ERR_IO, "the file '%s' was cut short while it was read",
                            o->source->path)
                  : WF_OK;
}
