/* SPDX-License-Identifier: MIT */
/* base64.h - base64 with padding, as tokenizer.json stores binary data. */
#ifndef WF_TEXT_BASE64_H
#define WF_TEXT_BASE64_H

#include "base/writer.h"

/* Returns the bytes that wf_base64_decode may write for a text of this length. */
static inline size_t wf_base64_room(size_t bytes)
{
    return bytes / 4 * 3 + 3;
}
/* Returns false for a text that is not exactly base64. */
bool wf_base64_decode(const char *text, size_t bytes, uint8_t *out, size_t *count);
void wf_base64_write(wf_writer *w, const uint8_t *bytes, size_t count);

#endif
