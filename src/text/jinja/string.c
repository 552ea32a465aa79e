/* SPDX-License-Identifier: MIT */
/*
 * string.c - see string.h.
 *
 * A buffer is one allocation of 2 * cap bytes: the text, then one mark per byte. Substrings share
 * the memory of their string, so slicing copies nothing and nothing is ever freed singly.
 */
#include "text/jinja/string.h"

#define FIRST_BYTES 64 /* capacity of a buffer's first allocation */

wf_jstr wf_jstr_part(const wf_jstr *s, size_t from, size_t to)
{
    wf_jstr part = *s;
    part.text += from;
    part.bytes = to - from;
    if (part.mark)
        part.mark += from;
    return part;
}

/* ---- Building ---- */

/* Makes room for `bytes` more. Growing moves the contents and leaves the old memory to its
 * strings. */
static wf_status make_room(wf_jrun *r, wf_jbuf *b, size_t bytes)
{
    size_t need, cap = b->cap ? b->cap : FIRST_BYTES;
    if (!wf_add_size(b->used, bytes, &need))
        return wf_jrun_fail(r, "a text is too long");
    if (need <= b->cap)
        return WF_OK;
    /* Doubling makes appending linear overall. */
    while (cap < need)
        if (!wf_mul_size(cap, 2, &cap))
            return wf_jrun_fail(r, "a text is too long");
    char *text = wf_jrun_alloc(r, cap, 2);
    if (!text)
        return wf_jrun_failed(r);
    uint8_t *mark = (uint8_t *)text + cap;
    WF_TRY(wf_jrun_step_bytes(r, b->used));
    if (b->used) {
        memcpy(text, b->text, b->used);
        memcpy(mark, b->mark, b->used);
    }
    *b = (wf_jbuf){.text = text, .mark = mark, .used = b->used, .cap = cap};
    return WF_OK;
}

wf_status wf_jbuf_put(wf_jrun *r, wf_jbuf *b, const char *text, size_t bytes, bool plain)
{
    wf_jstr s = {.text = text, .bytes = bytes, .plain = plain};
    return wf_jbuf_str(r, b, &s);
}

wf_status wf_jbuf_text(wf_jrun *r, wf_jbuf *b, const char *text)
{
    return wf_jbuf_put(r, b, text, strlen(text), false);
}

wf_status wf_jbuf_str(wf_jrun *r, wf_jbuf *b, const wf_jstr *s)
{
    WF_TRY(wf_jrun_step_bytes(r, s->bytes));
    WF_TRY(make_room(r, b, s->bytes));
    if (s->bytes == 0)
        return WF_OK;
    memcpy(b->text + b->used, s->text, s->bytes);
    if (s->mark)
        memcpy(b->mark + b->used, s->mark, s->bytes);
    else
        memset(b->mark + b->used, s->plain, s->bytes);
    b->used += s->bytes;
    return WF_OK;
}

wf_status wf_jbuf_part(wf_jrun *r, wf_jbuf *b, const wf_jstr *s, size_t from, size_t to)
{
    wf_jstr part = wf_jstr_part(s, from, to);
    return wf_jbuf_str(r, b, &part);
}

wf_status wf_jbuf_fill(wf_jrun *r, wf_jbuf *b, char c, size_t count)
{
    WF_TRY(wf_jrun_step_bytes(r, count));
    WF_TRY(make_room(r, b, count));
    if (count == 0)
        return WF_OK;
    memset(b->text + b->used, c, count);
    memset(b->mark + b->used, 0, count);
    b->used += count;
    return WF_OK;
}

wf_status wf_jbuf_char(wf_jrun *r, wf_jbuf *b, uint32_t code, bool plain)
{
    char text[4];
    return wf_jbuf_put(r, b, text, wf_utf8_write(text, code), plain);
}

/* The string keeps a pointer to the buffer's descriptor, so that wf_jstr_concat can append in
 * place. */
wf_status wf_jbuf_take(wf_jrun *r, wf_jbuf *b, wf_jvalue *out)
{
    wf_jbuf *shared = wf_jrun_alloc(r, 1, sizeof *shared);
    if (!shared)
        return wf_jrun_failed(r);
    *shared = *b;
    *b = (wf_jbuf){0};
    return wf_jstr_new(r,
                       (wf_jstr){.text = shared->text ? shared->text : "",
                                 .bytes = shared->used,
                                 .mark = shared->mark,
                                 .buf = shared},
                       out);
}

wf_status wf_jstr_concat(wf_jrun *r, const wf_jstr *a, const wf_jstr *b, wf_jvalue *out)
{
    wf_jbuf own = {0}, *buf = a->buf;
    /* Bytes after `used` belong to no string yet, so strings that share the buffer do not
     * change. */
    bool at_end = buf && a->mark && a->text + a->bytes == buf->text + buf->used;
    if (!at_end) {
        WF_TRY(wf_jbuf_str(r, &own, a));
        WF_TRY(wf_jbuf_str(r, &own, b));
        return wf_jbuf_take(r, &own, out);
    }
    if (buf->cap - buf->used < b->bytes) { /* moves; the old buffer stays for its other strings */
        /* cap == used forces the append below to move, so the shared bytes are only read. */
        own.text = (char *)(uintptr_t)a->text;
        own.mark = (uint8_t *)(uintptr_t)a->mark;
        own.used = own.cap = a->bytes;
        WF_TRY(wf_jbuf_str(r, &own, b));
        return wf_jbuf_take(r, &own, out);
    }
    WF_TRY(wf_jbuf_str(r, buf, b));
    return wf_jstr_new(
        r, (wf_jstr){.text = a->text, .bytes = a->bytes + b->bytes, .mark = a->mark, .buf = buf},
        out);
}

wf_status wf_jstr_repeat(wf_jrun *r, const wf_jstr *s, int64_t times, wf_jvalue *out)
{
    wf_jbuf b = {0};
    size_t total;
    if (times < 0 || s->bytes == 0)
        times = 0;
    if (!wf_mul_size(s->bytes, (size_t)times, &total))
        return wf_jrun_fail(r, "a text is too long");
    WF_TRY(make_room(r, &b, total));
    for (int64_t i = 0; i < times; i++)
        WF_TRY(wf_jbuf_str(r, &b, s));
    return wf_jbuf_take(r, &b, out);
}

/* ---- Characters ---- */

/* Follows the table of well-formed sequences in the Unicode standard: lead bytes C0, C1 and F5 to
 * FF, overlong forms and surrogates are invalid. */
size_t wf_utf8_next(const char *text, size_t bytes, uint32_t *code)
{
    const unsigned char *s = (const unsigned char *)text;
    size_t length = s[0] < 0x80 ? 1 : s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : 4;
    uint32_t value = length < 2 ? s[0] : s[0] & (0x7Fu >> length);
    bool good = length > 0 && length <= bytes && s[0] < 0xF5;
    for (size_t i = 1; good && i < length; i++) {
        good = (s[i] & 0xC0) == 0x80;
        value = value << 6 | (s[i] & 0x3Fu);
    }
    if (good && length == 3) /* exclude overlong forms and surrogates */
        good = value >= 0x800 && (value < 0xD800 || value > 0xDFFF);
    if (good && length == 4)
        good = value >= 0x10000 && value <= 0x10FFFF;
    if (code)
        *code = good ? value : 0xFFFD;
    return good ? length : 1;
}

size_t wf_utf8_write(char out[4], uint32_t code)
{
    static const unsigned char lead[] = {0, 0x00, 0xC0, 0xE0, 0xF0};
    size_t length = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length; i-- > 1; code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(lead[length] | code);
    return length;
}

/* Linear in the bytes. A byte that is not UTF-8 counts as one character. */
size_t wf_jstr_chars(const wf_jstr *s)
{
    size_t chars = 0;
    for (size_t i = 0; i < s->bytes; chars++)
        i += wf_utf8_next(s->text + i, s->bytes - i, NULL);
    return chars;
}

size_t wf_jstr_offset(const wf_jstr *s, size_t index)
{
    size_t at = 0;
    for (; index > 0 && at < s->bytes; index--)
        at += wf_utf8_next(s->text + at, s->bytes - at, NULL);
    return at;
}

/* A step of 1 shares the string's memory; any other step copies, with a table of offsets to keep it
 * linear. */
wf_status wf_jstr_slice(wf_jrun *r, const wf_jstr *s, const wf_jvalue part[3], wf_jvalue *out)
{
    wf_jslice slice;
    size_t chars = wf_jstr_chars(s);
    WF_TRY(wf_jrun_step_bytes(r, s->bytes));
    WF_TRY(wf_jslice_plan(r, part, chars, &slice));
    if (slice.step == 1) {
        size_t from = wf_jstr_offset(s, (size_t)slice.first);
        wf_jstr rest = wf_jstr_part(s, from, s->bytes);
        return wf_jstr_new(r, wf_jstr_part(&rest, 0, wf_jstr_offset(&rest, slice.n)), out);
    }
    size_t *offset = wf_jrun_alloc(r, chars + 1, sizeof *offset);
    if (!offset)
        return wf_jrun_failed(r);
    for (size_t i = 0; i < chars; i++)
        offset[i + 1] = offset[i] + wf_utf8_next(s->text + offset[i], s->bytes - offset[i], NULL);
    wf_jbuf b = {0};
    /* wf_jslice_plan keeps `at` within [0, chars) for n steps. */
    int64_t at = slice.first;
    for (size_t i = 0; i < slice.n; i++, at += slice.step)
        WF_TRY(wf_jbuf_part(r, &b, s, offset[at], offset[at + 1]));
    return wf_jbuf_take(r, &b, out);
}

typedef struct {
    uint32_t first, last;
} span;

static bool in_spans(uint32_t code, const span *spans, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (code >= spans[i].first && code <= spans[i].last)
            return true;
    return false;
}

bool wf_char_is_space(uint32_t code)
{
    static const span spaces[] = {
        {9, 13},          {28, 32},         {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
        {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}};
    return in_spans(code, spaces, sizeof spaces / sizeof *spaces);
}

bool wf_char_is_break(uint32_t code)
{
    return (code >= 10 && code <= 13) || (code >= 28 && code <= 30) || code == 0x85 ||
           code == 0x2028 || code == 0x2029;
}

/* Exact for assigned characters; unassigned ones count as printable. */
bool wf_char_is_printable(uint32_t code)
{
    static const span hidden[] = {
        {0, 31},          {0x7F, 0xA0},     {0xAD, 0xAD},       {0x600, 0x605},
        {0x61C, 0x61C},   {0x6DD, 0x6DD},   {0x70F, 0x70F},     {0x8E2, 0x8E2},
        {0x1680, 0x1680}, {0x180E, 0x180E}, {0x2000, 0x200F},   {0x2028, 0x202F},
        {0x205F, 0x206F}, {0x3000, 0x3000}, {0xD800, 0xF8FF},   {0xFEFF, 0xFEFF},
        {0xFFF0, 0xFFFB}, {0xFFFE, 0xFFFF}, {0xE0000, 0xE00FF}, {0xF0000, 0x10FFFF}};
    return !in_spans(code, hidden, sizeof hidden / sizeof *hidden);
}

wf_status wf_jstr_map(wf_jrun *r, wf_jbuf *b, const wf_jstr *s, wf_jcase to)
{
    WF_TRY(wf_jrun_step_bytes(r, s->bytes));
    for (size_t i = 0, length; i < s->bytes; i += length) {
        uint32_t code, mapped[3];
        /* All bytes of a character come from one place, so its first byte's mark holds for the
         * result. */
        bool plain = s->mark ? s->mark[i] & WF_J_PLAIN : s->plain;
        length = wf_utf8_next(s->text + i, s->bytes - i, &code);
        int n = wf_char_map(code, to, mapped);
        /* Bytes that are not UTF-8 stay as they are. */
        if (code == 0xFFFD || (n == 1 && mapped[0] == code))
            WF_TRY(wf_jbuf_part(r, b, s, i, i + length));
        else
            for (int k = 0; k < n; k++)
                WF_TRY(wf_jbuf_char(r, b, mapped[k], plain));
    }
    return WF_OK;
}

/* ---- Searching ---- */

/* Plain search, O(places x pattern bytes) at worst. Steps are charged every 4 KiB, so a
 * hostile pattern stops at the limit. */
wf_status wf_jstr_find(wf_jrun *r, const wf_jstr *s, size_t from, size_t to, const wf_jstr *what,
                       bool last, size_t *out)
{
    *out = WF_J_NOWHERE;
    if (from > to || to - from < what->bytes)
        return WF_OK;
    size_t places = to - from - what->bytes + 1, read = 0;
    for (size_t i = 0; i < places && *out == WF_J_NOWHERE; i++) {
        size_t at = last ? from + places - 1 - i : from + i;
        read++;
        if (what->bytes == 0 || s->text[at] == what->text[0]) {
            /* Count the comparison as work: a pattern of equal letters makes each of them long. */
            read += what->bytes;
            if (memcmp(s->text + at, what->text, what->bytes) == 0)
                *out = at;
        }
        if (read >= 4096) {
            WF_TRY(wf_jrun_step_bytes(r, read));
            read = 0;
        }
    }
    return wf_jrun_step_bytes(r, read);
}

wf_status wf_jstr_replace(wf_jrun *r, const wf_jstr *s, const wf_jstr *old, const wf_jstr *with,
                          int64_t count, wf_jvalue *out)
{
    wf_jbuf b = {0};
    size_t at = 0, found;
    for (; count != 0; count -= count > 0) {
        WF_TRY(wf_jrun_step(r, 1));
        WF_TRY(wf_jstr_find(r, s, at, s->bytes, old, false, &found));
        if (found == WF_J_NOWHERE)
            break;
        WF_TRY(wf_jbuf_part(r, &b, s, at, found));
        WF_TRY(wf_jbuf_str(r, &b, with));
        at = found + old->bytes;
        if (old->bytes == 0) { /* an empty pattern matches before every character and at the end */
            if (at == s->bytes)
                break;
            size_t length = wf_utf8_next(s->text + at, s->bytes - at, NULL);
            WF_TRY(wf_jbuf_part(r, &b, s, at, at + length));
            at += length;
        }
    }
    WF_TRY(wf_jbuf_part(r, &b, s, at, s->bytes));
    return wf_jbuf_take(r, &b, out);
}

/* Returns the length of the last character of bytes [from, to), which are not empty. */
static size_t last_length(const wf_jstr *s, size_t from, size_t to)
{
    size_t length = 1;
    /* Walk back over continuation bytes to the last character's lead byte. If that is not valid
     * UTF-8, the last byte is a character by itself. */
    while (length < 4 && length < to - from && (s->text[to - length] & 0xC0) == 0x80)
        length++;
    return wf_utf8_next(s->text + to - length, length, NULL) == length ? length : 1;
}

static bool is_space_at(const char *text, size_t bytes)
{
    uint32_t code;
    wf_utf8_next(text, bytes, &code);
    return wf_char_is_space(code);
}

wf_jstr wf_jstr_strip(const wf_jstr *s, int sides)
{
    size_t from = 0, to = s->bytes, length;
    for (; (sides & WF_J_LEFT) && from < to; from += length) {
        length = wf_utf8_next(s->text + from, to - from, NULL);
        if (!is_space_at(s->text + from, length))
            break;
    }
    for (; (sides & WF_J_RIGHT) && from < to; to -= length) {
        length = last_length(s, from, to);
        if (!is_space_at(s->text + to - length, length))
            break;
    }
    return wf_jstr_part(s, from, to);
}

typedef struct {
    const wf_jstr *all;
    bool byte[256]; /* the characters of one byte, also those that are not UTF-8 */
    bool longer;    /* the set has characters of more than one byte */
} char_set;

static char_set read_set(const wf_jstr *all)
{
    char_set made = {.all = all};
    for (size_t i = 0, length; i < all->bytes; i += length) {
        length = wf_utf8_next(all->text + i, all->bytes - i, NULL);
        if (length == 1)
            made.byte[(unsigned char)all->text[i]] = true;
        else
            made.longer = true;
    }
    return made;
}

/* Tests the character of `bytes` bytes at text. Single bytes take one look into a table; longer
 * characters are searched, which is charged. */
static wf_status in_set(wf_jrun *r, const char_set *set, const char *text, size_t bytes, bool *out)
{
    *out = bytes == 1 && set->byte[(unsigned char)text[0]];
    if (bytes == 1 || !set->longer)
        return WF_OK;
    size_t at = 0, length;
    for (; at < set->all->bytes && !*out; at += length) {
        length = wf_utf8_next(set->all->text + at, set->all->bytes - at, NULL);
        *out = length == bytes && memcmp(set->all->text + at, text, length) == 0;
    }
    return wf_jrun_step_bytes(r, at);
}

wf_status wf_jstr_strip_set(wf_jrun *r, const wf_jstr *s, const wf_jstr *all, int sides,
                            wf_jvalue *out)
{
    WF_TRY(wf_jrun_step_bytes(r, s->bytes));
    if (!all)
        return wf_jstr_new(r, wf_jstr_strip(s, sides), out);
    WF_TRY(wf_jrun_step_bytes(r, all->bytes));
    const char_set set = read_set(all);
    size_t from = 0, to = s->bytes, length;
    bool found = true;
    while ((sides & WF_J_LEFT) && from < to) {
        length = wf_utf8_next(s->text + from, to - from, NULL);
        WF_TRY(in_set(r, &set, s->text + from, length, &found));
        if (!found)
            break;
        from += length;
    }
    while ((sides & WF_J_RIGHT) && from < to) {
        length = last_length(s, from, to);
        WF_TRY(in_set(r, &set, s->text + to - length, length, &found));
        if (!found)
            break;
        to -= length;
    }
    return wf_jstr_new(r, wf_jstr_part(s, from, to), out);
}
