/* SPDX-License-Identifier: MIT */
/*
 * text_ids.c - see text_ids.h.
 *
 * Files are read in chunks and cut at whole characters, so that invalid UTF-8 is reported once and
 * at the right offset. The stream holds back only the text after the last certain cut.
 */
#include "cli/text_ids.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "cli/open.h"
#include "text/stream.h"

#define CHUNK 65536 /* bytes read at once */
#define CHAR_MOST 4 /* bytes in a UTF-8 character */

typedef struct {
    wf_text_ids *x;
    wf_stream *stream;
    const char *path;
    FILE *file;
    char *buffer; /* [CHUNK] */
    size_t wrong; /* offset of the first invalid byte; SIZE_MAX: none */
} reading;

/* ---- One text after the other ---- */

static wf_status feed(wf_text_ids *x, wf_stream *stream, const char *text, size_t bytes)
{
    const int32_t *ids;
    size_t count;
    WF_TRY(wf_stream_feed(stream, text, bytes, &ids, &count));
    x->bytes += bytes;
    return count ? x->fn(x->user, ids, count, &x->enough) : WF_OK;
}

static wf_status finish(wf_text_ids *x, wf_stream *stream)
{
    const int32_t *ids;
    size_t count;
    WF_TRY(wf_stream_end(stream, &ids, &count));
    return x->fn(x->user, ids, count, &x->enough);
}

wf_status wf_text_ids_memory(wf_text_ids *x, const char *text, size_t bytes)
{
    wf_stream *stream;
    wf_status status = WF_OK;
    x->bytes = 0;
    x->enough = false;
    WF_TRY(wf_stream_new(x->tokenizer, x->ctx, x->flags, &stream));
    for (size_t at = 0; at < bytes && status == WF_OK && !x->enough; at += CHUNK)
        status = feed(x, stream, text + at, bytes - at < CHUNK ? bytes - at : CHUNK);
    if (status == WF_OK && !x->enough)
        status = finish(x, stream);
    wf_stream_free(stream);
    return status;
}

/* ---- Files ---- */

/* Returns the number of bytes up to the last whole character; at the end of the file, all bytes. */
static size_t check_chars(reading *r, size_t n, bool last)
{
    size_t at = 0, length;
    while (at < n && (last || n - at >= CHAR_MOST)) {
        length = wf_text_utf8(r->buffer + at, n - at);
        if (length == 0 && r->wrong == SIZE_MAX)
            r->wrong = r->x->bytes + at;
        at += length ? length : 1;
    }
    return at;
}

static wf_status read_all(reading *r)
{
    wf_text_ids *x = r->x;
    size_t held = 0;
    for (bool last = false; !last && !x->enough;) {
        size_t n = held + fread(r->buffer + held, 1, CHUNK - held, r->file);
        if (ferror(r->file))
            return wf_fail(x->ctx, WF_ERR_IO, "cannot read '%s': %s", r->path, strerror(errno));
        last = feof(r->file);
        if (x->most > 0 && n > x->most - x->bytes)
            return wf_fail(x->ctx, WF_ERR_USAGE,
                           "'%s' exceeds the limit of %zu MiB; give a shorter text", r->path,
                           x->most >> 20);
        size_t take = check_chars(r, n, last);
        WF_TRY(feed(x, r->stream, r->buffer, take));
        held = n - take;
        memmove(r->buffer, r->buffer + take, held);
    }
    return x->enough ? WF_OK : finish(x, r->stream);
}

wf_status wf_text_ids_file(wf_text_ids *x, const char *path)
{
    reading r = {.x = x, .path = path, .wrong = SIZE_MAX};
    bool own = strcmp(path, "-") != 0;
    x->bytes = 0;
    x->enough = false;
    r.file = own ? fopen(path, "rb") : stdin;
    if (!r.file)
        return wf_fail(x->ctx, WF_ERR_IO, "cannot open '%s': %s", path, strerror(errno));
    setvbuf(r.file, NULL, _IONBF, 0); /* this code reads whole chunks */
    r.buffer = wf_mem_new(x->ctx, CHUNK);
    wf_status status = r.buffer ? WF_OK : WF_ERR_MEMORY;
    if (status == WF_OK)
        status = wf_stream_new(x->tokenizer, x->ctx, x->flags, &r.stream);
    if (status == WF_OK)
        status = read_all(&r);
    if (status == WF_OK && r.wrong != SIZE_MAX)
        wf_open_say("note: %s has invalid UTF-8 at byte %zu; invalid bytes become U+FFFD",
                    WF_FOREIGN(path), r.wrong);
    wf_stream_free(r.stream);
    wf_mem_free(x->ctx, r.buffer);
    if (own)
        fclose(r.file);
    return status;
}

/* ---- Lists ---- */

wf_status wf_ids_list_add(void *user, const int32_t *ids, size_t count, bool *enough)
{
    wf_ids_list *l = user;
    size_t need, bytes;
    if (!wf_add_size(l->count, count, &need))
        need = SIZE_MAX;
    if (need > l->room || !l->ids) {
        /* Doubles, so appending is linear overall. */
        size_t room = need > 2 * l->room ? need + 256 : 2 * l->room;
        int32_t *grown =
            wf_mem_grow(l->ctx, l->ids, wf_mul_size(room, sizeof *ids, &bytes) ? bytes : SIZE_MAX);
        if (!grown)
            return WF_ERR_MEMORY;
        l->ids = grown;
        l->room = room;
    }
    if (count > 0)
        memcpy(l->ids + l->count, ids, count * sizeof *ids);
    l->count = need;
    *enough = l->most > 0 && l->count >= l->most;
    return WF_OK;
}
