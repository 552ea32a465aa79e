/* SPDX-License-Identifier: MIT */
/*
 * exec.c - executes statements, loops and macros.
 *
 * Statements append to a wf_jbuf: the template's output, or a buffer of their own when it is
 * captured (macros, set and filter blocks). Scopes: loops (per item), macros, with, generation and
 * captured blocks create one; if does not.
 *
 * break and continue travel up as *f: a block stops when *f is no longer GO_ON, and the innermost
 * loop resets it.
 */
#include "text/jinja/run.h"
#include "text/jinja/string.h"

typedef enum { GO_ON, BREAK, CONTINUE } flow;

static wf_status exec(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f);

/* Runs a body in its own scope and returns its output as a string. */
static wf_status capture(wf_jrun *r, const wf_jnode *body, wf_jscope *parent, flow *f,
                         wf_jvalue *out)
{
    wf_jbuf b = {0};
    wf_jscope *scope;
    WF_TRY(wf_jscope_new(r, parent, &scope));
    WF_TRY(exec(r, body, scope, &b, f));
    return wf_jbuf_take(r, &b, out);
}

/* Applies the filters of a block to its captured output, which WF_JN_INPUT reads from r->input.
 * Filters can run blocks of macros, so the previous input is restored. */
static wf_status filter_captured(wf_jrun *r, const wf_jnode *filters, wf_jscope *scope,
                                 wf_jvalue captured, wf_jvalue *out)
{
    wf_jvalue before = r->input;
    r->input = captured;
    WF_TRY(wf_jeval(r, filters, scope, out));
    r->input = before;
    return WF_OK;
}

/* ---- Assignments ---- */

/* Binds a name, an attribute of a namespace, or each name of a tuple. Only namespaces can be
 * changed from an inner scope. */
static wf_status assign(wf_jrun *r, const wf_jnode *target, wf_jvalue value, wf_jscope *scope)
{
    if (target->kind == WF_JN_NAME)
        return wf_jscope_set(r, scope, target->text, value);
    if (target->kind == WF_JN_ATTR) {
        wf_jvalue object;
        WF_TRY(wf_jscope_get(r, scope, target->a->text, &object));
        if (object.kind != WF_J_NAMESPACE)
            return wf_jrun_fail(r, "cannot assign to an attribute of a %s; use a namespace",
                                wf_jkind_name(object.kind));
        return wf_jdict_set(r, object.u.dict, wf_jstring(target->text), value);
    }
    wf_jseq *items;
    WF_TRY(wf_jwalk(r, value, &items));
    if (items->count != target->count)
        return wf_jrun_fail(r, "cannot unpack %zu values into %zu names", items->count,
                            target->count);
    WF_TRY(wf_jrun_enter(r));
    for (size_t i = 0; i < target->count; i++)
        WF_TRY(assign(r, target->list[i], items->item[i], scope));
    wf_jrun_leave(r);
    return WF_OK;
}

/* ---- Loops ---- */

/* Runs the body for one item, in its own scope. */
static wf_status run_item(wf_jrun *r, wf_jloop *loop, wf_jbuf *b, flow *f)
{
    static const wf_jstr name = {.text = "loop", .bytes = 4};
    wf_jscope *scope;
    WF_TRY(wf_jscope_new(r, loop->scope, &scope));
    WF_TRY(wf_jscope_set(r, scope, &name, (wf_jvalue){.kind = WF_J_LOOP, .u.loop = loop}));
    WF_TRY(assign(r, loop->node->a, loop->items->item[loop->index], scope));
    return exec(r, loop->node->body, scope, b, f);
}

/* Tests items with the loop's `if` until `wanted` of them are admitted, or no item is left. As in
 * jinja2, the test runs as late as possible, because the body may change its operands. */
static wf_status take_items(wf_jrun *r, wf_jloop *loop, size_t wanted)
{
    while (loop->items->count < wanted && loop->taken < loop->from->count) {
        wf_jvalue item = loop->from->item[loop->taken++], test;
        wf_jscope *scope;
        WF_TRY(wf_jscope_new(r, loop->scope, &scope));
        WF_TRY(assign(r, loop->node->a, item, scope));
        WF_TRY(wf_jeval(r, loop->node->list[0], scope, &test));
        if (wf_jtruth(&test))
            WF_TRY(wf_jseq_push(r, loop->items, item));
    }
    return WF_OK;
}

/* Sets the items of a loop: all, or none yet if the loop has an `if`. */
static wf_status begin_items(wf_jrun *r, wf_jloop *loop, wf_jvalue over)
{
    wf_jvalue kept;
    WF_TRY(wf_jwalk(r, over, &loop->from));
    loop->items = loop->from;
    loop->taken = loop->from->count;
    if (loop->node->count == 0)
        return WF_OK;
    WF_TRY(wf_jseq_new(r, WF_J_LIST, 0, &kept));
    loop->items = kept.u.seq;
    loop->taken = 0;
    return take_items(r, loop, 1);
}

/* Runs the loop into b; the else body runs if there was no item. Items appended to the list by the
 * body are visited, as in Python. */
static wf_status run_loop(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue over,
                          int depth, wf_jbuf *b)
{
    wf_jloop *loop = wf_jrun_alloc(r, 1, sizeof *loop);
    if (!loop)
        return wf_jrun_failed(r);
    *loop = (wf_jloop){.node = n, .scope = scope, .depth = depth};
    WF_TRY(begin_items(r, loop, over));
    flow f = GO_ON;
    bool any = false;
    while (loop->index < loop->items->count) {
        any = true;
        f = GO_ON;
        WF_TRY(wf_jrun_step(r, 1));
        WF_TRY(run_item(r, loop, b, &f));
        if (f == BREAK)
            break;
        /* After the body: an `if` that depends on variables of the body sees their new values. */
        loop->index++;
        WF_TRY(take_items(r, loop, loop->index + 1));
    }
    if (any || !n->c)
        return WF_OK;
    wf_jscope *inner;
    WF_TRY(wf_jscope_new(r, scope, &inner));
    return exec(r, n->c, inner, b, &f);
}

/* Enforces the limit of nested macro and loop calls. */
static wf_status enter_call(wf_jrun *r)
{
    if (r->calls >= r->max_calls)
        return wf_jrun_fail(r, "the template nests calls more than %d deep", r->max_calls);
    r->calls++;
    return WF_OK;
}

wf_status wf_jloop_call(wf_jrun *r, wf_jloop *loop, const wf_jargs *args, wf_jvalue *out)
{
    wf_jbuf b = {0};
    if (!loop->node->op)
        return wf_jrun_fail(r, "only a loop with 'recursive' in its for tag can be called");
    if (args->npos != 1 || args->nnamed)
        return wf_jrun_fail(r, "loop() takes one argument");
    WF_TRY(enter_call(r));
    WF_TRY(run_loop(r, loop->node, loop->scope, args->pos[0], loop->depth + 1, &b));
    r->calls--;
    return wf_jbuf_take(r, &b, out);
}

/* Returns its arguments in turn, by the index of the loop. */
static wf_status loop_cycle(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg, const wf_jargs *args,
                            wf_jvalue *out)
{
    (void)arg;
    if (args->npos == 0)
        return wf_jrun_fail(r, "loop.cycle() needs an argument");
    *out = args->pos[self.u.loop->index % args->npos];
    return WF_OK;
}

/* Returns whether the arguments differ from those of the previous call. */
static wf_status loop_changed(wf_jrun *r, wf_jvalue self, const wf_jvalue *arg,
                              const wf_jargs *args, wf_jvalue *out)
{
    wf_jvalue now;
    bool same = false;
    (void)arg;
    WF_TRY(wf_jseq_new(r, WF_J_TUPLE, args->npos, &now));
    for (size_t i = 0; i < args->npos; i++)
        WF_TRY(wf_jseq_push(r, now.u.seq, args->pos[i]));
    WF_TRY(wf_jequal(r, now, self.u.loop->last, &same));
    self.u.loop->last = now;
    *out = wf_jbool(!same);
    return WF_OK;
}

/* Attributes that look ahead force the loop's `if` to test further items; length needs all of
 * them. */
wf_status wf_jloop_attr(wf_jrun *r, wf_jloop *loop, const wf_jstr *name, wf_jvalue *out)
{
    static const wf_jrow methods[] = {{"cycle", loop_cycle, "*", 0},
                                      {"changed", loop_changed, "*", 0}};
    if (wf_jstr_is(name, "last") || wf_jstr_is(name, "nextitem"))
        WF_TRY(take_items(r, loop, loop->index + 2));
    if (wf_jstr_is(name, "length") || wf_jstr_is(name, "revindex") || wf_jstr_is(name, "revindex0"))
        WF_TRY(take_items(r, loop, SIZE_MAX));
    /* n: the items admitted so far. The attributes that depend on it have admitted more above. */
    int64_t i = (int64_t)loop->index, n = (int64_t)loop->items->count;
    const struct {
        const char *name;
        wf_jvalue value;
    } known[] = {
        {"index", wf_jint(i + 1)},
        {"index0", wf_jint(i)},
        {"first", wf_jbool(i == 0)},
        {"last", wf_jbool(i + 1 == n)},
        {"length", wf_jint(n)},
        {"revindex", wf_jint(n - i)},
        {"revindex0", wf_jint(n - i - 1)},
        {"depth", wf_jint(loop->depth + 1)},
        {"depth0", wf_jint(loop->depth)},
    };
    for (size_t k = 0; k < sizeof known / sizeof *known; k++)
        if (wf_jstr_is(name, known[k].name)) {
            *out = known[k].value;
            return WF_OK;
        }
    *out = wf_jundefined(name);
    if (wf_jstr_is(name, "previtem") && i > 0)
        *out = loop->items->item[i - 1];
    if (wf_jstr_is(name, "nextitem") && i + 1 < n)
        *out = loop->items->item[i + 1];
    const wf_jrow *method = wf_jrow_find(methods, sizeof methods / sizeof *methods, name);
    if (method)
        return wf_jfunc_new(r, method, (wf_jvalue){.kind = WF_J_LOOP, .u.loop = loop}, out);
    return WF_OK;
}

/* ---- Macros ---- */

static const wf_jstr name_caller = {.text = "caller", .bytes = 6};
static const wf_jstr name_kwargs = {.text = "kwargs", .bytes = 6};
static const wf_jstr name_varargs = {.text = "varargs", .bytes = 7};

/* Skips arguments whose name was cleared, because a parameter used them. *out is NULL when the name
 * was not given. */
static wf_status find_named(wf_jrun *r, const wf_jargs *args, const wf_jstr *name, wf_jvar **out)
{
    bool same = false;
    *out = NULL;
    WF_TRY(wf_jrun_step_items(r, args->nnamed));
    for (size_t i = 0; i < args->nnamed && !same; i++) {
        if (args->named[i].name)
            WF_TRY(wf_jstr_same(r, args->named[i].name, name, &same));
        if (same)
            *out = &args->named[i];
    }
    return WF_OK;
}

/* Sets the parameters from the arguments or their defaults. Clears the names of named arguments
 * that were used. */
static wf_status bind_parameters(wf_jrun *r, const wf_jnode *n, const wf_jargs *args,
                                 wf_jscope *scope)
{
    for (size_t i = 0; i < n->count; i++) {
        const wf_jnode *param = n->list[i];
        wf_jvar *named = NULL;
        wf_jvalue value = wf_jundefined(param->text);
        if (i >= args->npos)
            WF_TRY(find_named(r, args, param->text, &named));
        if (i < args->npos)
            value = args->pos[i];
        else if (named)
            value = named->value;
        else if (param->a)
            /* In the macro's scope: a default can use the parameters before it. */
            WF_TRY(wf_jeval(r, param->a, scope, &value));
        if (named)
            named->name = NULL;
        WF_TRY(wf_jscope_set(r, scope, param->text, value));
    }
    return WF_OK;
}

/* Sets caller, kwargs and varargs if the body uses them; otherwise extra arguments are an error. */
static wf_status bind_rest(wf_jrun *r, const wf_jnode *n, const wf_jargs *args, wf_jscope *scope)
{
    wf_jvalue rest, caller = wf_jundefined(&name_caller);
    wf_jvar *named;
    WF_TRY(find_named(r, args, &name_caller, &named));
    if ((n->op & WF_J_USES_CALLER) && named) {
        caller = named->value;
        named->name = NULL;
    }
    if (n->op & WF_J_USES_CALLER)
        WF_TRY(wf_jscope_set(r, scope, &name_caller, caller));
    WF_TRY(wf_jdict_new(r, WF_J_DICT, &rest));
    for (size_t i = 0; i < args->nnamed; i++)
        if (args->named[i].name)
            WF_TRY(wf_jdict_push(r, rest.u.dict, wf_jstring(args->named[i].name),
                                 args->named[i].value));
    /* `rest` is built in any case; it is empty unless there are extra arguments. */
    if (n->op & WF_J_USES_KWARGS)
        WF_TRY(wf_jscope_set(r, scope, &name_kwargs, rest));
    else if (rest.u.dict->count)
        return wf_jrun_fail(r, "a macro got a named argument that it does not have");
    WF_TRY(wf_jseq_new(r, WF_J_TUPLE, 0, &rest));
    for (size_t i = n->count; i < args->npos; i++)
        WF_TRY(wf_jseq_push(r, rest.u.seq, args->pos[i]));
    if (n->op & WF_J_USES_VARARGS)
        return wf_jscope_set(r, scope, &name_varargs, rest);
    if (rest.u.seq->count)
        return wf_jrun_fail(r, "a macro takes %zu arguments, but got %zu", n->count, args->npos);
    return WF_OK;
}

/* A macro sees the scope in which it was defined, not that of its caller. Its output is its
 * value. */
wf_status wf_jmacro_call(wf_jrun *r, const wf_jmacro *macro, const wf_jargs *args, wf_jvalue *out)
{
    wf_jbuf b = {0};
    flow f = GO_ON;
    wf_jscope *scope;
    WF_TRY(enter_call(r));
    WF_TRY(wf_jscope_new(r, macro->scope, &scope));
    WF_TRY(bind_parameters(r, macro->node, args, scope));
    WF_TRY(bind_rest(r, macro->node, args, scope));
    WF_TRY(exec(r, macro->node->body, scope, &b, &f));
    r->calls--;
    return wf_jbuf_take(r, &b, out);
}

static wf_status make_macro(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jvalue *out)
{
    wf_jmacro *macro = wf_jrun_alloc(r, 1, sizeof *macro);
    if (!macro)
        return wf_jrun_failed(r);
    *macro = (wf_jmacro){.node = n, .scope = scope};
    *out = (wf_jvalue){.kind = WF_J_MACRO, .u.macro = macro};
    return WF_OK;
}

/* ---- Statements ---- */

static wf_status exec_data(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f)
{
    (void)scope, (void)f;
    return wf_jbuf_str(r, b, n->value.u.str);
}

static wf_status exec_print(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f)
{
    wf_jvalue v;
    (void)f;
    WF_TRY(wf_jeval(r, n->a, scope, &v));
    return wf_jprint(r, b, v);
}

static wf_status exec_block(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f)
{
    for (size_t i = 0; i < n->count && *f == GO_ON; i++)
        WF_TRY(exec(r, n->list[i], scope, b, f));
    return WF_OK;
}

static wf_status exec_if(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f)
{
    /* list[]: test, body, test, body, ...; n->c is the else body. */
    for (size_t i = 0; i + 1 < n->count; i += 2) {
        wf_jvalue test;
        WF_TRY(wf_jeval(r, n->list[i], scope, &test));
        if (wf_jtruth(&test))
            return exec(r, n->list[i + 1], scope, b, f);
    }
    return n->c ? exec(r, n->c, scope, b, f) : WF_OK;
}

static wf_status exec_for(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f)
{
    wf_jvalue over;
    (void)f;
    WF_TRY(wf_jeval(r, n->b, scope, &over));
    return run_loop(r, n, scope, over, 0, b);
}

static wf_status exec_set(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f)
{
    wf_jvalue v;
    (void)b, (void)f;
    WF_TRY(wf_jeval(r, n->b, scope, &v));
    return assign(r, n->a, v, scope);
}

/* A break inside the block drops the captured output. */
static wf_status exec_set_block(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b,
                                flow *f)
{
    wf_jvalue v;
    (void)b;
    WF_TRY(capture(r, n->body, scope, f, &v));
    if (*f != GO_ON)
        return WF_OK;
    WF_TRY(filter_captured(r, n->b, scope, v, &v));
    return assign(r, n->a, v, scope);
}

static wf_status exec_macro(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f)
{
    wf_jvalue v;
    (void)b, (void)f;
    WF_TRY(make_macro(r, n, scope, &v));
    return wf_jscope_set(r, scope, n->text, v);
}

/* Executes the call with the additional argument `caller`, a macro made of the block's body. The
 * call node is copied to append that argument, because the tree is shared. The nodes on the stack
 * are read only during wf_jeval. */
static wf_status exec_call_block(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b,
                                 flow *f)
{
    wf_jvalue caller, v;
    wf_jscope *inner;
    (void)f;
    WF_TRY(make_macro(r, n, scope, &caller));
    WF_TRY(wf_jscope_new(r, scope, &inner));
    WF_TRY(wf_jscope_set(r, inner, &name_caller, caller));
    const wf_jnode name = {.kind = WF_JN_NAME, .line = n->line, .text = &name_caller};
    const wf_jnode keyword = {
        .kind = WF_JN_KEYWORD, .line = n->line, .text = &name_caller, .a = &name};
    wf_jnode call = *n->a;
    call.list = wf_jrun_alloc(r, call.count + 1, sizeof *call.list);
    if (!call.list)
        return wf_jrun_failed(r);
    for (size_t i = 0; i < call.count; i++)
        call.list[i] = n->a->list[i];
    call.list[call.count++] = &keyword;
    WF_TRY(wf_jeval(r, &call, inner, &v));
    return wf_jprint(r, b, v);
}

static wf_status exec_filter_block(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b,
                                   flow *f)
{
    wf_jvalue v;
    WF_TRY(capture(r, n->body, scope, f, &v));
    if (*f != GO_ON)
        return WF_OK;
    WF_TRY(filter_captured(r, n->b, scope, v, &v));
    return wf_jprint(r, b, v);
}

/* Values are evaluated in the outer scope, so they do not see each other's targets. */
static wf_status exec_with(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f)
{
    wf_jscope *inner;
    WF_TRY(wf_jscope_new(r, scope, &inner));
    for (size_t i = 0; i + 1 < n->count; i += 2) {
        wf_jvalue v;
        WF_TRY(wf_jeval(r, n->list[i + 1], scope, &v));
        WF_TRY(assign(r, n->list[i], v, inner));
    }
    return exec(r, n->body, inner, b, f);
}

/* Marks all bytes that the block wrote; their other marks stay. */
static wf_status exec_generation(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b,
                                 flow *f)
{
    wf_jscope *inner;
    size_t from = b->used;
    WF_TRY(wf_jscope_new(r, scope, &inner));
    WF_TRY(exec(r, n->body, inner, b, f));
    WF_TRY(wf_jrun_step_bytes(r, b->used - from));
    for (size_t i = from; i < b->used; i++)
        b->mark[i] |= WF_J_GENERATED;
    return WF_OK;
}

static wf_status exec_jump(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f)
{
    (void)r, (void)scope, (void)b;
    *f = n->kind == WF_JN_BREAK ? BREAK : CONTINUE;
    return WF_OK;
}

/* Runs one statement. Returns with *f set when a break or continue was met. */
static wf_status exec(wf_jrun *r, const wf_jnode *n, wf_jscope *scope, wf_jbuf *b, flow *f)
{
    static wf_status (*const run[])(wf_jrun *, const wf_jnode *, wf_jscope *, wf_jbuf *, flow *) = {
        [WF_JN_DATA] = exec_data,
        [WF_JN_PRINT] = exec_print,
        [WF_JN_BLOCK] = exec_block,
        [WF_JN_IF] = exec_if,
        [WF_JN_FOR] = exec_for,
        [WF_JN_SET] = exec_set,
        [WF_JN_SET_BLOCK] = exec_set_block,
        [WF_JN_MACRO] = exec_macro,
        [WF_JN_CALL_BLOCK] = exec_call_block,
        [WF_JN_FILTER_BLOCK] = exec_filter_block,
        [WF_JN_WITH] = exec_with,
        [WF_JN_GENERATION] = exec_generation,
        [WF_JN_BREAK] = exec_jump,
        [WF_JN_CONTINUE] = exec_jump,
    };
    WF_TRY(wf_jrun_enter(r));
    r->line = n->line;
    wf_assert(n->kind < sizeof run / sizeof *run && run[n->kind]);
    WF_TRY(run[n->kind](r, n, scope, b, f));
    wf_jrun_leave(r);
    return WF_OK;
}

wf_status wf_jexec(wf_jrun *r, const wf_jnode *n, wf_jscope *scope)
{
    flow f = GO_ON;
    return exec(r, n, scope, &r->out, &f);
}
