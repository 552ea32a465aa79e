/* SPDX-License-Identifier: MIT */
/* utf8.c - see utf8.h. */
#include "text/utf8.h"

#include <string.h>

wf_utf8_state wf_utf8_look(const char *s, size_t n, size_t *length)
{
    const unsigned char *b = (const unsigned char *)s;
    *length = 1;
    if (b[0] < 0x80)
        return WF_UTF8_WHOLE;
    if (b[0] < 0xC2 || b[0] > 0xF4)
        return WF_UTF8_BROKEN;

    /* The bounds of the second byte exclude overlong forms, surrogates and code points above
     * U+10FFFF. */
    size_t want = b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : 4;
    unsigned low = b[0] == 0xE0 ? 0xA0 : b[0] == 0xF0 ? 0x90 : 0x80;
    unsigned high = b[0] == 0xED ? 0x9F : b[0] == 0xF4 ? 0x8F : 0xBF;
    for (size_t i = 1; i < want; i++) {
        if (i == n) {
            *length = n;
            return WF_UTF8_PART;
        }
        if (b[i] < low || b[i] > high) {
            *length = i;
            return WF_UTF8_BROKEN;
        }
        low = 0x80;
        high = 0xBF;
    }
    *length = want;
    return WF_UTF8_WHOLE;
}

bool wf_utf8_valid(const char *s, size_t n)
{
    size_t length;
    for (size_t i = 0; i < n; i += length) {
        uint64_t eight;
        length = 8;
        if (n - i >= 8) { /* fast path for ASCII */
            memcpy(&eight, s + i, 8);
            if (!(eight & UINT64_C(0x8080808080808080)))
                continue;
        }
        if (wf_utf8_look(s + i, n - i, &length) != WF_UTF8_WHOLE)
            return false;
    }
    return true;
}

size_t wf_utf8_encode(uint32_t c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char lead[5] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(lead[n] | c);
    return n;
}
