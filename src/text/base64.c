/* SPDX-License-Identifier: MIT */
/* base64.c - see base64.h. */
#include "text/base64.h"

#include <string.h>

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Four digits are three bytes; "=" stands for missing ones at the end, whose bits must be zero. */
bool wf_base64_decode(const char *text, size_t bytes, uint8_t *out, size_t *count)
{
    *count = 0;
    if (bytes % 4 != 0)
        return false;
    for (size_t i = 0; i < bytes; i += 4) {
        uint32_t value = 0, given = 0;
        for (size_t k = 0; k < 4; k++) {
            const char *digit = text[i + k] ? strchr(digits, text[i + k]) : NULL;
            bool padding = !digit && text[i + k] == '=' && i + 4 == bytes && k >= 2;
            if ((!digit && !padding) || (digit && given < k))
                return false;
            value = value << 6 | (digit ? (uint32_t)(digit - digits) : 0);
            given += digit != NULL;
        }
        for (uint32_t k = 0; k < 3; k++) {
            uint8_t byte = (uint8_t)(value >> (16 - 8 * k));
            if (k + 1 < given)
                out[(*count)++] = byte;
            else if (byte)
                return false;
        }
    }
    return true;
}

void wf_base64_write(wf_writer *w, const uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i += 3) {
        size_t n = count - i < 3 ? count - i : 3;
        uint32_t value = 0;
        for (size_t k = 0; k < 3; k++)
            value = value << 8 | (k < n ? bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            wf_writer_char(w, k <= n ? digits[value >> (18 - 6 * k) & 63] : '=');
    }
}
