/* SPDX-License-Identifier: MIT */
/*
 * filter.c - filters of single values: strings, numbers, JSON.
 *
 * Each filter is a row of the table at the end: name, function, parameters. self is the operand,
 * arg[i] the i-th parameter or WF_J_ABSENT. Results match jinja2's; tojson matches Hugging Face's,
 * which does not escape HTML.
 */
#include <math.h>
#include <stdio.h>

#include "text/jinja/run.h"
#include "text/jinja/string.h"

#define FILTER(name)                                                                              \
    static wf_status name(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, const wf_jargs *args, \
                          wf_jvalue *out)

#define UNUSED (void)arg, (void)args

/* ---- Text ---- */

/* Maps the first character and the rest to their cases. */
static wf_status change_case(wf_jrun *r, wf_jvalue v, wf_jcase first, wf_jcase rest, wf_jvalue *out)
{
    const wf_jstr *s;
    wf_jbuf b = {0};
    WF_TRY(wf_jstr_of(r, v, &s));
    size_t one = wf_jstr_offset(s, 1);
    wf_jstr head = wf_jstr_part(s, 0, one), tail = wf_jstr_part(s, one, s->bytes);
    WF_TRY(wf_jstr_map(r, &b, &head, first));
    WF_TRY(wf_jstr_map(r, &b, &tail, rest));
    return wf_jbuf_take(r, &b, out);
}

FILTER(filter_upper)
{
    UNUSED;
    return change_case(r, self, WF_J_UPPER, WF_J_UPPER, out);
}

FILTER(filter_lower)
{
    UNUSED;
    return change_case(r, self, WF_J_LOWER, WF_J_LOWER, out);
}

FILTER(filter_capitalize)
{
    UNUSED;
    return change_case(r, self, WF_J_TITLE, WF_J_LOWER, out);
}

/* A word begins after white space and after - ( { [ <. */
FILTER(filter_title)
{
    const wf_jstr *s;
    wf_jbuf b = {0};
    bool start = true;
    UNUSED;
    WF_TRY(wf_jstr_of(r, self, &s));
    for (size_t i = 0, length; i < s->bytes; i += length) {
        uint32_t code;
        length = wf_utf8_next(s->text + i, s->bytes - i, &code);
        wf_jstr one = wf_jstr_part(s, i, i + length);
        WF_TRY(wf_jstr_map(r, &b, &one, start ? WF_J_UPPER : WF_J_LOWER));
        start = wf_char_is_space(code) || (code && code < 0x80 && strchr("-({[<", (int)code));
    }
    return wf_jbuf_take(r, &b, out);
}

FILTER(filter_trim)
{
    const wf_jstr *s, *set = NULL;
    UNUSED;
    WF_TRY(wf_jstr_of(r, self, &s));
    if (arg[0].kind == WF_J_STRING)
        set = arg[0].u.str;
    else if (arg[0].kind != WF_J_ABSENT && arg[0].kind != WF_J_NONE)
        return wf_jrun_fail(r, "trim() takes a str, not a %s", wf_jkind_name(arg[0].kind));
    return wf_jstr_strip_set(r, s, set, WF_J_LEFT | WF_J_RIGHT, out);
}

FILTER(filter_string)
{
    const wf_jstr *s;
    UNUSED;
    WF_TRY(wf_jstr_of(r, self, &s));
    *out = wf_jstring(s);
    return WF_OK;
}

FILTER(filter_replace)
{
    const wf_jstr *s, *old, *with;
    int64_t count = -1;
    UNUSED;
    WF_TRY(wf_jstr_of(r, self, &s));
    WF_TRY(wf_jstr_of(r, arg[0], &old));
    WF_TRY(wf_jstr_of(r, arg[1], &with));
    if (arg[2].kind != WF_J_ABSENT && arg[2].kind != WF_J_NONE) {
        if (!wf_jis_int(&arg[2]))
            return wf_jrun_fail(r, "the count of replace() must be an integer");
        count = wf_jint_of(&arg[2]);
    }
    return wf_jstr_replace(r, s, old, with, count, out);
}

/* Finds the end of the line at `from`, and the start of the next one. */
static size_t line_end(const wf_jstr *s, size_t from, size_t *next)
{
    size_t at = from;
    while (at < s->bytes) {
        uint32_t code;
        size_t length = wf_utf8_next(s->text + at, s->bytes - at, &code);
        if (wf_char_is_break(code)) {
            *next = at + length;
            if (code == '\r' && *next < s->bytes && s->text[*next] == '\n')
                ++*next;
            return at;
        }
        at += length;
    }
    *next = at + 1; /* as if the text ended with a newline */
    return at;
}

/* Indents all lines but the first; blank lines only on request. Line breaks become \n. */
FILTER(filter_indent)
{
    wf_jbuf b = {0};
    wf_jvalue by = arg[0];
    UNUSED;
    if (self.kind != WF_J_STRING)
        return wf_jrun_fail(r, "indent() takes a str, not a %s", wf_jkind_name(self.kind));
    if (by.kind != WF_J_STRING) {
        static const wf_jstr space = {.text = " ", .bytes = 1};
        if (by.kind != WF_J_ABSENT && !wf_jis_int(&by))
            return wf_jrun_fail(r, "the width of indent() must be a number or a str");
        WF_TRY(wf_jstr_repeat(r, &space, by.kind == WF_J_ABSENT ? 4 : wf_jint_of(&by), &by));
    }
    bool first = wf_jtruth(&arg[1]), blank = wf_jtruth(&arg[2]);
    const wf_jstr *s = self.u.str;
    for (size_t from = 0, next; from <= s->bytes; from = next) {
        size_t end = line_end(s, from, &next);
        WF_TRY(wf_jrun_step(r, 1));
        if (from > 0)
            WF_TRY(wf_jbuf_text(r, &b, "\n"));
        if (from > 0 ? blank || end > from : first)
            WF_TRY(wf_jbuf_str(r, &b, by.u.str));
        WF_TRY(wf_jbuf_part(r, &b, s, from, end));
    }
    return wf_jbuf_take(r, &b, out);
}

/* Replacements take the mark of the byte that they replace. */
FILTER(filter_escape)
{
    static const char special[] = "&<>'\"";
    static const char *const safe[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const wf_jstr *s;
    wf_jbuf b = {0};
    UNUSED;
    WF_TRY(wf_jstr_of(r, self, &s));
    for (size_t i = 0; i < s->bytes; i++) {
        const char *found = s->text[i] ? strchr(special, s->text[i]) : NULL;
        if (found)
            WF_TRY(wf_jbuf_put(r, &b, safe[found - special], strlen(safe[found - special]),
                               s->mark ? s->mark[i] & WF_J_PLAIN : s->plain));
        else
            WF_TRY(wf_jbuf_part(r, &b, s, i, i + 1));
    }
    return wf_jbuf_take(r, &b, out);
}

FILTER(filter_format)
{
    const wf_jstr *s;
    wf_jvalue values;
    (void)arg;
    WF_TRY(wf_jstr_of(r, self, &s));
    if (args->npos && args->nnamed)
        return wf_jrun_fail(r, "format() takes named or positional values, not both");
    if (args->nnamed) {
        WF_TRY(wf_jdict_new(r, WF_J_DICT, &values));
        for (size_t i = 0; i < args->nnamed; i++)
            WF_TRY(wf_jdict_push(r, values.u.dict, wf_jstring(args->named[i].name),
                                 args->named[i].value));
    } else {
        WF_TRY(wf_jseq_new(r, WF_J_TUPLE, args->npos, &values));
        for (size_t i = 0; i < args->npos; i++)
            WF_TRY(wf_jseq_push(r, values.u.seq, args->pos[i]));
    }
    return wf_jformat(r, s, values, out);
}

/* ---- Any value ---- */

/* No-op: nothing is escaped automatically. (jinja2 would escape text that is added to a safe
 * string, even the quotes of JSON, which no template intends.) */
FILTER(filter_safe)
{
    UNUSED;
    return filter_string(r, self, arg, args, out);
}

/* The default replaces an undefined value; with a true second argument, every false value. */
FILTER(filter_default)
{
    static const wf_jstr empty = {.text = ""};
    (void)r, (void)args;
    *out = self;
    if (self.kind == WF_J_UNDEFINED || (wf_jtruth(&arg[1]) && !wf_jtruth(&self)))
        *out = arg[0].kind == WF_J_ABSENT ? wf_jstring(&empty) : arg[0];
    return WF_OK;
}

FILTER(filter_length)
{
    size_t n;
    UNUSED;
    WF_TRY(wf_jlength(r, self, &n));
    *out = wf_jint((int64_t)n);
    return WF_OK;
}

/* Looks up an attribute, never an item, of a dict. */
FILTER(filter_attr)
{
    const wf_jstr *name;
    (void)args;
    WF_TRY(wf_jstr_of(r, arg[0], &name));
    if (self.kind == WF_J_DICT) { /* attributes only, not items */
        *out = wf_jundefined(name);
        if (!wf_jmethod_find(WF_J_DICT, name))
            return WF_OK;
    }
    return wf_jget_attr(r, self, name, out);
}

/* Reads the two separators of tojson(separators=...). */
static wf_status read_separators(wf_jrun *r, const wf_jvalue *v, wf_jjson *form)
{
    if (v->kind == WF_J_ABSENT || v->kind == WF_J_NONE)
        return WF_OK;
    bool good = (v->kind == WF_J_TUPLE || v->kind == WF_J_LIST) && v->u.seq->count == 2 &&
                v->u.seq->item[0].kind == WF_J_STRING && v->u.seq->item[1].kind == WF_J_STRING;
    if (!good)
        return wf_jrun_fail(r, "the separators of tojson() must be two strings");
    form->item = v->u.seq->item[0].u.str;
    form->key = v->u.seq->item[1].u.str;
    return WF_OK;
}

FILTER(filter_tojson)
{
    static const wf_jstr comma_space = {.text = ", ", .bytes = 2},
                         comma = {.text = ",", .bytes = 1}, colon = {.text = ": ", .bytes = 2},
                         space = {.text = " ", .bytes = 1};
    wf_jjson form = {.ascii = wf_jtruth(&arg[0]),
                     .sort_keys = wf_jtruth(&arg[3]),
                     .item = &comma_space,
                     .key = &colon};
    wf_jvalue indent = arg[1];
    wf_jbuf b = {0};
    (void)args;
    if (wf_jis_int(&indent))
        WF_TRY(wf_jstr_repeat(r, &space, wf_jint_of(&indent), &indent));
    if (indent.kind == WF_J_STRING) {
        form.indent = indent.u.str;
        form.item = &comma;
    } else if (indent.kind != WF_J_ABSENT && indent.kind != WF_J_NONE) {
        return wf_jrun_fail(r, "the indent of tojson() must be a number or a str");
    }
    WF_TRY(read_separators(r, &arg[2], &form));
    WF_TRY(wf_jprint_json(r, &b, self, &form));
    return wf_jbuf_take(r, &b, out);
}

/* ---- Numbers ---- */

/* Parses a Python float literal; returns false for anything else. */
static bool text_to_double(const wf_jstr *s, double *out)
{
    char text[64];
    size_t n = 0;
    wf_jstr part = wf_jstr_strip(s, WF_J_LEFT | WF_J_RIGHT);
    if (part.bytes == 0 || part.bytes >= sizeof text)
        return false;
    for (size_t i = 0; i < part.bytes; i++)
        if (part.text[i] != '_')
            text[n++] = part.text[i];
    text[n] = '\0';
    const char *at = text;
    return wf_text_to_double(&at, out) && *at == '\0';
}

/* Parses an integer as Python's int(text, base); false: malformed or above 63 bits. Underscores are
 * ignored wherever they are. */
static bool text_to_int(const wf_jstr *s, int64_t base, int64_t *out)
{
    wf_jstr part = wf_jstr_strip(s, WF_J_LEFT | WF_J_RIGHT);
    bool negative = part.bytes && part.text[0] == '-';
    size_t i = part.bytes && (part.text[0] == '-' || part.text[0] == '+');
    if (base == 16 && part.bytes > i + 2 && part.text[i] == '0' && (part.text[i + 1] | 0x20) == 'x')
        i += 2;
    if (i == part.bytes)
        return false;
    for (*out = 0; i < part.bytes; i++) {
        char c = part.text[i];
        int64_t digit = c >= '0' && c <= '9' ? c - '0'
                        : (c | 0x20) >= 'a'  ? (c | 0x20) - 'a' + 10
                                             : 99;
        if (c == '_')
            continue;
        if (digit >= base || !wf_mul_i64(*out, base, out) || !wf_add_i64(*out, digit, out))
            return false;
    }
    *out = negative ? -*out : *out;
    return true;
}

/* Strings may be integers in the given base, or floats, which are truncated. Anything else gives
 * the default. */
FILTER(filter_int)
{
    int64_t base = arg[1].kind == WF_J_INT ? arg[1].u.integer : 10, whole;
    double number;
    (void)args;
    if (self.kind == WF_J_UNDEFINED)
        return wf_jrun_fail(r, "an undefined value is not a number");
    *out = arg[0].kind == WF_J_ABSENT ? wf_jint(0) : arg[0];
    if (self.kind == WF_J_STRING)
        WF_TRY(wf_jrun_step_bytes(r, self.u.str->bytes));
    if (wf_jis_int(&self)) {
        *out = wf_jint(wf_jint_of(&self));
    } else if (self.kind == WF_J_STRING && text_to_int(self.u.str, base, &whole)) {
        *out = wf_jint(whole);
    } else if (self.kind == WF_J_FLOAT ||
               (self.kind == WF_J_STRING && text_to_double(self.u.str, &number))) {
        number = self.kind == WF_J_FLOAT ? self.u.number : number;
        /* Below 2^63, so the conversion is defined. NaN gives the default. */
        if (fabs(number) < 9e18)
            *out = wf_jint((int64_t)number);
        else if (!isnan(number))
            return wf_jrun_fail(r, "a number is too large");
    }
    return WF_OK;
}

FILTER(filter_float)
{
    double number;
    (void)args;
    if (self.kind == WF_J_UNDEFINED)
        return wf_jrun_fail(r, "an undefined value is not a number");
    *out = arg[0].kind == WF_J_ABSENT ? wf_jfloat(0) : arg[0];
    if (self.kind == WF_J_STRING)
        WF_TRY(wf_jrun_step_bytes(r, self.u.str->bytes));
    if (wf_jis_number(&self))
        *out = wf_jfloat(wf_jfloat_of(&self));
    else if (self.kind == WF_J_STRING && text_to_double(self.u.str, &number))
        *out = wf_jfloat(number);
    return WF_OK;
}

FILTER(filter_abs)
{
    UNUSED;
    if (!wf_jis_number(&self))
        return wf_jrun_fail(r, "a %s is not a number", wf_jkind_name(self.kind));
    if (self.kind == WF_J_FLOAT)
        *out = wf_jfloat(fabs(self.u.number));
    else if (wf_jint_of(&self) < 0)
        return wf_jmath(r, '-', wf_jint(0), self, out);
    else
        *out = wf_jint(wf_jint_of(&self));
    return WF_OK;
}

/* Rounds to nearest, ties to even, based on the exact value, as Python does: printf rounds this
 * way. */
static double round_common(double value, int64_t digits)
{
    /* Room for the 309 digits before the point of the largest double, and 30 after it. */
    char text[400];
    if (digits < 0) {
        double unit = pow(10, (double)-digits);
        return nearbyint(value / unit) * unit;
    }
    snprintf(text, sizeof text, "%.*f", (int)digits, value);
    const char *s = text;
    wf_jstr part = wf_jstr_literal(text);
    double rounded = value;
    for (char *c = text; *c; c++) /* replace the locale's decimal point */
        if (!strchr("0123456789-", *c))
            *c = '.';
    /* Longer texts have a value above 2^53, which rounding leaves unchanged. */
    if (part.bytes < 56)
        wf_text_to_double(&s, &rounded);
    return rounded;
}

/* Rounds to a multiple of 10^places, places > 0, ties to even; exact, as in Python. Returns false
 * when the result exceeds 63 bits. */
static bool round_int(int64_t value, int64_t places, int64_t *out)
{
    uint64_t unit = 1, size = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    *out = 0;
    if (places > 19) /* half of 10^20 is larger than any value; 10^19 still fits in 64 bits */
        return true;
    for (int64_t i = 0; i < places; i++)
        unit *= 10;
    uint64_t rest = size % unit;
    bool up = rest > unit - rest || (rest == unit - rest && size / unit % 2 == 1);
    size += up ? unit - rest : 0 - rest;
    if (size > INT64_MAX)
        return false;
    *out = value < 0 ? -(int64_t)size : (int64_t)size;
    return true;
}

FILTER(filter_round)
{
    int64_t digits = arg[0].kind == WF_J_ABSENT ? 0 : wf_jint_of(&arg[0]);
    (void)args;
    if (!wf_jis_number(&self) || (arg[0].kind != WF_J_ABSENT && !wf_jis_int(&arg[0])))
        return wf_jrun_fail(r, "round() takes numbers");
    /* Keeps the text in round_common's buffer. */
    if (digits > 30 || digits < -30)
        return wf_jrun_fail(r, "the precision of round() must be from -30 to 30");
    bool common = arg[1].kind == WF_J_ABSENT ||
                  (arg[1].kind == WF_J_STRING && wf_jstr_is(arg[1].u.str, "common"));
    bool up = arg[1].kind == WF_J_STRING && wf_jstr_is(arg[1].u.str, "ceil");
    bool down = arg[1].kind == WF_J_STRING && wf_jstr_is(arg[1].u.str, "floor");
    if (!common && !up && !down)
        return wf_jrun_fail(r, "the method of round() must be common, ceil or floor");
    double value = wf_jfloat_of(&self);
    int64_t whole = wf_jis_int(&self) ? wf_jint_of(&self) : 0;
    if (common && digits < 0 && !round_int(whole, -digits, &whole))
        return wf_jrun_fail(r, "a number is too large");
    if (common && wf_jis_int(&self))
        *out = wf_jint(whole);
    else if (common)
        *out = wf_jfloat(isfinite(value) ? round_common(value, digits) : value);
    else
        *out = wf_jfloat(
            (up ? ceil(value * pow(10, (double)digits)) : floor(value * pow(10, (double)digits))) /
            pow(10, (double)digits));
    return WF_OK;
}

/* Name, function, parameters in order, how many are required. */
static const wf_jrow rows[] = {
    {"upper", filter_upper, "", 0},
    {"lower", filter_lower, "", 0},
    {"capitalize", filter_capitalize, "", 0},
    {"title", filter_title, "", 0},
    {"trim", filter_trim, "chars", 0},
    {"string", filter_string, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"indent", filter_indent, "width first blank", 0},
    {"e", filter_escape, "", 0},
    {"escape", filter_escape, "", 0},
    {"forceescape", filter_escape, "", 0},
    {"format", filter_format, "*", 0},
    {"safe", filter_safe, "", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"default", filter_default, "default_value boolean", 0},
    {"length", filter_length, "", 0},
    {"count", filter_length, "", 0},
    {"attr", filter_attr, "name", 1},
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"int", filter_int, "default base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, "", 0},
    {"round", filter_round, "precision method", 0},
};

const wf_jrow *wf_jfilter_find(const wf_jstr *name)
{
    const wf_jrow *row = wf_jrow_find(rows, sizeof rows / sizeof *rows, name);
    return row ? row : wf_jlist_filter_find(name);
}
