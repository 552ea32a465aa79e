/* SPDX-License-Identifier: MIT */
/* unicode.c - lookups in the tables of unicode_table.h and normal_table.h. */
#include "text/unicode.h"

#include <stddef.h>

#include "text/normal_table.h"
#include "text/unicode_table.h"

/* Hangul syllables are composed arithmetically from L, V and T jamo (Unicode standard, 3.12). */
enum { HANGUL = 0xAC00, FIRST_L = 0x1100, FIRST_V = 0x1161, FIRST_T = 0x11A7 };
enum { L_COUNT = 19, V_COUNT = 21, T_COUNT = 28, SYLLABLES = L_COUNT * V_COUNT * T_COUNT };

/* A two-level table: equal pages of 256 characters are stored once. */
unsigned wf_char_class(uint32_t c)
{
    return class_value[class_page[c >> 8] * 256u + (c & 255)];
}

unsigned wf_char_order(uint32_t c)
{
    return order_value[order_page[c >> 8] * 256u + (c & 255)];
}

bool wf_char_parts(uint32_t c, uint32_t *a, uint32_t *b)
{
    /* Unsigned: a smaller c wraps and fails the comparison. */
    if (c - HANGUL < SYLLABLES) {
        uint32_t at = c - HANGUL, t = at % T_COUNT;
        *a = t ? c - t : FIRST_L + at / (V_COUNT * T_COUNT);
        *b = t ? FIRST_T + t : FIRST_V + at / T_COUNT % V_COUNT;
        return true;
    }
    size_t low = 0, high = sizeof part / sizeof *part / 3;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (part[3 * middle] < c)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == sizeof part / sizeof *part / 3 || part[3 * low] != c)
        return false;
    *a = part[3 * low + 1];
    *b = part[3 * low + 2];
    return true;
}

/* pair[] is sorted by a, then b; part[] by character. Both have three columns. */
uint32_t wf_char_compose(uint32_t a, uint32_t b)
{
    if (a - FIRST_L < L_COUNT && b - FIRST_V < V_COUNT)
        return HANGUL + ((a - FIRST_L) * V_COUNT + (b - FIRST_V)) * T_COUNT;
    if (a - HANGUL < SYLLABLES && (a - HANGUL) % T_COUNT == 0 && b - FIRST_T - 1 < T_COUNT - 1)
        return a + (b - FIRST_T);
    size_t low = 0, high = sizeof pair / sizeof *pair / 3;
    while (low < high) {
        size_t middle = (low + high) / 2;
        uint32_t x = pair[3 * middle], y = pair[3 * middle + 1];
        if (x < a || (x == a && y < b))
            low = middle + 1;
        else
            high = middle;
    }
    bool found =
        low < sizeof pair / sizeof *pair / 3 && pair[3 * low] == a && pair[3 * low + 1] == b;
    return found ? pair[3 * low + 2] : 0;
}

unsigned wf_char_traits(uint32_t c)
{
    return trait_value[trait_page[c >> 8] * 256u + (c & 255)];
}

/* lower[] has rows of four: the first and the last character, the step between them, and the
 * difference to lower case. */
uint32_t wf_char_lower(uint32_t c)
{
    size_t low = 0, high = sizeof lower / sizeof *lower / 4;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if ((uint32_t)lower[4 * middle + 1] < c)
            low = middle + 1;
        else
            high = middle;
    }
    const int32_t *row = &lower[4 * low];
    if (low == sizeof lower / sizeof *lower / 4 || c < (uint32_t)row[0] ||
        (c - (uint32_t)row[0]) % (uint32_t)row[2] != 0)
        return c;
    return c + (uint32_t)row[3];
}

size_t wf_char_compat(uint32_t c, const uint32_t **parts)
{
    size_t low = 0, high = sizeof compat_char / sizeof *compat_char;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (compat_char[middle] < c)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == sizeof compat_char / sizeof *compat_char || compat_char[low] != c)
        return 0;
    *parts = &compat_part[compat_end[low]];
    return (size_t)(compat_end[low + 1] - compat_end[low]);
}
