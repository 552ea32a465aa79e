/* SPDX-License-Identifier: MIT */
/*
 * charsmap.c - see charsmap.h.
 *
 * Only the sizes are checked at the start. A lookup checks every index that it computes, because
 * most units of a double array belong to no path, and any of them may have any value.
 */
#include "text/charsmap.h"

#include <string.h>

#include "text/utf8.h"

static uint32_t read_u32(const uint8_t *b)
{
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

wf_status wf_charsmap_init(wf_charsmap *m, wf_arena *arena, const char *what, const void *bytes,
                           size_t count)
{
    size_t trie = count >= 4 ? read_u32(bytes) : 0;
    if (count > WF_CHARSMAP_MOST || trie < 4 || trie > count - 4)
        return wf_fail(arena->ctx, WF_ERR_FORMAT,
                       "cannot read '%s': its precompiled_charsmap of %zu bytes is too large or "
                       "damaged",
                       what, count);
    const uint8_t *copy = wf_arena_copy(arena, bytes, count);
    if (!copy)
        return WF_ERR_MEMORY;
    /* A part of a unit at the end of the trie is text, as in the package tokenizers. */
    size_t units = trie / 4, begin = 4 + 4 * units;
    *m = (wf_charsmap){.bytes = copy,
                       .count = count,
                       .unit = copy + 4,
                       .units = (uint32_t)units,
                       .text = (const char *)copy + begin,
                       .text_bytes = count - begin};
    return wf_utf8_valid(m->text, m->text_bytes)
               ? WF_OK
               : wf_fail(arena->ctx, WF_ERR_FORMAT,
                         "cannot read '%s': a replacement in its precompiled_charsmap is not UTF-8",
                         what);
}

/* Reads a unit; false: it is outside of the array. */
static bool get_unit(const wf_charsmap *m, uint32_t at, uint32_t *unit)
{
    if (at >= m->units)
        return false;
    *unit = read_u32(m->unit + 4 * (size_t)at);
    return true;
}

/* Large offsets are stored in multiples of 256 (bit 9). */
static uint32_t offset_of(uint32_t unit)
{
    return (unit >> 10) << ((unit & 512) >> 6);
}

/* Returns whether this byte continues a character. */
static bool is_inside(char byte)
{
    return ((uint8_t)byte & 0xC0) == 0x80;
}

/* Returns whether a replacement begins at this offset. */
static bool is_text(const wf_charsmap *m, uint32_t at)
{
    return at < m->text_bytes && !is_inside(m->text[at]);
}

size_t wf_charsmap_find(const wf_charsmap *m, const char *s, size_t n, bool longest,
                        const char **text, size_t *bytes)
{
    const uint32_t leaf = 256, label = 1u << 31 | 255;
    uint32_t unit, value, begin = 0;
    size_t found = 0, all = n;
    if (!get_unit(m, 0, &unit))
        return 0;
    uint32_t at = offset_of(unit);
    n = n < WF_CHARSMAP_KEY ? n : WF_CHARSMAP_KEY;
    for (size_t i = 0; i < n && s[i] && (longest || !found); i++) {
        at ^= (uint8_t)s[i];
        if (!get_unit(m, at, &unit) || (unit & label) != (uint8_t)s[i])
            break;
        at ^= offset_of(unit);
        /* The rest of the text must begin with a character, unless the caller drops it. */
        if (!(unit & leaf) || (longest && i + 1 < all && is_inside(s[i + 1])))
            continue;
        if (!get_unit(m, at, &value) || !is_text(m, value & ~(1u << 31)))
            break;
        begin = value & ~(1u << 31);
        found = i + 1;
    }
    if (!found)
        return 0;
    const char *end = memchr(m->text + begin, '\0', m->text_bytes - begin);
    *text = m->text + begin;
    *bytes = end ? (size_t)(end - *text) : m->text_bytes - begin;
    return found;
}
