/* SPDX-License-Identifier: MIT */
/* normal.c - see normal.h. */
#include "text/normal.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* A few replacements of short strings by long ones, one after the other, would make terabytes of a page. */
#define GROWTH_MOST 32
#define GROWTH_FREE 65536

static wf_status check_growth(const wf_writer *w, size_t most)
{
    return w->len <= most
               ? WF_OK
               : wf_fail(w->ctx, WF_ERR_UNSUPPORTED,
                         "the tokenizer's normalizer makes more than %d times its length of a text",
                         GROWTH_MOST);
}

static wf_status prepend(wf_writer *w, const wf_normal_step *step, const char *text, size_t bytes)
{
    if (bytes > 0)
        wf_writer_bytes(w, step->content, step->content_bytes);
    wf_writer_bytes(w, text, bytes);
    return WF_OK;
}

static wf_status replace_string(wf_writer *w, const wf_normal_step *step, const char *text,
                                size_t bytes, size_t most)
{
    for (size_t i = 0; i < bytes;) {
        bool match = step->what_bytes > 0 && bytes - i >= step->what_bytes &&
                     memcmp(text + i, step->what, step->what_bytes) == 0;
        if (match)
            wf_writer_bytes(w, step->content, step->content_bytes);
        else
            wf_writer_char(w, text[i]);
        i += match ? step->what_bytes : 1;
        WF_TRY(check_growth(w, most));
    }
    return WF_OK;
}

static wf_status replace_pattern(wf_writer *w, const wf_normal_step *step, const char *text,
                                 size_t bytes, size_t most)
{
    wf_matcher *m;
    size_t done = 0, from = 0, begin, end;
    bool found = true;
    WF_TRY(wf_matcher_new(step->pattern, w->ctx, &m));
    wf_status status = WF_OK;
    while (from <= bytes && status == WF_OK) {
        status = wf_matcher_next(m, text, bytes, from, &found, &begin, &end);
        if (status != WF_OK || !found)
            break;
        wf_writer_bytes(w, text + done, begin - done);
        wf_writer_bytes(w, step->content, step->content_bytes);
        status = check_growth(w, most);
        done = from = end;
        if (end == begin) { /* the next try must not find it again */
            size_t length = 1;
            if (from < bytes)
                wf_utf8_decode(text + from, &length);
            from += length;
        }
    }
    wf_writer_bytes(w, text + done, bytes - done);
    wf_matcher_free(m);
    return status;
}

static wf_status strip(wf_writer *w, const wf_normal_step *step, const char *text, size_t bytes)
{
    size_t begin = bytes, end = 0, length;
    for (size_t i = 0; i < bytes; i += length)
        if (!(wf_char_class(wf_utf8_decode(text + i, &length)) & WF_CHAR_SPACE)) {
            begin = begin == bytes ? i : begin;
            end = i + length;
        }
    if (begin == bytes) /* nothing but space */
        return WF_OK;
    begin = step->left ? begin : 0;
    end = step->right ? end : bytes;
    wf_writer_bytes(w, text + begin, end - begin);
    return WF_OK;
}

static bool stays(const wf_normal_step *step, const char *text, size_t bytes)
{
    size_t length;
    switch (step->kind) {
    case WF_NORMAL_NFC:
        for (size_t i = 0; i < bytes; i += length)
            if (wf_char_class(wf_utf8_decode(text + i, &length)) & WF_CHAR_LOOSE)
                return false;
        return true;
    case WF_NORMAL_PREPEND: return bytes == 0 || step->content_bytes == 0;
    default: return bytes == 0;
    }
}

wf_status wf_normal_run(wf_ctx *ctx, const wf_normal_step *steps, int count, const char *text,
                        size_t bytes, char **out, size_t *out_bytes)
{
    size_t most;
    if (!wf_mul_size(bytes, GROWTH_MOST, &most) || !wf_add_size(most, GROWTH_FREE, &most))
        most = SIZE_MAX;
    *out = NULL;
    *out_bytes = bytes;
    for (int i = 0; i < count; i++) {
        const wf_normal_step *step = &steps[i];
        if (stays(step, text, bytes))
            continue;
        char *next = NULL;
        size_t next_bytes = 0;
        wf_status status;
        if (step->kind == WF_NORMAL_NFC) {
            status = wf_nfc(ctx, text, bytes, &next, &next_bytes);
        } else {
            wf_writer w = {.ctx = ctx};
            status = step->kind == WF_NORMAL_PREPEND ? prepend(&w, step, text, bytes)
                     : step->kind == WF_NORMAL_STRIP ? strip(&w, step, text, bytes)
                     : step->pattern                 ? replace_pattern(&w, step, text, bytes, most)
                                                     : replace_string(&w, step, text, bytes, most);
            wf_status taken = wf_writer_take(&w, &next, &next_bytes);
            status = status == WF_OK ? taken : status;
        }
        wf_mem_free(ctx, *out);
        *out = next;
        if (status != WF_OK) {
            wf_mem_free(ctx, next);
            *out = NULL;
            return status;
        }
        text = next;
        bytes = *out_bytes = next_bytes;
    }
    return WF_OK;
}
