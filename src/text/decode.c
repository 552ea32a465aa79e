/* SPDX-License-Identifier: MIT */
/*
 * decode.c - decodes ids to text, one by one. wf_tokenizer_decode uses the same code, so streaming
 * and whole-text decoding agree.
 *
 * Each token passes through the steps before FUSE by itself. Its bytes may end inside a character:
 * give_bytes emits whole characters only and holds up to three bytes back. STRIP after FUSE applies
 * to the start of the text, so it is a countdown in the state.
 */
#include "text/decode.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/token_priv.h"
#include "text/utf8.h"

/* Limit of one token's text in bytes: a chain of replacements could grow it to terabytes. */
#define PIECE_MOST ((size_t)1 << 20)

typedef struct {
    char *text; /* [room], NUL-terminated */
    size_t n, room;
} buffer;

struct wf_decoder {
    const wf_tokenizer *t;
    wf_ctx *ctx;
    bool control;                   /* write control tokens as text */
    bool started;                   /* a token has been decoded */
    uint32_t strip[WF_TOKEN_STEPS]; /* characters that STRIP after FUSE may still remove */
    buffer piece, other;            /* input and output of the current step, for one token */
    char held[4];                   /* an incomplete UTF-8 character */
    size_t held_bytes;
    buffer out; /* the text of the current call, borrowed by the caller */
};

/* Appends n bytes and a NUL. */
static wf_status append(wf_decoder *d, buffer *b, const char *text, size_t n)
{
    size_t need;
    if (!wf_add_size(b->n, n, &need) || !wf_add_size(need, 1, &need))
        need = SIZE_MAX;
    if (need > b->room) {
        size_t room = b->room ? b->room : 64;
        while (room < need && wf_mul_size(room, 2, &room))
            ;
        char *grown = wf_mem_grow(d->ctx, b->text, room < need ? need : room);
        if (!grown)
            return WF_ERR_MEMORY;
        b->text = grown;
        b->room = room < need ? need : room;
    }
    if (n > 0)
        memcpy(b->text + b->n, text, n);
    b->n += n;
    b->text[b->n] = '\0';
    return WF_OK;
}

/* ---- Steps on one token: from d->piece to d->other ---- */

/* Maps byte-level letters back to bytes. */
static wf_status letters_to_bytes(wf_decoder *d)
{
    size_t length;
    bool valid = wf_utf8_valid(d->piece.text, d->piece.n);
    for (size_t i = 0; i < d->piece.n; i += length) {
        int byte = valid ? wf_letter_byte(wf_utf8_decode(d->piece.text + i, &length)) : -1;
        if (byte < 0) { /* not a byte-level letter: keep the whole token as it is */
            d->other.n = 0;
            return append(d, &d->other, d->piece.text, d->piece.n);
        }
        char c = (char)byte;
        WF_TRY(append(d, &d->other, &c, 1));
    }
    return WF_OK;
}

/* Replaces each `what`. Metaspace in the first token drops the space that encoding put there. */
static wf_status replace(wf_decoder *d, const wf_decode_step *step)
{
    bool metaspace = step->kind == WF_DECODE_METASPACE;
    const char *content = metaspace ? " " : step->content;
    size_t bytes = metaspace ? !(step->first && !d->started) : step->content_bytes;
    for (size_t i = 0; i < d->piece.n;) {
        bool match = step->what_bytes > 0 && d->piece.n - i >= step->what_bytes &&
                     memcmp(d->piece.text + i, step->what, step->what_bytes) == 0;
        WF_TRY(append(d, &d->other, match ? content : d->piece.text + i, match ? bytes : 1));
        i += match ? step->what_bytes : 1;
        if (d->other.n > PIECE_MOST)
            return wf_fail(d->ctx, WF_ERR_UNSUPPORTED,
                           "the tokenizer's decoder expands a token to more than %zu bytes",
                           PIECE_MOST);
    }
    return WF_OK;
}

/* Joins a token to the text before it. */
static wf_status join_piece(wf_decoder *d, const wf_decode_step *step)
{
    size_t w = step->what_bytes, skip = 0;
    if (d->started && d->piece.n >= w && memcmp(d->piece.text, step->what, w) == 0)
        skip = w;
    else if (d->started)
        WF_TRY(append(d, &d->other, " ", 1));
    return append(d, &d->other, d->piece.text + skip, d->piece.n - skip);
}

/* Cleans a token as BERT's own code does, in its order. The replacements are never longer, so they
 * are made in place. */
static void clean_piece(buffer *b)
{
    static const char *const rules[][2] = {{" .", "."},     {" ?", "?"},           {" !", "!"},
                                           {" ,", ","},     {" ' ", "'"},          {" n't", "n't"},
                                           {" 'm", "'m"},   {" do not", " don't"}, {" 's", "'s"},
                                           {" 've", "'ve"}, {" 're", "'re"}};
    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++) {
        size_t from = strlen(rules[k][0]), to = strlen(rules[k][1]), out = 0;
        for (size_t i = 0; i < b->n;) {
            bool match = b->n - i >= from && memcmp(b->text + i, rules[k][0], from) == 0;
            if (match)
                memcpy(b->text + out, rules[k][1], to);
            else
                b->text[out] = b->text[i];
            out += match ? to : 1;
            i += match ? from : 1;
        }
        b->n = out;
    }
    b->text[b->n] = '\0';
}

/* Removes repetitions of `what` at both ends; they never overlap. */
static wf_status strip_piece(wf_decoder *d, const wf_decode_step *step)
{
    size_t begin = 0, end = d->piece.n, w = step->what_bytes;
    for (uint32_t i = 0; i < step->start && end - begin >= w; i++, begin += w)
        if (memcmp(d->piece.text + begin, step->what, w) != 0)
            break;
    for (uint32_t i = 0; i < step->stop && end - begin >= w; i++, end -= w)
        if (memcmp(d->piece.text + end - w, step->what, w) != 0)
            break;
    return append(d, &d->other, d->piece.text + begin, end - begin);
}

/* Writes the token's bytes to d->piece; they may be part of a character. */
static wf_status make_piece(wf_decoder *d, int32_t id)
{
    const wf_tokenizer *t = d->t;
    const wf_vocab_token *token = &t->vocab.token[id];
    bool verbatim = token->kind == WF_TOKEN_USER || wf_kind_is_control(token->kind);
    d->piece.n = 0;
    WF_TRY(append(d, &d->piece, token->text, token->bytes));
    for (int i = 0; i < t->decode_count && t->decodes[i].kind != WF_DECODE_FUSE; i++) {
        const wf_decode_step *step = &t->decodes[i];
        d->other.n = 0;
        WF_TRY(append(d, &d->other, "", 0));
        if (step->kind == WF_DECODE_FALLBACK) {
            int byte = wf_vocab_byte(d->piece.text, d->piece.n);
            if (byte < 0)
                continue;
            char c = (char)byte;
            d->piece.n = 0;
            return append(d, &d->piece, &c, 1); /* later steps apply to characters only */
        }
        if (step->kind == WF_DECODE_BYTES && verbatim)
            continue;
        switch (step->kind) {
        case WF_DECODE_BYTES: WF_TRY(letters_to_bytes(d)); break;
        case WF_DECODE_STRIP: WF_TRY(strip_piece(d, step)); break;
        case WF_DECODE_WORDPIECE: WF_TRY(join_piece(d, step)); break;
        default: WF_TRY(replace(d, step)); break;
        }
        if (step->clean)
            clean_piece(&d->other);
        buffer changed = d->other;
        d->other = d->piece;
        d->piece = changed;
    }
    return WF_OK;
}

/* ---- From bytes to characters ---- */

/* Returns whether a STRIP step after FUSE removes this character at the start of the text. */
static bool is_stripped(wf_decoder *d, const char *s, size_t n)
{
    bool fused = false;
    for (int i = 0; i < d->t->decode_count; i++) {
        const wf_decode_step *step = &d->t->decodes[i];
        fused = fused || step->kind == WF_DECODE_FUSE;
        if (!fused || step->kind != WF_DECODE_STRIP || d->strip[i] == 0)
            continue;
        /* Only the uninterrupted start of the text is stripped: any other character ends it for
         * good. */
        if (step->what_bytes == n && memcmp(step->what, s, n) == 0) {
            d->strip[i]--;
            return true;
        }
        d->strip[i] = 0;
    }
    return false;
}

/* Appends whole characters to the output and holds an incomplete one back, unless `last`. */
static wf_status give_bytes(wf_decoder *d, const char *s, size_t n, bool last)
{
    size_t length;
    for (size_t i = 0; i < n; i += length) {
        wf_utf8_state state = wf_utf8_look(s + i, n - i, &length);
        if (state == WF_UTF8_PART && !last) {
            memmove(d->held, s + i, length);
            d->held_bytes = length;
            return WF_OK;
        }
        const char *c = state == WF_UTF8_WHOLE ? s + i : WF_UTF8_REPLACEMENT;
        size_t bytes = state == WF_UTF8_WHOLE ? length : 3;
        if (!is_stripped(d, c, bytes))
            WF_TRY(append(d, &d->out, c, bytes));
    }
    return WF_OK;
}

/* Decodes one id; ids outside the vocabulary and, unless wanted, control tokens add nothing. */
static wf_status add_token(wf_decoder *d, int32_t id)
{
    const wf_tokenizer *t = d->t;
    if (id < 0 || id >= t->vocab.count || !t->vocab.token[id].text ||
        (!d->control && wf_kind_is_control(t->vocab.token[id].kind)))
        return WF_OK;
    WF_TRY(make_piece(d, id));
    d->other.n = 0;
    WF_TRY(append(d, &d->other, d->held, d->held_bytes));
    if (t->decode_count == 0 && d->started)
        WF_TRY(append(d, &d->other, " ", 1)); /* no decoder: tokens are words, joined by spaces */
    WF_TRY(append(d, &d->other, d->piece.text, d->piece.n));
    d->started = true;
    d->held_bytes = 0;
    return give_bytes(d, d->other.text, d->other.n, false);
}

/* Prepares for the start of a text. */
static void restart(wf_decoder *d)
{
    d->started = false;
    d->held_bytes = 0;
    for (int i = 0; i < d->t->decode_count; i++)
        d->strip[i] = d->t->decodes[i].start;
}

/* ---- The public functions ---- */

wf_status wf_decoder_new(const wf_tokenizer *t, wf_ctx *ctx, uint32_t flags, wf_decoder **out)
{
    wf_decoder *d = *out = wf_mem_new(ctx, sizeof *d);
    if (!d)
        return WF_ERR_MEMORY;
    d->t = t;
    d->ctx = ctx;
    d->control = flags & WF_TEXT_CONTROL;
    restart(d);
    wf_status status = append(d, &d->out, "", 0);
    if (status != WF_OK) {
        wf_decoder_free(d);
        *out = NULL;
    }
    return status;
}

void wf_decoder_free(wf_decoder *d)
{
    if (!d)
        return;
    wf_mem_free(d->ctx, d->piece.text);
    wf_mem_free(d->ctx, d->other.text);
    wf_mem_free(d->ctx, d->out.text);
    wf_mem_free(d->ctx, d);
}

/* Returns the output of a call, or an empty text after a failure. */
static wf_status hand_out(wf_decoder *d, wf_status status, const char **text, size_t *bytes)
{
    *text = status == WF_OK ? d->out.text : "";
    *bytes = status == WF_OK ? d->out.n : 0;
    return status;
}

wf_status wf_decoder_next(wf_decoder *d, int32_t id, const char **text, size_t *bytes)
{
    d->out.n = 0;
    d->out.text[0] = '\0';
    return hand_out(d, add_token(d, id), text, bytes);
}

/* An incomplete character at the end becomes U+FFFD. */
static wf_status end_text(wf_decoder *d)
{
    wf_status status = give_bytes(d, d->held, d->held_bytes, true);
    restart(d);
    return status;
}

wf_status wf_decoder_end(wf_decoder *d, const char **text, size_t *bytes)
{
    d->out.n = 0;
    d->out.text[0] = '\0';
    return hand_out(d, end_text(d), text, bytes);
}

wf_status wf_tokenizer_decode(const wf_tokenizer *t, wf_ctx *ctx, const int32_t *ids, size_t count,
                              uint32_t flags, char **text, size_t *bytes)
{
    wf_decoder *d;
    *text = NULL;
    *bytes = 0;
    WF_TRY(wf_decoder_new(t, ctx, flags, &d));
    wf_status status = WF_OK;
    for (size_t i = 0; i < count && status == WF_OK; i++)
        status = add_token(d, ids[i]);
    if (status == WF_OK)
        status = end_text(d);
    if (status == WF_OK) {
        *text = d->out.text;
        *bytes = d->out.n;
        d->out.text = NULL;
    }
    wf_decoder_free(d);
    return status;
}

wf_status wf_tokenizer_lengths(const wf_tokenizer *t, wf_ctx *ctx, uint32_t *to)
{
    wf_decoder *d;
    WF_TRY(wf_decoder_new(t, ctx, 0, &d));
    /* So that no token is treated as the first of a text. */
    d->started = true;
    wf_status status = WF_OK;
    for (int32_t id = 0; id < wf_tokenizer_count(t) && status == WF_OK; id++) {
        to[id] = 0;
        if (wf_kind_is_control(t->vocab.token[id].kind))
            continue;
        status = make_piece(d, id);
        to[id] = (uint32_t)d->piece.n;
    }
    wf_decoder_free(d);
    return status;
}
