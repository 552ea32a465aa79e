/* SPDX-License-Identifier: MIT */
/* utf8.h - decoding, encoding and validation of UTF-8. */
#ifndef WF_TEXT_UTF8_H
#define WF_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WF_UTF8_REPLACEMENT "\xEF\xBF\xBD" /* U+FFFD */

/* Examines the start of s, which has n >= 1 bytes. */
typedef enum {
    WF_UTF8_WHOLE, /* a character of *length bytes */
    WF_UTF8_PART,  /* a prefix of a character, up to the end of s: *length = n */
    WF_UTF8_BROKEN /* *length invalid bytes: a maximal subpart, or one byte */
} wf_utf8_state;
wf_utf8_state wf_utf8_look(const char *s, size_t n, size_t *length);

/* Returns whether s[0 .. n) is valid UTF-8, without overlong forms and surrogates. */
bool wf_utf8_valid(const char *s, size_t n);

/* Returns the code point at s, which must be valid. *length: its bytes. */
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

/* Writes the code point and returns its length, 1 to 4. */
size_t wf_utf8_encode(uint32_t c, char out[4]);

#endif
