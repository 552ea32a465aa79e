/* SPDX-License-Identifier: MIT */
/*
 * source.c - lists input files, and finds their records.
 *
 * Folders are walked in the order of wf_path_list, so the order of documents does not depend on the
 * file system. Links to folders are not followed, which also rules out cycles.
 */
#include "train/source.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "base/path.h"
#include "text/utf8.h"
#include "train/index.h"

#define DEPTH 64                  /* limit for nested folders */
#define ENTRIES ((size_t)1 << 24) /* limit for one folder */
#define LOOK ((size_t)8192)       /* bytes that classify a file */

/* Text contains no NUL; other files in folders are often not UTF-8 either. */
typedef enum { IS_TEXT, IS_EMPTY, IS_BINARY, IS_STRANGE } nature;

/* Looks at the first LOOK bytes only: files may be huge. */
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

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

size_t wf_source_begin(const char *text, size_t size)
{
    return size >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

typedef struct {
    nature what;
    char first;  /* first character that is not white space; 0: none */
    bool spread; /* its line ends after it: JSON over several lines */
    uint64_t bytes;
} look;

/* Classifies a file by its beginning; reads nothing else. */
static wf_status judge_file(wf_ctx *ctx, const char *path, look *out)
{
    wf_map *m;
    WF_TRY(wf_map_open(ctx, path, &m));
    const char *text = (const char *)m->data;
    size_t at = wf_source_begin(text, m->size), most = m->size < LOOK ? m->size : LOOK;
    while (at < most && is_space(text[at]))
        at++;
    *out = (look){.what = judge(m), .first = at < most ? text[at] : 0, .bytes = m->size};
    out->spread = at + 1 < most && (text[at + 1] == '\n' || text[at + 1] == '\r');
    wf_map_close(m);
    return WF_OK;
}

/* A .json file is an array of records, or JSON lines. Anything else would be trained on as text
 * with brackets, which needs --format text. */
static wf_status find_kind(wf_ctx *ctx, const char *path, const look *l, const char *format,
                           wf_source_kind *out)
{
    bool array = format && strcmp(format, "json") == 0;
    *out = WF_SOURCE_TEXT;
    if (format && !array) {
        *out = strcmp(format, "jsonl") == 0 ? WF_SOURCE_LINES : WF_SOURCE_TEXT;
    } else if (array || wf_path_ends(path, ".json")) {
        *out = l->first == '[' ? WF_SOURCE_ARRAY : WF_SOURCE_LINES;
        bool lines = !array && l->first == '{' && !l->spread;
        if (l->first != '[' && !lines && l->what != IS_EMPTY)
            return wf_fail(ctx, WF_ERR_FORMAT,
                           "the file '%s' is not a JSON array of records%s; use --format text to "
                           "train on it as plain text",
                           path, array ? "" : " or JSON lines");
    } else if (wf_path_ends(path, ".jsonl") || wf_path_ends(path, ".ndjson")) {
        *out = WF_SOURCE_LINES;
    }
    return WF_OK;
}

static wf_status add_file(wf_sources *s, const char *path, const look *l, const char *format)
{
    wf_source_kind kind;
    uint64_t bytes = l->bytes;
    WF_TRY(find_kind(s->ctx, path, l, format, &kind));
    if (s->count == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        wf_source *grown = wf_mem_grow(s->ctx, s->source, room * sizeof *grown);
        if (!grown)
            return WF_ERR_MEMORY;
        s->source = grown;
        s->room = room;
    }
    if (bytes > INT64_MAX - s->bytes)
        return wf_fail(s->ctx, WF_ERR_USAGE, "the total size of the texts cannot be counted");
    s->source[s->count++] = (wf_source){path, kind, bytes};
    s->bytes += bytes;
    return WF_OK;
}

static wf_status add_folder(wf_sources *s, const char *path, const char *format, int depth)
{
    const char *const *names;
    size_t count;
    if (depth == DEPTH)
        return wf_fail(s->ctx, WF_ERR_IO, "folders in '%s' are nested too deeply", path);
    WF_TRY(wf_path_list(&s->arena, path, ENTRIES, &names, &count));
    for (size_t i = 0; i < count; i++)
        /* A folder of prepared data inside the input is not text. */
        if (depth > 0 && strcmp(names[i], WF_INDEX_FILE) == 0)
            return WF_OK;
    for (size_t i = 0; i < count; i++) {
        if (names[i][0] == '.')
            continue;
        const char *entry = wf_path_join(&s->arena, path, names[i]);
        look l;
        if (!entry)
            return WF_ERR_MEMORY;
        wf_path_kind kind = wf_path_look(entry);
        if (kind == WF_PATH_FOLDER && !wf_path_is_link(entry))
            WF_TRY(add_folder(s, entry, format, depth + 1));
        if (kind != WF_PATH_FILE)
            continue;
        WF_TRY(judge_file(s->ctx, entry, &l));
        if (l.what == IS_TEXT)
            WF_TRY(add_file(s, entry, &l, format));
        else
            s->skipped++;
    }
    return WF_OK;
}

wf_status wf_sources_add(wf_sources *s, const char *path, const char *format)
{
    look l;
    switch (wf_path_look(path)) {
    case WF_PATH_FOLDER: return add_folder(s, path, format, 0);
    case WF_PATH_FILE: break;
    case WF_PATH_NONE:
        return wf_fail(s->ctx, WF_ERR_IO, "the file or folder '%s' does not exist", path);
    case WF_PATH_OTHER:
        return wf_fail(
            s->ctx, WF_ERR_USAGE,
            "cannot read '%s', which is neither a file nor a folder; save it to a file first, "
            "because input is read more than once",
            path);
    }
    WF_TRY(judge_file(s->ctx, path, &l));
    if (l.what == IS_BINARY)
        return wf_fail(
            s->ctx, WF_ERR_FORMAT,
            "the file '%s' is not text: it contains zero bytes; give text files or JSON lines",
            path);
    const char *copy = wf_arena_strdup(&s->arena, path);
    return copy ? add_file(s, copy, &l, format) : WF_ERR_MEMORY;
}

void wf_sources_free(wf_sources *s)
{
    wf_mem_free(s->ctx, s->source);
    wf_arena_free(&s->arena);
}

/* ---- Elements of arrays ---- */

/* Returns the end of the value that starts at `at`: the next comma or bracket outside of it, or the
 * end of the text. Stops after `most` bytes, so that a missing quote does not cost the whole
 * file. */
static size_t value_end(const char *text, size_t size, size_t at, size_t most)
{
    size_t depth = 0, last = size - at > most ? at + most + 1 : size;
    bool quoted = false;
    for (; at < last; at++) {
        char c = text[at];
        if (quoted) {
            /* Skips the escaped character; at may then pass last, hence the check at the end. */
            at += c == '\\';
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '[' || c == '{') {
            depth++;
        } else if (depth == 0 && (c == ',' || c == ']' || c == '}')) {
            return at;
        } else if (c == ']' || c == '}') {
            depth--;
        }
    }
    return at < last ? at : last;
}

static size_t skip_space(const char *text, size_t size, size_t at)
{
    while (at < size && is_space(text[at]))
        at++;
    return at;
}

/* Finds the next element from *at and moves *at behind it and its comma. whole: `text` reaches to
 * the end of the file, so an array that is not closed is malformed. */
wf_element_status wf_element_next(const char *text, size_t size, bool whole, size_t most,
                                  size_t *at, size_t *begin, size_t *end)
{
    *at = skip_space(text, size, *at);
    if (*at == size)
        return whole ? WF_ELEMENTS_BAD : WF_ELEMENTS_END;
    if (text[*at] == ']') {
        *at = skip_space(text, size, *at + 1);
        return *at == size ? WF_ELEMENTS_END : WF_ELEMENTS_BAD;
    }
    *begin = *at;
    *end = *at = value_end(text, size, *at, most);
    if (*end - *begin > most)
        return WF_ELEMENTS_LONG;
    if (*at < size && text[*at] == ',') {
        size_t next = skip_space(text, size, ++*at);
        if (next < size && text[next] == ']') /* a trailing comma */
            return WF_ELEMENTS_BAD;
    } else if (*at == size ? whole : text[*at] != ']') {
        return WF_ELEMENTS_BAD;
    }
    return WF_ELEMENT;
}

/* ---- Reading ---- */

size_t wf_source_data(const wf_opened *o)
{
    const char *text = (const char *)o->map->data;
    size_t at = wf_source_begin(text, o->map->size);
    if (o->source->kind == WF_SOURCE_ARRAY) {
        const char *bracket = memchr(text + at, '[', o->map->size - at);
        at = bracket ? (size_t)(bracket - text) + 1 : o->map->size;
    }
    return at;
}

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
    return broken ? wf_fail(ctx, WF_ERR_IO, "the file '%s' was truncated while it was read",
                            o->source->path)
                  : WF_OK;
}
