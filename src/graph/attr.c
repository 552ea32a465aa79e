/* SPDX-License-Identifier: MIT */
/*
 * attr.c - parses and prints attributes as text, by the field tables that attr.def generates.
 *
 * The form is "axis=1 keep=1 dims=[2,3]": names and values without quotes, separated by spaces. A
 * round trip is exact: reals are printed with as many digits as they need. The text may come from a
 * file, so every value is checked; shape rules check its meaning later.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/op.h"

static const char *skip_space(const char *s)
{
    while (*s == ' ')
        s++;
    return s;
}

/* Each parser reads a value at *s, advances *s past it and returns true. It returns false when no
 * valid value is there. */

/* Rejects numbers out of the range of int64_t (ERANGE). */
static bool parse_int(const char **s, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(*s, &end, 10);
    if (end == *s || errno != 0)
        return false;
    *s = end;
    *out = v;
    return true;
}

/* Accepts inf, but rejects a decimal number that overflows a double. */
static bool parse_real(const char **s, double *out)
{
    errno = 0;
    return wf_text_to_double(s, out) && !(errno == ERANGE && isinf(*out));
}

/* Names of types are shorter than the buffer; a longer word cannot be one. */
static bool parse_type(const char **s, wf_type *out)
{
    char word[16];
    size_t n = strcspn(*s, " ");
    if (n >= sizeof word)
        return false;
    memcpy(word, *s, n);
    word[n] = 0;
    *s += n;
    *out = wf_type_from_name(word);
    return *out != WF_TYPE_NONE;
}

/* [2,3] or [] */
static bool parse_dims(const char **s, wf_dims *out)
{
    wf_dims dims = {0};
    if (*(*s)++ != '[') /* at the end of the text this reads the terminator and fails */
        return false;
    while (**s != ']') {
        if (dims.n == WF_MAX_RANK || (dims.n > 0 && *(*s)++ != ','))
            return false;
        if (!parse_int(s, &dims.d[dims.n++]))
            return false;
    }
    (*s)++;
    *out = dims;
    return true;
}

/* Writes into the field of `attr`, which has the type of its kind (op.h). */
static bool parse_value(const char **s, const wf_attr_field *field, void *attr)
{
    void *to = (char *)attr + field->offset;
    switch (field->kind) {
    case WF_ATTR_INT:
    case WF_ATTR_STREAM: return parse_int(s, to);
    case WF_ATTR_REAL: return parse_real(s, to);
    case WF_ATTR_TYPE: return parse_type(s, to);
    case WF_ATTR_DIMS:
    case WF_ATTR_SHAPE: return parse_dims(s, to);
    }
    return false;
}

/* Other kinds have no default: they start as zero bytes. */
void wf_attr_defaults(const wf_op_def *def, void *attr)
{
    for (const wf_attr_field *f = def->fields; f->name; f++) {
        void *to = (char *)attr + f->offset;
        if (f->kind == WF_ATTR_INT)
            *(int64_t *)to = (int64_t)f->default_value;
        else if (f->kind == WF_ATTR_REAL)
            *(double *)to = f->default_value;
    }
}

/* `n` is the length of the unknown name, which does not end with a terminator. */
static wf_status no_such_attribute(wf_ctx *ctx, const wf_op_def *def, const char *name, int n)
{
    char known[256] = "none";
    size_t len = 0;
    for (const wf_attr_field *f = def->fields; f->name; f++)
        wf_text_append(known, sizeof known, &len, "%s%s", len ? ", " : "", f->name);
    return wf_fail(ctx, WF_ERR_USAGE, "%s has no attribute '%.*s'; its attributes: %s", def->name,
                   n, name, known);
}

wf_status wf_attr_parse(wf_ctx *ctx, const wf_op_def *def, const char *text, void *attr)
{
    const char *s = skip_space(text ? text : "");
    while (*s) {
        size_t n = strcspn(s, "= "); /* the name ends at '=' or, if '=' is missing, at a space */
        const wf_attr_field *field = def->fields;
        while (field->name && (strlen(field->name) != n || strncmp(field->name, s, n) != 0))
            field++;
        if (!field->name)
            return no_such_attribute(ctx, def, s, (int)n);
        s += n;
        if (*s != '=')
            return wf_fail(ctx, WF_ERR_USAGE, "%s: attribute %s must be followed by = and a value",
                           def->name, field->name);
        s++;
        /* A value must end at a space or at the end of the text. */
        if (!parse_value(&s, field, attr) || (*s && *s != ' '))
            return wf_fail(ctx, WF_ERR_USAGE, "%s: invalid value of attribute %s in '%s'",
                           def->name, field->name, text);
        s = skip_space(s);
    }
    return WF_OK;
}

void wf_attr_print(const wf_op_def *def, const void *attr, char *buf, size_t cap, size_t *len)
{
    for (const wf_attr_field *f = def->fields; f->name; f++) {
        const void *at = (const char *)attr + f->offset;
        wf_text_append(buf, cap, len, "%s%s=", f == def->fields ? "" : " ", f->name);
        switch (f->kind) {
        case WF_ATTR_INT:
        case WF_ATTR_STREAM:
            wf_text_append(buf, cap, len, "%lld", (long long)*(const int64_t *)at);
            break;
        case WF_ATTR_REAL: {
            char text[WF_TEXT_DOUBLE];
            wf_text_from_double(text, *(const double *)at);
            wf_text_append(buf, cap, len, "%s", text);
            break;
        }
        case WF_ATTR_TYPE:
            wf_text_append(buf, cap, len, "%s", wf_type_name(*(const wf_type *)at));
            break;
        case WF_ATTR_DIMS:
        case WF_ATTR_SHAPE: {
            const wf_dims *dims = at;
            for (int i = 0; i < dims->n; i++)
                wf_text_append(buf, cap, len, "%s%lld", i ? "," : "[", (long long)dims->d[i]);
            wf_text_append(buf, cap, len, dims->n ? "]" : "[]");
            break;
        }
        }
    }
}
