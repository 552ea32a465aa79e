/* SPDX-License-Identifier: MIT */
/*
 * json.c - see json.h.
 *
 * The state is one `level` per open object or array. Every value passes begin_value, which checks
 * the place and writes the comma, so no other function knows about separators.
 */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/ctx.h"
#include "base/writer.h"

void wf_json_begin(wf_json *j, FILE *out)
{
    *j = (wf_json){.out = out};
}

void wf_json_begin_text(wf_json *j, wf_writer *text)
{
    *j = (wf_json){.text = text};
}

/* All output passes here and put_char. */
static void put(wf_json *j, const char *text, size_t bytes)
{
    if (j->text)
        wf_writer_bytes(j->text, text, bytes);
    else
        fwrite(text, 1, bytes, j->out);
}

static void put_char(wf_json *j, char c)
{
    if (j->text)
        wf_writer_char(j->text, c);
    else
        putc(c, j->out);
}

bool wf_json_end(wf_json *j)
{
    wf_assert(j->depth == 0 && j->level[0].filled);
    if (j->text)
        return j->text->status == WF_OK;
    put_char(j, '\n');
    return fflush(j->out) == 0 && !ferror(j->out);
}

static void new_line(wf_json *j)
{
    if (!j->text)
        fprintf(j->out, "\n%*s", 2 * j->depth, "");
}

/* Starts a key, or a value without a key: adds the comma and the indentation. */
static void begin_item(wf_json *j)
{
    if (j->level[j->depth].filled)
        put_char(j, ',');
    j->level[j->depth].filled = true;
    if (j->depth > 0)
        new_line(j);
}

/* A value needs a key inside an object and must not have one elsewhere. The document itself holds
 * one value. */
static void begin_value(wf_json *j)
{
    wf_assert(j->keyed == (j->level[j->depth].close == '}'));
    wf_assert(j->depth > 0 || !j->level[0].filled);
    if (!j->keyed)
        begin_item(j);
    j->keyed = false;
}

static void open_level(wf_json *j, char open, char close)
{
    begin_value(j);
    wf_assert(j->depth < WF_JSON_DEPTH);
    j->depth++;
    j->level[j->depth].close = close;
    j->level[j->depth].filled = false;
    put_char(j, open);
}

static void close_level(wf_json *j, char close)
{
    wf_assert(j->depth > 0 && j->level[j->depth].close == close && !j->keyed);
    bool filled = j->level[j->depth--].filled;
    if (filled)
        new_line(j);
    put_char(j, close);
}

void wf_json_object_begin(wf_json *j)
{
    open_level(j, '{', '}');
}

void wf_json_object_end(wf_json *j)
{
    close_level(j, '}');
}

void wf_json_array_begin(wf_json *j)
{
    open_level(j, '[', ']');
}

void wf_json_array_end(wf_json *j)
{
    close_level(j, ']');
}

size_t wf_json_escape(char out[WF_JSON_ESCAPE], const char *s, size_t n, wf_json_style style,
                      size_t *bytes)
{
    static const char plain[] = "\"\\\n\b\f\r\t", letter[] = "\"\\nbfrt";
    static const size_t letters[] = {2, 3, 7, 7}; /* by style: the first ones of plain */
    size_t length = wf_text_utf8(s, n);
    const char *known = memchr(plain, *s, letters[style]);
    bool raw = style == WF_JSON_TERMINAL ? wf_text_harmless(s, length) : (unsigned char)*s >= ' ';
    if (known) {
        *bytes = (size_t)snprintf(out, WF_JSON_ESCAPE, "\\%c", letter[known - plain]);
    } else if (length > 0 && !raw) {
        unsigned c = wf_text_point(s, length); /* below U+10000: no control is above */
        *bytes = (size_t)snprintf(out, WF_JSON_ESCAPE, "\\u%04x", c & 0xFFFF);
    } else {
        *bytes = length ? length : 3;
        memcpy(out, length ? s : "\xEF\xBF\xBD" /* U+FFFD */, *bytes);
        out[*bytes] = '\0';
    }
    return length ? length : 1;
}

static void put_string(wf_json *j, const char *text, size_t bytes)
{
    char one[WF_JSON_ESCAPE];
    put_char(j, '"');
    for (size_t n, taken; bytes > 0; text += taken, bytes -= taken) {
        taken = wf_json_escape(one, text, bytes, WF_JSON_TERMINAL, &n);
        put(j, one, n);
    }
    put_char(j, '"');
}

/* Writes a value that needs no escapes. */
static void put_plain(wf_json *j, const char *text)
{
    begin_value(j);
    put(j, text, strlen(text));
}

void wf_json_key(wf_json *j, const char *key)
{
    wf_assert(j->level[j->depth].close == '}' && !j->keyed);
    begin_item(j);
    put_string(j, key, strlen(key));
    put(j, ": ", j->text ? 1 : 2);
    j->keyed = true;
}

void wf_json_string(wf_json *j, const char *s)
{
    wf_json_text(j, s, strlen(s));
}

void wf_json_text(wf_json *j, const char *s, size_t bytes)
{
    begin_value(j);
    put_string(j, s, bytes);
}

void wf_json_int(wf_json *j, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    put_plain(j, text);
}

void wf_json_double(wf_json *j, double value)
{
    if (!isfinite(value)) {
        wf_json_null(j);
        return;
    }
    char text[WF_TEXT_DOUBLE];
    wf_text_from_double(text, value);
    put_plain(j, text);
}

void wf_json_bool(wf_json *j, bool value)
{
    put_plain(j, value ? "true" : "false");
}

void wf_json_null(wf_json *j)
{
    put_plain(j, "null");
}

void wf_json_put_int(wf_json *j, const char *key, int64_t value)
{
    wf_json_key(j, key);
    wf_json_int(j, value);
}

void wf_json_put_text(wf_json *j, const char *key, const char *text)
{
    wf_json_key(j, key);
    if (text)
        wf_json_string(j, text);
    else
        wf_json_null(j);
}
