/* SPDX-License-Identifier: MIT */
/*
 * typed.c - see typed.h.
 *
 * The text is bytes, possibly invalid UTF-8, with a NUL after it. Places are byte offsets; a
 * character is a byte and the continuation bytes after it, so every step moves and ends for any
 * input.
 */
#include "cli/typed.h"

#include <string.h>

#include "base/mem.h"

/* ---- Bytes ---- */

wf_status wf_typed_insert(wf_ctx *ctx, wf_typed *b, size_t at, const char *bytes, size_t n)
{
    if (n > WF_TYPED_MAX - b->len)
        return wf_fail(ctx, WF_ERR_USAGE, "the line exceeds %zu bytes", WF_TYPED_MAX);
    /* Cannot overflow: WF_TYPED_MAX bounds the sum. */
    if (b->len + n + 1 > b->cap) {
        size_t cap = 2 * (b->len + n + 1);
        char *text = wf_mem_grow(ctx, b->text, cap);
        if (!text)
            return WF_ERR_MEMORY;
        b->text = text;
        b->cap = cap;
    }
    memmove(b->text + at + n, b->text + at, b->len - at);
    memcpy(b->text + at, bytes, n);
    b->len += n;
    b->text[b->len] = '\0';
    return WF_OK;
}

void wf_typed_erase(wf_typed *b, size_t from, size_t to)
{
    if (from == to)
        return;
    memmove(b->text + from, b->text + to, b->len - to);
    b->len -= to - from;
    b->text[b->len] = '\0';
}

/* ---- Characters: no bytes that only continue one are left between two places ---- */

/* Returns whether the byte is a UTF-8 continuation byte. */
static bool continues(const wf_typed *b, size_t at)
{
    return at < b->len && ((unsigned char)b->text[at] & 0xc0) == 0x80;
}

size_t wf_typed_before(const wf_typed *b, size_t at)
{
    while (at > 0 && continues(b, --at))
        ;
    return at;
}

size_t wf_typed_after(const wf_typed *b, size_t at)
{
    if (at < b->len)
        at++;
    while (continues(b, at))
        at++;
    return at;
}

/* Returns whether the character before `at` is complete, as far as its first byte tells its
 * length. */
bool wf_typed_whole(const wf_typed *b, size_t at)
{
    if (at == 0)
        return true;
    size_t first = wf_typed_before(b, at);
    unsigned char lead = (unsigned char)b->text[first];
    return at - first >= (lead < 0xc0 ? 1u : lead < 0xe0 ? 2u : lead < 0xf0 ? 3u : 4u);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n';
}

size_t wf_typed_word(const wf_typed *b, size_t at)
{
    while (at > 0 && is_space(b->text[at - 1]))
        at--;
    while (at > 0 && !is_space(b->text[at - 1]))
        at--;
    return at;
}

/* ---- Lines ---- */

size_t wf_typed_line_begin(const wf_typed *b, size_t at)
{
    while (at > 0 && b->text[at - 1] != '\n')
        at--;
    return at;
}

size_t wf_typed_line_end(const wf_typed *b, size_t at)
{
    const char *end = at < b->len ? memchr(b->text + at, '\n', b->len - at) : NULL;
    return end ? (size_t)(end - b->text) : b->len;
}

/* ---- Columns ---- */

wf_shown wf_typed_show(const wf_typed *b, size_t at)
{
    if (at < b->len && b->text[at] == '\t')
        return (wf_shown){"    ", 4, 1, 4};
    wf_shown c = wf_width_show(b->text + at, b->len - at);
    size_t taken = wf_typed_after(b, at) - at;
    /* A character whose bytes are invalid is one '?', however many bytes it has. */
    return c.taken == taken ? c : (wf_shown){"?", 1, taken, 1};
}
