/* SPDX-License-Identifier: MIT */
/*
 * method_str.c - methods of strings, with Python's semantics.
 *
 * Positions are characters for templates and bytes inside; search_span converts. Results keep the
 * marks of their source. isdigit and the like know ASCII only.
 */
#include "text/jinja/run.h"
#include "text/jinja/string.h"

#define METHOD(name)                                                                              \
    static wf_status name(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, const wf_jargs *args, \
                          wf_jvalue *out)

#define UNUSED (void)r, (void)arg, (void)args

/* Reads a string argument; *out is NULL if it is optional and absent or None. */
static wf_status text_arg(wf_jrun *r, const wf_jvalue *v, bool optional, const wf_jstr **out)
{
    *out = NULL;
    if (v->kind == WF_J_STRING)
        *out = v->u.str;
    else if (!optional || (v->kind != WF_J_ABSENT && v->kind != WF_J_NONE))
        return wf_jrun_fail(r, "a method of str takes a str, not a %s", wf_jkind_name(v->kind));
    return WF_OK;
}

/* Reads an integer argument; absent: `otherwise`. */
static wf_status int_arg(wf_jrun *r, const wf_jvalue *v, int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (wf_jis_int(v))
        *out = wf_jint_of(v);
    else if (v->kind != WF_J_ABSENT)
        return wf_jrun_fail(r, "a method of str takes an integer, not a %s",
                            wf_jkind_name(v->kind));
    return WF_OK;
}

/* ---- Splitting ---- */

static wf_status strip(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, int sides, wf_jvalue *out)
{
    const wf_jstr *set;
    WF_TRY(text_arg(r, &arg[0], true, &set));
    return wf_jstr_strip_set(r, self.u.str, set, sides, out);
}

METHOD(str_strip)
{
    UNUSED;
    return strip(r, self, arg, WF_J_LEFT | WF_J_RIGHT, out);
}

METHOD(str_lstrip)
{
    UNUSED;
    return strip(r, self, arg, WF_J_LEFT, out);
}

METHOD(str_rstrip)
{
    UNUSED;
    return strip(r, self, arg, WF_J_RIGHT, out);
}

/* Appends bytes [from, end) of s as a string that shares its memory. */
static wf_status push_part(wf_jrun *r, wf_jseq *to, const wf_jstr *s, size_t from, size_t end)
{
    wf_jvalue part;
    WF_TRY(wf_jstr_new(r, wf_jstr_part(s, from, end), &part));
    return wf_jseq_push(r, to, part);
}

/* Splits at white space from the left, at most `most` times; the last word is the rest. */
static wf_status split_words(wf_jrun *r, const wf_jstr *s, int64_t most, wf_jseq *to)
{
    wf_jstr rest = wf_jstr_strip(s, WF_J_LEFT);
    WF_TRY(wf_jrun_step_bytes(r, s->bytes));
    for (; rest.bytes > 0; most -= most > 0) {
        size_t end = 0;
        uint32_t code;
        if (most == 0)
            return push_part(r, to, &rest, 0, rest.bytes);
        while (end < rest.bytes) {
            size_t length = wf_utf8_next(rest.text + end, rest.bytes - end, &code);
            if (wf_char_is_space(code))
                break;
            end += length;
        }
        WF_TRY(push_part(r, to, &rest, 0, end));
        rest = wf_jstr_part(&rest, end, rest.bytes);
        rest = wf_jstr_strip(&rest, WF_J_LEFT);
    }
    return WF_OK;
}

/* The same from the right; the words are returned in reverse order. */
static wf_status rsplit_words(wf_jrun *r, const wf_jstr *s, int64_t most, wf_jseq *to)
{
    wf_jstr rest = wf_jstr_strip(s, WF_J_RIGHT);
    WF_TRY(wf_jrun_step_bytes(r, s->bytes));
    for (; rest.bytes > 0; most -= most > 0) {
        if (most == 0)
            return push_part(r, to, &rest, 0, rest.bytes);
        /* Scans from the left, since UTF-8 white space cannot be recognised backwards by one byte.
         * Quadratic in the words; the steps below charge it. */
        size_t start = 0;
        for (size_t i = 0, length; i < rest.bytes; i += length) {
            uint32_t code;
            length = wf_utf8_next(rest.text + i, rest.bytes - i, &code);
            if (wf_char_is_space(code))
                start = i + length;
        }
        WF_TRY(wf_jrun_step_bytes(r, rest.bytes));
        WF_TRY(push_part(r, to, &rest, start, rest.bytes));
        rest = wf_jstr_part(&rest, 0, start);
        rest = wf_jstr_strip(&rest, WF_J_RIGHT);
    }
    return WF_OK;
}

/* Splits at `by`, at most `most` times, from the left or (last) from the right. From the right the
 * parts come in reverse order. */
static wf_status split_at(wf_jrun *r, const wf_jstr *s, const wf_jstr *by, int64_t most, bool last,
                          wf_jseq *to)
{
    size_t from = 0, end = s->bytes, found;
    for (; most != 0; most -= most > 0) {
        WF_TRY(wf_jstr_find(r, s, from, end, by, last, &found));
        if (found == WF_J_NOWHERE)
            break;
        if (last)
            WF_TRY(push_part(r, to, s, found + by->bytes, end));
        else
            WF_TRY(push_part(r, to, s, from, found));
        if (last)
            end = found;
        else
            from = found + by->bytes;
    }
    return push_part(r, to, s, from, end);
}

/* Splits at `by`, or at white space without it. Parts found from the right are put into order at
 * the end. */
static wf_status split(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, bool last, wf_jvalue *out)
{
    const wf_jstr *by;
    int64_t most;
    WF_TRY(text_arg(r, &arg[0], true, &by));
    WF_TRY(int_arg(r, &arg[1], -1, &most));
    if (by && by->bytes == 0)
        return wf_jrun_fail(r, "the separator is empty");
    WF_TRY(wf_jseq_new(r, WF_J_LIST, 0, out));
    wf_jseq *to = out->u.seq;
    if (by)
        WF_TRY(split_at(r, self.u.str, by, most, last, to));
    else if (last)
        WF_TRY(rsplit_words(r, self.u.str, most, to));
    else
        WF_TRY(split_words(r, self.u.str, most, to));
    for (size_t i = 0; last && i < to->count / 2; i++) {
        wf_jvalue swap = to->item[i];
        to->item[i] = to->item[to->count - 1 - i];
        to->item[to->count - 1 - i] = swap;
    }
    return WF_OK;
}

METHOD(str_split)
{
    UNUSED;
    return split(r, self, arg, false, out);
}

METHOD(str_rsplit)
{
    UNUSED;
    return split(r, self, arg, true, out);
}

/* The last line needs no line break; an empty rest is not a line. */
METHOD(str_splitlines)
{
    const wf_jstr *s = self.u.str;
    size_t from = 0;
    (void)args;
    WF_TRY(wf_jrun_step_bytes(r, s->bytes));
    WF_TRY(wf_jseq_new(r, WF_J_LIST, 0, out));
    for (size_t i = 0; i < s->bytes;) {
        uint32_t code;
        size_t end = i;
        i += wf_utf8_next(s->text + i, s->bytes - i, &code);
        if (!wf_char_is_break(code))
            continue;
        if (code == '\r' && i < s->bytes && s->text[i] == '\n')
            i++;
        WF_TRY(push_part(r, out->u.seq, s, from, wf_jtruth(&arg[0]) ? i : end));
        from = i;
    }
    return from < s->bytes ? push_part(r, out->u.seq, s, from, s->bytes) : WF_OK;
}

/* Returns the text before, the separator and the text after; without a match the text and two empty
 * strings. */
static wf_status partition(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, bool last,
                           wf_jvalue *out)
{
    const wf_jstr *by, *s = self.u.str;
    size_t at;
    WF_TRY(text_arg(r, &arg[0], false, &by));
    if (by->bytes == 0)
        return wf_jrun_fail(r, "the separator is empty");
    WF_TRY(wf_jstr_find(r, s, 0, s->bytes, by, last, &at));
    size_t from = at == WF_J_NOWHERE ? (last ? 0 : s->bytes) : at;
    size_t to = at == WF_J_NOWHERE ? from : at + by->bytes;
    WF_TRY(wf_jseq_new(r, WF_J_TUPLE, 3, out));
    WF_TRY(push_part(r, out->u.seq, s, 0, from));
    WF_TRY(push_part(r, out->u.seq, s, from, to));
    return push_part(r, out->u.seq, s, to, s->bytes);
}

METHOD(str_partition)
{
    UNUSED;
    return partition(r, self, arg, false, out);
}

METHOD(str_rpartition)
{
    UNUSED;
    return partition(r, self, arg, true, out);
}

/* ---- Searching ---- */

/* Converts the character range [start, end) to byte offsets, with Python's rules. *valid is false
 * when start is after the end. */
static wf_status search_span(wf_jrun *r, const wf_jstr *s, const wf_jvalue *start,
                             const wf_jvalue *end, size_t *from, size_t *to, bool *valid)
{
    int64_t chars = (int64_t)wf_jstr_chars(s), first = 0, last = chars;
    *valid = true;
    *from = 0;
    *to = s->bytes;
    WF_TRY(wf_jrun_step_bytes(r, s->bytes));
    if (start->kind != WF_J_NONE)
        WF_TRY(int_arg(r, start, 0, &first));
    if (end->kind != WF_J_NONE)
        WF_TRY(int_arg(r, end, chars, &last));
    first = first < 0 ? (first < -chars ? 0 : first + chars) : first;
    last = last < 0 ? (last < -chars ? 0 : last + chars) : last > chars ? chars : last;
    *valid = first <= last;
    if (*valid) {
        *from = wf_jstr_offset(s, (size_t)first);
        *to = wf_jstr_offset(s, (size_t)last);
    }
    return WF_OK;
}

/* Finds a substring; must: fails when it is missing, otherwise -1. */
static wf_status find(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, bool last, bool must,
                      wf_jvalue *out)
{
    const wf_jstr *what;
    size_t from, to, at = WF_J_NOWHERE;
    bool valid;
    WF_TRY(text_arg(r, &arg[0], false, &what));
    WF_TRY(search_span(r, self.u.str, &arg[1], &arg[2], &from, &to, &valid));
    if (valid)
        WF_TRY(wf_jstr_find(r, self.u.str, from, to, what, last, &at));
    if (at == WF_J_NOWHERE && must)
        return wf_jrun_fail(r, "index() did not find the substring");
    wf_jstr before = wf_jstr_part(self.u.str, 0, at == WF_J_NOWHERE ? 0 : at);
    *out = wf_jint(at == WF_J_NOWHERE ? -1 : (int64_t)wf_jstr_chars(&before));
    return WF_OK;
}

METHOD(str_find)
{
    UNUSED;
    return find(r, self, arg, false, false, out);
}

METHOD(str_rfind)
{
    UNUSED;
    return find(r, self, arg, true, false, out);
}

METHOD(str_index)
{
    UNUSED;
    return find(r, self, arg, false, true, out);
}

METHOD(str_rindex)
{
    UNUSED;
    return find(r, self, arg, true, true, out);
}

METHOD(str_count)
{
    const wf_jstr *what;
    size_t from, to, at;
    int64_t count = 0;
    bool valid;
    (void)args;
    WF_TRY(text_arg(r, &arg[0], false, &what));
    WF_TRY(search_span(r, self.u.str, &arg[1], &arg[2], &from, &to, &valid));
    /* An empty string is found between all characters and at both ends. */
    if (valid && what->bytes == 0) {
        wf_jstr part = wf_jstr_part(self.u.str, from, to);
        *out = wf_jint((int64_t)wf_jstr_chars(&part) + 1);
        return WF_OK;
    }
    /* Occurrences that do not overlap. what is not empty here, so from advances. */
    for (; valid; from = at + what->bytes, count++) {
        WF_TRY(wf_jrun_step(r, 1));
        WF_TRY(wf_jstr_find(r, self.u.str, from, to, what, false, &at));
        if (at == WF_J_NOWHERE)
            break;
    }
    *out = wf_jint(count);
    return WF_OK;
}

/* Tests a prefix or (last) suffix; a tuple matches if any of its strings does. */
static wf_status has_end(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, bool last,
                         wf_jvalue *out)
{
    size_t from, to;
    bool valid, found = false;
    bool tuple = arg[0].kind == WF_J_TUPLE;
    WF_TRY(search_span(r, self.u.str, &arg[1], &arg[2], &from, &to, &valid));
    for (size_t i = 0; i < (tuple ? arg[0].u.seq->count : 1) && !found; i++) {
        const wf_jstr *what;
        WF_TRY(wf_jrun_step(r, 1));
        WF_TRY(text_arg(r, tuple ? &arg[0].u.seq->item[i] : &arg[0], false, &what));
        found = valid && to - from >= what->bytes &&
                memcmp(self.u.str->text + (last ? to - what->bytes : from), what->text,
                       what->bytes) == 0;
        WF_TRY(wf_jrun_step_bytes(r, what->bytes));
    }
    *out = wf_jbool(found);
    return WF_OK;
}

METHOD(str_startswith)
{
    UNUSED;
    return has_end(r, self, arg, false, out);
}

METHOD(str_endswith)
{
    UNUSED;
    return has_end(r, self, arg, true, out);
}

METHOD(str_removeprefix)
{
    wf_jvalue there;
    UNUSED;
    WF_TRY(has_end(r, self, arg, false, &there));
    *out = self;
    /* has_end also accepts a tuple, which removeprefix and removesuffix do not. */
    if (!there.u.boolean || arg[0].kind != WF_J_STRING)
        return WF_OK;
    return wf_jstr_new(r, wf_jstr_part(self.u.str, arg[0].u.str->bytes, self.u.str->bytes), out);
}

METHOD(str_removesuffix)
{
    wf_jvalue there;
    UNUSED;
    WF_TRY(has_end(r, self, arg, true, &there));
    *out = self;
    if (!there.u.boolean || arg[0].kind != WF_J_STRING)
        return WF_OK;
    return wf_jstr_new(r, wf_jstr_part(self.u.str, 0, self.u.str->bytes - arg[0].u.str->bytes),
                       out);
}

/* ---- Transformations ---- */

static wf_status map_case(wf_jrun *r, wf_jvalue self, wf_jcase to, wf_jvalue *out)
{
    wf_jbuf b = {0};
    WF_TRY(wf_jstr_map(r, &b, self.u.str, to));
    return wf_jbuf_take(r, &b, out);
}

METHOD(str_upper)
{
    UNUSED;
    return map_case(r, self, WF_J_UPPER, out);
}

METHOD(str_lower)
{
    UNUSED;
    return map_case(r, self, WF_J_LOWER, out);
}

METHOD(str_capitalize)
{
    const wf_jstr *s = self.u.str;
    size_t one = wf_jstr_offset(s, 1);
    wf_jstr head = wf_jstr_part(s, 0, one), tail = wf_jstr_part(s, one, s->bytes);
    wf_jbuf b = {0};
    UNUSED;
    WF_TRY(wf_jstr_map(r, &b, &head, WF_J_TITLE));
    WF_TRY(wf_jstr_map(r, &b, &tail, WF_J_LOWER));
    return wf_jbuf_take(r, &b, out);
}

/* title: each run of letters starts with an uppercase letter. swapcase: inverts the case of each
 * letter. */
static wf_status map_letters(wf_jrun *r, wf_jvalue self, bool swap, wf_jvalue *out)
{
    const wf_jstr *s = self.u.str;
    wf_jbuf b = {0};
    bool inside = false;
    for (size_t i = 0, length; i < s->bytes; i += length) {
        uint32_t code, lower[3];
        length = wf_utf8_next(s->text + i, s->bytes - i, &code);
        wf_jstr one = wf_jstr_part(s, i, i + length);
        bool large = wf_char_map(code, WF_J_LOWER, lower) != 1 || lower[0] != code;
        wf_jcase to = swap ? (large ? WF_J_LOWER : WF_J_UPPER) : inside ? WF_J_LOWER : WF_J_TITLE;
        WF_TRY(wf_jstr_map(r, &b, &one, to));
        inside = wf_char_is_cased(code);
    }
    return wf_jbuf_take(r, &b, out);
}

METHOD(str_title)
{
    UNUSED;
    return map_letters(r, self, false, out);
}

METHOD(str_swapcase)
{
    UNUSED;
    return map_letters(r, self, true, out);
}

METHOD(str_replace)
{
    const wf_jstr *old, *with;
    int64_t count;
    (void)args;
    WF_TRY(text_arg(r, &arg[0], false, &old));
    WF_TRY(text_arg(r, &arg[1], false, &with));
    WF_TRY(int_arg(r, &arg[2], -1, &count));
    return wf_jstr_replace(r, self.u.str, old, with, count, out);
}

METHOD(str_join)
{
    wf_jseq *seq;
    wf_jbuf b = {0};
    (void)args;
    WF_TRY(wf_jwalk(r, arg[0], &seq));
    for (size_t i = 0; i < seq->count; i++) {
        const wf_jstr *item;
        WF_TRY(text_arg(r, &seq->item[i], false, &item));
        if (i)
            WF_TRY(wf_jbuf_str(r, &b, self.u.str));
        WF_TRY(wf_jbuf_str(r, &b, item));
    }
    return wf_jbuf_take(r, &b, out);
}

METHOD(str_format)
{
    (void)arg;
    return wf_jformat_braces(r, self.u.str, args, out);
}

/* Pads to a width on the left and right. */
static wf_status pad(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, bool left, bool right,
                     wf_jvalue *out)
{
    static const wf_jstr space = {.text = " ", .bytes = 1};
    const wf_jstr *fill, *s = self.u.str;
    int64_t width, chars = (int64_t)wf_jstr_chars(s);
    wf_jbuf b = {0};
    WF_TRY(int_arg(r, &arg[0], 0, &width));
    WF_TRY(text_arg(r, &arg[1], arg[1].kind == WF_J_ABSENT, &fill));
    fill = fill ? fill : &space;
    if (wf_jstr_chars(fill) != 1)
        return wf_jrun_fail(r, "the fill must be a single character");
    /* A huge width fails in wf_jbuf_str, at the limit of memory or steps. */
    int64_t gap = width > chars ? width - chars : 0;
    /* Python's center puts the extra space left if gap and width are both odd. */
    int64_t before = left && right ? gap / 2 + (gap & width & 1) : left ? gap : 0;
    for (int64_t i = 0; i < before; i++)
        WF_TRY(wf_jbuf_str(r, &b, fill));
    WF_TRY(wf_jbuf_str(r, &b, s));
    for (int64_t i = before; i < gap; i++)
        WF_TRY(wf_jbuf_str(r, &b, fill));
    WF_TRY(wf_jrun_step(r, (size_t)gap));
    return wf_jbuf_take(r, &b, out);
}

METHOD(str_ljust)
{
    UNUSED;
    return pad(r, self, arg, false, true, out);
}

METHOD(str_rjust)
{
    UNUSED;
    return pad(r, self, arg, true, false, out);
}

METHOD(str_center)
{
    UNUSED;
    return pad(r, self, arg, true, true, out);
}

/* Pads with zeros after a sign. */
METHOD(str_zfill)
{
    const wf_jstr *s = self.u.str;
    int64_t width;
    (void)args;
    wf_jbuf b = {0};
    WF_TRY(int_arg(r, &arg[0], 0, &width));
    size_t chars = wf_jstr_chars(s), sign = s->bytes && (s->text[0] == '-' || s->text[0] == '+');
    WF_TRY(wf_jbuf_part(r, &b, s, 0, sign));
    if (width > (int64_t)chars)
        WF_TRY(wf_jbuf_fill(r, &b, '0', (size_t)width - chars));
    WF_TRY(wf_jbuf_part(r, &b, s, sign, s->bytes));
    return wf_jbuf_take(r, &b, out);
}

/* ---- Predicates ---- */

/* False for the empty string, as in Python. */
static wf_status all_are(wf_jrun *r, wf_jvalue self, bool (*is)(uint32_t), wf_jvalue *out)
{
    const wf_jstr *s = self.u.str;
    bool all = s->bytes > 0;
    size_t i = 0;
    while (i < s->bytes && all) {
        uint32_t code;
        i += wf_utf8_next(s->text + i, s->bytes - i, &code);
        all = is(code);
    }
    *out = wf_jbool(all);
    return wf_jrun_step_bytes(r, i);
}

static bool is_digit(uint32_t code)
{
    return code >= '0' && code <= '9';
}

METHOD(str_isspace)
{
    UNUSED;
    return all_are(r, self, wf_char_is_space, out);
}

METHOD(str_isdigit)
{
    UNUSED;
    return all_are(r, self, is_digit, out);
}

/* Delegates to the test of the same meaning in test.c. */
static wf_status ask_test(wf_jrun *r, wf_jvalue self, const char *name, wf_jvalue *out)
{
    wf_jstr s = wf_jstr_literal(name);
    const wf_jargs none = {0};
    return wf_jrow_call(r, wf_jtest_find(&s), self, &none, out);
}

METHOD(str_islower)
{
    UNUSED;
    return ask_test(r, self, "lower", out);
}

METHOD(str_isupper)
{
    UNUSED;
    return ask_test(r, self, "upper", out);
}

/* A method of Python's str that templates do not use: it is defined, but calling it fails. */
METHOD(str_unsupported)
{
    UNUSED;
    (void)self, (void)out;
    return wf_jrun_fail(r, "this method of str is not supported");
}

static const wf_jrow rows[] = {
    {"strip", str_strip, "chars", 0},
    {"lstrip", str_lstrip, "chars", 0},
    {"rstrip", str_rstrip, "chars", 0},
    {"split", str_split, "sep maxsplit", 0},
    {"rsplit", str_rsplit, "sep maxsplit", 0},
    {"splitlines", str_splitlines, "keepends", 0},
    {"partition", str_partition, "sep", 1},
    {"rpartition", str_rpartition, "sep", 1},
    {"find", str_find, "sub start end", 1},
    {"rfind", str_rfind, "sub start end", 1},
    {"index", str_index, "sub start end", 1},
    {"rindex", str_rindex, "sub start end", 1},
    {"count", str_count, "sub start end", 1},
    {"startswith", str_startswith, "prefix start end", 1},
    {"endswith", str_endswith, "suffix start end", 1},
    {"removeprefix", str_removeprefix, "prefix", 1},
    {"removesuffix", str_removesuffix, "suffix", 1},
    {"upper", str_upper, "", 0},
    {"lower", str_lower, "", 0},
    {"casefold", str_lower, "", 0},
    {"capitalize", str_capitalize, "", 0},
    {"title", str_title, "", 0},
    {"swapcase", str_swapcase, "", 0},
    {"replace", str_replace, "old new count", 2},
    {"join", str_join, "iterable", 1},
    {"format", str_format, "*", 0},
    {"ljust", str_ljust, "width fillchar", 1},
    {"rjust", str_rjust, "width fillchar", 1},
    {"center", str_center, "width fillchar", 1},
    {"zfill", str_zfill, "width", 1},
    {"isspace", str_isspace, "", 0},
    {"isdigit", str_isdigit, "", 0},
    {"isdecimal", str_isdigit, "", 0},
    {"islower", str_islower, "", 0},
    {"isupper", str_isupper, "", 0},
    {"encode", str_unsupported, "*", 0},
    {"expandtabs", str_unsupported, "*", 0},
    {"format_map", str_unsupported, "*", 0},
    {"isalnum", str_unsupported, "*", 0},
    {"isalpha", str_unsupported, "*", 0},
    {"isascii", str_unsupported, "*", 0},
    {"isidentifier", str_unsupported, "*", 0},
    {"isnumeric", str_unsupported, "*", 0},
    {"isprintable", str_unsupported, "*", 0},
    {"istitle", str_unsupported, "*", 0},
    {"maketrans", str_unsupported, "*", 0},
    {"translate", str_unsupported, "*", 0},
};

const wf_jrow *wf_jstr_method_find(const wf_jstr *name)
{
    return wf_jrow_find(rows, sizeof rows / sizeof *rows, name);
}
