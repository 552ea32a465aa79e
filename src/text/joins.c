/* SPDX-License-Identifier: MIT */
/* joins.c - see joins.h. */
#include "text/joins.h"

#include "text/utf8.h"

void wf_joins_add_token(wf_joins *j, const char *text, size_t bytes)
{
    size_t length;
    if (bytes == 0)
        return;
    uint32_t left = wf_utf8_decode(text, &length);
    for (size_t i = length; i < bytes; i += length) {
        uint32_t right = wf_utf8_decode(text + i, &length);
        wf_joins_add(j, left, right);
        left = right;
    }
}
