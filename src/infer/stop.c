/* SPDX-License-Identifier: MIT */
/*
 * stop.c - see stop.h.
 *
 * Each stop string is searched with Knuth-Morris-Pratt: its first `matched` bytes equal the last
 * bytes of the text, and `border` is the failure function. The cost is linear in the text for each
 * of at most 64 stop strings. The longest current match is the text that must be held back.
 */
#include "infer/stop.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"

typedef struct {
    size_t len, matched; /* matched < len */
    unsigned char text[WF_STOP_BYTES];
    /* border[i]: length of the longest proper prefix of text[0..i] that is also its suffix */
    uint16_t border[WF_STOP_BYTES];
} needle;

struct wf_stopper {
    wf_ctx *ctx;
    needle *needles;
    int n;        /* needles */
    bool stopped; /* until wf_stopper_end */
    char *buf;    /* `given` bytes that were returned last, then `held` bytes that are held back */
    size_t cap, given, held;
};

/* Returns how many bytes match after one more byte of text. */
static size_t advance(const needle *d, size_t matched, unsigned char byte)
{
    /* matched < len, so text[matched] exists; border[] leads to the next shorter candidate. */
    while (matched > 0 && d->text[matched] != byte)
        matched = d->border[matched - 1];
    return d->text[matched] == byte ? matched + 1 : 0;
}

/* border[] is built by matching the needle against itself. */
static void needle_init(needle *d, const char *text, size_t len)
{
    memcpy(d->text, text, len);
    d->len = len;
    for (size_t i = 1; i < len; i++)
        d->border[i] = (uint16_t)advance(d, d->border[i - 1], d->text[i]);
}

/* A stop string that began inside a character would cut that character in two. */
static bool begins_character(const char *text)
{
    return ((unsigned char)text[0] & 0xc0) != 0x80;
}

static wf_status check(wf_ctx *ctx, const char *const *stop, int stops)
{
    if (stops < 0 || stops > WF_STOPS_MAX || (stops > 0 && !stop))
        return wf_fail(ctx, WF_ERR_USAGE,
                       "the number of stop strings is %d, but must be from 0 to %d", stops,
                       WF_STOPS_MAX);
    for (int i = 0; i < stops; i++) {
        if (!stop[i] || stop[i][0] == '\0')
            return wf_fail(ctx, WF_ERR_USAGE,
                           "stop string %d of %d is empty; it would end every text", i + 1, stops);
        if (strnlen(stop[i], WF_STOP_BYTES + 1) > WF_STOP_BYTES)
            return wf_fail(ctx, WF_ERR_USAGE, "stop string %d of %d is longer than %d bytes", i + 1,
                           stops, WF_STOP_BYTES);
        if (!begins_character(stop[i]))
            return wf_fail(ctx, WF_ERR_USAGE,
                           "stop string %d of %d is not UTF-8: it begins inside a character", i + 1,
                           stops);
    }
    return WF_OK;
}

wf_status wf_stopper_new(wf_ctx *ctx, const char *const *stop, int stops, wf_stopper **out)
{
    *out = NULL;
    WF_TRY(check(ctx, stop, stops));
    wf_stopper *s = wf_mem_new(ctx, sizeof *s);
    if (!s)
        return WF_ERR_MEMORY;
    s->ctx = ctx;
    s->n = stops;
    s->needles = wf_mem_array(ctx, (size_t)stops, sizeof *s->needles);
    if (!s->needles) {
        wf_stopper_free(s);
        return WF_ERR_MEMORY;
    }
    for (int i = 0; i < stops; i++)
        needle_init(&s->needles[i], stop[i], strlen(stop[i]));
    *out = s;
    return WF_OK;
}

void wf_stopper_free(wf_stopper *s)
{
    if (!s)
        return;
    wf_mem_free(s->ctx, s->buf);
    wf_mem_free(s->ctx, s->needles);
    wf_mem_free(s->ctx, s);
}

/* Appends a piece to the held-back text. A failure changes nothing. */
static wf_status append(wf_stopper *s, const char *piece, size_t bytes)
{
    size_t need;
    if (!wf_add_size(s->held, bytes, &need) || need > SIZE_MAX / 2)
        return wf_fail(s->ctx, WF_ERR_MEMORY, "a piece of text has %zu bytes, which is too long",
                       bytes);
    if (need > s->cap) {
        char *buf = wf_mem_grow(s->ctx, s->buf, 2 * need);
        if (!buf)
            return WF_ERR_MEMORY;
        s->buf = buf;
        s->cap = 2 * need;
    }
    if (s->held > 0)
        memmove(s->buf, s->buf + s->given, s->held);
    if (bytes > 0)
        memcpy(s->buf + s->held, piece, bytes);
    s->given = 0;
    return WF_OK;
}

/* Returns the length of the longest stop string that this byte completes, or 0. *held becomes the
 * length of the longest partial match. */
static size_t step(wf_stopper *s, unsigned char byte, size_t *held)
{
    size_t complete = 0;
    *held = 0;
    for (int i = 0; i < s->n; i++) {
        needle *d = &s->needles[i];
        d->matched = advance(d, d->matched, byte);
        if (d->matched == d->len && d->len > complete)
            complete = d->len;
        if (d->matched > *held)
            *held = d->matched;
    }
    return complete;
}

wf_status wf_stopper_next(wf_stopper *s, const char *piece, size_t bytes, const char **out,
                          size_t *out_bytes, bool *stopped)
{
    *out = "";
    *out_bytes = 0;
    *stopped = s->stopped;
    if (s->stopped || bytes == 0)
        return WF_OK;
    size_t at = s->held, end = s->held + bytes, held = s->held;
    WF_TRY(append(s, piece, bytes));
    for (; at < end && !s->stopped; at++) {
        size_t complete = step(s, (unsigned char)s->buf[at], &held);
        if (complete > 0) {
            s->stopped = true;
            s->given = at + 1 - complete;
        }
    }
    s->held = s->stopped ? 0 : held;
    if (!s->stopped)
        s->given = end - held;
    *out = s->buf;
    *out_bytes = s->given;
    *stopped = s->stopped;
    return WF_OK;
}

void wf_stopper_end(wf_stopper *s, const char **out, size_t *out_bytes)
{
    *out = s->held > 0 ? s->buf + s->given : "";
    *out_bytes = s->held;
    s->held = s->given = 0;
    s->stopped = false;
    for (int i = 0; i < s->n; i++)
        s->needles[i].matched = 0;
}
