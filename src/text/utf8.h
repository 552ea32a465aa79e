/* SPDX-License-Identifier: MIT */
/* utf8.h - characters of UTF-8 texts. */
#ifndef WF_TEXT_UTF8_H
#define WF_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* What stands at the start of s, which has n >= 1 bytes. */
typedef enum {
    WF_UTF8_WHOLE, /* a character of *length bytes */
    WF_UTF8_PART,  /* the beginning of one, up to the end of s: *length = n */
    WF_UTF8_BROKEN /* *length bytes that begin no character: a maximal part, or one byte */
} wf_utf8_state;
wf_utf8_state wf_utf8_look(const char *s, size_t n, size_t *length);

bool wf_utf8_valid(const char *s, size_t n);

/* The character at s in text that is valid; its length to *length. */
static inline uint32_t wf_utf8_decode(const char *s, size_t *length)
{
    const unsigned char *b = (const unsigned char *)s;
    if (b[0] < 0x80) {
        *length = 1;
        return b[0];
    }
    if (b[0] < 0xE0) {
        *length = 2;
        return (uint32_t)(b[0] & 0x1F) << 6 | (b[1] & 0x3Fu);
    }
    if (b[0] < 0xF0) {
        *length = 3;
        return (uint32_t)(b[0] & 0x0F) << 12 | (uint32_t)(b[1] & 0x3F) << 6 | (b[2] & 0x3Fu);
    }
    *length = 4;
    return (uint32_t)(b[0] & 0x07) << 18 | (uint32_t)(b[1] & 0x3F) << 12 |
           (uint32_t)(b[2] & 0x3F) << 6 | (b[3] & 0x3Fu);
}

/* Its length, 1 to 4. */
size_t wf_utf8_encode(uint32_t c, char out[4]);

#endif
