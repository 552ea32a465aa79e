/* SPDX-License-Identifier: MIT */
/*
 * case.c - upper, lower and title case, from the table in case.def.
 *
 * case.def is included once per table with all but one of its row macros empty. Most characters map
 * to one other character by a constant distance; those are ranges. A few map to two or three
 * characters (for example U+00DF to "SS"); those are listed one by one. All tables are sorted by
 * code point, so that a lookup is a binary search.
 */
#include "text/jinja/string.h"

typedef struct {
    /* Every step-th code of [first, last] maps to itself plus delta. A step of 2 covers alphabets
     * that alternate upper and lower case. */
    uint32_t first, last, step;
    int32_t delta;
} range;

typedef struct {
    /* out ends at its first 0. */
    uint32_t code, out[3];
} longer;

#define NO(...)
#define RANGE(first, last, step, delta) {first, last, step, delta},
#define LONGER(code, a, b, c) {code, {a, b, c}},

static const range upper[] = {
#define WF_CASE_UPPER RANGE
#define WF_CASE_LOWER NO
#define WF_CASE_LONG_UPPER NO
#define WF_CASE_LONG_LOWER NO
#define WF_CASE_LONG_TITLE NO
#include "text/jinja/case.def"
#undef WF_CASE_UPPER
#undef WF_CASE_LOWER
};

static const range lower[] = {
#define WF_CASE_UPPER NO
#define WF_CASE_LOWER RANGE
#include "text/jinja/case.def"
#undef WF_CASE_LOWER
#undef WF_CASE_LONG_UPPER
};

static const longer long_upper[] = {
#define WF_CASE_LOWER NO
#define WF_CASE_LONG_UPPER LONGER
#include "text/jinja/case.def"
#undef WF_CASE_LONG_UPPER
#undef WF_CASE_LONG_LOWER
};

static const longer long_lower[] = {
#define WF_CASE_LONG_UPPER NO
#define WF_CASE_LONG_LOWER LONGER
#include "text/jinja/case.def"
#undef WF_CASE_LONG_LOWER
#undef WF_CASE_LONG_TITLE
};

static const longer long_title[] = {
#define WF_CASE_LONG_LOWER NO
#define WF_CASE_LONG_TITLE LONGER
#include "text/jinja/case.def"
};

/* Maps a code point by the range that contains it; returns the code itself outside all ranges.
 * Relies on rows that are sorted and do not overlap. */
static uint32_t map_range(const range *rows, size_t count, uint32_t code)
{
    size_t low = 0, high = count;
    while (low < high) { /* finds rows[low - 1], the last row that starts at or before the code */
        size_t mid = (low + high) / 2;
        if (rows[mid].first <= code)
            low = mid + 1;
        else
            high = mid;
    }
    const range *row = rows + low - 1;
    if (low == 0 || code > row->last || (code - row->first) % row->step != 0)
        return code;
    return (uint32_t)((int64_t)code + row->delta);
}

/* Returns the number of characters in `out`; 0: the code has no row. */
static int map_long(const longer *rows, size_t count, uint32_t code, uint32_t out[3])
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t mid = (low + high) / 2;
        if (rows[mid].code < code)
            low = mid + 1;
        else
            high = mid;
    }
    if (low == count || rows[low].code != code)
        return 0;
    int n = 0;
    for (; n < 3 && rows[low].out[n]; n++)
        out[n] = rows[low].out[n];
    return n;
}

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

/* Title case has rows only where it differs from upper case. ASCII skips the long tables: no
 * character below 0x80 has a row there. */
int wf_char_map(uint32_t code, wf_jcase to, uint32_t out[3])
{
    int n = 0;
    if (code >= 0x80 && to == WF_J_LOWER)
        n = map_long(long_lower, COUNT(long_lower), code, out);
    if (code >= 0x80 && to == WF_J_TITLE)
        n = map_long(long_title, COUNT(long_title), code, out);
    if (code >= 0x80 && to != WF_J_LOWER && n == 0)
        n = map_long(long_upper, COUNT(long_upper), code, out);
    if (n)
        return n;
    out[0] = to == WF_J_LOWER ? map_range(lower, COUNT(lower), code)
                              : map_range(upper, COUNT(upper), code);
    return 1;
}

bool wf_char_is_cased(uint32_t code)
{
    uint32_t out[3];
    return wf_char_map(code, WF_J_UPPER, out) != 1 || out[0] != code ||
           wf_char_map(code, WF_J_LOWER, out) != 1 || out[0] != code;
}
