/* SPDX-License-Identifier: MIT */
/* writer.c - see writer.h. */
#include "base/writer.h"

#include <stdio.h>
#include <string.h>

#include "base/check.h"
#include "base/mem.h"

/* Initial capacity; it doubles when full. */
#define FIRST_BYTES 4096

/* Makes room for `bytes` more and the NUL. Doubles the capacity: appending is linear overall. */
static bool make_room(wf_writer *w, size_t bytes)
{
    size_t need, cap = w->cap ? w->cap : FIRST_BYTES;
    if (w->status != WF_OK)
        return false;
    if (!wf_add_size(w->len, bytes, &need) || !wf_add_size(need, 1, &need))
        need = SIZE_MAX; /* refused, with a message, by wf_mem_grow */
    if (need <= w->cap)
        return true;
    while (cap < need && wf_mul_size(cap, 2, &cap))
        ;
    cap = cap < need ? need : cap;
    char *grown = wf_mem_grow(w->ctx, w->text, cap);
    if (!grown) {
        w->status = WF_ERR_MEMORY;
        return false;
    }
    w->text = grown;
    w->cap = cap;
    return true;
}

/* The first attempt learns the length if the text does not fit; the second has room for it. */
void wf_writer_print(wf_writer *w, const char *fmt, ...)
{
    size_t wanted = 0;
    for (int attempt = 0; attempt < 2 && make_room(w, wanted); attempt++) {
        size_t room = w->cap - w->len;
        va_list args;
        va_start(args, fmt);
        int n = vsnprintf(w->text + w->len, room, fmt, args);
        va_end(args);
        wf_assert(n >= 0);
        wanted = (size_t)n;
        if (wanted < room) {
            w->len += wanted;
            return;
        }
    }
}

void wf_writer_char(wf_writer *w, char c)
{
    if (!make_room(w, 1))
        return;
    w->text[w->len++] = c;
    w->text[w->len] = '\0';
}

void wf_writer_bytes(wf_writer *w, const void *bytes, size_t count)
{
    if (!make_room(w, count))
        return;
    if (count > 0)
        memcpy(w->text + w->len, bytes, count);
    w->len += count;
    w->text[w->len] = '\0';
}

void wf_writer_json(wf_writer *w, const char *text, size_t bytes, wf_json_style style)
{
    char one[WF_JSON_ESCAPE];
    wf_writer_char(w, '"');
    for (size_t n, taken; bytes > 0; text += taken, bytes -= taken) {
        taken = wf_json_escape(one, text, bytes, style, &n);
        wf_writer_bytes(w, one, n);
    }
    wf_writer_char(w, '"');
}

void wf_writer_quoted(wf_writer *w, const char *text, size_t bytes)
{
    wf_writer_json(w, text, bytes, WF_JSON_NUMERIC);
}

void wf_writer_xml(wf_writer *w, const char *text, size_t most)
{
    char one[WF_TEXT_ESCAPE];
    size_t left = strlen(text);
    for (size_t shown = 0, taken; left > 0; text += taken, left -= taken, shown++) {
        if (shown == most) {
            wf_writer_print(w, "...");
            return;
        }
        taken = wf_text_escape(one, text, left);
        /* one[0] is never NUL, which strchr would find: wf_text_escape writes a NUL byte as
         * \x00. */
        if (strchr("<>&\"'", one[0]))
            wf_writer_print(w, "&#%d;", one[0]);
        else
            wf_writer_bytes(w, one, strlen(one));
    }
}

wf_status wf_writer_take(wf_writer *w, char **out, size_t *bytes)
{
    /* Allocates even when nothing was written, so that the result is "" and not NULL. */
    wf_status status = make_room(w, 0) ? WF_OK : w->status;
    *out = NULL;
    if (bytes)
        *bytes = status == WF_OK ? w->len : 0;
    if (status == WF_OK)
        *out = w->text;
    else
        wf_mem_free(w->ctx, w->text);
    *w = (wf_writer){.ctx = w->ctx};
    return status;
}
