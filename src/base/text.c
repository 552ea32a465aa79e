/* SPDX-License-Identifier: MIT */
/* text.c - message building and word distance. */
#include "base/text.h"

#include <stdio.h>
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

    /* now[j] is the distance of a[0..i) from b[0..j); a swap looks two rows back. */
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
    if (*len >= cap) /* only cap == 0: the NUL always has its byte */
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
        memset(buf + cut, '.', cap - 1 - cut); /* three dots, more if a character went */
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
