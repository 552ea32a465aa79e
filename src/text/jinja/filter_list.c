/* SPDX-License-Identifier: MIT */
/*
 * filter_list.c - filters of iterables: reductions, sorting, and map, select and their kin.
 *
 * jinja2 returns generators from map, select, unique and batch; here they are computed at once and
 * returned as WF_J_ITER, which can also be iterated only once. Strings compare without case unless
 * case_sensitive is true.
 */
#include "text/jinja/run.h"
#include "text/jinja/string.h"

#define FILTER(name)                                                                              \
    static wf_status name(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, const wf_jargs *args, \
                          wf_jvalue *out)

#define UNUSED (void)arg, (void)args

/* Evaluates item.a.0.b for an attribute "a.0.b", or item[n] for a number; without attribute the
 * item itself. */
static wf_status get_path(wf_jrun *r, wf_jvalue item, const wf_jvalue *path,
                          const wf_jvalue *otherwise, wf_jvalue *out)
{
    *out = item;
    if (path->kind == WF_J_ABSENT || path->kind == WF_J_NONE)
        return WF_OK;
    if (path->kind != WF_J_STRING)
        return wf_jget_item(r, item, *path, out);
    const wf_jstr *s = path->u.str;
    WF_TRY(wf_jrun_step_bytes(r, s->bytes));
    for (size_t from = 0, to; from <= s->bytes; from = to + 1) {
        wf_jvalue part;
        int64_t number = 0;
        bool digits = true;
        for (to = from; to < s->bytes && s->text[to] != '.'; to++) {
            /* Up to 18 digits, which fit in 63 bits; longer ones are names. */
            digits = digits && s->text[to] >= '0' && s->text[to] <= '9' && to - from < 18;
            number = digits ? number * 10 + (s->text[to] - '0') : 0;
        }
        WF_TRY(wf_jstr_new(r, wf_jstr_part(s, from, to), &part));
        if (digits && to > from)
            part = wf_jint(number);
        WF_TRY(wf_jget_item(r, *out, part, out));
        if (out->kind == WF_J_UNDEFINED && otherwise && otherwise->kind != WF_J_NONE &&
            otherwise->kind != WF_J_ABSENT)
            *out = *otherwise;
    }
    return WF_OK;
}

/* Lowercases a string unless case matters; returns other values unchanged. */
static wf_status fold(wf_jrun *r, bool case_sensitive, wf_jvalue *v)
{
    wf_jbuf b = {0};
    if (case_sensitive || v->kind != WF_J_STRING)
        return WF_OK;
    WF_TRY(wf_jstr_map(r, &b, v->u.str, WF_J_LOWER));
    return wf_jbuf_take(r, &b, v);
}

/* ---- Reductions to one value ---- */

FILTER(filter_first)
{
    static const wf_jstr name = {.text = "first of nothing", .bytes = 16};
    wf_jseq *seq;
    UNUSED;
    /* Takes one item and leaves the rest of the iterator. */
    if (self.kind == WF_J_ITER && self.u.seq->at < self.u.seq->count) {
        *out = self.u.seq->item[self.u.seq->at++];
        return WF_OK;
    }
    WF_TRY(wf_jwalk(r, self, &seq));
    *out = seq->count ? seq->item[0] : wf_jundefined(&name);
    return WF_OK;
}

FILTER(filter_last)
{
    static const wf_jstr name = {.text = "last of nothing", .bytes = 15};
    wf_jseq *seq;
    UNUSED;
    if (self.kind == WF_J_ITER)
        return wf_jrun_fail(r, "a %s cannot be iterated from its end", wf_jkind_name(self.kind));
    WF_TRY(wf_jwalk(r, self, &seq));
    *out = seq->count ? seq->item[seq->count - 1] : wf_jundefined(&name);
    return WF_OK;
}

/* sign: -1 for the minimum, 1 for the maximum. The first of equal items wins. */
static wf_status extreme(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, int sign, wf_jvalue *out)
{
    static const wf_jstr name = {.text = "extreme of nothing", .bytes = 18};
    wf_jseq *seq;
    wf_jvalue best = wf_jnone();
    WF_TRY(wf_jwalk(r, self, &seq));
    *out = wf_jundefined(&name);
    for (size_t i = 0; i < seq->count; i++) {
        wf_jvalue key;
        int order = sign;
        WF_TRY(get_path(r, seq->item[i], &arg[1], NULL, &key));
        WF_TRY(fold(r, wf_jtruth(&arg[0]), &key));
        if (i > 0)
            WF_TRY(wf_jorder(r, key, best, &order));
        if (i == 0 || order * sign > 0) {
            best = key;
            *out = seq->item[i];
        }
    }
    return WF_OK;
}

FILTER(filter_min)
{
    UNUSED;
    return extreme(r, self, arg, -1, out);
}

FILTER(filter_max)
{
    UNUSED;
    return extreme(r, self, arg, 1, out);
}

FILTER(filter_sum)
{
    wf_jseq *seq;
    UNUSED;
    WF_TRY(wf_jwalk(r, self, &seq));
    *out = arg[1].kind == WF_J_ABSENT ? wf_jint(0) : arg[1];
    if (out->kind == WF_J_STRING)
        return wf_jrun_fail(r, "sum() cannot add strings; use join()");
    for (size_t i = 0; i < seq->count; i++) {
        wf_jvalue item;
        WF_TRY(get_path(r, seq->item[i], &arg[0], NULL, &item));
        WF_TRY(wf_jmath(r, '+', *out, item, out));
    }
    return WF_OK;
}

/* Items are printed, so numbers need no conversion. */
FILTER(filter_join)
{
    wf_jseq *seq;
    const wf_jstr *between = NULL;
    wf_jbuf b = {0};
    UNUSED;
    WF_TRY(wf_jwalk(r, self, &seq));
    if (arg[0].kind != WF_J_ABSENT)
        WF_TRY(wf_jstr_of(r, arg[0], &between));
    for (size_t i = 0; i < seq->count; i++) {
        wf_jvalue item;
        WF_TRY(get_path(r, seq->item[i], &arg[1], NULL, &item));
        if (i && between)
            WF_TRY(wf_jbuf_str(r, &b, between));
        WF_TRY(wf_jprint(r, &b, item));
    }
    return wf_jbuf_take(r, &b, out);
}

/* ---- Filters that return lists ---- */

/* Returns a new sequence of the given kind with the same items. */
static wf_status copy_items(wf_jrun *r, wf_jkind kind, const wf_jseq *seq, wf_jvalue *out)
{
    wf_jvalue made;
    WF_TRY(wf_jseq_new(r, kind, seq->count, &made));
    for (size_t i = 0; i < seq->count; i++)
        WF_TRY(wf_jseq_push(r, made.u.seq, seq->item[i]));
    *out = made;
    return WF_OK;
}

FILTER(filter_list)
{
    wf_jseq *seq;
    UNUSED;
    WF_TRY(wf_jwalk(r, self, &seq));
    return copy_items(r, WF_J_LIST, seq, out);
}

FILTER(filter_items)
{
    UNUSED;
    WF_TRY(wf_jseq_new(r, WF_J_ITER, 0, out));
    if (self.kind == WF_J_UNDEFINED)
        return WF_OK;
    if (self.kind != WF_J_DICT)
        return wf_jrun_fail(r, "items() takes a dict, not a %s", wf_jkind_name(self.kind));
    for (size_t i = 0; i < self.u.dict->count; i++) {
        wf_jvalue pair;
        WF_TRY(wf_jpair_new(r, self.u.dict->entry[i].key, self.u.dict->entry[i].value, &pair));
        WF_TRY(wf_jseq_push(r, out->u.seq, pair));
    }
    return WF_OK;
}

/* As in jinja2: an iterator for sequences, a list for generators. */
FILTER(filter_reverse)
{
    UNUSED;
    if (self.kind == WF_J_STRING) {
        const wf_jvalue back[3] = {{.kind = WF_J_NONE}, {.kind = WF_J_NONE}, wf_jint(-1)};
        return wf_jstr_slice(r, self.u.str, back, out);
    }
    wf_jseq *seq;
    wf_jkind kind = self.kind == WF_J_ITER ? WF_J_LIST : WF_J_ITER;
    WF_TRY(wf_jwalk(r, self, &seq));
    WF_TRY(copy_items(r, kind, seq, out));
    for (size_t i = 0; i < seq->count; i++)
        out->u.seq->item[i] = seq->item[seq->count - 1 - i];
    return WF_OK;
}

/* Returns the sort key of an item: the values of the attributes "a,b.c" as a tuple. */
static wf_status sort_key(wf_jrun *r, wf_jvalue item, const wf_jvalue *attribute,
                          bool case_sensitive, wf_jvalue *out)
{
    wf_jvalue key, part = *attribute;
    WF_TRY(wf_jseq_new(r, WF_J_TUPLE, 1, &key));
    for (size_t from = 0, to = 0;; from = to + 1) {
        wf_jvalue value;
        bool more = false;
        if (attribute->kind == WF_J_STRING) {
            const wf_jstr *s = attribute->u.str;
            for (to = from; to < s->bytes && s->text[to] != ',';)
                to++;
            more = to < s->bytes;
            WF_TRY(wf_jstr_new(r, wf_jstr_part(s, from, to), &part));
        }
        WF_TRY(get_path(r, item, &part, NULL, &value));
        WF_TRY(fold(r, case_sensitive, &value));
        WF_TRY(wf_jseq_push(r, key.u.seq, value));
        if (!more)
            break;
    }
    *out = key;
    return WF_OK;
}

/* Keys are computed once per item, then sorted along with the items. */
FILTER(filter_sort)
{
    wf_jseq *seq;
    wf_jvalue keys;
    UNUSED;
    WF_TRY(wf_jwalk(r, self, &seq));
    WF_TRY(copy_items(r, WF_J_LIST, seq, out));
    WF_TRY(wf_jseq_new(r, WF_J_LIST, seq->count, &keys));
    for (size_t i = 0; i < seq->count; i++) {
        wf_jvalue key;
        WF_TRY(sort_key(r, seq->item[i], &arg[2], wf_jtruth(&arg[1]), &key));
        WF_TRY(wf_jseq_push(r, keys.u.seq, key));
    }
    return wf_jsort(r, keys.u.seq->item, out->u.seq->item, seq->count, wf_jtruth(&arg[0]));
}

/* Returns a list of (key, value) tuples. */
FILTER(filter_dictsort)
{
    wf_jvalue keys;
    (void)args;
    if (self.kind != WF_J_DICT)
        return wf_jrun_fail(r, "dictsort() takes a dict, not a %s", wf_jkind_name(self.kind));
    bool by_key = arg[1].kind != WF_J_STRING || wf_jstr_is(arg[1].u.str, "key");
    if (!by_key && !wf_jstr_is(arg[1].u.str, "value"))
        return wf_jrun_fail(r, "the by of dictsort() must be key or value");
    WF_TRY(wf_jseq_new(r, WF_J_LIST, 0, out));
    WF_TRY(wf_jseq_new(r, WF_J_LIST, 0, &keys));
    for (size_t i = 0; i < self.u.dict->count; i++) {
        const wf_jentry *e = &self.u.dict->entry[i];
        wf_jvalue pair, key = by_key ? e->key : e->value;
        WF_TRY(wf_jpair_new(r, e->key, e->value, &pair));
        WF_TRY(fold(r, wf_jtruth(&arg[0]), &key));
        WF_TRY(wf_jseq_push(r, out->u.seq, pair));
        WF_TRY(wf_jseq_push(r, keys.u.seq, key));
    }
    return wf_jsort(r, keys.u.seq->item, out->u.seq->item, keys.u.seq->count, wf_jtruth(&arg[2]));
}

/* Keeps the first item of each key. Quadratic in the distinct keys; lookups charge steps. */
FILTER(filter_unique)
{
    wf_jseq *seq;
    wf_jvalue seen, key;
    UNUSED;
    WF_TRY(wf_jwalk(r, self, &seq));
    WF_TRY(wf_jseq_new(r, WF_J_ITER, 0, out));
    WF_TRY(wf_jdict_new(r, WF_J_DICT, &seen));
    for (size_t i = 0; i < seq->count; i++) {
        wf_jentry *e;
        WF_TRY(get_path(r, seq->item[i], &arg[1], NULL, &key));
        WF_TRY(fold(r, wf_jtruth(&arg[0]), &key));
        WF_TRY(wf_jdict_find(r, seen.u.dict, key, &e));
        if (e)
            continue;
        WF_TRY(wf_jdict_push(r, seen.u.dict, key, wf_jnone()));
        WF_TRY(wf_jseq_push(r, out->u.seq, seq->item[i]));
    }
    return WF_OK;
}

/* Rows of `linecount` items; the last one is filled up only if a value was given. */
FILTER(filter_batch)
{
    wf_jseq *seq;
    wf_jvalue row = wf_jnone();
    (void)args;
    if (!wf_jis_int(&arg[0]) || wf_jint_of(&arg[0]) < 1)
        return wf_jrun_fail(r, "the size of batch() must be 1 or more");
    size_t most = (size_t)wf_jint_of(&arg[0]);
    WF_TRY(wf_jwalk(r, self, &seq));
    WF_TRY(wf_jseq_new(r, WF_J_ITER, 0, out));
    for (size_t i = 0; i < seq->count; i++) {
        if (i % most == 0) {
            WF_TRY(wf_jseq_new(r, WF_J_LIST, 0, &row));
            WF_TRY(wf_jseq_push(r, out->u.seq, row));
        }
        WF_TRY(wf_jseq_push(r, row.u.seq, seq->item[i]));
    }
    /* If seq is not empty, row is its last row, a list. */
    bool fill = arg[1].kind != WF_J_ABSENT && arg[1].kind != WF_J_NONE && seq->count;
    while (fill && row.u.seq->count < most)
        WF_TRY(wf_jseq_push(r, row.u.seq, arg[1]));
    return WF_OK;
}

/* ---- Filters that take a filter or test ---- */

/* Returns the argument called `name`, or NULL. */
static const wf_jvalue *named(const wf_jargs *args, const char *name)
{
    for (size_t i = 0; i < args->nnamed; i++)
        if (wf_jstr_is(args->named[i].name, name))
            return &args->named[i].value;
    return NULL;
}

/* Finds the filter or test named by the first argument; *rest: the other arguments. */
static wf_status find_row(wf_jrun *r, bool test, const wf_jargs *args, size_t skip, wf_jargs *rest,
                          const wf_jrow **row)
{
    const wf_jvalue *name = &args->pos[skip];
    if (name->kind != WF_J_STRING)
        return wf_jrun_fail(r, "the name of a %s must be a string", test ? "test" : "filter");
    *row = test ? wf_jtest_find(name->u.str) : wf_jfilter_find(name->u.str);
    if (!*row)
        return wf_jrun_fail(r, "unknown %s '%.*s'", test ? "test" : "filter",
                            (int)(name->u.str->bytes < 80 ? name->u.str->bytes : 80),
                            name->u.str->text);
    *rest = *args;
    rest->pos += skip + 1;
    rest->npos -= skip + 1;
    return WF_OK;
}

/* Applies a filter to each item, or reads an attribute of each, with an optional default. */
FILTER(filter_map)
{
    const wf_jvalue *attribute = named(args, "attribute"), *otherwise = named(args, "default");
    const wf_jrow *row = NULL;
    wf_jargs rest;
    wf_jseq *seq;
    (void)arg;
    WF_TRY(wf_jseq_new(r, WF_J_ITER, 0, out));
    if (!wf_jtruth(&self))
        return WF_OK;
    if (args->npos)
        WF_TRY(find_row(r, false, args, 0, &rest, &row));
    else if (!attribute || args->nnamed > 1 + (otherwise != NULL))
        return wf_jrun_fail(r, "map() needs the name of a filter, or attribute=");
    WF_TRY(wf_jwalk(r, self, &seq));
    for (size_t i = 0; i < seq->count; i++) {
        wf_jvalue v;
        if (row)
            WF_TRY(wf_jrow_call(r, row, seq->item[i], &rest, &v));
        else
            WF_TRY(get_path(r, seq->item[i], attribute, otherwise, &v));
        WF_TRY(wf_jseq_push(r, out->u.seq, v));
    }
    return WF_OK;
}

/* Keeps the items for which the test (by default their truth value) equals `keep`. */
static wf_status choose(wf_jrun *r, wf_jvalue self, const wf_jargs *args, bool by_attribute,
                        bool keep, wf_jvalue *out)
{
    const wf_jrow *row = NULL;
    wf_jargs rest;
    wf_jseq *seq;
    WF_TRY(wf_jseq_new(r, WF_J_ITER, 0, out));
    if (!wf_jtruth(&self))
        return WF_OK;
    if (by_attribute && args->npos == 0)
        return wf_jrun_fail(r, "the name of an attribute is missing");
    /* selectattr's first argument is the attribute, its second the test. */
    if (args->npos > by_attribute)
        WF_TRY(find_row(r, true, args, by_attribute, &rest, &row));
    WF_TRY(wf_jwalk(r, self, &seq));
    for (size_t i = 0; i < seq->count; i++) {
        wf_jvalue v = seq->item[i];
        if (by_attribute)
            WF_TRY(get_path(r, v, &args->pos[0], NULL, &v));
        if (row)
            WF_TRY(wf_jrow_call(r, row, v, &rest, &v));
        if (wf_jtruth(&v) == keep)
            WF_TRY(wf_jseq_push(r, out->u.seq, seq->item[i]));
    }
    return WF_OK;
}

FILTER(filter_select)
{
    (void)arg;
    return choose(r, self, args, false, true, out);
}

FILTER(filter_reject)
{
    (void)arg;
    return choose(r, self, args, false, false, out);
}

FILTER(filter_selectattr)
{
    (void)arg;
    return choose(r, self, args, true, true, out);
}

FILTER(filter_rejectattr)
{
    (void)arg;
    return choose(r, self, args, true, false, out);
}

static const wf_jrow rows[] = {
    {"first", filter_first, "", 0},
    {"last", filter_last, "", 0},
    {"min", filter_min, "case_sensitive attribute", 0},
    {"max", filter_max, "case_sensitive attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"join", filter_join, "d attribute", 0},
    {"list", filter_list, "", 0},
    {"items", filter_items, "", 0},
    {"reverse", filter_reverse, "", 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {"batch", filter_batch, "linecount fill_with", 1},
    {"map", filter_map, "*", 0},
    {"select", filter_select, "*", 0},
    {"reject", filter_reject, "*", 0},
    {"selectattr", filter_selectattr, "*", 0},
    {"rejectattr", filter_rejectattr, "*", 0},
};

const wf_jrow *wf_jlist_filter_find(const wf_jstr *name)
{
    return wf_jrow_find(rows, sizeof rows / sizeof *rows, name);
}
