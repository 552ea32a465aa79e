/* SPDX-License-Identifier: MIT */
/*
 * stream.c - see stream.h.
 *
 * Text is buffered until it has PIECE bytes and a place where cutting cannot change the ids
 * (cut.c). Everything before the cut is encoded and removed. The buffer is bounded: a text without
 * such a place fails at a limit.
 */
#include "text/stream.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/token_priv.h"

#define PIECE ((size_t)64 << 10) /* bytes to collect before a cut is searched */

struct wf_stream {
    const wf_tokenizer *t;
    wf_ctx *ctx;
    uint32_t flags;
    /* Owned; its ids are valid until its next call. */
    wf_encoder *encoder;
    char *text; /* [room], of which `bytes` are not encoded yet */
    size_t bytes, room;
    size_t searched; /* no cut is possible before this offset */
    bool begun;      /* a piece was encoded */
};

wf_status wf_stream_new(const wf_tokenizer *t, wf_ctx *ctx, uint32_t flags, wf_stream **out)
{
    wf_stream *s = *out = wf_mem_new(ctx, sizeof *s);
    if (!s)
        return WF_ERR_MEMORY;
    *s = (wf_stream){.t = t, .ctx = ctx, .flags = flags, .searched = 1};
    wf_status status = wf_encoder_new(t, ctx, &s->encoder);
    if (status != WF_OK) {
        wf_stream_free(s);
        *out = NULL;
    }
    return status;
}

void wf_stream_free(wf_stream *s)
{
    if (!s)
        return;
    wf_encoder_free(s->encoder);
    wf_mem_free(s->ctx, s->text);
    wf_mem_free(s->ctx, s);
}

/* Fails early instead of buffering without bound. */
static wf_status check_size(const wf_stream *s, size_t bytes)
{
    bool cuts = s->t->cuts[s->flags & WF_TEXT_CONTROL ? 1 : 0] != WF_CUT_NEVER;
    if (cuts && bytes > WF_STREAM_WORD)
        return wf_fail(s->ctx, WF_ERR_USAGE,
                       "the text has more than %zu MiB without a space, the tokenizer's limit; add "
                       "spaces or line breaks",
                       WF_STREAM_WORD >> 20);
    if (bytes > WF_STREAM_WHOLE)
        return wf_fail(
            s->ctx, WF_ERR_USAGE,
            "the text has more than %zu MiB, and this tokenizer cannot encode it in pieces; split "
            "the text",
            WF_STREAM_WHOLE >> 20);
    return WF_OK;
}

/* check_size bounds the sum, so doubling cannot overflow. */
static wf_status append(wf_stream *s, const char *text, size_t bytes)
{
    size_t need;
    if (!wf_add_size(s->bytes, bytes, &need))
        need = SIZE_MAX;
    WF_TRY(check_size(s, need));
    if (need > s->room) {
        size_t room = s->room ? s->room : 4096;
        while (room < need)
            room *= 2;
        char *grown = wf_mem_grow(s->ctx, s->text, room);
        if (!grown)
            return WF_ERR_MEMORY;
        s->text = grown;
        s->room = room;
    }
    if (bytes > 0)
        memcpy(s->text + s->bytes, text, bytes);
    s->bytes = need;
    return WF_OK;
}

wf_status wf_stream_feed(wf_stream *s, const char *text, size_t bytes, const int32_t **ids,
                         size_t *count)
{
    *ids = NULL;
    *count = 0;
    WF_TRY(append(s, text, bytes));
    if (s->bytes < PIECE)
        return WF_OK;
    /* A cut needs the byte after it, so the last byte is not a candidate. Bytes before `searched`
     * were examined by earlier calls, so searching stays linear. */
    size_t cut =
        wf_tokenizer_cut_part(s->t, s->flags & WF_TEXT_CONTROL, s->text, s->searched, s->bytes - 1);
    s->searched = s->bytes;
    if (cut == 0)
        return WF_OK;
    WF_TRY(wf_encoder_part(s->encoder, s->text, cut, s->flags, s->begun ? 0 : WF_PART_FIRST, ids,
                           count));
    s->begun = true;
    s->bytes -= cut;
    memmove(s->text, s->text + cut, s->bytes);
    s->searched = s->bytes > 0 ? s->bytes : 1;
    return WF_OK;
}

/* Encodes the rest, also an empty one, which may get tokens around it. The stream is then ready for
 * another text. */
wf_status wf_stream_end(wf_stream *s, const int32_t **ids, size_t *count)
{
    uint32_t part = WF_PART_LAST | (s->begun ? 0u : WF_PART_FIRST);
    wf_status status =
        wf_encoder_part(s->encoder, s->bytes ? s->text : "", s->bytes, s->flags, part, ids, count);
    s->bytes = 0;
    s->searched = 1;
    s->begun = false;
    return status;
}
