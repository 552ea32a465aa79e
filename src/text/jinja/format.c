/* SPDX-License-Identifier: MIT */
/*
 * format.c - "%s" % values, and "{}".format(values).
 *
 * Both forms parse a specification into `spec`, then print by put_number or put_text. Numbers are
 * printed by snprintf and freed of the host's locale. Padding is unmarked; text keeps its marks.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "text/jinja/run.h"
#include "text/jinja/string.h"

/* Bounds the output of one conversion, and keeps read_width far from overflow. */
#define MAX_WIDTH 10000
/* Room for the 309 digits of the largest double, 102 commas, the locale's decimal point, 60 digits
 * after it and a percent sign. */
#define NUMBER_BYTES 512
/* A conversion costs a call of snprintf, whatever its width. */
#define CONVERSION_STEPS 4

typedef struct {
    char fill;  /* 0: a space */
    char align; /* '<', '>', '^', '=' (after the sign); 0: the type's default */
    char sign;  /* '+', ' ' or 0 */
    bool alternate, commas;
    size_t width;  /* characters */
    int precision; /* -1: not given */
    char type;     /* 0: not given */
} spec;

/* Reads digits at text[*at]; returns false when the number is too large. */
static bool read_width(const wf_jstr *s, size_t *at, size_t *out)
{
    for (*out = 0; *at < s->bytes && s->text[*at] >= '0' && s->text[*at] <= '9'; ++*at) {
        *out = *out * 10 + (size_t)(s->text[*at] - '0');
        if (*out > MAX_WIDTH)
            return false;
    }
    return true;
}

/* Appends text, whose first `sign` bytes are a sign, padded to the width in characters. align: the
 * default if the specification has none. */
static wf_status put_filled(wf_jrun *r, wf_jbuf *b, const wf_jstr *text, size_t sign, const spec *f,
                            char align)
{
    size_t chars = wf_jstr_chars(text), gap = f->width > chars ? f->width - chars : 0;
    char fill = f->fill ? f->fill : ' ';
    align = f->align ? f->align : align;
    size_t left = align == '>' ? gap : align == '^' ? gap / 2 : 0;
    size_t inside = align == '=' ? gap : 0;
    WF_TRY(wf_jbuf_fill(r, b, fill, left));
    WF_TRY(wf_jbuf_part(r, b, text, 0, sign));
    WF_TRY(wf_jbuf_fill(r, b, fill, inside));
    WF_TRY(wf_jbuf_part(r, b, text, sign, text->bytes));
    return wf_jbuf_fill(r, b, fill, gap - left - inside);
}

/* Replaces the decimal point of the host program's locale. */
static void with_dot(char *text)
{
    size_t n = 0;
    for (const char *s = text; *s; s++) {
        /* An unknown byte is part of the locale's decimal point, which may have several bytes. Only
         * the last one, before a digit, becomes a dot. */
        bool known = strchr("0123456789+-einfaEINFA%", *s) != NULL;
        if (known)
            text[n++] = *s;
        else if (s[1] && strchr("0123456789", s[1]))
            text[n++] = '.';
    }
    text[n] = '\0';
}

/* Inserts a comma before every third digit of the integer part. */
static void insert_commas(char text[NUMBER_BYTES])
{
    size_t digits = strspn(text, "0123456789"), n = strlen(text);
    size_t commas = digits ? (digits - 1) / 3 : 0;
    wf_assert(n + commas < NUMBER_BYTES);
    memmove(text + digits + commas, text + digits, n - digits + 1);
    for (size_t i = digits, at = digits + commas, k = 1; i-- > 0; k++) {
        text[--at] = text[i];
        if (k % 3 == 0 && i > 0)
            text[--at] = ',';
    }
}

/* f->type is set: strchr would find 0 at the end of any string. */
static wf_status put_number(wf_jrun *r, wf_jbuf *b, const wf_jvalue *v, const spec *f)
{
    char digits[NUMBER_BYTES], text[sizeof digits + 8];
    int precision = f->precision < 0 ? 6 : f->precision > 60 ? 60 : f->precision;
    bool negative;
    if (strchr("eEfFgG%", f->type)) {
        double d = wf_jfloat_of(v) * (f->type == '%' ? 100 : 1);
        char type = f->type == '%' ? 'f' : f->type;
        negative = signbit(d);
        d = fabs(d);
        switch (type) { /* formats are literals, for the compiler to check */
        case 'e': snprintf(digits, sizeof digits, "%.*e", precision, d); break;
        case 'E': snprintf(digits, sizeof digits, "%.*E", precision, d); break;
        case 'g': snprintf(digits, sizeof digits, "%.*g", precision, d); break;
        case 'G': snprintf(digits, sizeof digits, "%.*G", precision, d); break;
        default: snprintf(digits, sizeof digits, "%.*f", precision, d); break;
        }
        with_dot(digits);
        if (f->type == '%')
            /* Fits: the number has at most 309 + 60 digits. */
            strcat(digits, "%");
    } else {
        int64_t whole = v->kind == WF_J_FLOAT ? (int64_t)v->u.number : wf_jint_of(v);
        /* Negated as unsigned, which is defined for INT64_MIN too. */
        uint64_t size = whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole;
        negative = whole < 0;
        const char *prefix = !f->alternate    ? ""
                             : f->type == 'x' ? "0x"
                             : f->type == 'X' ? "0X"
                             : f->type == 'o' ? "0o"
                                              : "";
        switch (f->type) {
        case 'x': snprintf(digits, sizeof digits, "%s%" PRIx64, prefix, size); break;
        case 'X': snprintf(digits, sizeof digits, "%s%" PRIX64, prefix, size); break;
        case 'o': snprintf(digits, sizeof digits, "%s%" PRIo64, prefix, size); break;
        default:
            snprintf(digits, sizeof digits, "%.*" PRIu64, f->precision < 0 ? 1 : precision, size);
            break;
        }
    }
    if (f->commas)
        insert_commas(digits);
    const char *sign = negative ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
    snprintf(text, sizeof text, "%s%s", sign, digits);
    wf_jstr s = wf_jstr_literal(text);
    return put_filled(r, b, &s, strlen(sign), f, '>');
}

/* Prints any value as str or repr, cut to the precision in characters, and pads it. */
static wf_status put_text(wf_jrun *r, wf_jbuf *b, wf_jvalue v, const spec *f, bool repr, char align)
{
    wf_jbuf own = {0};
    wf_jvalue text;
    WF_TRY(repr ? wf_jprint_repr(r, &own, v) : wf_jprint(r, &own, v));
    WF_TRY(wf_jbuf_take(r, &own, &text));
    wf_jstr s = *text.u.str;
    if (f->precision >= 0)
        s = wf_jstr_part(&s, 0, wf_jstr_offset(&s, (size_t)f->precision));
    return put_filled(r, b, &s, 0, f, align);
}

/* ---- % ---- */

typedef struct {
    wf_jvalue values;
    size_t next; /* index into a tuple; for a single value: 1 once it was used */
} source;

/* Returns the next value: of a tuple in turn, otherwise the value itself, once. */
static wf_status take(wf_jrun *r, source *from, wf_jvalue *out)
{
    bool tuple = from->values.kind == WF_J_TUPLE;
    if (from->next >= (tuple ? from->values.u.seq->count : 1))
        return wf_jrun_fail(r, "a format needs more values than were given");
    *out = tuple ? from->values.u.seq->item[from->next] : from->values;
    from->next++;
    return WF_OK;
}

/* Reads (name) at s->text[*at] and looks it up. */
static wf_status take_named(wf_jrun *r, const wf_jstr *s, size_t *at, source *from, wf_jvalue *out)
{
    size_t start = ++*at;
    while (*at < s->bytes && s->text[*at] != ')')
        ++*at;
    if (*at == s->bytes || from->values.kind != WF_J_DICT)
        return wf_jrun_fail(r, "a format with names needs a dict");
    wf_jentry *e;
    WF_TRY(wf_jdict_find_text(r, from->values.u.dict, s->text + start, *at - start, &e));
    if (!e)
        return wf_jrun_fail(r, "a format names a key that the dict does not have");
    ++*at;
    from->next = 1;
    *out = e->value;
    return WF_OK;
}

static wf_status read_percent_spec(wf_jrun *r, const wf_jstr *s, size_t *at, spec *f)
{
    size_t width;
    for (; *at < s->bytes && strchr("-+ 0#", s->text[*at]) && s->text[*at]; ++*at) {
        char c = s->text[*at];
        if (c == '-')
            f->align = '<';
        else if (c == '0' && f->align != '<')
            f->fill = '0', f->align = '=';
        else if (c == '#')
            f->alternate = true;
        else if (c == '+' || f->sign != '+')
            f->sign = c == '0' ? f->sign : c;
    }
    if (f->align == '<')
        f->fill = 0;
    if (!read_width(s, at, &f->width))
        return wf_jrun_fail(r, "the width of a format is too large");
    if (*at < s->bytes && s->text[*at] == '.') {
        ++*at;
        if (!read_width(s, at, &width))
            return wf_jrun_fail(r, "the precision of a format is too large");
        f->precision = (int)width;
    }
    while (*at < s->bytes && (s->text[*at] == 'l' || s->text[*at] == 'h'))
        ++*at;
    if (*at == s->bytes)
        return wf_jrun_fail(r, "a format ends after %%");
    f->type = s->text[(*at)++];
    return WF_OK;
}

/* Applies one conversion of the % operator: text for s, r and a, a character for c, otherwise a
 * number. */
static wf_status put_percent(wf_jrun *r, wf_jbuf *b, wf_jvalue v, spec *f)
{
    if (!f->type) /* strchr would find a NUL at the end of any string */
        return wf_jrun_fail(r, "a format has an invalid conversion after %%");
    if (strchr("sra", f->type)) {
        /* A zero pads numbers only. */
        if (f->fill == '0') {
            f->fill = 0;
            f->align = '>';
        }
        return put_text(r, b, v, f, f->type != 's', '>');
    }
    if (f->type == 'c' && v.kind == WF_J_STRING && wf_jstr_chars(v.u.str) == 1)
        return put_text(r, b, v, f, false, '>');
    if (f->type == 'c' && wf_jis_int(&v) && wf_jint_of(&v) >= 0 && wf_jint_of(&v) < 0xD800)
        return wf_jbuf_char(r, b, (uint32_t)wf_jint_of(&v), false);
    if (!strchr("diuxXoeEfFgG", f->type))
        return wf_jrun_fail(r, "a format has an invalid conversion after %%");
    if (!wf_jis_number(&v) || (strchr("xXo", f->type) && v.kind == WF_J_FLOAT) ||
        (v.kind == WF_J_FLOAT && strchr("diu", f->type) && !(fabs(v.u.number) < 9e18)))
        return wf_jrun_fail(r, "a format needs a number, not a %s", wf_jkind_name(v.kind));
    return put_number(r, b, &v, f);
}

/* Python's "text" % values. %(name)s reads from a dict; the others take the values of a tuple in
 * turn. */
wf_status wf_jformat(wf_jrun *r, const wf_jstr *s, wf_jvalue values, wf_jvalue *out)
{
    wf_jbuf b = {0};
    source from = {.values = values};
    for (size_t at = 0; at < s->bytes;) {
        size_t start = at;
        while (at < s->bytes && s->text[at] != '%')
            at++;
        WF_TRY(wf_jbuf_part(r, &b, s, start, at));
        if (at == s->bytes)
            break;
        at++;
        WF_TRY(wf_jrun_step(r, CONVERSION_STEPS));
        spec f = {.precision = -1};
        wf_jvalue v = wf_jnone();
        bool named = at < s->bytes && s->text[at] == '(';
        if (named)
            WF_TRY(take_named(r, s, &at, &from, &v));
        WF_TRY(read_percent_spec(r, s, &at, &f));
        if (f.type == '%') {
            WF_TRY(wf_jbuf_text(r, &b, "%"));
            continue;
        }
        if (!named)
            WF_TRY(take(r, &from, &v));
        WF_TRY(put_percent(r, &b, v, &f));
    }
    /* Python allows unused values that have items, which could be looked up by name, except
     * strings. */
    bool all = from.next == 1 || values.kind == WF_J_DICT || values.kind == WF_J_LIST ||
               values.kind == WF_J_RANGE || values.kind == WF_J_UNDEFINED;
    if (values.kind == WF_J_TUPLE)
        all = from.next == values.u.seq->count;
    if (!all)
        return wf_jrun_fail(r, "a format does not use all values");
    return wf_jbuf_take(r, &b, out);
}

/* ---- {} ---- */

/* Reads [[fill]align][sign][#][0][width][,][.precision][type], all of s. */
static wf_status read_brace_spec(wf_jrun *r, const wf_jstr *s, spec *f)
{
    size_t at = 0, width;
    if (s->bytes > 1 && strchr("<>^=", s->text[1]) && s->text[1]) {
        f->fill = s->text[0];
        f->align = s->text[1];
        at = 2;
    } else if (s->bytes && strchr("<>^=", s->text[0]) && s->text[0]) {
        f->align = s->text[at++];
    }
    if (at < s->bytes && strchr("+- ", s->text[at]) && s->text[at])
        f->sign = s->text[at++];
    if (at < s->bytes && s->text[at] == '#') {
        f->alternate = true;
        at++;
    }
    if (at < s->bytes && s->text[at] == '0') {
        f->fill = f->fill ? f->fill : '0';
        f->align = f->align ? f->align : '=';
        at++;
    }
    bool good = read_width(s, &at, &f->width);
    if (good && at < s->bytes && s->text[at] == ',') {
        f->commas = true;
        at++;
    }
    if (good && at < s->bytes && s->text[at] == '.') {
        at++;
        good =
            at < s->bytes && s->text[at] >= '0' && s->text[at] <= '9' && read_width(s, &at, &width);
        if (good)
            f->precision = (int)width;
    }
    if (good && at < s->bytes)
        f->type = s->text[at++];
    /* A NUL would count as a fill or type that is not given. */
    if (!good || at != s->bytes || (s->bytes && memchr(s->text, '\0', s->bytes)))
        return wf_jrun_fail(r, "a format has invalid text between { and }");
    return WF_OK;
}

/* Numbers without a specification print like str(); any part of one selects put_number. */
static wf_status put_brace(wf_jrun *r, wf_jbuf *b, wf_jvalue v, spec *f)
{
    if (v.kind == WF_J_STRING || v.kind == WF_J_UNDEFINED) {
        if ((f->type && f->type != 's') || f->sign || f->commas || f->align == '=')
            return wf_jrun_fail(r, "a format needs a number, not a %s", wf_jkind_name(v.kind));
        return put_text(r, b, v, f, false, '<');
    }
    bool plain = !f->type && f->precision < 0;
    if (wf_jis_number(&v) && v.kind != WF_J_BOOL && (f->type || !plain || f->commas || f->sign)) {
        bool is_float = strchr("eEfFgG%", f->type ? f->type : '?') != NULL;
        if (f->type && !is_float && (!strchr("dxXo", f->type) || v.kind == WF_J_FLOAT))
            return wf_jrun_fail(r, "a format cannot be applied to a %s", wf_jkind_name(v.kind));
        if (!f->type && v.kind == WF_J_FLOAT)
            f->type = 'g';
        else if (!f->type && f->precision >= 0)
            return wf_jrun_fail(r, "the format of an integer cannot have a precision");
        f->type = f->type ? f->type : 'd';
        return put_number(r, b, &v, f);
    }
    if (!wf_jis_number(&v) && (f->width || !plain))
        return wf_jrun_fail(r, "a format cannot be applied to a %s", wf_jkind_name(v.kind));
    return put_text(r, b, v, f, false, wf_jis_number(&v) ? '>' : '<');
}

/* Evaluates {field}: empty, a number or a name; .attribute and [item] are not supported. */
static wf_status find_field(wf_jrun *r, const wf_jstr *field, const wf_jargs *args, size_t *next,
                            wf_jvalue *out)
{
    size_t n = 0, index = 0, at = 0;
    while (n < field->bytes && field->text[n] != '.' && field->text[n] != '[')
        n++;
    wf_jstr name = wf_jstr_part(field, 0, n);
    bool number = n > 0 && read_width(&name, &at, &index) && at == n;
    if (n == 0)
        index = (*next)++;
    if (n == 0 || number) {
        if (index >= args->npos)
            return wf_jrun_fail(r, "a format needs more values than were given");
        *out = args->pos[index];
    } else {
        size_t i = 0;
        bool same = false;
        WF_TRY(wf_jrun_step_items(r, args->nnamed));
        for (; i < args->nnamed; i++) {
            WF_TRY(wf_jstr_same(r, args->named[i].name, &name, &same));
            if (same)
                break;
        }
        if (i == args->nnamed)
            return wf_jrun_fail(r, "a format names a value that was not given");
        *out = args->named[i].value;
    }
    if (n < field->bytes)
        return wf_jrun_fail(r, "a format cannot use attributes or items of a value");
    return WF_OK;
}

/* Prints one {field!conversion:specification}; `inside` is the text between the braces. */
static wf_status put_field(wf_jrun *r, wf_jbuf *b, const wf_jstr *inside, const wf_jargs *args,
                           size_t *next)
{
    wf_jvalue v;
    spec f = {.precision = -1};
    size_t n = 0, end;
    while (n < inside->bytes && inside->text[n] != ':' && inside->text[n] != '!')
        n++;
    wf_jstr field = wf_jstr_part(inside, 0, n);
    WF_TRY(find_field(r, &field, args, next, &v));
    end = n;
    if (n < inside->bytes && inside->text[n] == '!') {
        char to = n + 1 < inside->bytes ? inside->text[n + 1] : '?';
        end = n + 2;
        if (to != '\0' && to != 's' && to != 'r') /* CPython takes a NUL as no conversion */
            return wf_jrun_fail(r, "a format has invalid text between { and }");
        wf_jbuf own = {0};
        if (to)
            WF_TRY(to == 'r' ? wf_jprint_repr(r, &own, v) : wf_jprint(r, &own, v));
        if (to)
            WF_TRY(wf_jbuf_take(r, &own, &v));
    }
    if (end < inside->bytes) {
        wf_jstr rest = wf_jstr_part(inside, end + 1, inside->bytes);
        if (inside->text[end] != ':')
            return wf_jrun_fail(r, "a format has invalid text between { and }");
        WF_TRY(read_brace_spec(r, &rest, &f));
    }
    return put_brace(r, b, v, &f);
}

/* Python's str.format without nested fields. */
wf_status wf_jformat_braces(wf_jrun *r, const wf_jstr *s, const wf_jargs *args, wf_jvalue *out)
{
    wf_jbuf b = {0};
    size_t next = 0;
    for (size_t at = 0; at < s->bytes;) {
        char c = s->text[at];
        if (c != '{' && c != '}') {
            size_t start = at;
            while (at < s->bytes && s->text[at] != '{' && s->text[at] != '}')
                at++;
            WF_TRY(wf_jbuf_part(r, &b, s, start, at));
            continue;
        }
        if (at + 1 < s->bytes && s->text[at + 1] == c) { /* a doubled brace is a literal one */
            WF_TRY(wf_jbuf_part(r, &b, s, at, at + 1));
            at += 2;
            continue;
        }
        size_t end = at + 1;
        while (end < s->bytes && s->text[end] != '}' && s->text[end] != '{')
            end++;
        if (c == '}' || end >= s->bytes || s->text[end] == '{')
            return wf_jrun_fail(r, "a format has an unmatched brace");
        wf_jstr inside = wf_jstr_part(s, at + 1, end);
        WF_TRY(wf_jrun_step(r, CONVERSION_STEPS));
        WF_TRY(wf_jrun_step_bytes(r, inside.bytes));
        WF_TRY(put_field(r, &b, &inside, args, &next));
        at = end + 1;
    }
    return wf_jbuf_take(r, &b, out);
}
