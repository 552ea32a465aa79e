/* SPDX-License-Identifier: MIT */
/*
 * print.c - prints values: Python's str and repr, and JSON as Hugging Face's tojson writes it.
 *
 * Output is byte for byte that of Python: shortest floats, quotes chosen like repr, JSON separators
 * of json.dumps. Escapes carry the mark of the character that they replace. Nested values recurse
 * with a frame each, so lists that contain themselves fail instead of recursing forever.
 */
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "text/jinja/run.h"
#include "text/jinja/string.h"

static bool is_normal(double value)
{
    return value == 0 || !(fabs(value) < DBL_MIN);
}

void wf_jprint_double(char *out, double value)
{
    /* "%.16e" has at most 17 digits and 24 characters, plus a decimal point of several bytes. */
    char text[48], digit[24];
    int n = 0;
    if (!isfinite(value)) {
        strcpy(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    /* 17 significant digits identify any double, so the last try always succeeds. A decimal of up to
     * 15 digits survives the way through a normal double, so if 15 digits identify the value, they
     * are the shortest that do, followed by zeros. Subnormal doubles need all tries. */
    for (int precision = is_normal(value) ? DBL_DIG - 1 : 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, value);
        if (strtod(text, NULL) == value)
            break;
    }
    /* Separates digits and exponent, which also removes the locale's decimal point. */
    const char *s = text;
    for (; *s != 'e'; s++)
        if (*s >= '0' && *s <= '9')
            digit[n++] = *s;
    while (n > 1 && digit[n - 1] == '0')
        n--;
    int exponent = atoi(s + 1), at = 0;
    if (signbit(value))
        out[at++] = '-';
    /* The bounds at which Python's repr changes to scientific notation. */
    if (exponent < -4 || exponent >= 16) {
        out[at++] = digit[0];
        if (n > 1)
            out[at++] = '.';
        for (int i = 1; i < n; i++)
            out[at++] = digit[i];
        snprintf(out + at, 14, "e%c%02d", exponent < 0 ? '-' : '+', abs(exponent));
        return;
    }
    if (exponent < 0)
        out[at++] = '0';
    /* i is the index of a digit; indices outside [0, n) print zeros. At least one digit follows the
     * point, as in "1.0". */
    for (int i = exponent < 0 ? exponent + 1 : 0; i < n || i <= exponent + 1; i++) {
        if (i == exponent + 1)
            out[at++] = '.';
        out[at++] = i >= 0 && i < n ? digit[i] : '0';
    }
    out[at] = '\0';
}

static wf_status put_number(wf_jrun *r, wf_jbuf *b, const wf_jvalue *v)
{
    char text[48];
    if (v->kind == WF_J_FLOAT) {
        /* The search for the shortest digits takes about 2 us, and 8 us for a subnormal double. */
        WF_TRY(wf_jrun_step(r, is_normal(v->u.number) ? 16 : 64));
        wf_jprint_double(text, v->u.number);
    } else {
        snprintf(text, sizeof text, "%" PRId64, v->u.integer);
    }
    return wf_jbuf_text(r, b, text);
}

/* ---- repr ---- */

/* Appends \n, \x1b, \u200b, ... for a character that repr does not print. */
static wf_status put_repr_char(wf_jrun *r, wf_jbuf *b, uint32_t code, bool plain)
{
    static const char plain_of[] = "\n\r\t\\", letter[] = "nrt\\";
    char text[16];
    const char *known = code && code < 0x80 ? strchr(plain_of, (int)code) : NULL;
    if (known)
        snprintf(text, sizeof text, "\\%c", letter[known - plain_of]);
    else if (code < 0x100)
        snprintf(text, sizeof text, "\\x%02x", (unsigned)code);
    else
        snprintf(text, sizeof text, code < 0x10000 ? "\\u%04x" : "\\U%08x", (unsigned)code);
    return wf_jbuf_put(r, b, text, strlen(text), plain);
}

static wf_status put_repr_string(wf_jrun *r, wf_jbuf *b, const wf_jstr *s)
{
    /* Python prefers single quotes, unless only double quotes avoid an escape. */
    bool single = s->bytes && memchr(s->text, '\'', s->bytes) && !memchr(s->text, '"', s->bytes);
    char quote = single ? '"' : '\'';
    WF_TRY(wf_jbuf_put(r, b, &quote, 1, false));
    for (size_t i = 0, length; i < s->bytes; i += length) {
        uint32_t code;
        bool plain = s->mark ? s->mark[i] & WF_J_PLAIN : s->plain;
        length = wf_utf8_next(s->text + i, s->bytes - i, &code);
        if (code == (uint32_t)quote)
            WF_TRY(wf_jbuf_put(r, b, "\\'", 2, plain));
        else if (code == '\\' || !wf_char_is_printable(code))
            WF_TRY(put_repr_char(r, b, code, plain));
        else
            WF_TRY(wf_jbuf_part(r, b, s, i, i + length));
    }
    return wf_jbuf_put(r, b, &quote, 1, false);
}

/* A tuple of one item ends in a comma. */
static wf_status put_repr_items(wf_jrun *r, wf_jbuf *b, const wf_jseq *seq, char open, char close)
{
    WF_TRY(wf_jbuf_put(r, b, &open, 1, false));
    for (size_t i = 0; i < seq->count; i++) {
        WF_TRY(wf_jbuf_text(r, b, i ? ", " : ""));
        WF_TRY(wf_jprint_repr(r, b, seq->item[i]));
    }
    if (open == '(' && seq->count == 1)
        WF_TRY(wf_jbuf_text(r, b, ","));
    return wf_jbuf_put(r, b, &close, 1, false);
}

static wf_status put_repr_dict(wf_jrun *r, wf_jbuf *b, const wf_jdict *d)
{
    WF_TRY(wf_jbuf_text(r, b, "{"));
    for (size_t i = 0; i < d->count; i++) {
        WF_TRY(wf_jbuf_text(r, b, i ? ", " : ""));
        WF_TRY(wf_jprint_repr(r, b, d->entry[i].key));
        WF_TRY(wf_jbuf_text(r, b, ": "));
        WF_TRY(wf_jprint_repr(r, b, d->entry[i].value));
    }
    return wf_jbuf_text(r, b, "}");
}

static wf_status put_range(wf_jrun *r, wf_jbuf *b, const int64_t range[3])
{
    char text[96];
    int n = snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64, range[0], range[1]);
    if (range[2] != 1)
        n += snprintf(text + n, sizeof text - (size_t)n, ", %" PRId64, range[2]);
    snprintf(text + n, sizeof text - (size_t)n, ")");
    return wf_jbuf_text(r, b, text);
}

static wf_status put_repr(wf_jrun *r, wf_jbuf *b, const wf_jvalue *v)
{
    switch (v->kind) {
    case WF_J_UNDEFINED: return wf_jbuf_text(r, b, "Undefined");
    case WF_J_NONE: return wf_jbuf_text(r, b, "None");
    case WF_J_BOOL: return wf_jbuf_text(r, b, v->u.boolean ? "True" : "False");
    case WF_J_INT:
    case WF_J_FLOAT: return put_number(r, b, v);
    case WF_J_STRING: return put_repr_string(r, b, v->u.str);
    case WF_J_LIST: return put_repr_items(r, b, v->u.seq, '[', ']');
    case WF_J_TUPLE: return put_repr_items(r, b, v->u.seq, '(', ')');
    case WF_J_RANGE: return put_range(r, b, v->u.seq->range);
    case WF_J_VIEW:
        WF_TRY(wf_jbuf_text(r, b, v->u.seq->name));
        WF_TRY(put_repr_items(r, b, v->u.seq, '[', ']'));
        return wf_jbuf_text(r, b, ")");
    case WF_J_DICT: return put_repr_dict(r, b, v->u.dict);
    case WF_J_NAMESPACE:
        WF_TRY(wf_jbuf_text(r, b, "<Namespace "));
        WF_TRY(put_repr_dict(r, b, v->u.dict));
        return wf_jbuf_text(r, b, ">");
    default:
        WF_TRY(wf_jbuf_text(r, b, "<"));
        WF_TRY(wf_jbuf_text(r, b, wf_jkind_name(v->kind)));
        return wf_jbuf_text(r, b, ">");
    }
}

/* A frame per level bounds the recursion, also for a list that contains itself. */
wf_status wf_jprint_repr(wf_jrun *r, wf_jbuf *b, wf_jvalue v)
{
    WF_TRY(wf_jrun_enter(r));
    WF_TRY(put_repr(r, b, &v));
    wf_jrun_leave(r);
    return WF_OK;
}

/* Prints str(v). Undefined prints nothing, a string prints itself with its marks. */
wf_status wf_jprint(wf_jrun *r, wf_jbuf *b, wf_jvalue v)
{
    if (v.kind == WF_J_UNDEFINED)
        return WF_OK;
    return v.kind == WF_J_STRING ? wf_jbuf_str(r, b, v.u.str) : wf_jprint_repr(r, b, v);
}

wf_status wf_jstr_of(wf_jrun *r, wf_jvalue v, const wf_jstr **out)
{
    if (v.kind != WF_J_STRING) {
        wf_jbuf b = {0};
        WF_TRY(wf_jprint(r, &b, v));
        WF_TRY(wf_jbuf_take(r, &b, &v));
    }
    *out = v.u.str;
    return WF_OK;
}

/* ---- JSON ---- */

/* Code points above U+FFFF become a pair of surrogates. */
static wf_status put_json_escape(wf_jrun *r, wf_jbuf *b, uint32_t code, bool plain)
{
    static const char plain_of[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
    char text[16];
    const char *known = code && code < 0x80 ? strchr(plain_of, (int)code) : NULL;
    if (known) {
        snprintf(text, sizeof text, "\\%c", letter[known - plain_of]);
    } else if (code < 0x10000) {
        snprintf(text, sizeof text, "\\u%04x", (unsigned)code);
    } else {
        code -= 0x10000;
        snprintf(text, sizeof text, "\\u%04x\\u%04x", (unsigned)(0xD800 + (code >> 10)),
                 (unsigned)(0xDC00 + (code & 0x3FF)));
    }
    return wf_jbuf_put(r, b, text, strlen(text), plain);
}

static wf_status put_json_string(wf_jrun *r, wf_jbuf *b, const wf_jstr *s, bool ascii)
{
    WF_TRY(wf_jbuf_text(r, b, "\""));
    size_t done = 0; /* runs without escapes are copied in one piece */
    for (size_t i = 0, length; i < s->bytes; i += length) {
        uint32_t code;
        length = wf_utf8_next(s->text + i, s->bytes - i, &code);
        if (code >= 0x20 && code != '"' && code != '\\' && !(ascii && code >= 0x7F))
            continue;
        WF_TRY(wf_jbuf_part(r, b, s, done, i));
        WF_TRY(put_json_escape(r, b, code, s->mark ? s->mark[i] & WF_J_PLAIN : s->plain));
        done = i + length;
    }
    WF_TRY(wf_jbuf_part(r, b, s, done, s->bytes));
    return wf_jbuf_text(r, b, "\"");
}

/* NaN and Infinity are not JSON, but json.dumps writes them. */
static wf_status put_json_number(wf_jrun *r, wf_jbuf *b, const wf_jvalue *v)
{
    if (v->kind == WF_J_FLOAT && !isfinite(v->u.number))
        return wf_jbuf_text(r, b,
                            isnan(v->u.number) ? "NaN"
                            : v->u.number > 0  ? "Infinity"
                                               : "-Infinity");
    return put_number(r, b, v);
}

static wf_status put_json(wf_jrun *r, wf_jbuf *b, const wf_jvalue *v, const wf_jjson *form,
                          size_t level);

/* Starts a line at `level`, if the form is indented. */
static wf_status new_line(wf_jrun *r, wf_jbuf *b, const wf_jjson *form, size_t level)
{
    if (!form->indent)
        return WF_OK;
    WF_TRY(wf_jbuf_text(r, b, "\n"));
    for (size_t i = 0; i < level && form->indent->bytes; i++)
        WF_TRY(wf_jbuf_str(r, b, form->indent));
    return WF_OK;
}

static wf_status put_json_list(wf_jrun *r, wf_jbuf *b, const wf_jseq *seq, const wf_jjson *form,
                               size_t level)
{
    if (seq->count == 0)
        return wf_jbuf_text(r, b, "[]");
    WF_TRY(wf_jbuf_text(r, b, "["));
    for (size_t i = 0; i < seq->count; i++) {
        if (i)
            WF_TRY(wf_jbuf_str(r, b, form->item));
        WF_TRY(new_line(r, b, form, level + 1));
        WF_TRY(put_json(r, b, &seq->item[i], form, level + 1));
    }
    WF_TRY(new_line(r, b, form, level));
    return wf_jbuf_text(r, b, "]");
}

/* Converts a key that is not a string, as json.dumps does. */
static wf_status put_json_key(wf_jrun *r, wf_jbuf *b, const wf_jvalue *key, const wf_jjson *form)
{
    if (key->kind == WF_J_STRING)
        return put_json_string(r, b, key->u.str, form->ascii);
    if (!wf_jis_number(key) && key->kind != WF_J_NONE)
        return wf_jrun_fail(r, "a %s cannot be a key in JSON", wf_jkind_name(key->kind));
    WF_TRY(wf_jbuf_text(r, b, "\""));
    WF_TRY(put_json(r, b, key, form, 0));
    return wf_jbuf_text(r, b, "\"");
}

/* Copies the entries into two arrays, which sort_keys may reorder. */
static wf_status put_json_dict(wf_jrun *r, wf_jbuf *b, const wf_jdict *d, const wf_jjson *form,
                               size_t level)
{
    if (d->count == 0)
        return wf_jbuf_text(r, b, "{}");
    wf_jvalue *key = wf_jrun_alloc(r, d->count, sizeof *key);
    wf_jvalue *value = wf_jrun_alloc(r, d->count, sizeof *value);
    if (!key || !value)
        return wf_jrun_failed(r);
    for (size_t i = 0; i < d->count; i++) {
        key[i] = d->entry[i].key;
        value[i] = d->entry[i].value;
    }
    /* Sorting copies: the dict's own order must not change. */
    if (form->sort_keys)
        WF_TRY(wf_jsort(r, key, value, d->count, false));
    WF_TRY(wf_jbuf_text(r, b, "{"));
    for (size_t i = 0; i < d->count; i++) {
        if (i)
            WF_TRY(wf_jbuf_str(r, b, form->item));
        WF_TRY(new_line(r, b, form, level + 1));
        WF_TRY(put_json_key(r, b, &key[i], form));
        WF_TRY(wf_jbuf_str(r, b, form->key));
        WF_TRY(put_json(r, b, &value[i], form, level + 1));
    }
    WF_TRY(new_line(r, b, form, level));
    return wf_jbuf_text(r, b, "}");
}

static wf_status put_json(wf_jrun *r, wf_jbuf *b, const wf_jvalue *v, const wf_jjson *form,
                          size_t level)
{
    WF_TRY(wf_jrun_enter(r));
    switch (v->kind) {
    case WF_J_NONE: WF_TRY(wf_jbuf_text(r, b, "null")); break;
    case WF_J_BOOL: WF_TRY(wf_jbuf_text(r, b, v->u.boolean ? "true" : "false")); break;
    case WF_J_INT:
    case WF_J_FLOAT: WF_TRY(put_json_number(r, b, v)); break;
    case WF_J_STRING: WF_TRY(put_json_string(r, b, v->u.str, form->ascii)); break;
    case WF_J_LIST:
    case WF_J_TUPLE: WF_TRY(put_json_list(r, b, v->u.seq, form, level)); break;
    case WF_J_DICT: WF_TRY(put_json_dict(r, b, v->u.dict, form, level)); break;
    default: return wf_jrun_fail(r, "a %s cannot be written as JSON", wf_jkind_name(v->kind));
    }
    wf_jrun_leave(r);
    return WF_OK;
}

wf_status wf_jprint_json(wf_jrun *r, wf_jbuf *b, wf_jvalue v, const wf_jjson *form)
{
    return put_json(r, b, &v, form, 0);
}
