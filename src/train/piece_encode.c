/* SPDX-License-Identifier: MIT */
/*
 * piece_encode.c - encodes a piece to tokens.
 *
 * Runs in a worker with the worker's own context and encoder; results belong to that context and
 * are freed by wf_piece_free. Errors are kept in the piece as text, because the caller reports them
 * later, in order and with the line number of the file.
 */
#include <string.h>

#include "base/mem.h"
#include "train/piece.h"

typedef struct {
    const wf_encoding *e;
    wf_piece_work *p; /* being filled */
    wf_ctx *ctx;
    wf_encoder *texts; /* of this thread */
    wf_arena arena;    /* reset for each line */
} encoder;

/* ---- Collecting ids ---- */

static wf_status add_ids(encoder *x, const int32_t *ids, size_t n)
{
    wf_piece_work *p = x->p;
    if (n > p->room - p->count) {
        /* At least doubled, so appending is linear overall. */
        size_t room = p->count + n > 2 * p->room ? p->count + n : 2 * p->room;
        int32_t *grown = wf_mem_grow(x->ctx, p->ids, room * sizeof *grown);
        if (!grown)
            return WF_ERR_MEMORY;
        p->ids = grown;
        p->room = room;
    }
    if (n > 0)
        memcpy(p->ids + p->count, ids, n * sizeof *ids);
    p->count += n;
    return WF_OK;
}

/* Sets the mask of the ids added last. */
static wf_status add_mask(encoder *x, const uint8_t *mask, size_t n)
{
    wf_piece_work *p = x->p;
    if (p->count > p->mask_room) {
        uint8_t *grown = wf_mem_grow(x->ctx, p->mask, p->room);
        if (!grown)
            return WF_ERR_MEMORY;
        p->mask = grown;
        p->mask_room = p->room;
    }
    memcpy(p->mask + p->count - n, mask, n);
    return WF_OK;
}

/* Ends a document with all ids since the last one. */
static wf_status add_document(encoder *x, size_t before, size_t bytes, bool begins, bool ends)
{
    wf_piece_work *p = x->p;
    wf_encoded *grown =
        wf_mem_room(x->ctx, p->document, p->documents, &p->document_room, sizeof *p->document);
    if (!grown)
        return WF_ERR_MEMORY;
    p->document = grown;
    p->document[p->documents++] = (wf_encoded){p->count - before, bytes, begins, ends};
    return WF_OK;
}

/* ---- Texts ---- */

/* Encodes long texts in parts, so that buffers do not grow with the document. */
static wf_status encode_text(encoder *x, const char *text, size_t n)
{
    while (n > 0) {
        size_t take = n, count;
        const int32_t *ids;
        bool proved = true;
        if (n > 2 * WF_PIECE_BYTES)
            take = wf_cut_text(x->e->chat.tokenizer, text, WF_PIECE_BYTES / 2, WF_PIECE_BYTES,
                               &proved);
        x->p->cuts += !proved;
        WF_TRY(wf_encoder_run(x->texts, text, take, 0, &ids, &count));
        WF_TRY(add_ids(x, ids, count));
        text += take;
        n -= take;
    }
    return WF_OK;
}

/* Encodes a part of a document, with bos at its begin and eos at its end. */
static wf_status encode_part(encoder *x, const char *text, size_t n, bool begins, bool ends)
{
    size_t before = x->p->count;
    if (n == 0)
        return WF_OK;
    x->p->has_text = true;
    if (begins)
        WF_TRY(add_ids(x, x->e->before, x->e->befores));
    WF_TRY(encode_text(x, text, n));
    if (ends)
        WF_TRY(add_ids(x, &x->e->chat.end, 1));
    return add_document(x, before, n, begins, ends);
}

/* Splits the text at the separator. The separator itself is not encoded. */
static wf_status encode_documents(encoder *x)
{
    const char *s = x->p->text, *end = s + x->p->bytes, *mark = x->e->split_on;
    size_t bytes = strlen(mark);
    while (s < end) {
        const char *at = s;
        while (at < end && !((size_t)(end - at) >= bytes && memcmp(at, mark, bytes) == 0))
            at++;
        if (at > s) /* an empty document is skipped */
            WF_TRY(encode_part(x, s, (size_t)(at - s), true, true));
        s = at < end ? at + bytes : end;
    }
    return WF_OK;
}

/* ---- Lines ---- */

static wf_status encode_conversation(encoder *x, const wf_entry *entry)
{
    wf_conversation c;
    size_t before = x->p->count;
    x->p->has_chat = true;
    WF_TRY(wf_conversation_encode(&x->e->chat, &x->arena, entry, &c));
    if (c.counted == 0) {
        x->p->dropped++;
        return WF_OK;
    }
    WF_TRY(add_ids(x, c.ids, c.count));
    WF_TRY(add_mask(x, c.mask, c.count));
    return add_document(x, before, c.bytes, true, true);
}

/* Removes the position from the JSON error: the caller knows the line. */
static wf_status parse_line(encoder *x, const char *s, size_t n, wf_json_node **out)
{
    static const char where[] = "cannot read 'it', line 1: ";
    wf_status status = wf_json_parse(&x->arena, "it", s, n, out);
    const char *why = wf_ctx_message(x->ctx);
    if (status == WF_ERR_FORMAT && strncmp(why, where, strlen(where)) == 0)
        return wf_fail(x->ctx, status, "it is not valid JSON: %s", why + strlen(where));
    return status;
}

static wf_status encode_line(encoder *x, const char *s, size_t n)
{
    wf_json_node *line;
    wf_entry entry;
    WF_TRY(parse_line(x, s, n, &line));
    WF_TRY(wf_entry_read(&x->arena, line, &entry));
    if (entry.kind != WF_ENTRY_TEXT)
        return encode_conversation(x, &entry);
    x->p->dropped += entry.text->bytes == 0;
    return encode_part(x, entry.text->string, entry.text->bytes, true, true);
}

/* Encodes a record. A malformed one is an error, or is counted and skipped; its ids are then
 * removed. */
static wf_status encode_record(encoder *x, const char *s, size_t n)
{
    wf_piece_work *p = x->p;
    const size_t count = p->count;
    const int documents = p->documents;
    const bool had_text = p->has_text, had_chat = p->has_chat;
    wf_status status = encode_line(x, s, n);
    wf_arena_free(&x->arena);
    if (status == WF_OK)
        return WF_OK;
    /* Only the first malformed record is described. */
    if (p->bad == 0) {
        size_t len = 0;
        p->line = p->lines;
        wf_text_append(p->why, sizeof p->why, &len, "%s", wf_ctx_message(x->ctx));
    }
    if (!x->e->skip_bad || (status != WF_ERR_FORMAT && status != WF_ERR_UNSUPPORTED))
        return status;
    p->bad++;
    p->count = count;
    p->documents = documents;
    p->has_text = had_text;
    p->has_chat = had_chat;
    wf_ctx_clear(x->ctx);
    return WF_OK;
}

static bool is_blank(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] != ' ' && s[i] != '\t' && s[i] != '\r')
            return false;
    return true;
}

static wf_status encode_lines(encoder *x)
{
    const char *s = x->p->text, *end = s + x->p->bytes;
    while (s < end) {
        const char *line_end = memchr(s, '\n', (size_t)(end - s));
        size_t n = (size_t)((line_end ? line_end : end) - s);
        x->p->lines++;
        if (!is_blank(s, n))
            WF_TRY(encode_record(x, s, n));
        s += n + 1;
    }
    return WF_OK;
}

/* Encodes the elements of a JSON array. The cutter has checked their form, so nothing else ends the
 * loop. */
static wf_status encode_elements(encoder *x)
{
    const char *s = x->p->text;
    size_t size = x->p->bytes, at = 0, begin, end;
    while (wf_element_next(s, size, false, WF_LINE_BYTES, &at, &begin, &end) == WF_ELEMENT) {
        x->p->lines++;
        WF_TRY(encode_record(x, s + begin, end - begin));
    }
    return WF_OK;
}

/* ---- Pieces ---- */

/* Never fails as a call: the status and the reason are in the piece. */
void wf_piece_encode(const wf_encoding *e, wf_ctx *ctx, wf_encoder *texts, wf_piece_work *p)
{
    encoder x = {.e = e, .p = p, .ctx = ctx, .texts = texts};
    wf_arena_init(&x.arena, ctx);
    p->ctx = ctx;
    switch (p->kind) {
    case WF_PIECE_PART: p->status = encode_part(&x, p->text, p->bytes, p->begins, p->ends); break;
    case WF_PIECE_DOCUMENTS: p->status = encode_documents(&x); break;
    case WF_PIECE_LINES: p->status = encode_lines(&x); break;
    case WF_PIECE_ELEMENTS: p->status = encode_elements(&x); break;
    }
    if (p->status != WF_OK) {
        size_t len = 0;
        wf_text_append(p->why, sizeof p->why, &len, "%s", wf_ctx_message(ctx));
    }
    wf_arena_free(&x.arena);
}

void wf_piece_free(wf_piece_work *p)
{
    if (!p->ctx)
        return;
    wf_mem_free(p->ctx, p->ids);
    wf_mem_free(p->ctx, p->mask);
    wf_mem_free(p->ctx, p->document);
    p->ctx = NULL;
}

void wf_piece_tell(const wf_piece_work *p, int64_t lines, char *out, size_t size)
{
    size_t len = 0;
    wf_text_append(out, size, &len, "%s %lld of '%s': %s",
                   p->kind == WF_PIECE_ELEMENTS ? "record" : "line", (long long)(lines + p->line),
                   p->source->path, p->why);
}

wf_status wf_piece_report(wf_ctx *ctx, const wf_piece_work *p, int64_t lines)
{
    char where[WF_MESSAGE_BYTES];
    if (p->line == 0)
        return wf_fail(ctx, p->status, "cannot encode '%s': %s", p->source->path, p->why);
    wf_piece_tell(p, lines, where, sizeof where);
    return wf_fail(ctx, p->status, "%s", where);
}
