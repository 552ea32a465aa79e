/* SPDX-License-Identifier: MIT */
/* text.c - see text.h. */
#include "base/text.h"

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int min(int a, int b)
{
    return a < b ? a : b;
}

int wf_text_distance(const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    if (na > WF_TEXT_WORD || nb > WF_TEXT_WORD)
        return WF_TEXT_FAR;

    /* Damerau-Levenshtein (optimal string alignment): now[j] is the distance between a[0..i) and
     * b[0..j); a swap needs the row before last. */
    int rows[3][WF_TEXT_WORD + 1];
    int *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= nb; j++)
        now[j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int *spare = before;
        before = last;
        last = now;
        now = spare;
        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int d = last[j - 1] + (a[i - 1] != b[j - 1]);
            d = min(d, min(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                d = min(d, before[j - 2] + 1);
            now[j] = d;
        }
    }
    return now[nb];
}

const char *wf_text_nearest(const char *word, const char *const *list, int n)
{
    const char *nearest = NULL;
    /* Strictly closer than `below` wins: at first one more than the largest distance allowed. */
    int third = (int)(strnlen(word, WF_TEXT_WORD) / 3);
    int below = (third > 1 ? third : 1) + 1;
    for (int i = 0; i < n; i++) {
        int d = wf_text_distance(word, list[i]);
        if (d < below) {
            below = d;
            nearest = list[i];
        }
    }
    return nearest;
}

void wf_text_vappend(char *buf, size_t cap, size_t *len, const char *fmt, va_list args)
{
    if (*len >= cap) /* only when cap == 0 */
        return;
    int n = vsnprintf(buf + *len, cap - *len, fmt, args);
    if (n < 0) {
        buf[*len] = '\0';
    } else if ((size_t)n < cap - *len) {
        *len += (size_t)n;
    } else {
        size_t cut = cap > 4 ? cap - 4 : 0;
        while (cut > 0 && (buf[cut] & 0xC0) == 0x80) /* inside a UTF-8 character */
            cut--;
        memset(buf + cut, '.', cap - 1 - cut); /* three dots, more if a character was cut */
        buf[cap - 1] = '\0';
        *len = cap - 1;
    }
}

void wf_text_append(char *buf, size_t cap, size_t *len, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    wf_text_vappend(buf, cap, len, fmt, args);
    va_end(args);
}

/* The bounds of the second byte exclude overlong forms, surrogates and code points above
 * U+10FFFF. */
size_t wf_text_utf8(const char *text, size_t n)
{
    const unsigned char *s = (const unsigned char *)text;
    if (n == 0 || s[0] < 0x80)
        return n == 0 ? 0 : 1;
    size_t length = s[0] < 0xC2 ? 0 : s[0] < 0xE0 ? 2 : s[0] < 0xF0 ? 3 : s[0] < 0xF5 ? 4 : 0;
    if (length == 0 || length > n)
        return 0;
    unsigned low = s[0] == 0xE0 ? 0xA0 : s[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = s[0] == 0xED ? 0x9F : s[0] == 0xF4 ? 0x8F : 0xBF;
    if (s[1] < low || s[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    return length;
}

/* Writes the continuation bytes from the last to the second, six bits each, then the lead byte with
 * the rest. */
size_t wf_text_put_utf8(char *to, unsigned c)
{
    size_t length = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = length - 1; i > 0; i--, c >>= 6)
        to[i] = (char)(0x80 | (c & 0x3F));
    to[0] = (char)(lead[length] | c);
    return length;
}

unsigned wf_text_point(const char *s, size_t length)
{
    static const unsigned lead[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    unsigned c = (unsigned char)s[0] & lead[length];
    for (size_t i = 1; i < length; i++)
        c = c << 6 | ((unsigned char)s[i] & 0x3Fu);
    return c;
}

/* Control characters, line and paragraph separators, bidirectional overrides and isolates. */
static bool steers(unsigned c)
{
    return c < 0x20 || (c >= 0x7F && c <= 0x9F) || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069);
}

size_t wf_text_escape(char out[WF_TEXT_ESCAPE], const char *s, size_t n)
{
    size_t length = wf_text_utf8(s, n);
    unsigned c = length ? wf_text_point(s, length) : 0;
    if (length && !steers(c)) {
        memcpy(out, s, length);
        out[length] = '\0';
        return length;
    }
    if (length == 1 && strchr("\t\n\r", s[0]) && s[0])
        snprintf(out, WF_TEXT_ESCAPE, "\\%c", s[0] == '\t' ? 't' : s[0] == '\n' ? 'n' : 'r');
    else if (length <= 1)
        snprintf(out, WF_TEXT_ESCAPE, "\\x%02x", (unsigned)(unsigned char)s[0]);
    else
        snprintf(out, WF_TEXT_ESCAPE, "\\u%04x", c & 0xFFFF);
    return length ? length : 1;
}

bool wf_text_harmless(const char *s, size_t n)
{
    for (size_t i = 0, length; i < n; i += length) {
        length = wf_text_utf8(s + i, n - i);
        if (length == 0 || steers(wf_text_point(s + i, length)))
            return false;
    }
    return true;
}

void wf_text_size(char out[WF_TEXT_SIZE], double bytes)
{
    static const char *const units[] = {"bytes", "kB", "MB", "GB", "TB"};
    int unit = 0;
    /* 999.5 and 9.95 are the bounds at which rounding would print "1000 kB" or "10.0 MB". */
    for (; bytes >= 999.5 && unit < 4; unit++)
        bytes /= 1000;
    snprintf(out, WF_TEXT_SIZE, unit && bytes < 9.95 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

const char *wf_text_foreign(char *out, size_t cap, const char *bytes, size_t len)
{
    char one[WF_TEXT_ESCAPE], size[WF_TEXT_SIZE], tail[WF_TEXT_SIZE + 16];
    wf_text_size(size, (double)len);
    size_t tail_bytes = (size_t)snprintf(tail, sizeof tail, "... (%s in all)", size);
    size_t at = 0, cut = 0; /* cut: the longest prefix that leaves room for the tail */
    for (size_t i = 0, shown = 0, taken; i < len; i += taken, shown++) {
        taken = wf_text_escape(one, bytes + i, len - i);
        size_t n = strlen(one);
        if (at + tail_bytes < cap)
            cut = at;
        if (shown == WF_TEXT_FOREIGN_MOST || at + n >= cap) {
            memcpy(out + cut, tail, tail_bytes + 1);
            return out;
        }
        memcpy(out + at, one, n);
        at += n;
    }
    out[at] = '\0';
    return out;
}

const char *wf_text_show(char out[WF_TEXT_SHOWN], const char *bytes, size_t len)
{
    return wf_text_foreign(out, WF_TEXT_SHOWN, bytes, len);
}

void wf_text_from_double(char out[WF_TEXT_DOUBLE], double value)
{
    /* Any decimal number of up to 15 digits survives conversion to a normal double and back, so if
     * such a form exists, the first attempt finds it. */
    char text[WF_TEXT_DOUBLE];
    /* 17 digits always suffice for a double, so the loop ends. */
    int digits = 15;
    do
        snprintf(text, sizeof text, "%.*g", digits, value);
    while (isfinite(value) && strtod(text, NULL) != value && digits++ < 17);

    /* The locale's decimal point may have several bytes: replace it by a dot. */
    for (const char *s = text; *s; s++) {
        static const char known[] = "0123456789+-einfa";
        if (strchr(known, *s))
            *out++ = *s;
        else if (strchr(known, s[1]))
            *out++ = '.';
    }
    *out = '\0';
}

/* strtod follows the locale's decimal point, so the text is copied with that point in place of the
 * dot. Numbers of more than 56 characters are refused. */
bool wf_text_to_double(const char **s, double *out)
{
    char text[64], *end;
    size_t n = strspn(*s, "0123456789+-.eEinfa"), at = 0;
    const char *point = localeconv()->decimal_point;
    if (n == 0 || n > sizeof text - 8 || strlen(point) > 4)
        return false;
    for (size_t i = 0; i < n && at < sizeof text - 5; i++) {
        if ((*s)[i] == '.')
            at += (size_t)snprintf(text + at, 5, "%s", point);
        else
            text[at++] = (*s)[i];
    }
    text[at] = '\0';
    *out = strtod(text, &end);
    if (end != text + at)
        return false;
    *s += n;
    return true;
}
