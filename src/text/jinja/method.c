/* SPDX-License-Identifier: MIT */
/*
 * method.c - methods of lists, tuples and dicts, and the global functions.
 *
 * Rows give the names of Python's parameters, so that arguments can be passed by name. Mutating
 * methods change the shared object, as in Python. Work that is linear in a list charges a step per
 * four items.
 */
#include "base/clock.h"
#include "text/jinja/run.h"
#include "text/jinja/string.h"

#define METHOD(name)                                                                              \
    static wf_status name(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, const wf_jargs *args, \
                          wf_jvalue *out)

#define UNUSED (void)r, (void)arg, (void)args

/* ---- Lists ---- */

METHOD(list_append)
{
    (void)args;
    *out = wf_jnone();
    return wf_jseq_push(r, self.u.seq, arg[0]);
}

METHOD(list_extend)
{
    wf_jseq *seq;
    (void)args;
    *out = wf_jnone();
    WF_TRY(wf_jwalk(r, arg[0], &seq));
    size_t count = seq->count; /* a list may extend itself: use the old count */
    for (size_t i = 0; i < count; i++)
        WF_TRY(wf_jseq_push(r, self.u.seq, seq->item[i]));
    return WF_OK;
}

METHOD(list_insert)
{
    wf_jseq *seq = self.u.seq;
    (void)args;
    *out = wf_jnone();
    if (!wf_jis_int(&arg[0]))
        return wf_jrun_fail(r, "the index of insert() must be an integer");
    int64_t at = wf_jint_of(&arg[0]), count = (int64_t)seq->count;
    at = at < 0 ? (at < -count ? 0 : at + count) : at > count ? count : at;
    WF_TRY(wf_jrun_step_items(r, seq->count));
    /* Makes room; the value itself is placed below. */
    WF_TRY(wf_jseq_push(r, seq, arg[1]));
    /* count items were there before the push, so the move ends at the slot that was added. */
    memmove(seq->item + at + 1, seq->item + at, (size_t)(count - at) * sizeof *seq->item);
    seq->item[at] = arg[1];
    return WF_OK;
}

/* at < seq->count. */
static void remove_at(wf_jseq *seq, size_t at)
{
    memmove(seq->item + at, seq->item + at + 1, (seq->count - at - 1) * sizeof *seq->item);
    seq->count--;
}

METHOD(list_pop)
{
    wf_jseq *seq = self.u.seq;
    (void)args;
    if (arg[0].kind != WF_J_ABSENT && !wf_jis_int(&arg[0]))
        return wf_jrun_fail(r, "the index of pop() must be an integer");
    int64_t at = arg[0].kind == WF_J_ABSENT ? -1 : wf_jint_of(&arg[0]);
    at = at < 0 ? at + (int64_t)seq->count : at;
    if (at < 0 || at >= (int64_t)seq->count)
        return wf_jrun_fail(r, "the index of pop() is out of range");
    WF_TRY(wf_jrun_step_items(r, seq->count));
    *out = seq->item[at];
    remove_at(seq, (size_t)at);
    return WF_OK;
}

/* Stores the index of the first equal item in *at; seq->count: not found. */
static wf_status find_item(wf_jrun *r, const wf_jseq *seq, wf_jvalue item, size_t *at)
{
    for (*at = 0; *at < seq->count; ++*at) {
        bool equal;
        WF_TRY(wf_jrun_step(r, 1));
        WF_TRY(wf_jequal(r, seq->item[*at], item, &equal));
        if (equal)
            break;
    }
    return WF_OK;
}

METHOD(list_index)
{
    size_t at;
    (void)args;
    WF_TRY(find_item(r, self.u.seq, arg[0], &at));
    if (at == self.u.seq->count)
        return wf_jrun_fail(r, "index() did not find the value in the list");
    *out = wf_jint((int64_t)at);
    return WF_OK;
}

METHOD(list_remove)
{
    size_t at;
    (void)args;
    WF_TRY(find_item(r, self.u.seq, arg[0], &at));
    if (at == self.u.seq->count)
        return wf_jrun_fail(r, "remove() did not find the value in the list");
    WF_TRY(wf_jrun_step_items(r, self.u.seq->count - at));
    remove_at(self.u.seq, at);
    *out = wf_jnone();
    return WF_OK;
}

METHOD(list_count)
{
    int64_t count = 0;
    (void)args;
    for (size_t i = 0; i < self.u.seq->count; i++) {
        bool equal;
        WF_TRY(wf_jrun_step(r, 1));
        WF_TRY(wf_jequal(r, self.u.seq->item[i], arg[0], &equal));
        count += equal;
    }
    *out = wf_jint(count);
    return WF_OK;
}

METHOD(list_copy)
{
    UNUSED;
    const wf_jvalue all[3] = {{.kind = WF_J_NONE}, {.kind = WF_J_NONE}, {.kind = WF_J_NONE}};
    return wf_jget_slice(r, self, all, out);
}

METHOD(list_clear)
{
    UNUSED;
    self.u.seq->count = 0;
    *out = wf_jnone();
    return WF_OK;
}

METHOD(list_reverse)
{
    wf_jseq *seq = self.u.seq;
    UNUSED;
    WF_TRY(wf_jrun_step(r, seq->count));
    for (size_t i = 0; i < seq->count / 2; i++) {
        wf_jvalue swap = seq->item[i];
        seq->item[i] = seq->item[seq->count - 1 - i];
        seq->item[seq->count - 1 - i] = swap;
    }
    *out = wf_jnone();
    return WF_OK;
}

/* Sorts the items by a copy of themselves. */
METHOD(list_sort)
{
    wf_jvalue keys;
    (void)args;
    WF_TRY(list_copy(r, self, arg, args, &keys));
    *out = wf_jnone();
    return wf_jsort(r, keys.u.seq->item, self.u.seq->item, self.u.seq->count, wf_jtruth(&arg[0]));
}

/* ---- Dicts ---- */

/* Which part of an entry keys(), values() and items() return. */
typedef enum { KEYS, VALUES, ITEMS } part;

/* Unlike Python's views this is a copy: later changes of the dict do not show. */
static wf_status view(wf_jrun *r, const wf_jdict *d, part which, wf_jvalue *out)
{
    static const char *const names[] = {"dict_keys(", "dict_values(", "dict_items("};
    WF_TRY(wf_jseq_new(r, WF_J_VIEW, d->count, out));
    out->u.seq->name = names[which];
    for (size_t i = 0; i < d->count; i++) {
        wf_jvalue v = which == KEYS ? d->entry[i].key : d->entry[i].value;
        if (which == ITEMS)
            WF_TRY(wf_jpair_new(r, d->entry[i].key, d->entry[i].value, &v));
        WF_TRY(wf_jseq_push(r, out->u.seq, v));
    }
    return WF_OK;
}

METHOD(dict_keys)
{
    UNUSED;
    return view(r, self.u.dict, KEYS, out);
}

METHOD(dict_values)
{
    UNUSED;
    return view(r, self.u.dict, VALUES, out);
}

METHOD(dict_items)
{
    UNUSED;
    return view(r, self.u.dict, ITEMS, out);
}

METHOD(dict_get)
{
    wf_jentry *e;
    (void)args;
    WF_TRY(wf_jdict_find(r, self.u.dict, arg[0], &e));
    *out = e ? e->value : arg[1].kind == WF_J_ABSENT ? wf_jnone() : arg[1];
    return WF_OK;
}

METHOD(dict_pop)
{
    wf_jentry *e;
    (void)args;
    WF_TRY(wf_jdict_find(r, self.u.dict, arg[0], &e));
    if (!e && arg[1].kind == WF_J_ABSENT)
        return wf_jrun_fail(r, "pop() did not find the key");
    *out = e ? e->value : arg[1];
    if (e)
        wf_jdict_remove(self.u.dict, e);
    return WF_OK;
}

/* Removes the last entry, as in Python, where dicts keep the order of insertion. */
METHOD(dict_popitem)
{
    wf_jdict *d = self.u.dict;
    UNUSED;
    if (d->count == 0)
        return wf_jrun_fail(r, "popitem() of an empty dict");
    d->count--;
    return wf_jpair_new(r, d->entry[d->count].key, d->entry[d->count].value, out);
}

METHOD(dict_setdefault)
{
    wf_jentry *e;
    (void)args;
    WF_TRY(wf_jdict_find(r, self.u.dict, arg[0], &e));
    *out = e ? e->value : arg[1].kind == WF_J_ABSENT ? wf_jnone() : arg[1];
    return e ? WF_OK : wf_jdict_push(r, self.u.dict, arg[0], *out);
}

/* Arguments of update(), dict() and namespace(): a dict or pairs, then named values. */
static wf_status fill(wf_jrun *r, wf_jdict *d, const wf_jargs *args)
{
    wf_jseq *pairs;
    if (args->npos > 1)
        return wf_jrun_fail(r, "a dict takes at most one positional argument");
    if (args->npos && args->pos[0].kind == WF_J_DICT) {
        const wf_jdict *from = args->pos[0].u.dict;
        /* A dict that updates itself must not grow while it is read. */
        for (size_t i = 0; i < from->count && from != d; i++)
            WF_TRY(wf_jdict_set(r, d, from->entry[i].key, from->entry[i].value));
    } else if (args->npos) {
        WF_TRY(wf_jwalk(r, args->pos[0], &pairs));
        for (size_t i = 0; i < pairs->count; i++) {
            wf_jseq *pair;
            WF_TRY(wf_jwalk(r, pairs->item[i], &pair));
            if (pair->count != 2)
                return wf_jrun_fail(r, "a dict needs pairs of key and value");
            WF_TRY(wf_jdict_set(r, d, pair->item[0], pair->item[1]));
        }
    }
    for (size_t i = 0; i < args->nnamed; i++)
        WF_TRY(wf_jdict_set(r, d, wf_jstring(args->named[i].name), args->named[i].value));
    return WF_OK;
}

METHOD(dict_update)
{
    (void)arg;
    *out = wf_jnone();
    return fill(r, self.u.dict, args);
}

/* Shallow: the values are shared. */
METHOD(dict_copy)
{
    const wf_jargs from = {.pos = &self, .npos = 1};
    UNUSED;
    WF_TRY(wf_jdict_new(r, WF_J_DICT, out));
    return fill(r, out->u.dict, &from);
}

METHOD(dict_clear)
{
    UNUSED;
    self.u.dict->count = 0;
    *out = wf_jnone();
    return WF_OK;
}

/* ---- Global functions ---- */

METHOD(global_dict)
{
    (void)self, (void)arg;
    WF_TRY(wf_jdict_new(r, WF_J_DICT, out));
    return fill(r, out->u.dict, args);
}

METHOD(global_namespace)
{
    (void)self, (void)arg;
    WF_TRY(wf_jdict_new(r, WF_J_NAMESPACE, out));
    return fill(r, out->u.dict, args);
}

/* range(stop), range(start, stop) or range(start, stop, step). */
METHOD(global_range)
{
    int64_t bounds[3] = {0, 0, 1};
    (void)self, (void)arg;
    if (args->npos < 1 || args->npos > 3 || args->nnamed)
        return wf_jrun_fail(r, "range() takes one to three numbers");
    for (size_t i = 0; i < args->npos; i++) {
        if (!wf_jis_int(&args->pos[i]))
            return wf_jrun_fail(r, "range() takes integers, not a %s",
                                wf_jkind_name(args->pos[i].kind));
        bounds[args->npos == 1 ? 1 : i] = wf_jint_of(&args->pos[i]);
    }
    return wf_jrange_new(r, bounds[0], bounds[1], bounds[2], out);
}

/* Reports the template's own message as an error of the caller's messages, not of the template. */
METHOD(global_raise)
{
    const wf_jstr *s;
    (void)self, (void)args, (void)out;
    WF_TRY(wf_jstr_of(r, arg[0], &s));
    return wf_fail(r->ctx, WF_ERR_USAGE, "the chat template refuses these messages: %.*s",
                   (int)(s->bytes < WF_MESSAGE_BYTES ? s->bytes : WF_MESSAGE_BYTES), s->text);
}

/* Formats the time at which the run started, so that all calls agree. */
METHOD(global_strftime)
{
    char format[128], text[512];
    (void)self, (void)args;
    if (arg[0].kind != WF_J_STRING || arg[0].u.str->bytes >= sizeof format ||
        memchr(arg[0].u.str->text, '\0', arg[0].u.str->bytes))
        return wf_jrun_fail(r, "strftime_now() takes a format of at most %zu bytes",
                            sizeof format - 1);
    memcpy(format, arg[0].u.str->text, arg[0].u.str->bytes);
    format[arg[0].u.str->bytes] = '\0';
    wf_jbuf b = {0};
    size_t n = wf_clock_print(text, sizeof text, format, r->now);
    WF_TRY(wf_jbuf_put(r, &b, text, n, false));
    return wf_jbuf_take(r, &b, out);
}

/* ---- Tables ---- */

static const wf_jrow list_rows[] = {
    {"append", list_append, "object", 1},
    {"extend", list_extend, "iterable", 1},
    {"insert", list_insert, "index object", 2},
    {"pop", list_pop, "index", 0},
    {"index", list_index, "value", 1},
    {"remove", list_remove, "value", 1},
    {"count", list_count, "value", 1},
    {"copy", list_copy, "", 0},
    {"clear", list_clear, "", 0},
    {"reverse", list_reverse, "", 0},
    {"sort", list_sort, "reverse", 0},
};

static const wf_jrow tuple_rows[] = {
    /* also for ranges */
    {"index", list_index, "value", 1},
    {"count", list_count, "value", 1},
};

static const wf_jrow dict_rows[] = {
    {"keys", dict_keys, "", 0},
    {"values", dict_values, "", 0},
    {"items", dict_items, "", 0},
    {"get", dict_get, "key default", 1},
    {"pop", dict_pop, "key default", 1},
    {"popitem", dict_popitem, "", 0},
    {"setdefault", dict_setdefault, "key default", 1},
    {"update", dict_update, "*", 0},
    {"copy", dict_copy, "", 0},
    {"clear", dict_clear, "", 0},
};

#define COUNT(rows) (sizeof(rows) / sizeof *(rows))

const wf_jrow *wf_jmethod_find(wf_jkind kind, const wf_jstr *name)
{
    switch (kind) {
    case WF_J_STRING: return wf_jstr_method_find(name);
    case WF_J_LIST: return wf_jrow_find(list_rows, COUNT(list_rows), name);
    case WF_J_TUPLE:
    case WF_J_RANGE: return wf_jrow_find(tuple_rows, COUNT(tuple_rows), name);
    case WF_J_DICT: return wf_jrow_find(dict_rows, COUNT(dict_rows), name);
    default: return NULL;
    }
}

wf_status wf_jglobals_set(wf_jrun *r, wf_jscope *scope)
{
    static const wf_jrow rows[] = {
        {"dict", global_dict, "*", 0},
        {"namespace", global_namespace, "*", 0},
        {"range", global_range, "*", 0},
        {"raise_exception", global_raise, "message", 1},
        {"strftime_now", global_strftime, "format", 1},
    };
    for (size_t i = 0; i < COUNT(rows); i++) {
        wf_jvalue name, func;
        WF_TRY(wf_jstr_new(r, wf_jstr_literal(rows[i].name), &name));
        WF_TRY(wf_jfunc_new(r, &rows[i], wf_jnone(), &func));
        WF_TRY(wf_jscope_set(r, scope, name.u.str, func));
    }
    return WF_OK;
}
