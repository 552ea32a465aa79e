/* SPDX-License-Identifier: MIT */
/*
 * grapheme.c - extended grapheme clusters (Unicode standard, annex 29).
 *
 * Regional indicators are missing: the normalizer Precompiled, the only user, treats clusters of
 * six bytes and more as single characters, and two indicators have eight.
 */
#include "text/unicode.h"
#include "text/utf8.h"

/* The values of tools/make_normal.py. */
enum {
    OTHER,
    CONTROL,
    EXTEND,
    ZWJ,
    SPACING,
    PREPEND,
    PICTURE,
    CONSONANT,
    LINKER,
    LEADING,
    VOWEL,
    TRAILING,
    LV,
    LVT
};

/* What the cluster so far ends with, where one character is not enough to decide. */
typedef struct {
    bool picture;   /* a picture and characters that extend it */
    bool conjunct;  /* a consonant and characters that extend it */
    bool linked;    /* one of those is a linker */
    unsigned class; /* of the last character */
} ending;

static bool extends(unsigned class)
{
    return class == EXTEND || class == ZWJ || class == LINKER;
}

/* Returns whether a character of this class continues the cluster. */
static bool continues(const ending *e, unsigned next)
{
    unsigned last = e->class;
    if (last == CONTROL || next == CONTROL)
        return false;
    if (extends(next) || next == SPACING || last == PREPEND)
        return true;
    switch (next) {
    case LEADING:
    case LV:
    case LVT: return last == LEADING;
    case VOWEL: return last == LEADING || last == VOWEL || last == LV;
    case TRAILING: return last == VOWEL || last == TRAILING || last == LV || last == LVT;
    case PICTURE: return last == ZWJ && e->picture;
    case CONSONANT: return e->conjunct && e->linked;
    default: return false;
    }
}

static void add(ending *e, unsigned class)
{
    e->picture = class == PICTURE || (e->picture && extends(class));
    e->linked = class == LINKER || (e->linked && extends(class));
    e->conjunct = class == CONSONANT || (e->conjunct && extends(class));
    e->class = class;
}

size_t wf_grapheme(const char *s, size_t n)
{
    size_t length, end;
    uint32_t first = wf_utf8_decode(s, &end);
    if (first == '\r' && n > 1 && s[1] == '\n')
        return 2;
    ending e = {0};
    add(&e, wf_char_traits(first) >> 4);
    while (end < n) {
        unsigned class = wf_char_traits(wf_utf8_decode(s + end, &length)) >> 4;
        if (!continues(&e, class))
            break;
        add(&e, class);
        end += length;
    }
    return end;
}
