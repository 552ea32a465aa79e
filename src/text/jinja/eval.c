/* SPDX-License-Identifier: MIT */
/*
 * eval.c - evaluates expressions: scopes, calls, attributes, items and operators.
 *
 * wf_jeval dispatches on the node's kind through a table, and counts a frame for each nested node.
 * Lookups in scopes are linear; a quarter step per variable is charged. r->line is set again after
 * operands were evaluated, so that messages name the line of the operator.
 */
#include "text/jinja/run.h"
#include "text/jinja/string.h"

/* ---- Scopes ---- */

wf_status wf_jscope_new(wf_jrun *r, wf_jscope *parent, wf_jscope **out)
{
    *out = wf_jrun_alloc(r, 1, sizeof **out);
    if (!*out)
        return wf_jrun_failed(r);
    /* Scopes live until the run ends: macros and loops keep pointers to them. */
    (*out)->parent = parent;
    return WF_OK;
}

/* *out is NULL when the scope does not have the name. The charge of an item more than the scope's
 * count makes a deep chain of empty scopes cost something. */
static wf_status find_var(wf_jrun *r, const wf_jscope *scope, const wf_jstr *name, wf_jvar **out)
{
    bool same = false;
    *out = NULL;
    WF_TRY(wf_jrun_step_items(r, scope->count + 1));
    for (size_t i = 0; i < scope->count && !same; i++) {
        WF_TRY(wf_jstr_same(r, scope->var[i].name, name, &same));
        if (same)
            *out = &scope->var[i];
    }
    return WF_OK;
}

wf_status wf_jscope_set(wf_jrun *r, wf_jscope *scope, const wf_jstr *name, wf_jvalue value)
{
    wf_jvar *var;
    WF_TRY(wf_jrun_step(r, 1));
    WF_TRY(find_var(r, scope, name, &var));
    if (var) {
        var->value = value;
        return WF_OK;
    }
    if (scope->count == scope->cap) {
        size_t cap = scope->cap ? scope->cap * 2 : 4;
        wf_jvar *grown = wf_jrun_alloc(r, cap, sizeof *grown);
        if (!grown)
            return wf_jrun_failed(r);
        if (scope->count)
            memcpy(grown, scope->var, scope->count * sizeof *grown);
        scope->var = grown;
        scope->cap = cap;
    }
    scope->var[scope->count++] = (wf_jvar){.name = name, .value = value};
    return WF_OK;
}

wf_status wf_jscope_get(wf_jrun *r, const wf_jscope *scope, const wf_jstr *name, wf_jvalue *out)
{
    for (; scope; scope = scope->parent) {
        wf_jvar *var;
        WF_TRY(find_var(r, scope, name, &var));
        if (var) {
            *out = var->value;
            return WF_OK;
        }
    }
    *out = wf_jundefined(name);
    return WF_OK;
}

/* ---- Calls ---- */

const wf_jrow *wf_jrow_find(const wf_jrow *rows, size_t count, const wf_jstr *name)
{
    for (size_t i = 0; i < count; i++)
        if (wf_jstr_is(name, rows[i].name))
            return &rows[i];
    return NULL;
}

/* Returns the index of `name` in "first second third"; -1: missing. */
static int param_index(const char *params, const wf_jstr *name)
{
    for (int i = 0; *params; i++) {
        size_t n = strcspn(params, " ");
        if (n == name->bytes && memcmp(params, name->text, n) == 0)
            return i;
        params += n + (params[n] == ' ');
    }
    return -1;
}

static int param_count(const char *params)
{
    int n = *params != '\0';
    for (; *params; params++)
        n += *params == ' ';
    return n;
}

/* Binds positional and named arguments to the row's parameters, as Python does, and calls it. "*"
 * rows read `args` themselves. Frames are left only on success: a failure ends the run. */
wf_status wf_jrow_call(wf_jrun *r, const wf_jrow *row, wf_jvalue self, const wf_jargs *args,
                       wf_jvalue *out)
{
    /* WF_J_ABSENT is 0, so all entries start absent. */
    wf_jvalue arg[WF_J_PARAMS] = {{.kind = WF_J_ABSENT}};
    WF_TRY(wf_jrun_enter(r));
    WF_TRY(wf_jrun_step_items(r, args->npos + args->nnamed));
    if (strcmp(row->params, "*") != 0) {
        int most = param_count(row->params);
        wf_assert(most <= WF_J_PARAMS);
        if (args->npos > (size_t)most)
            return wf_jrun_fail(r, "%s() takes at most %d arguments, but got %zu", row->name, most,
                                args->npos);
        for (size_t i = 0; i < args->npos; i++)
            arg[i] = args->pos[i];
        for (size_t i = 0; i < args->nnamed; i++) {
            int at = param_index(row->params, args->named[i].name);
            if (at < 0 || arg[at].kind != WF_J_ABSENT)
                return wf_jrun_fail(r, "%s() has no argument '%.*s'", row->name,
                                    (int)args->named[i].name->bytes, args->named[i].name->text);
            arg[at] = args->named[i].value;
        }
        for (int i = 0; i < row->required; i++)
            if (arg[i].kind == WF_J_ABSENT)
                return wf_jrun_fail(r, "%s() needs %d argument%s", row->name, row->required,
                                    WF_PLURAL(row->required));
    }
    WF_TRY(row->fn(r, self, arg, args, out));
    wf_jrun_leave(r);
    return WF_OK;
}

/* Fails for an undefined value, which carries the name that was looked up. */
static wf_status not_defined(wf_jrun *r, wf_jvalue v)
{
    return wf_jrun_fail(r, "'%.*s' is undefined", (int)(v.u.str->bytes < 80 ? v.u.str->bytes : 80),
                        v.u.str->text);
}

/* Functions carry their receiver: x.append is a value that can be stored. */
wf_status wf_jcall(wf_jrun *r, wf_jvalue callee, const wf_jargs *args, wf_jvalue *out)
{
    switch (callee.kind) {
    case WF_J_MACRO: return wf_jmacro_call(r, callee.u.macro, args, out);
    case WF_J_FUNC: return wf_jrow_call(r, callee.u.func->row, callee.u.func->self, args, out);
    case WF_J_LOOP: return wf_jloop_call(r, callee.u.loop, args, out);
    case WF_J_UNDEFINED: return not_defined(r, callee);
    default: return wf_jrun_fail(r, "a %s cannot be called", wf_jkind_name(callee.kind));
    }
}

/* Appends to args->named, which has room; fails for a duplicate. Quadratic, hence the charge. */
static wf_status push_named(wf_jrun *r, wf_jargs *args, const wf_jstr *name, wf_jvalue value)
{
    WF_TRY(wf_jrun_step(r, 1));
    WF_TRY(wf_jrun_step_items(r, args->nnamed));
    for (size_t i = 0; i < args->nnamed; i++) {
        bool same;
        WF_TRY(wf_jstr_same(r, args->named[i].name, name, &same));
        if (same)
            return wf_jrun_fail(r, "the argument '%.*s' is given twice",
                                (int)(name->bytes < 80 ? name->bytes : 80), name->text);
    }
    args->named[args->nnamed++] = (wf_jvar){.name = name, .value = value};
    return WF_OK;
}

/* Collects the arguments of n->list, whose values are in value[], and expands *list and **dict.
 * Counts first, then allocates and fills. */
static wf_status spread(wf_jrun *r, const wf_jnode *n, wf_jargs *args, const wf_jvalue *value)
{
    size_t npos = 0, nnamed = 0;
    for (size_t i = 0; i < n->count; i++) {
        const wf_jnode *a = n->list[i];
        if (a->kind == WF_JN_STAR && a->op == 1 && !wf_jis_seq(&value[i]))
            return wf_jrun_fail(r, "the argument after * must be a list");
        if (a->kind == WF_JN_STAR && a->op == 2 && value[i].kind != WF_J_DICT)
            return wf_jrun_fail(r, "the argument after ** must be a dict");
        if (a->kind == WF_JN_STAR)
            *(a->op == 1 ? &npos : &nnamed) +=
                a->op == 1 ? value[i].u.seq->count : value[i].u.dict->count;
        else
            *(a->kind == WF_JN_KEYWORD ? &nnamed : &npos) += 1;
    }
    WF_TRY(wf_jrun_step_items(r, npos));
    args->pos = npos ? wf_jrun_alloc(r, npos, sizeof *args->pos) : NULL;
    args->named = nnamed ? wf_jrun_alloc(r, nnamed, sizeof *args->named) : NULL;
    if ((npos && !args->pos) || (nnamed && !args->named))
        return wf_jrun_failed(r);
    for (size_t i = 0; i < n->count; i++) {
        const wf_jnode *a = n->list[i];
        if (a->kind == WF_JN_KEYWORD) {
            WF_TRY(push_named(r, args, a->text, value[i]));
        } else if (a->kind != WF_JN_STAR) {
            args->pos[args->npos++] = value[i];
        } else if (a->op == 1) {
            for (size_t k = 0; k < value[i].u.seq->count; k++)
                args->pos[args->npos++] = value[i].u.seq->item[k];
        } else {
            for (size_t k = 0; k < value[i].u.dict->count; k++) {
                const wf_jentry *e = &value[i].u.dict->entry[k];
                if (e->key.kind != WF_J_STRING)
                    return wf_jrun_fail(r, "the keys of ** must be strings");
                WF_TRY(push_named(r, args, e->key.u.str, e->value));
            }
        }
    }
    return WF_OK;
}

/* Evaluates all arguments from left to right before any is expanded, as Python does. */
static wf_status eval_args(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jargs *args)
{
    *args = (wf_jargs){0};
    if (n->count == 0)
        return WF_OK;
    wf_jvalue *value = wf_jrun_alloc(r, n->count, sizeof *value);
    if (!value)
        return wf_jrun_failed(r);
    for (size_t i = 0; i < n->count; i++) {
        const wf_jnode *a = n->list[i];
        bool named = a->kind == WF_JN_KEYWORD || a->kind == WF_JN_STAR;
        WF_TRY(wf_jeval(r, named ? a->a : a, scope, &value[i]));
    }
    return spread(r, n, args, value);
}

/* The callee is evaluated before its arguments, as in Python. */
static wf_status eval_call(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    wf_jvalue callee;
    wf_jargs args;
    WF_TRY(wf_jeval(r, n->a, scope, &callee));
    WF_TRY(eval_args(r, n, scope, &args));
    r->line = n->line;
    return wf_jcall(r, callee, &args, out);
}

/* Applies a filter or a test. */
static wf_status eval_applied(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    bool filter = n->kind == WF_JN_FILTER;
    const wf_jrow *row = filter ? wf_jfilter_find(n->text) : wf_jtest_find(n->text);
    wf_jvalue self;
    wf_jargs args;
    if (!row)
        return wf_jrun_fail(r, "unknown %s '%.*s'", filter ? "filter" : "test",
                            (int)(n->text->bytes < 80 ? n->text->bytes : 80), n->text->text);
    WF_TRY(wf_jeval(r, n->a, scope, &self));
    WF_TRY(eval_args(r, n, scope, &args));
    r->line = n->line;
    WF_TRY(wf_jrow_call(r, row, self, &args, out));
    /* op negates a test; filters have op 0. */
    if (n->op)
        *out = wf_jbool(!wf_jtruth(out));
    return WF_OK;
}

/* ---- Attributes and items ---- */

wf_status wf_jfunc_new(wf_jrun *r, const wf_jrow *row, wf_jvalue self, wf_jvalue *out)
{
    wf_jfunc *func = wf_jrun_alloc(r, 1, sizeof *func);
    if (!func)
        return wf_jrun_failed(r);
    *func = (wf_jfunc){.row = row, .self = self};
    *out = (wf_jvalue){.kind = WF_J_FUNC, .u.func = func};
    return WF_OK;
}

/* Methods win over keys of the same name, as in Jinja: d.items is the method. A missing attribute
 * is undefined, not an error; an attribute of an undefined value is one. */
wf_status wf_jget_attr(wf_jrun *r, wf_jvalue object, const wf_jstr *name, wf_jvalue *out)
{
    if (object.kind == WF_J_UNDEFINED)
        return not_defined(r, object);
    if (object.kind == WF_J_LOOP)
        return wf_jloop_attr(r, object.u.loop, name, out);
    const wf_jrow *method = wf_jmethod_find(object.kind, name);
    if (method)
        return wf_jfunc_new(r, method, object, out);
    *out = wf_jundefined(name);
    if (object.kind == WF_J_DICT || object.kind == WF_J_NAMESPACE) {
        wf_jentry *e;
        WF_TRY(wf_jdict_find_text(r, object.u.dict, name->text, name->bytes, &e));
        if (e)
            *out = e->value;
    } else if (object.kind == WF_J_MACRO && wf_jstr_is(name, "name") &&
               object.u.macro->node->text) {
        *out = wf_jstring(object.u.macro->node->text);
    }
    return WF_OK;
}

/* Resolves an index, which may be negative; false: out of range. */
static bool place(wf_jvalue index, size_t count, size_t *out)
{
    int64_t at = wf_jint_of(&index);
    /* Cannot overflow: at is negative and count is not. */
    if (at < 0)
        at += (int64_t)count;
    *out = (size_t)at;
    return at >= 0 && *out < count;
}

/* Leaves *out, which is undefined, unchanged if the index is out of range. */
static wf_status char_at(wf_jrun *r, const wf_jstr *s, wf_jvalue index, wf_jvalue *out)
{
    size_t at;
    WF_TRY(wf_jrun_step_bytes(r, s->bytes));
    if (!place(index, wf_jstr_chars(s), &at))
        return WF_OK;
    size_t from = wf_jstr_offset(s, at);
    size_t length = wf_utf8_next(s->text + from, s->bytes - from, NULL);
    return wf_jstr_new(r, wf_jstr_part(s, from, from + length), out);
}

/* Falls back to an attribute for string indices, as Jinja does: d["items"] is the method if the
 * dict has no such key. */
wf_status wf_jget_item(wf_jrun *r, wf_jvalue object, wf_jvalue index, wf_jvalue *out)
{
    static const wf_jstr nameless = {.text = "item", .bytes = 4};
    size_t at;
    if (object.kind == WF_J_UNDEFINED)
        return not_defined(r, object);
    *out = wf_jundefined(index.kind == WF_J_STRING ? index.u.str : &nameless);
    if (object.kind == WF_J_DICT && index.kind != WF_J_LIST && index.kind != WF_J_DICT) {
        wf_jentry *e;
        WF_TRY(wf_jdict_find(r, object.u.dict, index, &e));
        if (e) {
            *out = e->value;
            return WF_OK;
        }
    } else if (wf_jis_int(&index) && wf_jis_indexed(&object)) {
        if (place(index, object.u.seq->count, &at))
            *out = object.u.seq->item[at];
        return WF_OK;
    } else if (wf_jis_int(&index) && object.kind == WF_J_STRING) {
        return char_at(r, object.u.str, index, out);
    }
    if (index.kind == WF_J_STRING)
        return wf_jget_attr(r, object, index.u.str, out);
    return WF_OK;
}

/* Sets the bounds of a slice of a range, which is a range: the values at the bounds of the slice, as
 * in Python, where they can exceed 64 bits. */
static wf_status set_range(wf_jrun *r, const int64_t of[3], const wf_jslice *slice, int64_t step,
                           int64_t out[3])
{
    const int64_t at[2] = {slice->first, slice->stop};
    bool fits = wf_mul_i64(of[2], step, &out[2]);
    for (int i = 0; i < 2; i++)
        fits = fits && wf_mul_i64(at[i], of[2], &out[i]) && wf_add_i64(of[0], out[i], &out[i]);
    return fits ? WF_OK : wf_jrun_fail(r, "a number is too large");
}

/* Slices strings by characters; lists, tuples and ranges by items. */
wf_status wf_jget_slice(wf_jrun *r, wf_jvalue object, const wf_jvalue part[3], wf_jvalue *out)
{
    if (object.kind == WF_J_UNDEFINED)
        return not_defined(r, object);
    if (object.kind == WF_J_STRING)
        return wf_jstr_slice(r, object.u.str, part, out);
    if (!wf_jis_indexed(&object))
        return wf_jrun_fail(r, "a %s cannot be sliced", wf_jkind_name(object.kind));
    wf_jslice slice;
    WF_TRY(wf_jslice_plan(r, part, object.u.seq->count, &slice));
    WF_TRY(wf_jseq_new(r, object.kind, slice.n, out));
    int64_t at = slice.first;
    for (size_t i = 0; i < slice.n; i++, at += slice.step)
        WF_TRY(wf_jseq_push(r, out->u.seq, object.u.seq->item[at]));
    if (object.kind != WF_J_RANGE)
        return WF_OK;
    int64_t step = wf_jis_int(&part[2]) ? wf_jint_of(&part[2]) : 1;
    return set_range(r, object.u.seq->range, &slice, step, out->u.seq->range);
}

static wf_status eval_item(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    wf_jvalue object, index, part[3] = {{.kind = WF_J_ABSENT}};
    WF_TRY(wf_jeval(r, n->a, scope, &object));
    if (n->b->kind != WF_JN_SLICE) {
        WF_TRY(wf_jeval(r, n->b, scope, &index));
        r->line = n->line;
        return wf_jget_item(r, object, index, out);
    }
    for (int i = 0; i < 3; i++)
        if (n->b->list[i])
            WF_TRY(wf_jeval(r, n->b->list[i], scope, &part[i]));
    r->line = n->line;
    return wf_jget_slice(r, object, part, out);
}

/* ---- Operators ---- */

/* Folds the list from the left; all operators of one level have equal precedence. */
static wf_status eval_math(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    WF_TRY(wf_jeval(r, n->list[0], scope, out));
    for (size_t i = 1; i < n->count; i++) {
        wf_jvalue b;
        WF_TRY(wf_jeval(r, n->list[i], scope, &b));
        r->line = n->line;
        WF_TRY(wf_jmath(r, n->ops[i - 1], *out, b, out));
    }
    return WF_OK;
}

/* The operator ~: converts every operand to a string. Appending in place (wf_jstr_concat) keeps a
 * long chain linear. */
static wf_status eval_concat(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    const wf_jstr *a, *b;
    WF_TRY(wf_jeval(r, n->list[0], scope, out));
    WF_TRY(wf_jstr_of(r, *out, &a));
    for (size_t i = 1; i < n->count; i++) {
        WF_TRY(wf_jeval(r, n->list[i], scope, out));
        WF_TRY(wf_jstr_of(r, *out, &b));
        WF_TRY(wf_jstr_concat(r, a, b, out));
        a = out->u.str;
    }
    return WF_OK;
}

/* One comparison. Equality works for all kinds; an order exists only within numbers, strings, lists
 * and tuples. */
static wf_status compare(wf_jrun *r, int op, wf_jvalue a, wf_jvalue b, bool *out)
{
    int order;
    if (op == WF_J_OP('=', '=') || op == WF_J_OP('!', '=')) {
        WF_TRY(wf_jequal(r, a, b, out));
        *out = *out == (op == WF_J_OP('=', '='));
        return WF_OK;
    }
    if (op == WF_J_OP_IN || op == WF_J_OP_NOT_IN) {
        WF_TRY(wf_jcontains(r, b, a, out));
        *out = *out == (op == WF_J_OP_IN);
        return WF_OK;
    }
    WF_TRY(wf_jorder(r, a, b, &order));
    switch (op) {
    case '<': *out = order < 0; break;
    case '>': *out = order > 0; break;
    case WF_J_OP('<', '='): *out = order <= 0; break;
    default: *out = order >= 0; break;
    }
    return WF_OK;
}

/* a < b < c evaluates b once and stops at the first comparison that is false. */
static wf_status eval_compare(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    wf_jvalue a, b;
    bool holds = true;
    WF_TRY(wf_jeval(r, n->list[0], scope, &a));
    for (size_t i = 1; holds && i < n->count; i++, a = b) {
        WF_TRY(wf_jeval(r, n->list[i], scope, &b));
        r->line = n->line;
        WF_TRY(compare(r, n->ops[i - 1], a, b, &holds));
    }
    *out = wf_jbool(holds);
    return WF_OK;
}

/* Evaluates `and` and `or`: the result is the operand that decides. */
static wf_status eval_joined(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    for (size_t i = 0; i < n->count; i++) {
        WF_TRY(wf_jeval(r, n->list[i], scope, out));
        if (wf_jtruth(out) == (n->kind == WF_JN_OR))
            break;
    }
    return WF_OK;
}

/* -x is 0 - x for integers, which fails for INT64_MIN instead of overflowing. */
static wf_status eval_sign(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    WF_TRY(wf_jeval(r, n->a, scope, out));
    if (!wf_jis_number(out))
        return wf_jrun_fail(r, "a %s cannot have a sign", wf_jkind_name(out->kind));
    if (out->kind == WF_J_FLOAT) {
        *out = wf_jfloat(n->op == '-' ? -out->u.number : out->u.number);
        return WF_OK;
    }
    if (n->op == '-')
        return wf_jmath(r, '-', wf_jint(0), *out, out);
    *out = wf_jint(wf_jint_of(out));
    return WF_OK;
}

/* An if without else is undefined, which prints as nothing. */
static wf_status eval_cond(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    static const wf_jstr name = {.text = "an if without else", .bytes = 18};
    wf_jvalue test;
    WF_TRY(wf_jeval(r, n->a, scope, &test));
    const wf_jnode *taken = wf_jtruth(&test) ? n->b : n->c;
    if (taken)
        return wf_jeval(r, taken, scope, out);
    *out = wf_jundefined(&name);
    return WF_OK;
}

/* ---- Literals ---- */

static wf_status eval_list(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    wf_jkind kind = n->kind == WF_JN_LIST ? WF_J_LIST : WF_J_TUPLE;
    wf_jvalue made, item;
    WF_TRY(wf_jseq_new(r, kind, n->count, &made));
    for (size_t i = 0; i < n->count; i++) {
        if (n->list[i]->kind == WF_JN_SLICE)
            return wf_jrun_fail(r, "a slice cannot be part of a tuple index");
        WF_TRY(wf_jeval(r, n->list[i], scope, &item));
        WF_TRY(wf_jseq_push(r, made.u.seq, item));
    }
    *out = made;
    return WF_OK;
}

static wf_status eval_dict(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    wf_jvalue made, key, value;
    WF_TRY(wf_jdict_new(r, WF_J_DICT, &made));
    for (size_t i = 0; i + 1 < n->count; i += 2) {
        WF_TRY(wf_jeval(r, n->list[i], scope, &key));
        WF_TRY(wf_jeval(r, n->list[i + 1], scope, &value));
        /* The last of equal keys wins. */
        WF_TRY(wf_jdict_set(r, made.u.dict, key, value));
    }
    *out = made;
    return WF_OK;
}

static wf_status eval_const(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    (void)r, (void)scope;
    *out = n->value;
    return WF_OK;
}

static wf_status eval_name(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    return wf_jscope_get(r, scope, n->text, out);
}

static wf_status eval_attr(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    wf_jvalue object;
    WF_TRY(wf_jeval(r, n->a, scope, &object));
    r->line = n->line;
    return wf_jget_attr(r, object, n->text, out);
}

static wf_status eval_not(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    WF_TRY(wf_jeval(r, n->a, scope, out));
    *out = wf_jbool(!wf_jtruth(out));
    return WF_OK;
}

static wf_status eval_input(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    (void)n, (void)scope;
    *out = r->input;
    return WF_OK;
}

/* Evaluates one node into *out. *out may be any value on failure. */
wf_status wf_jeval(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    static wf_status (*const eval[])(wf_jrun *, const wf_jnode *, wf_jscope *, wf_jvalue *) = {
        [WF_JN_CONST] = eval_const,  [WF_JN_NAME] = eval_name,     [WF_JN_LIST] = eval_list,
        [WF_JN_TUPLE] = eval_list,   [WF_JN_DICT] = eval_dict,     [WF_JN_ATTR] = eval_attr,
        [WF_JN_ITEM] = eval_item,    [WF_JN_CALL] = eval_call,     [WF_JN_FILTER] = eval_applied,
        [WF_JN_TEST] = eval_applied, [WF_JN_NOT] = eval_not,       [WF_JN_SIGN] = eval_sign,
        [WF_JN_MATH] = eval_math,    [WF_JN_CONCAT] = eval_concat, [WF_JN_COMPARE] = eval_compare,
        [WF_JN_AND] = eval_joined,   [WF_JN_OR] = eval_joined,     [WF_JN_COND] = eval_cond,
        [WF_JN_INPUT] = eval_input,
    };
    WF_TRY(wf_jrun_enter(r));
    r->line = n->line;
    wf_assert(n->kind < sizeof eval / sizeof *eval && eval[n->kind]);
    WF_TRY(eval[n->kind](r, n, scope, out));
    wf_jrun_leave(r);
    return WF_OK;
}
