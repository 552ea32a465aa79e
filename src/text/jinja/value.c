/* SPDX-License-Identifier: MIT */
/*
 * value.c - see value.h.
 *
 * Sequences and dicts grow by doubling; old arrays stay in the arena until the run ends. Dict
 * lookups are linear, which suits the few keys of messages; a quarter step is charged for each
 * entry, so that large dicts exhaust the step limit instead of time.
 */
#include "text/jinja/value.h"

#include <stdio.h>

#include "text/jinja/string.h"

/* ---- The run ---- */

/* Fails with the template's name and the current line. The message is cut to WF_MESSAGE_BYTES. */
wf_status wf_jrun_fail(wf_jrun *r, const char *fmt, ...)
{
    char text[WF_MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return wf_fail(r->ctx, WF_ERR_FORMAT, "%s, line %d: %s", r->what, r->line, text);
}

/* The second check subtracts one chunk, which the arena may hold without having used it. */
void *wf_jrun_alloc(wf_jrun *r, size_t count, size_t size)
{
    size_t bytes, total;
    bool fits = wf_mul_size(count, size, &bytes) && wf_align_size(bytes, WF_ARENA_ALIGN, &bytes) &&
                wf_add_size(r->bytes, bytes, &total) && total <= r->max_bytes;
    /* The arena wastes the ends of its chunks, so check the memory that it really holds, too. */
    uint64_t held = r->ctx->mem.live_bytes - r->held;
    if (!fits || (held > WF_ARENA_CHUNK && held - WF_ARENA_CHUNK > r->max_bytes - bytes)) {
        wf_jrun_fail(r, "the template needs more than %zu bytes of memory", r->max_bytes);
        return NULL;
    }
    r->bytes = total;
    return wf_arena_alloc(&r->arena, bytes);
}

wf_status wf_jrun_step(wf_jrun *r, size_t steps)
{
    /* steps never exceeds max_steps, so the subtraction cannot wrap. */
    if (steps > r->max_steps - r->steps)
        return wf_jrun_fail(r, "the template took more than %llu steps",
                            (unsigned long long)r->max_steps);
    r->steps += steps;
    return WF_OK;
}

wf_status wf_jrun_step_bytes(wf_jrun *r, size_t bytes)
{
    size_t loose = r->loose + bytes % WF_J_BYTES_PER_STEP;
    r->loose = loose % WF_J_BYTES_PER_STEP;
    return wf_jrun_step(r, bytes / WF_J_BYTES_PER_STEP + loose / WF_J_BYTES_PER_STEP);
}

wf_status wf_jrun_step_items(wf_jrun *r, size_t items)
{
    /* Cannot overflow: memory holds far fewer items than SIZE_MAX / 4. */
    return wf_jrun_step_bytes(r, items * (WF_J_BYTES_PER_STEP / 4));
}

wf_status wf_jrun_enter(wf_jrun *r)
{
    if (r->frames >= r->max_frames)
        return wf_jrun_fail(r, "the template nests expressions or calls more than %d deep",
                            r->max_frames);
    r->frames++;
    return wf_jrun_step(r, 1);
}

/* ---- Creating values ---- */

wf_status wf_jstr_new(wf_jrun *r, wf_jstr s, wf_jvalue *out)
{
    wf_jstr *made = wf_jrun_alloc(r, 1, sizeof *made);
    if (!made)
        return wf_jrun_failed(r);
    *made = s;
    *out = wf_jstring(made);
    return WF_OK;
}

/* Makes room for one more item of `size` bytes after the `count` items at *items. */
static wf_status make_room(wf_jrun *r, void **items, size_t count, size_t *cap, size_t size)
{
    if (count < *cap)
        return WF_OK;
    size_t more = *cap ? *cap * 2 : 4;
    void *grown = wf_jrun_alloc(r, more, size);
    if (!grown)
        return wf_jrun_failed(r);
    if (count)
        memcpy(grown, *items, count * size);
    *items = grown;
    *cap = more;
    return WF_OK;
}

wf_status wf_jseq_new(wf_jrun *r, wf_jkind kind, size_t room, wf_jvalue *out)
{
    wf_jseq *seq = wf_jrun_alloc(r, 1, sizeof *seq);
    if (!seq)
        return wf_jrun_failed(r);
    if (room) {
        seq->item = wf_jrun_alloc(r, room, sizeof *seq->item);
        if (!seq->item)
            return wf_jrun_failed(r);
        seq->cap = room;
    }
    *out = (wf_jvalue){.kind = kind, .u.seq = seq};
    return WF_OK;
}

/* Invalidates pointers to seq->item. */
wf_status wf_jseq_push(wf_jrun *r, wf_jseq *seq, wf_jvalue v)
{
    void *items = seq->item;
    WF_TRY(wf_jrun_step(r, 1));
    WF_TRY(make_room(r, &items, seq->count, &seq->cap, sizeof v));
    seq->item = items;
    seq->item[seq->count++] = v;
    return WF_OK;
}

wf_status wf_jpair_new(wf_jrun *r, wf_jvalue a, wf_jvalue b, wf_jvalue *out)
{
    WF_TRY(wf_jseq_new(r, WF_J_TUPLE, 2, out));
    WF_TRY(wf_jseq_push(r, out->u.seq, a));
    return wf_jseq_push(r, out->u.seq, b);
}

wf_status wf_jdict_new(wf_jrun *r, wf_jkind kind, wf_jvalue *out)
{
    wf_jdict *d = wf_jrun_alloc(r, 1, sizeof *d);
    if (!d)
        return wf_jrun_failed(r);
    *out = (wf_jvalue){.kind = kind, .u.dict = d};
    return WF_OK;
}

wf_status wf_jrange_new(wf_jrun *r, int64_t start, int64_t stop, int64_t step, wf_jvalue *out)
{
    enum { MOST = 100000 };
    if (step == 0)
        return wf_jrun_fail(r, "the step of range() must not be 0");
    /* Unsigned, because stop - start can exceed 63 bits. */
    uint64_t from = (uint64_t)start, to = (uint64_t)stop, by = (uint64_t)step;
    uint64_t way = step > 0 ? (stop > start ? to - from : 0) : stop < start ? from - to : 0;
    uint64_t n = way ? (way - 1) / (step > 0 ? by : 0 - by) + 1 : 0;
    if (n > MOST)
        return wf_jrun_fail(r, "a range has more than %d items", MOST);
    WF_TRY(wf_jseq_new(r, WF_J_RANGE, (size_t)n, out));
    wf_jseq *seq = out->u.seq;
    seq->range[0] = start;
    seq->range[1] = stop;
    seq->range[2] = step;
    for (uint64_t i = 0; i < n; i++)
        /* Every item lies between start and stop, but i * step may not fit in 63 bits. */
        WF_TRY(wf_jseq_push(r, seq, wf_jint((int64_t)(from + i * by))));
    return WF_OK;
}

/* ---- Querying values ---- */

const char *wf_jkind_name(wf_jkind kind)
{
    static const char *const names[] = {
        [WF_J_ABSENT] = "nothing",
        [WF_J_UNDEFINED] = "Undefined",
        [WF_J_NONE] = "None",
        [WF_J_BOOL] = "bool",
        [WF_J_INT] = "int",
        [WF_J_FLOAT] = "float",
        [WF_J_STRING] = "str",
        [WF_J_LIST] = "list",
        [WF_J_TUPLE] = "tuple",
        [WF_J_RANGE] = "range",
        [WF_J_VIEW] = "view of a dict",
        [WF_J_ITER] = "generator",
        [WF_J_DICT] = "dict",
        [WF_J_NAMESPACE] = "Namespace",
        [WF_J_MACRO] = "Macro",
        [WF_J_FUNC] = "function",
        [WF_J_LOOP] = "loop",
    };
    return names[kind];
}

/* As Python's bool(): empty containers, 0 and None are false. Macros, functions and iterators are
 * true. */
bool wf_jtruth(const wf_jvalue *v)
{
    switch (v->kind) {
    case WF_J_ABSENT:
    case WF_J_UNDEFINED:
    case WF_J_NONE: return false;
    case WF_J_BOOL: return v->u.boolean;
    case WF_J_INT: return v->u.integer != 0;
    case WF_J_FLOAT: return v->u.number != 0;
    case WF_J_STRING: return v->u.str->bytes != 0;
    case WF_J_LIST:
    case WF_J_TUPLE:
    case WF_J_RANGE:
    case WF_J_VIEW: return v->u.seq->count != 0;
    case WF_J_DICT: return v->u.dict->count != 0;
    default: return true;
    }
}

/* Ignores the order of entries, as Python does. Quadratic; lookups charge the steps. */
static wf_status dicts_equal(wf_jrun *r, const wf_jdict *a, const wf_jdict *b, bool *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; *out && i < a->count; i++) {
        wf_jentry *other;
        WF_TRY(wf_jdict_find(r, b, a->entry[i].key, &other));
        *out = other != NULL;
        if (other)
            WF_TRY(wf_jequal(r, a->entry[i].value, other->value, out));
    }
    return WF_OK;
}

static wf_status seqs_equal(wf_jrun *r, const wf_jseq *a, const wf_jseq *b, bool *out)
{
    *out = a->count == b->count;
    for (size_t i = 0; *out && i < a->count; i++) {
        WF_TRY(wf_jrun_step(r, 1));
        WF_TRY(wf_jequal(r, a->item[i], b->item[i], out));
    }
    return WF_OK;
}

/* Views, iterators, macros and the like are equal only if identical. */
static wf_status same_kind_equal(wf_jrun *r, const wf_jvalue *a, const wf_jvalue *b, bool *out)
{
    switch (a->kind) {
    case WF_J_ABSENT:
    case WF_J_UNDEFINED:
    case WF_J_NONE: *out = true; return WF_OK;
    case WF_J_STRING:
        *out = wf_jstr_equal(a->u.str, b->u.str);
        return wf_jrun_step_bytes(r, a->u.str->bytes == b->u.str->bytes ? a->u.str->bytes : 0);
    case WF_J_LIST:
    case WF_J_TUPLE:
    case WF_J_RANGE: return seqs_equal(r, a->u.seq, b->u.seq, out);
    case WF_J_DICT: return dicts_equal(r, a->u.dict, b->u.dict, out);
    case WF_J_MACRO: *out = a->u.macro == b->u.macro; return WF_OK;
    case WF_J_FUNC: *out = a->u.func == b->u.func; return WF_OK;
    case WF_J_LOOP: *out = a->u.loop == b->u.loop; return WF_OK;
    case WF_J_NAMESPACE: *out = a->u.dict == b->u.dict; return WF_OK;
    default: *out = a->u.seq == b->u.seq; return WF_OK;
    }
}

wf_status wf_jequal(wf_jrun *r, wf_jvalue a, wf_jvalue b, bool *out)
{
    if (wf_jis_int(&a) && wf_jis_int(&b)) {
        *out = wf_jint_of(&a) == wf_jint_of(&b);
        return WF_OK;
    }
    if (wf_jis_number(&a) && wf_jis_number(&b)) {
        *out = wf_jfloat_of(&a) == wf_jfloat_of(&b);
        return WF_OK;
    }
    *out = false;
    if (a.kind != b.kind)
        return WF_OK;
    WF_TRY(wf_jrun_enter(r));
    WF_TRY(same_kind_equal(r, &a, &b, out));
    wf_jrun_leave(r);
    return WF_OK;
}

static int sign_of(double a, double b)
{
    return (a > b) - (a < b);
}

/* Lists compare like words: by the first pair of different items, then by length. */
wf_status wf_jorder(wf_jrun *r, wf_jvalue a, wf_jvalue b, int *out)
{
    if (wf_jis_int(&a) && wf_jis_int(&b)) {
        int64_t x = wf_jint_of(&a), y = wf_jint_of(&b);
        *out = (x > y) - (x < y);
        return WF_OK;
    }
    if (wf_jis_number(&a) && wf_jis_number(&b)) {
        *out = sign_of(wf_jfloat_of(&a), wf_jfloat_of(&b));
        return WF_OK;
    }
    if (a.kind == WF_J_STRING && b.kind == WF_J_STRING) {
        size_t n = a.u.str->bytes < b.u.str->bytes ? a.u.str->bytes : b.u.str->bytes;
        int order = memcmp(a.u.str->text, b.u.str->text, n); /* UTF-8 sorts like code points */
        *out = order ? (order > 0) - (order < 0)
                     : (a.u.str->bytes > b.u.str->bytes) - (a.u.str->bytes < b.u.str->bytes);
        return wf_jrun_step_bytes(r, n);
    }
    if (a.kind != b.kind || (a.kind != WF_J_LIST && a.kind != WF_J_TUPLE))
        return wf_jrun_fail(r, "%s and %s cannot be compared", wf_jkind_name(a.kind),
                            wf_jkind_name(b.kind));
    WF_TRY(wf_jrun_enter(r));
    const wf_jseq *x = a.u.seq, *y = b.u.seq;
    bool equal = true;
    size_t i = 0;
    /* Ends with i at the first pair that differs. */
    for (; i < x->count && i < y->count && equal; i += equal) {
        WF_TRY(wf_jrun_step(r, 1));
        WF_TRY(wf_jequal(r, x->item[i], y->item[i], &equal));
    }
    if (equal)
        *out = (x->count > y->count) - (x->count < y->count);
    else
        WF_TRY(wf_jorder(r, x->item[i], y->item[i], out));
    wf_jrun_leave(r);
    return WF_OK;
}

wf_status wf_jcontains(wf_jrun *r, wf_jvalue container, wf_jvalue item, bool *out)
{
    *out = false;
    if (container.kind == WF_J_STRING) {
        if (item.kind != WF_J_STRING)
            return wf_jrun_fail(r, "a str cannot contain a %s", wf_jkind_name(item.kind));
        size_t at;
        WF_TRY(wf_jstr_find(r, container.u.str, 0, container.u.str->bytes, item.u.str, false, &at));
        *out = at != WF_J_NOWHERE;
        return WF_OK;
    }
    if (container.kind == WF_J_DICT) {
        wf_jentry *e;
        WF_TRY(wf_jdict_find(r, container.u.dict, item, &e));
        *out = e != NULL;
        return WF_OK;
    }
    wf_jseq *seq;
    WF_TRY(wf_jwalk(r, container, &seq));
    for (size_t i = 0; i < seq->count && !*out; i++) {
        WF_TRY(wf_jrun_step(r, 1));
        WF_TRY(wf_jequal(r, seq->item[i], item, out));
    }
    return WF_OK;
}

wf_status wf_jlength(wf_jrun *r, wf_jvalue v, size_t *out)
{
    *out = 0;
    if (v.kind == WF_J_STRING) {
        *out = wf_jstr_chars(v.u.str);
        return wf_jrun_step_bytes(r, v.u.str->bytes);
    }
    if (v.kind == WF_J_DICT)
        *out = v.u.dict->count;
    else if (wf_jis_seq(&v) && v.kind != WF_J_ITER)
        *out = v.u.seq->count;
    else if (v.kind != WF_J_UNDEFINED)
        return wf_jrun_fail(r, "a %s has no length", wf_jkind_name(v.kind));
    return WF_OK;
}

/* Returns the items that are left, without a copy, and marks them as consumed. */
static wf_status walk_iterator(wf_jrun *r, wf_jseq *from, wf_jseq **out)
{
    wf_jvalue rest;
    WF_TRY(wf_jseq_new(r, WF_J_LIST, 0, &rest));
    if (from->at < from->count) /* an empty iterator has no items to point to */
        rest.u.seq->item = from->item + from->at;
    rest.u.seq->count = from->count - from->at;
    from->at = from->count;
    *out = rest.u.seq;
    return WF_OK;
}

wf_status wf_jwalk(wf_jrun *r, wf_jvalue v, wf_jseq **out)
{
    wf_jvalue made;
    if (v.kind == WF_J_ITER)
        return walk_iterator(r, v.u.seq, out);
    if (wf_jis_seq(&v)) {
        *out = v.u.seq;
        return wf_jrun_step_items(r, v.u.seq->count); /* charges the iteration that follows */
    }
    WF_TRY(wf_jseq_new(r, WF_J_LIST, 0, &made));
    *out = made.u.seq;
    if (v.kind == WF_J_DICT) {
        for (size_t i = 0; i < v.u.dict->count; i++)
            WF_TRY(wf_jseq_push(r, made.u.seq, v.u.dict->entry[i].key));
    } else if (v.kind == WF_J_STRING) {
        const wf_jstr *s = v.u.str;
        for (size_t i = 0, length; i < s->bytes; i += length) {
            wf_jvalue one;
            length = wf_utf8_next(s->text + i, s->bytes - i, NULL);
            WF_TRY(wf_jstr_new(r, wf_jstr_part(s, i, i + length), &one));
            WF_TRY(wf_jseq_push(r, made.u.seq, one));
        }
    } else if (v.kind != WF_J_UNDEFINED) {
        return wf_jrun_fail(r, "a %s cannot be iterated", wf_jkind_name(v.kind));
    }
    return WF_OK;
}

/* Merges [0, mid) and [mid, count) of both arrays, using `spare`, which has room for 2 * count
 * values. Equal keys keep their order, also in reverse, as Python's sort(reverse=True) does. */
static wf_status merge(wf_jrun *r, wf_jvalue *key, wf_jvalue *item, size_t mid, size_t count,
                       bool reverse, wf_jvalue *spare)
{
    size_t a = 0, b = mid;
    for (size_t i = 0; i < count; i++) {
        bool left = b == count;
        if (a < mid && b < count) {
            int order;
            WF_TRY(wf_jrun_step(r, 1));
            WF_TRY(wf_jorder(r, key[a], key[b], &order));
            left = reverse ? order >= 0 : order <= 0;
        }
        size_t from = left ? a++ : b++;
        spare[i] = key[from];
        spare[count + i] = item[from];
    }
    memcpy(key, spare, count * sizeof *key);
    memcpy(item, spare + count, count * sizeof *item);
    return WF_OK;
}

/* Bottom-up merge sort: O(count log count) comparisons, each charged as a step. */
wf_status wf_jsort(wf_jrun *r, wf_jvalue *key, wf_jvalue *item, size_t count, bool reverse)
{
    if (count < 2)
        return WF_OK;
    wf_jvalue *spare = wf_jrun_alloc(r, count, 2 * sizeof *spare);
    if (!spare)
        return wf_jrun_failed(r);
    for (size_t run = 1; run < count; run *= 2)
        for (size_t at = 0; at + run < count; at += 2 * run) {
            size_t n = count - at < 2 * run ? count - at : 2 * run;
            WF_TRY(merge(r, key + at, item + at, run, n, reverse, spare));
        }
    return WF_OK;
}

/* ---- Dicts ---- */

static bool hashable(const wf_jvalue *v)
{
    if (v->kind == WF_J_TUPLE) {
        for (size_t i = 0; i < v->u.seq->count; i++)
            if (v->u.seq->item[i].kind == WF_J_TUPLE || !hashable(&v->u.seq->item[i]))
                return false; /* nested tuples are not supported as keys, which avoids recursion */
        return true;
    }
    return v->kind != WF_J_LIST && v->kind != WF_J_DICT && v->kind != WF_J_VIEW;
}

/* Keys of the wanted length are charged in full: they may differ only in their last byte. */
wf_status wf_jdict_find_text(wf_jrun *r, const wf_jdict *d, const char *text, size_t bytes,
                             wf_jentry **out)
{
    *out = NULL;
    WF_TRY(wf_jrun_step_items(r, d->count));
    for (size_t i = 0; i < d->count && !*out; i++) {
        const wf_jvalue *key = &d->entry[i].key;
        if (key->kind != WF_J_STRING || key->u.str->bytes != bytes)
            continue;
        WF_TRY(wf_jrun_step_bytes(r, bytes));
        if (memcmp(key->u.str->text, text, bytes) == 0)
            *out = &d->entry[i];
    }
    return WF_OK;
}

/* Finds an entry by any hashable key; 1, 1.0 and true are the same key, as in Python. */
wf_status wf_jdict_find(wf_jrun *r, const wf_jdict *d, wf_jvalue key, wf_jentry **out)
{
    *out = NULL;
    if (key.kind == WF_J_TUPLE)
        WF_TRY(wf_jrun_step_items(r, key.u.seq->count));
    if (!hashable(&key))
        return wf_jrun_fail(r, "a %s cannot be a key", wf_jkind_name(key.kind));
    if (key.kind == WF_J_STRING)
        return wf_jdict_find_text(r, d, key.u.str->text, key.u.str->bytes, out);
    WF_TRY(wf_jrun_step_items(r, d->count));
    for (size_t i = 0; i < d->count && !*out; i++) {
        bool equal;
        WF_TRY(wf_jequal(r, d->entry[i].key, key, &equal));
        if (equal)
            *out = &d->entry[i];
    }
    return WF_OK;
}

/* Adds without looking for the key: the caller knows that it is new. */
wf_status wf_jdict_push(wf_jrun *r, wf_jdict *d, wf_jvalue key, wf_jvalue value)
{
    void *entries = d->entry;
    WF_TRY(wf_jrun_step(r, 1));
    WF_TRY(make_room(r, &entries, d->count, &d->cap, sizeof *d->entry));
    d->entry = entries;
    d->entry[d->count++] = (wf_jentry){.key = key, .value = value};
    return WF_OK;
}

wf_status wf_jdict_set(wf_jrun *r, wf_jdict *d, wf_jvalue key, wf_jvalue value)
{
    wf_jentry *e;
    WF_TRY(wf_jdict_find(r, d, key, &e));
    if (!e)
        return wf_jdict_push(r, d, key, value);
    e->value = value;
    return WF_OK;
}

/* Keeps the order; linear in the entries behind e. */
void wf_jdict_remove(wf_jdict *d, wf_jentry *e)
{
    size_t behind = d->count - (size_t)(e - d->entry) - 1;
    memmove(e, e + 1, behind * sizeof *e);
    d->count--;
}

/* ---- Indices ---- */

/* Resolves one bound of a slice and clamps it to [low, high]; negative values count from the
 * end. */
static wf_status bound(wf_jrun *r, const wf_jvalue *v, int64_t count, int64_t low, int64_t high,
                       int64_t otherwise, int64_t *out)
{
    *out = otherwise;
    if (v->kind == WF_J_ABSENT || v->kind == WF_J_NONE)
        return WF_OK;
    if (!wf_jis_int(v))
        return wf_jrun_fail(r, "the bounds of a slice must be integers, not a %s",
                            wf_jkind_name(v->kind));
    int64_t at = wf_jint_of(v);
    if (at < 0)
        at = at < -count ? low : at + count;
    *out = at < low ? low : at > high ? high : at;
    return WF_OK;
}

wf_status wf_jslice_plan(wf_jrun *r, const wf_jvalue part[3], size_t items, wf_jslice *out)
{
    int64_t count = (int64_t)items;
    WF_TRY(bound(r, &part[2], 0, 0, 0, 0, &out->stop)); /* only to check its type */
    int64_t step = wf_jis_int(&part[2]) ? wf_jint_of(&part[2]) : 1;
    if (step == 0)
        return wf_jrun_fail(r, "the step of a slice must not be 0");
    step = step > count + 1 ? count + 1 : step < -count - 1 ? -count - 1 : step;
    bool up = step > 0;
    int64_t low = up ? 0 : -1, high = up ? count : count - 1;
    WF_TRY(bound(r, &part[0], count, low, high, up ? low : high, &out->first));
    WF_TRY(bound(r, &part[1], count, low, high, up ? high : low, &out->stop));
    /* Both lie within [-1, count] and the stride within count + 1, so nothing here overflows. */
    int64_t way = up ? out->stop - out->first : out->first - out->stop, stride = up ? step : -step;
    out->n = way > 0 ? (size_t)((way + stride - 1) / stride) : 0;
    out->step = step;
    return WF_OK;
}
