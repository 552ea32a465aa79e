/* SPDX-License-Identifier: MIT */
/*
 * normal.c - see normal.h.
 *
 * Every step copies the text once; a step that certainly changes nothing is skipped. Marks are
 * written along with the bytes. The growth limit is relative to the input of all steps together.
 */
#include "text/normal.h"

#include <string.h>

#include "base/check.h"
#include "base/mem.h"
#include "text/unicode.h"
#include "text/utf8.h"

/* Growth limit: a chain of replacements of short strings by long ones could turn a page into
 * terabytes. */
#define GROWTH_MOST 32    /* times the length of the text */
#define GROWTH_FREE 65536 /* bytes that even a short text may grow */

/* Called after each replacement, so the output exceeds the limit by one replacement at most. */
static wf_status check_growth(const wf_writer *w, size_t most)
{
    return w->len <= most
               ? WF_OK
               : wf_fail(
                     w->ctx, WF_ERR_UNSUPPORTED,
                     "the tokenizer's normalizer expands a text to more than %d times its length",
                     GROWTH_MOST);
}

/* Input and output of a step. */
typedef struct {
    wf_writer w, marks;
    wf_marked from; /* borrowed */
} output;

/* Copies text[begin .. end) unchanged. */
static void copy(output *o, size_t begin, size_t end)
{
    wf_writer_bytes(&o->w, o->from.text + begin, end - begin);
    if (o->from.plain)
        wf_writer_bytes(&o->marks, o->from.plain + begin, end - begin);
}

/* Writes the step's content in place of text[begin .. end). An insertion (begin == end) takes the
 * mark of a neighbouring byte. */
static void put(output *o, const wf_normal_step *step, size_t begin, size_t end)
{
    const uint8_t *plain = o->from.plain;
    wf_writer_bytes(&o->w, step->content, step->content_bytes);
    if (!plain)
        return;
    if (begin == end && begin > 0)
        begin--;
    else if (begin == end && end < o->from.bytes)
        end++;
    bool any = false;
    for (size_t i = begin; i < end; i++)
        any = any || plain[i];
    for (size_t i = 0; i < step->content_bytes; i++)
        wf_writer_char(&o->marks, any);
}

static void prepend(output *o, const wf_normal_step *step)
{
    if (o->from.bytes > 0)
        put(o, step, 0, 0);
    copy(o, 0, o->from.bytes);
}

/* Replaces from left to right, without overlaps. */
static wf_status replace_string(output *o, const wf_normal_step *step, size_t most)
{
    const char *text = o->from.text;
    size_t bytes = o->from.bytes, done = 0, i = 0;
    while (i < bytes) {
        bool match = step->what_bytes > 0 && bytes - i >= step->what_bytes &&
                     text[i] == step->what[0] &&
                     memcmp(text + i, step->what, step->what_bytes) == 0;
        if (!match) {
            i++;
            continue;
        }
        copy(o, done, i);
        put(o, step, i, i + step->what_bytes);
        i = done = i + step->what_bytes;
        WF_TRY(check_growth(&o->w, most));
    }
    copy(o, done, bytes);
    return WF_OK;
}

static wf_status replace_pattern(output *o, const wf_normal_step *step, size_t most)
{
    const char *text = o->from.text;
    wf_matcher *m;
    size_t bytes = o->from.bytes, done = 0, from = 0, begin, end;
    bool found = true;
    WF_TRY(wf_matcher_new(step->pattern, o->w.ctx, &m));
    wf_status status = WF_OK;
    while (from <= bytes && status == WF_OK) {
        status = wf_matcher_next(m, text, bytes, from, &found, &begin, &end);
        if (status != WF_OK || !found)
            break;
        copy(o, done, begin);
        put(o, step, begin, end);
        status = check_growth(&o->w, most);
        done = from = end;
        if (end == begin) { /* an empty match: advance, or it would match forever */
            size_t length = 1;
            if (from < bytes)
                wf_utf8_decode(text + from, &length);
            from += length;
        }
    }
    copy(o, done, bytes);
    wf_matcher_free(m);
    return status;
}

/* Removes white space at the ends; keeps nothing of a text that is all white space. */
static void strip(output *o, const wf_normal_step *step)
{
    const char *text = o->from.text;
    size_t bytes = o->from.bytes, begin = bytes, end = 0, length;
    for (size_t i = 0; i < bytes; i += length)
        if (!(wf_char_class(wf_utf8_decode(text + i, &length)) & WF_CHAR_SPACE)) {
            begin = begin == bytes ? i : begin;
            end = i + length;
        }
    if (begin < bytes) /* otherwise all of it is white space */
        copy(o, step->left ? begin : 0, step->right ? end : bytes);
}

/* Returns whether the step certainly leaves the text unchanged: a fast check. */
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

static void free_marked(wf_ctx *ctx, wf_marked *m)
{
    wf_mem_free(ctx, (void *)m->text);
    wf_mem_free(ctx, (void *)m->plain);
    m->text = NULL;
    m->plain = NULL;
}

wf_status wf_normal_take(wf_writer *w, wf_writer *marks, wf_status status, wf_marked *out)
{
    char *text, *plain = NULL;
    wf_status taken = wf_writer_take(w, &text, &out->bytes);
    status = status == WF_OK ? taken : status;
    taken = marks ? wf_writer_take(marks, &plain, NULL) : WF_OK;
    status = status == WF_OK ? taken : status;
    out->text = text;
    out->plain = (uint8_t *)plain;
    if (status != WF_OK)
        free_marked(w->ctx, out);
    return status;
}

static wf_status run_step(wf_ctx *ctx, const wf_normal_step *step, wf_marked from, size_t most,
                          wf_marked *out)
{
    output o = {.w = {.ctx = ctx}, .marks = {.ctx = ctx}, .from = from};
    wf_status status = WF_OK;
    switch (step->kind) {
    case WF_NORMAL_NFC: return wf_nfc(ctx, from, out);
    case WF_NORMAL_PREPEND: prepend(&o, step); break;
    case WF_NORMAL_STRIP: strip(&o, step); break;
    case WF_NORMAL_REPLACE:
        status = step->pattern ? replace_pattern(&o, step, most) : replace_string(&o, step, most);
        break;
    }
    return wf_normal_take(&o.w, from.plain ? &o.marks : NULL, status, out);
}

/* Frees the output of a step when the next one has read it. */
wf_status wf_normal_run(wf_ctx *ctx, const wf_normal_step *steps, int count, wf_marked from,
                        wf_marked *out)
{
    size_t most;
    if (!wf_mul_size(from.bytes, GROWTH_MOST, &most) || !wf_add_size(most, GROWTH_FREE, &most))
        most = SIZE_MAX;
    *out = (wf_marked){.bytes = from.bytes};
    for (int i = 0; i < count; i++) {
        wf_marked next;
        if (stays(&steps[i], from.text, from.bytes))
            continue;
        wf_status status = run_step(ctx, &steps[i], from, most, &next);
        free_marked(ctx, out);
        WF_TRY(status);
        *out = from = next;
    }
    return WF_OK;
}
