/* SPDX-License-Identifier: MIT */
/*
 * piece_cut.c - cuts files into pieces.
 *
 * Documents that fit are collected into one piece; longer ones are cut where the tokenizer proves
 * that tokens do not change, else at a line, else at a character. Pages behind the cursor are
 * released, so files may be larger than memory.
 */
#include <string.h>

#include "text/token.h"
#include "train/piece.h"

#define STRIDE ((size_t)8 << 20) /* bytes searched before their pages are released */

/* Returns the first occurrence of `what`, bytes >= 1, or NULL. */
static const char *find(const char *s, size_t n, const char *what, size_t bytes)
{
    while (n >= bytes) {
        const char *at = memchr(s, what[0], n - bytes + 1);
        if (!at || memcmp(at, what, bytes) == 0)
            return at;
        n -= (size_t)(at + 1 - s);
        s = at + 1;
    }
    return NULL;
}

/* Returns the position of the next separator, or the size of the file. Releases pages behind it:
 * files may be larger than memory. */
static size_t find_mark(const wf_map *m, size_t from, const char *mark)
{
    const char *text = (const char *)m->data;
    size_t bytes = strlen(mark);
    for (size_t at = from; at < m->size; at += STRIDE) {
        size_t left = m->size - at, n = left > STRIDE + bytes - 1 ? STRIDE + bytes - 1 : left;
        const char *found = find(text + at, n, mark, bytes);
        if (found)
            return (size_t)(found - text);
        if (left > STRIDE)
            wf_map_forget(m, at, STRIDE);
    }
    return m->size;
}

/* Moves back to the start of a UTF-8 character, at most three bytes. */
static size_t character_start(const char *text, size_t least, size_t at)
{
    size_t from = at;
    while (at > least && from - at < 4 && ((uint8_t)text[at] & 0xC0) == 0x80)
        at--;
    return ((uint8_t)text[at] & 0xC0) == 0x80 ? from : at; /* not valid UTF-8 anyway */
}

size_t wf_cut_text(const wf_tokenizer *t, const char *text, size_t least, size_t most, bool *proved)
{
    size_t at = wf_tokenizer_cut(t, text, least, most);
    *proved = at > 0;
    if (at > 0)
        return at;
    for (at = most; at > least; at--)
        if (text[at - 1] == '\n')
            return at;
    return character_start(text, least, most);
}

/* ---- Texts ---- */

/* Returns the start of the validation part, preferably at the beginning of a line. */
static size_t find_tail(const wf_cutter *c, const char *text, size_t begin, size_t end)
{
    size_t bytes = end - begin, at = end - (size_t)(c->tail * (double)bytes);
    bool proved;
    if (c->tail <= 0 || at >= end || at <= begin)
        return end;
    size_t least = at - begin > 4096 ? at - 4096 : begin + 1;
    for (size_t i = at; i > least; i--)
        if (text[i - 1] == '\n')
            return i;
    at = wf_cut_text(c->tokenizer, text, least, at, &proved);
    return at > begin ? at : end;
}

/* Starts cutting text[at, end); the next document begins at `resume`. */
static void begin_document(wf_cutter *c, const char *text, size_t end, size_t resume)
{
    c->document = c->at;
    c->end = end;
    c->resume = resume;
    c->cut = find_tail(c, text, c->at, end);
}

/* Takes the next part of the current document. The validation part is a separate document. */
static void take_part(wf_cutter *c, const char *text, wf_piece_work *p)
{
    bool tail = c->at >= c->cut;
    size_t begin = tail ? c->cut : c->document, end = tail ? c->end : c->cut, to = end;
    bool proved = true;
    if (end - c->at > WF_PIECE_BYTES)
        to = wf_cut_text(c->tokenizer, text, c->at + WF_PIECE_BYTES / 2, c->at + WF_PIECE_BYTES,
                         &proved);
    c->cuts += !proved;
    p->kind = WF_PIECE_PART;
    p->text = text + c->at;
    p->bytes = to - c->at;
    p->begins = c->at == begin;
    p->ends = to == end;
    p->split = tail ? WF_SPLIT_VALID : c->tail > 0 ? WF_SPLIT_TRAIN : c->split;
    c->at = to;
    if (to == c->end) {
        c->at = c->resume;
        c->end = c->at;
    }
}

/* Takes documents between separators: enough for a piece, or a part of a long one. With validation
 * parts, each document is taken alone. */
static void take_documents(wf_cutter *c, wf_piece_work *p)
{
    const wf_map *m = c->open.map;
    const char *text = (const char *)m->data;
    size_t mark = strlen(c->split_on), begin = c->at, last = begin;
    while (last < m->size) {
        size_t end = find_mark(m, last, c->split_on), next = end < m->size ? end + mark : end;
        if (next - begin > WF_PIECE_BYTES && last > begin)
            break;
        if (c->tail > 0 || end - begin > WF_PIECE_BYTES) {
            begin_document(c, text, end, next);
            take_part(c, text, p); /* possibly empty */
            return;
        }
        last = next;
    }
    p->kind = WF_PIECE_DOCUMENTS;
    p->text = text + begin;
    p->bytes = last - begin;
    p->split = c->split;
    c->at = c->end = last;
}

/* ---- Lines ---- */

/* Takes whole lines of about WF_PIECE_BYTES; a single longer line is taken alone, up to
 * WF_LINE_BYTES. */
static bool take_lines(wf_cutter *c, const char *text, size_t size, wf_piece_work *p,
                       wf_status *status)
{
    size_t begin = c->at, end = begin + WF_PIECE_BYTES;
    if (size - begin <= WF_PIECE_BYTES) {
        end = size;
    } else {
        while (end > begin && text[end - 1] != '\n')
            end--;
        if (end == begin) {
            size_t most = size - begin < WF_LINE_BYTES ? size - begin : WF_LINE_BYTES;
            const char *line_end = memchr(text + begin, '\n', most);
            if (!line_end && most < size - begin) {
                *status =
                    wf_fail(c->ctx, WF_ERR_FORMAT,
                            "the file '%s' has a line of more than %zu bytes; is it JSON lines?",
                            c->open.source->path, WF_LINE_BYTES);
                return false;
            }
            end = line_end ? (size_t)(line_end - text) + 1 : size;
        }
    }
    p->kind = WF_PIECE_LINES;
    p->text = text + begin;
    p->bytes = end - begin;
    p->split = c->split;
    c->at = c->end = end;
    return true;
}

/* ---- Elements of arrays ---- */

/* The same for the elements of a JSON array, which are found by matching brackets. */
static bool take_elements(wf_cutter *c, const char *text, size_t size, wf_piece_work *p,
                          wf_status *status)
{
    size_t begin = c->at, end = begin, element, last = begin;
    wf_element_status found = WF_ELEMENT;
    while (end - begin < WF_PIECE_BYTES) {
        found = wf_element_next(text, size, true, WF_LINE_BYTES, &c->at, &element, &last);
        if (found != WF_ELEMENT)
            break;
        end = last;
    }
    p->kind = WF_PIECE_ELEMENTS;
    p->text = text + begin;
    p->bytes = end - begin;
    p->split = c->split;
    c->end = c->at;
    if (found == WF_ELEMENTS_LONG)
        *status = wf_fail(c->ctx, WF_ERR_FORMAT,
                          "the array in '%s' has a record of more than %zu bytes, the limit",
                          c->open.source->path, WF_LINE_BYTES);
    if (found == WF_ELEMENTS_BAD)
        *status = wf_fail(
            c->ctx, WF_ERR_FORMAT,
            "the file '%s' is not a complete JSON array: brackets or commas do not match near "
            "byte %zu",
            c->open.source->path, c->at);
    return *status == WF_OK;
}

/* ---- All files ---- */

/* Opens the next source; *closed is the one before. Zero-length files give an empty piece. */
static wf_status open_next(wf_cutter *c, wf_opened *closed)
{
    *closed = c->open;
    c->open = (wf_opened){0};
    c->at = c->end = 0;
    if (c->next == c->sources->count)
        return WF_OK;
    WF_TRY(wf_source_open(c->ctx, &c->sources->source[c->next++], &c->open));
    c->at = c->end = wf_source_data(&c->open);
    return WF_OK;
}

bool wf_cutter_next(wf_cutter *c, wf_piece_work *p, wf_opened *closed, wf_status *status)
{
    *p = (wf_piece_work){0};
    *closed = (wf_opened){0};
    *status = WF_OK;
    if (!c->open.map || c->at >= c->open.map->size) {
        *status = open_next(c, closed);
        if (*status != WF_OK || !c->open.map)
            return false;
    }
    const char *text = (const char *)c->open.map->data;
    size_t size = c->open.map->size;
    p->source = c->open.source;
    if (c->at >= size)
        return true; /* an empty piece */
    if (p->source->kind == WF_SOURCE_ARRAY)
        return take_elements(c, text, size, p, status);
    if (p->source->kind == WF_SOURCE_LINES)
        return take_lines(c, text, size, p, status);
    if (c->at == c->end && c->split_on) {
        take_documents(c, p);
        return true;
    }
    if (c->at == c->end)
        begin_document(c, text, size, size);
    take_part(c, text, p);
    return true;
}

/* ---- Counting ---- */

/* Counts documents between separators, up to `enough`; empty ones do not count. */
static int64_t count_in(const wf_map *m, const char *mark, int64_t enough)
{
    int64_t count = 0;
    for (size_t at = 0; at < m->size && count < enough;) {
        size_t end = find_mark(m, at, mark);
        count += end > at;
        at = end < m->size ? end + strlen(mark) : end;
    }
    return count;
}

/* Errors in an array are reported later, when it is encoded. */
static int64_t count_elements(const wf_opened *o, int64_t enough)
{
    const char *text = (const char *)o->map->data;
    size_t size = o->map->size, at = wf_source_data(o), begin, end;
    int64_t count = 0;
    while (at < size && count < enough &&
           wf_element_next(text, size, true, WF_LINE_BYTES, &at, &begin, &end) == WF_ELEMENT)
        count++;
    return count;
}

wf_status wf_count_documents(wf_ctx *ctx, const wf_sources *s, const char *split_on, int64_t enough,
                             int64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < s->count && *out < enough; i++) {
        const wf_source *source = &s->source[i];
        const char *mark = source->kind == WF_SOURCE_TEXT ? split_on : "\n";
        if (!mark) {
            *out += source->bytes > 0;
            continue;
        }
        wf_opened o;
        WF_TRY(wf_source_open(ctx, source, &o));
        *out += source->kind == WF_SOURCE_ARRAY ? count_elements(&o, enough - *out)
                                                : count_in(o.map, mark, enough - *out);
        WF_TRY(wf_source_close(ctx, &o));
    }
    return WF_OK;
}
