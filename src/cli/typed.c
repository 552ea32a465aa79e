/* SPDX-License-Identifier: MIT */
/* typed.c - see typed.h. */
#include "cli/typed.h"

#include <string.h>

#include "base/mem.h"

/* ---- Bytes ---- */

wf_status wf_typed_insert(wf_ctx *ctx, wf_typed *b, size_t at, const char *bytes, size_t n)
{
    if (n > WF_TYPED_MAX - b->len)
        return wf_fail(ctx, WF_ERR_USAGE, "a line has more than %zu bytes", WF_TYPED_MAX);
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

bool wf_typed_whole(const wf_typed *b, size_t at)
{
    if (at == 0)
        return true;
    size_t first = wf_typed_before(b, at);
    unsigned char lead = (unsigned char)b->text[first];
    return at - first >= (lead < 0xc0 ? 1u : lead < 0xe0 ? 2u : lead < 0xf0 ? 3u : 4u);
}

size_t wf_typed_word(const wf_typed *b, size_t at)
{
    while (at > 0 && b->text[at - 1] == ' ')
        at--;
    while (at > 0 && b->text[at - 1] != ' ')
        at--;
    return at;
}

/* A wrong guess misplaces the cursor and nothing else. */
int wf_typed_columns(const char *s)
{
    static const struct {
        uint32_t first, last;
        int columns;
    } odd[] = {
        {0x300, 0x36f, 0},     {0x200b, 0x200f, 0},   {0xfe00, 0xfe0f, 0},   {0x1100, 0x115f, 2},
        {0x2e80, 0xa4cf, 2},   {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},   {0xfe30, 0xfe6f, 2},
        {0xff00, 0xff60, 2},   {0xffe0, 0xffe6, 2},   {0x1f300, 0x1f64f, 2}, {0x1f680, 0x1f6ff, 2},
        {0x1f900, 0x1f9ff, 2}, {0x20000, 0x3fffd, 2},
    };
    unsigned char lead = (unsigned char)s[0];
    uint32_t code = lead < 0xc0   ? lead
                    : lead < 0xe0 ? lead & 0x1fu
                    : lead < 0xf0 ? lead & 0xfu
                                  : lead & 7u;
    for (int i = 1; lead >= 0xc0 && ((unsigned char)s[i] & 0xc0) == 0x80 && i < 4; i++)
        code = code << 6 | ((unsigned char)s[i] & 0x3fu);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        if (code >= odd[i].first && code <= odd[i].last)
            return odd[i].columns;
    return 1;
}
